"""Measured values: cheap enough for every call; not thread-safe."""

from bisect import bisect_left
from collections.abc import Sequence

#: Upper bounds in seconds, from the duration of an in-process call to the longest that a caller
#: waits.
SECONDS_BOUNDS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)


class Tally:
    """The number of events, and the sum of their values."""

    __slots__ = ("count", "total")

    def __init__(self, count: int = 0, total: float = 0.0) -> None:
        self.count = count
        self.total = total

    def add(self, value: float) -> None:
        """Add an event."""
        self.count += 1
        self.total += value

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.count + other.count, self.total + other.total)


class Distribution:
    """A ``Tally`` with the number of events up to each of several bounds.

    Args:
        bounds: Ascending; larger values are counted separately.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = SECONDS_BOUNDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Add an event."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """The number of events."""
        return sum(self.counts)
