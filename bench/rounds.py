"""The rounds of each side, and their figures."""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bench.cpu_time import CpuTimes
from bench.figure import Figure

#: The limit of rates beside Debezium.
FIVE_TIMES = "ratio >= 5"
#: Kinds of processes, see cpu_time.
DROVERS_KINDS = (
    "Python workers",
    "engine",
    "herder",
    "Spark's JVM",
    "Java plugins",
    "other services",
)
SHARED_KINDS = ("broker", "PostgreSQL")
_PEERS_ALONE = ("Kafka Connect",)


@dataclass(frozen=True, slots=True)
class Round:
    """One contestant's round.

    The times are seconds since its connector was created or resumed: of the first records, whose
    number is ``first_count``, and of all records. The CPU time is by kind of process.
    """

    count: int
    first_s: float
    first_count: int
    whole_s: float
    cpu_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def per_s(self) -> float:
        """Records a second, including the start."""
        return self.count / self.whole_s

    @property
    def flowing_per_s(self) -> float:
        """Records a second after the first ones; the overall rate if all arrived at once."""
        if self.first_count >= self.count:
            return self.per_s
        return (self.count - self.first_count) / (self.whole_s - self.first_s)


@dataclass(slots=True)
class Watch:
    """Measures one round, from its construction on."""

    count: int
    _cpu: CpuTimes = field(default_factory=CpuTimes)
    _started_s: float = field(default_factory=time.monotonic)
    _first: tuple[float, int] | None = None

    def saw(self, count: int) -> bool:
        """Note the number of records; returns whether all have arrived."""
        if count > 0 and self._first is None:
            self._first = (time.monotonic() - self._started_s, count)
        return count >= self.count

    def done(self, done_s: float) -> Round:
        """The finished round; ``done_s`` is the arrival of the last record (monotonic seconds)."""
        assert self._first is not None
        first_s, first_count = self._first
        whole_s = done_s - self._started_s
        return Round(self.count, first_s, first_count, whole_s, self._cpu.by_kind())


def figures_of(
    name: str,
    unit: str,
    rounds: Sequence[Sequence[Round]],
    peers: Sequence[str],
    limit: str = FIVE_TIMES,
) -> Iterator[Figure]:
    """The figures of a comparison with each peer: overall rate, flow rate, start and CPU.

    Args:
        name: The name of the rate's figure.
        unit: Names the records.
        rounds: Each contestant's rounds, Drover's first.
        peers: Describe the other contestants.
        limit: The limit of the rates.
    """
    ours, *others = rounds
    count = ours[0].count
    for each, theirs in zip(peers, others, strict=True):
        yield _figure(
            name,
            lambda done: done.per_s,
            f"{unit}/s ({count}, start and all)",
            ours,
            each,
            theirs,
            limit,
        )
        yield _figure(
            f"{name}_flowing",
            lambda done: done.flowing_per_s,
            f"{unit}/s (behind the first ones)",
            ours,
            each,
            theirs,
            limit,
        )
    for each, theirs in zip(peers, others, strict=True):
        yield _figure(
            f"{name}_start",
            lambda done: done.first_s,
            f"s until the first {unit} are there",
            ours,
            each,
            theirs,
            "",
        )
        yield from _cpu_figures(f"{name}_cpu", unit, ours, each, theirs)
    for kind in DROVERS_KINDS:
        taken_us = cpu_us(ours, (kind,))
        if taken_us:
            yield Figure(f"{name}_cpu", taken_us, f"us of CPU for one of {unit}: {kind}")


def _figure(
    name: str,
    value: Callable[[Round], float],
    unit: str,
    ours: Sequence[Round],
    peer: str,
    theirs: Sequence[Round],
    limit: str,
) -> Figure:
    samples = [value(each) for each in ours]
    return Figure(
        name,
        statistics.median(samples),
        unit,
        peer=peer,
        peer_value=statistics.median(value(each) for each in theirs),
        limit=limit,
        samples=samples,
    )


def _cpu_figures(
    name: str, unit: str, ours: Sequence[Round], peer: str, theirs: Sequence[Round]
) -> Iterator[Figure]:
    """CPU per record: of each side with the shared servers, and of each shared server."""
    yield Figure(
        name,
        cpu_us(ours, (*DROVERS_KINDS, *SHARED_KINDS)),
        f"us of CPU for one of {unit}, with the broker's and PostgreSQL's",
        peer=peer,
        peer_value=cpu_us(theirs, (*_PEERS_ALONE, *SHARED_KINDS)),
    )
    for kind in SHARED_KINDS:
        yield Figure(
            name,
            cpu_us(ours, (kind,)),
            f"us of CPU for one of {unit}: {kind}",
            peer=peer,
            peer_value=cpu_us(theirs, (kind,)),
        )


def cpu_us(rounds: Sequence[Round], kinds: Sequence[str]) -> float:
    """Microseconds of CPU per record that these kinds of processes took in all rounds."""
    taken: dict[str, float] = defaultdict(float)
    for each in rounds:
        for kind, seconds in each.cpu_s.items():
            taken[kind] += seconds
    return sum(taken[kind] for kind in kinds) * 1e6 / sum(each.count for each in rounds)
