"""Numbers that are measured as things happen: cheap enough for every call; for one thread."""

from bisect import bisect_left
from collections.abc import Sequence

#: Upper bounds in seconds, from what an in-process answer takes to what a caller waits at most.
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
    """How often something happened, and how much it took in all."""

    __slots__ = ("count", "total")

    def __init__(self, count: int = 0, total: float = 0.0) -> None:
        self.count = count
        self.total = total

    def add(self, value: float) -> None:
        """It happened once more."""
        self.count += 1
        self.total += value

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.count + other.count, self.total + other.total)


class Distribution:
    """As a ``Tally``, with how often it took up to each of some bounds.

    Args:
        bounds: Ascending; what is above the last one counts apart.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = SECONDS_BOUNDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """It happened once more."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """How often it happened."""
        return sum(self.counts)
