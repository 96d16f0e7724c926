"""A file copied through a topic of a real broker: Drover and Kafka Connect alternate.

The records are text, or JSON with schemas through three transforms that restore the same lines.
"""

import asyncio
import shutil
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.cpu_time import CpuTimes
from bench.figure import Figure
from bench.kafka_sides import (
    Side,
    connect_side,
    created_copy,
    drover_side,
    figures_on_broker,
)
from bench.running import sha256_of, size_of, wait_for, write_lines
from tests.support.kafka.clients import create_topic
from tests.support.kafka.connect import JSON_CONVERTER
from tests.support.kafka.jars import KafkaJars

LINE_COUNT = 1_000_000
ROUNDS = 5
#: Enough lines to make the start time negligible.
LONG_LINE_COUNT = 10_000_000
LONG_ROUNDS = 1
TIMEOUT_S = 900.0
#: Kinds of processes, see cpu_time.
_BROKER, _PEER = "broker", "Kafka Connect"


@dataclass(frozen=True, slots=True)
class Job:
    """The settings of the two connectors, besides topic and file."""

    figure: str
    way: str
    limit: str
    source: Mapping[str, str] = field(default_factory=dict)
    sink: Mapping[str, str] = field(default_factory=dict)
    line_count: int = LINE_COUNT
    #: The number of copies of the file at the same time.
    copy_count: int = 1
    rounds: int = ROUNDS
    #: Whether the first round is a warm-up.
    warms_up: bool = True
    #: Whether the time begins when the first line has arrived, and the others are appended then.
    is_flowing: bool = False
    #: Whether Kafka Connect's source is exactly once as well.
    peer_exactly_once: bool = False

    @property
    def all_lines(self) -> int:
        """The number of lines of all copies."""
        return self.line_count * self.copy_count


TEXT = Job("kafka_file_copy", "file -> topic -> file", "ratio >= 2")
LONG = Job(
    "kafka_long_copy",
    "file -> topic -> file, exactly once on both sides",
    "ratio >= 5",
    line_count=LONG_LINE_COUNT,
    rounds=LONG_ROUNDS,
    warms_up=False,
    peer_exactly_once=True,
)
JSON = Job(
    "kafka_json_transforms",
    "file -> 2 transforms -> JSON with schema -> 1 transform -> file",
    "ratio >= 3",
    source={
        "value.converter": JSON_CONVERTER,
        "transforms": "hoist,insert",
        "transforms.hoist.type": "org.apache.kafka.connect.transforms.HoistField$Value",
        "transforms.hoist.field": "line",
        "transforms.insert.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        "transforms.insert.static.field": "origin",
        "transforms.insert.static.value": "bench",
    },
    sink={
        "value.converter": JSON_CONVERTER,
        "transforms": "line",
        "transforms.line.type": "org.apache.kafka.connect.transforms.ExtractField$Value",
        "transforms.line.field": "line",
    },
)


async def copied(
    side: Side, job: Job, source: Path, targets: Mapping[str, Path]
) -> tuple[float, Mapping[str, float]]:
    """Seconds until the last byte is in the last target, and CPU seconds by kind of process.

    Args:
        side: Who copies.
        job: The connectors' settings.
        source: The file.
        targets: Its copies by topic; the topics exist.

    Raises:
        TimeoutError: The copies are not complete in time.
        AssertionError: A target differs from ``source``.
    """
    started_s, times = time.monotonic(), CpuTimes()
    async with AsyncExitStack() as stack:
        grown = stack.enter_context(_growing(source, targets)) if job.is_flowing else {}
        for topic, target in targets.items():
            await stack.enter_async_context(
                created_copy(
                    side,
                    topic,
                    grown.get(topic, source),
                    target,
                    source_settings=job.source,
                    sink_settings=job.sink,
                )
            )

        async def wait_until_there(size: int) -> float:
            return await wait_for(
                lambda: all(size_of(each) >= size for each in targets.values()),
                timeout_s=TIMEOUT_S,
                what=f"{len(targets)} copies of {source} by {side.name}",
            )

        if grown:
            await wait_until_there(1)
            started_s, times = time.monotonic(), CpuTimes()
            for each in grown.values():
                _append_rest(source, each)
        arrived_s = await wait_until_there(source.stat().st_size)
        cpu_s = times.by_kind()
        wanted = sha256_of(source)
        for each in targets.values():
            assert sha256_of(each) == wanted, f"{side.name} made another file of {source}"
    return arrived_s - started_s, cpu_s


@contextmanager
def _growing(source: Path, targets: Mapping[str, Path]) -> Iterator[Mapping[str, Path]]:
    """Files with the first line of ``source``, by topic."""
    files = {topic: target.with_suffix(".in") for topic, target in targets.items()}
    with source.open("rb") as lines:
        first = lines.readline()
    for each in files.values():
        each.write_bytes(first)
    try:
        yield files
    finally:
        for each in files.values():
            each.unlink()


