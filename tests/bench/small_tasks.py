"""Many small tasks: each file gets a line a second, and every line should be in its topic before
the next one is written.
"""

import asyncio
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from tests.bench.cpu_time import CpuTimes
from tests.bench.figure import Figure, percentile
from tests.bench.kafka_sides import (
    StoppableSide,
    connect_side,
    drover_side,
    measured_broker,
    source_config,
)
from tests.support.kafka.clients import QUIET, create_topic
from tests.support.kafka.jars import KafkaJars
from tests.support.waiting import pause

#: How many tasks there are; DROVER_BENCH_TASKS says otherwise.
TASK_COUNT = 200
#: Rounds before those that count, and these.
WARM_UP_ROUNDS = 10
ROUNDS = 30
INTERVAL_S = 1.0
CALLERS = 8
START_TIMEOUT_S = 600.0
#: How long lines are waited for after the last one was written.
LATE_S = 60.0
_POLL_S = 0.05
_BROKER = "broker"


@dataclass(slots=True)
class Arrivals:
    """When lines were written, and when they could be read from their topics."""

    written_s: dict[tuple[int, int], float] = field(default_factory=dict)
    arrived_s: dict[tuple[int, int], float] = field(default_factory=dict)

    def latencies_s(self, first_round: int) -> list[float]:
        """Of the lines of these rounds that arrived at all."""
        return [
            arrived_s - self.written_s[line]
            for line, arrived_s in self.arrived_s.items()
            if line[1] >= first_round
        ]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one side did in the rounds that count."""

    latencies_s: Sequence[float]
    line_count: int
    #: Lines that were written and not there when the last one was due.
    behind_count: int
    #: Seconds of CPU in each second, by kind of process.
    cpu: Mapping[str, float]

    @property
    def in_time(self) -> float:
        """The share of lines that were there before the next one was written."""
        return sum(each <= INTERVAL_S for each in self.latencies_s) / self.line_count


class TopicReader:
    """Reads what is committed in the topics of all tasks, on a thread of its own."""

    def __init__(self, bootstrap: str, topics: Sequence[str], arrivals: Arrivals) -> None:
        self._arrivals = arrivals
        self._numbers = {topic: number for number, topic in enumerate(topics)}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "bench-reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
                **QUIET,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0) for topic in topics])
        self._over = False

    def run(self) -> None:
        """Until ``stop``."""
        while not self._over:
            for message in self._consumer.consume(1_000, _POLL_S):
                value = message.value()
                if message.error() is None and isinstance(value, bytes):
                    line = (self._numbers[str(message.topic())], int(value.split(b",")[0]))
                    self._arrivals.arrived_s.setdefault(line, time.monotonic())
        self._consumer.close()

    def stop(self) -> None:
        """Have ``run`` return."""
        self._over = True


async def write_rounds(files: Sequence[Path], arrivals: Arrivals, rounds: range) -> None:
    """A line into each file in each round, all of them spread over it."""
    began_s = time.monotonic()
    for number in rounds:
        for index, file in enumerate(files):
            due_s = began_s + (number - rounds.start + index / len(files)) * INTERVAL_S
            if due_s > time.monotonic():
                await pause(due_s - time.monotonic())
            with file.open("a") as appended:
                appended.write(f"{number},a line of some text to carry\n")
            arrivals.written_s[index, number] = time.monotonic()


async def start_all(side: StoppableSide, topics: Sequence[str], files: Sequence[Path]) -> None:
    """A connector for each file, ``CALLERS`` at a time, until all of them run."""
    waiting = iter(zip(topics, files, strict=True))

    async def caller() -> None:
        for topic, file in waiting:
            await side.create(topic, source_config(topic, file))

    async with asyncio.timeout(START_TIMEOUT_S):
        async with asyncio.TaskGroup() as calls:
            for _ in range(CALLERS):
                calls.create_task(caller())
        while await side.running_count() < len(topics):
            await pause(_POLL_S)


async def outcome_of(
    side: StoppableSide, bootstrap: str, folder: Path, *, task_count: int
) -> Outcome:
    """Start the tasks, warm them up, and count."""
    folder.mkdir()
    topics = [f"{folder.name}-{number:03}" for number in range(task_count)]
    files = [folder / f"{topic}.txt" for topic in topics]
    for topic, file in zip(topics, files, strict=True):
        await asyncio.to_thread(create_topic, bootstrap, topic)
        file.touch()
    await start_all(side, topics, files)
    arrivals = Arrivals()
    reader = TopicReader(bootstrap, topics, arrivals)
    reading = asyncio.create_task(asyncio.to_thread(reader.run))
    try:
        await write_rounds(files, arrivals, range(WARM_UP_ROUNDS))
        times, began_s = CpuTimes(), time.monotonic()
        await write_rounds(files, arrivals, range(WARM_UP_ROUNDS, WARM_UP_ROUNDS + ROUNDS))
        await pause(INTERVAL_S)
        took_s = time.monotonic() - began_s
        cpu = {kind: seconds / took_s for kind, seconds in times.by_kind().items()}
        behind_count = len(arrivals.written_s) - len(arrivals.arrived_s)
        end_s = time.monotonic() + LATE_S
        while len(arrivals.arrived_s) < len(arrivals.written_s) and time.monotonic() < end_s:
            await pause(_POLL_S)
    finally:
        reader.stop()
        await reading
    latencies_s = arrivals.latencies_s(WARM_UP_ROUNDS)
    return Outcome(latencies_s, ROUNDS * task_count, behind_count, cpu)


async def measure(
    jars: KafkaJars, bootstrap: str, folder: Path, *, task_count: int
) -> list[Figure]:
    """One after the other, so that neither has the other's idle connectors beside it."""
    sides: list[AbstractAsyncContextManager[StoppableSide]] = [
        drover_side(bootstrap, folder / "drover"),
        connect_side(jars, bootstrap, folder / "connect"),
    ]
    found = []
    for name, side in zip(("ours", "theirs"), sides, strict=True):
        async with side as started:
            found.append(await outcome_of(started, bootstrap, folder / name, task_count=task_count))
    ours, theirs = found
    return list(_figures(ours, theirs, jars.version, task_count))


