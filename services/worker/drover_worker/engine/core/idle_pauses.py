"""How long a source without data waits before its next poll."""

#: The pause as a fraction of the time since the last data: frequent data is read with little
#: delay, and a source that is idle for long is polled rarely.
_PART = 0.1


class IdlePauses:
    """Pauses from ``first_s`` up to ``longest_s``."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._idle_since_s: float | None = None

    def next_pause_s(self, now_s: float) -> float:
        """How long to wait after an empty poll."""
        if self._idle_since_s is None:
            self._idle_since_s = now_s
        wanted_s = _PART * (now_s - self._idle_since_s)
        return min(max(wanted_s, self._first_s), self._longest_s)

    def reset(self, now_s: float) -> None:
        """Record that a poll returned data."""
        self._idle_since_s = now_s