def _append_rest(source: Path, grown: Path) -> None:
    with source.open("rb") as lines, grown.open("ab") as file:
        lines.seek(grown.stat().st_size)
        shutil.copyfileobj(lines, file)


@dataclass(slots=True)
class Rounds:
    """The rounds of one side."""

    lines_per_s: list[float] = field(default_factory=list)
    #: Seconds of CPU of all rounds, by kind of process.
    cpu_s: dict[str, float] = field(default_factory=dict)

    def add(self, lines_per_s: float, cpu_s: Mapping[str, float]) -> None:
        """Add a round."""
        self.lines_per_s.append(lines_per_s)
        for kind, seconds in cpu_s.items():
            self.cpu_s[kind] = self.cpu_s.get(kind, 0.0) + seconds

    def cpu_us(self, kind: str, line_count: int) -> float:
        """Microseconds of CPU for each line."""
        return self.cpu_s.get(kind, 0.0) * 1e6 / (line_count * len(self.lines_per_s))


async def in_turn(
    sides: Sequence[Side], job: Job, bootstrap: str, source: Path, *, prefix: str = ""
) -> Sequence[Rounds]:
    """Run the sides alternately; returns the rounds of each. ``prefix`` is that of the topics."""
    done = [Rounds() for _ in sides]
    for number in range(0 if job.warms_up else 1, job.rounds + 1):
        for index, side in enumerate(sides):
            topics = [
                f"{prefix}{job.figure}-{index}-{number}-{copy}" for copy in range(job.copy_count)
            ]
            for topic in topics:
                await asyncio.to_thread(create_topic, bootstrap, topic)
            targets = {topic: source.parent / f"{topic}.txt" for topic in topics}
            seconds, cpu_s = await copied(side, job, source, targets)
            for target in targets.values():
                target.unlink()
            if number:
                done[index].add(job.all_lines / seconds, cpu_s)
    return done


async def measure(jars: KafkaJars, bootstrap: str, folder: Path, job: Job) -> Sequence[Figure]:
    """Measure both sides on clusters of their own."""
    async with AsyncExitStack() as stack:
        drover = await stack.enter_async_context(drover_side(bootstrap, folder / "drover"))
        connect = await stack.enter_async_context(
            connect_side(jars, bootstrap, folder / "connect", exactly_once=job.peer_exactly_once)
        )
        peer = f"Kafka Connect {jars.version} on the same broker"
        return await compared([drover, connect], job, bootstrap, folder, peer)


async def compared(
    sides: Sequence[Side], job: Job, bootstrap: str, folder: Path, peer: str
) -> Sequence[Figure]:
    """Measure two sides, Drover first; each is idle while the other works."""
    source = folder / f"{job.figure}.txt"
    write_lines(source, job.line_count)
    ours, theirs = await in_turn(sides, job, bootstrap, source)
    source.unlink()
    rate = Figure(
        job.figure,
        statistics.median(ours.lines_per_s),
        f"lines/s ({job.all_lines} lines, {job.way})",
        peer=peer,
        peer_value=statistics.median(theirs.lines_per_s),
        limit=job.limit,
        samples=ours.lines_per_s,
    )
    return [rate, *_cpu_figures(job, ours, theirs, peer)]


def _cpu_figures(job: Job, ours: Rounds, theirs: Rounds, peer: str) -> Iterator[Figure]:
    """CPU per line: of each side with the broker, and of each kind of Drover's processes."""
    unit = "us of CPU a line"
    own = sorted(ours.cpu_s.keys() - {_PEER}, key=lambda kind: -ours.cpu_s[kind])
    yield Figure(
        f"{job.figure}_cpu",
        sum(ours.cpu_us(kind, job.all_lines) for kind in own),
        f"{unit}, with the broker's",
        peer=peer,
        peer_value=sum(theirs.cpu_us(kind, job.all_lines) for kind in (_PEER, _BROKER)),
    )
    for kind in own:
        value = ours.cpu_us(kind, job.all_lines)
        theirs_us = theirs.cpu_us(kind, job.all_lines) if kind == _BROKER else None
        yield Figure(f"{job.figure}_cpu", value, f"{unit}: {kind}", peer, theirs_us)


def figures() -> Iterator[Figure]:
    """A file copied through a topic of Kafka, by Drover and by Kafka Connect."""
    yield from figures_on_broker("kafka-copy", partial(measure, job=TEXT))


def json_figures() -> Iterator[Figure]:
    """As kafka-copy, but as JSON with schemas and through three transforms."""
    yield from figures_on_broker("kafka-json", partial(measure, job=JSON))


def long_figures() -> Iterator[Figure]:
    """As kafka-copy, but ten million lines, and exactly once on both sides."""
    yield from figures_on_broker("kafka-long-copy", partial(measure, job=LONG))