def _figures(ours: Outcome, theirs: Outcome, version: str, task_count: int) -> Iterator[Figure]:
    peer = f"Kafka Connect {version} on the same broker, at least once"
    what = f"{task_count} tasks, a line a second each, exactly once"
    share = "share of lines that were in their topic within a second"
    yield Figure(
        "kafka_small_tasks_in_time",
        ours.in_time,
        f"{share} ({what})",
        peer=peer,
        peer_value=theirs.in_time,
        limit=">= 0.99",
    )
    behind = "lines written and not there a second after the last one"
    yield Figure(
        "kafka_small_tasks_behind",
        ours.behind_count,
        behind,
        peer=peer,
        peer_value=theirs.behind_count,
        limit=f"<= {task_count // 10}",
    )
    for name, part in (("median", 0.5), ("p99", 0.99)):
        yield Figure(
            f"kafka_small_tasks_{name}",
            percentile(ours.latencies_s, part),
            "s from a line's writing until it is in its topic, committed",
            peer=peer,
            peer_value=percentile(theirs.latencies_s, part),
        )
    unit = "s of CPU in each second"
    yield Figure(
        "kafka_small_tasks_cpu",
        sum(ours.cpu.values()),
        f"{unit}, with the broker's",
        peer=peer,
        peer_value=sum(theirs.cpu.values()),
    )
    for kind in sorted(ours.cpu, key=lambda each: -ours.cpu[each]):
        theirs_s = theirs.cpu.get(kind) if kind == _BROKER else None
        yield Figure("kafka_small_tasks_cpu", ours.cpu[kind], f"{unit}: {kind}", peer, theirs_s)


def figures() -> Iterator[Figure]:
    """200 files that get a line a second each, into 200 topics; beside Kafka Connect."""
    task_count = int(os.environ.get("DROVER_BENCH_TASKS") or TASK_COUNT)
    with measured_broker("kafka-small-tasks") as found:
        if found is not None:
            yield from asyncio.run(measure(*found, task_count=task_count))
