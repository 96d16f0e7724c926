"""How long a source that has nothing waits before it is polled again."""

#: A pause is that part of the time since the last data: what comes regularly is hardly late, and
#: what is idle for long is seldom asked.
_PART = 0.1


class IdlePauses:
    """Pauses of ``first_s`` at least and ``longest_s`` at most."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._idle_since_s: float | None = None

    def next_pause_s(self, now_s: float) -> float:
        """How long to wait after a poll that gave nothing."""
        if self._idle_since_s is None:
            self._idle_since_s = now_s
        wanted_s = _PART * (now_s - self._idle_since_s)
        return min(max(wanted_s, self._first_s), self._longest_s)

    def reset(self, now_s: float) -> None:
        """There was data."""
        self._idle_since_s = now_s
