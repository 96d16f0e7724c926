"""The rate of a task's records over the last minute."""

from collections import deque

_WINDOW_MS = 60_000
_SAMPLE_MS = 1_000


class RecordRate:
    """Samples of a count that only increases, at most one a second."""

    def __init__(self) -> None:
        #: Time and count, oldest first; one sample may be older than the window.
        self._samples: deque[tuple[int, int]] = deque()
        self._count = 0

    def add(self, now_ms: int, count: int) -> None:
        """Note the present count."""
        self._count = count
        if not self._samples or now_ms - self._samples[-1][0] >= _SAMPLE_MS:
            self._samples.append((now_ms, count))
        self._drop_old(now_ms)

    def per_s(self, now_ms: int) -> float:
        """The records per second over the last minute, or since the first sample."""
        self._drop_old(now_ms)
        if not self._samples:
            return 0.0
        since_ms, before = self._samples[0]
        return (self._count - before) / (max(now_ms - since_ms, _SAMPLE_MS) / 1000)

    def _drop_old(self, now_ms: int) -> None:
        while len(self._samples) > 1 and self._samples[1][0] <= now_ms - _WINDOW_MS:
            self._samples.popleft()
        if not self._samples:
            return
        start_ms, (first_ms, count) = now_ms - _WINDOW_MS, self._samples[0]
        next_ms = self._samples[1][0] if len(self._samples) > 1 else now_ms
        # without reports the count stayed the same until the next sample
        if first_ms < start_ms and next_ms - first_ms > 2 * _SAMPLE_MS:
            self._samples[0] = (start_ms, count)
