"""Many small tasks: each file gets a line a second, due in its topic before the next is written."""

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.memory_records import MemoryRecords

from bench.cpu_time import CpuTimes
from bench.figure import Figure, percentile
from bench.kafka_sides import (
    StoppableSide,
    connect_side,
    drover_side,
    figures_on_broker,
    source_config,
)
from tests.support.kafka.clients import create_topic
from tests.support.kafka.jars import KafkaJars
from tests.support.waiting import pause

#: The number of tasks; DROVER_BENCH_TASKS overrides it.
TASK_COUNT = 200
#: Warm-up rounds, in which brokers are still being compiled, and measured rounds.
WARM_UP_ROUNDS = 30
ROUNDS = 30
INTERVAL_S = 1.0
CALLERS = 8
START_TIMEOUT_S = 600.0
#: The longest wait for lines after the last write.
LATE_S = 60.0
#: The resolution of arrival times.
READ_EVERY_S = 0.1
_POLL_S = 0.05
_READ_COMMITTED = 1
_FETCH_BYTES = 64 * 1024
_BROKER = "broker"
_LATENCY = "s from a line's writing until it is in its topic, committed"
_CPU = "s of CPU in each second"


@dataclass(slots=True)
class Arrivals:
    """The write time of each line, and the time at which it was readable from its topic."""

    written_s: dict[tuple[int, int], float] = field(default_factory=dict)
    arrived_s: dict[tuple[int, int], float] = field(default_factory=dict)
    #: The number of transactions that the reader saw end.
    transaction_count: int = 0

    def latencies_s(self, first_round: int) -> list[float]:
        """The latencies of the lines of these rounds that arrived."""
        return [
            arrived_s - self.written_s[line]
            for line, arrived_s in self.arrived_s.items()
            if line[1] >= first_round
        ]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One side's measured rounds."""

    latencies_s: Sequence[float]
    line_count: int
    #: Lines written but not readable when the last one was due.
    behind_count: int
    #: Seconds of CPU in each second, by kind of process.
    cpu: Mapping[str, float]
    #: Transactions a second.
    transactions: float = 0.0

    @property
    def in_time(self) -> float:
        """The fraction of lines that were readable before the next line was written."""
        return sum(each <= INTERVAL_S for each in self.latencies_s) / self.line_count


class TopicReader:
    """Reads committed records from all tasks' topics every ``READ_EVERY_S``.

    A subscribed consumer would get a response for each line, and each fetch covers all topics: the
    broker would spend more time on that than on writing the line.
    """

    def __init__(self, bootstrap: str, topics: Sequence[str], arrivals: Arrivals) -> None:
        self._bootstrap = bootstrap
        self._arrivals = arrivals
        self._numbers = {topic: number for number, topic in enumerate(topics)}
        self._positions = dict.fromkeys(topics, 0)

    async def run(self) -> None:
        """Read until cancelled."""
        client = AIOKafkaClient(bootstrap_servers=self._bootstrap)
        await client.bootstrap()
        try:
            while True:
                due_s = time.monotonic() + READ_EVERY_S
                await self._read(client)
                await pause(max(0, due_s - time.monotonic()))
        finally:
            await client.close()

    async def _read(self, client: AIOKafkaClient) -> None:
        wanted = [
            (topic, [(0, position, _FETCH_BYTES)]) for topic, position in self._positions.items()
        ]
        request = FetchRequest(0, 0, len(wanted) * _FETCH_BYTES, _READ_COMMITTED, wanted)
        answer = await client.send(client.get_random_node(), request)
        now_s = time.monotonic()
        for topic, ((_, code, *_, data),) in answer.topics:
            assert not code, f"{topic} is not read: {code}"
            batches = MemoryRecords(data or b"")
            while batches.has_next():
                batch = batches.next_batch()
                self._positions[topic] = batch.next_offset
                if batch.is_control_batch:
                    self._arrivals.transaction_count += 1
                else:
                    self._note(topic, batch, now_s)

    def _note(self, topic: str, batch: Iterable[Any], now_s: float) -> None:
        for record in batch:
            line = (self._numbers[topic], int(record.value.split(b",")[0]))
            self._arrivals.arrived_s.setdefault(line, now_s)


async def write_rounds(files: Sequence[Path], arrivals: Arrivals, rounds: range) -> None:
    """Write a line to each file in each round, spread evenly over the round."""
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
    """Create a connector per file, ``CALLERS`` at a time, and wait until all run."""
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
    reading = asyncio.create_task(reader.run())
    try:
        await write_rounds(files, arrivals, range(WARM_UP_ROUNDS))
        times, began_s, before = CpuTimes(), time.monotonic(), arrivals.transaction_count
        await write_rounds(files, arrivals, range(WARM_UP_ROUNDS, WARM_UP_ROUNDS + ROUNDS))
        await pause(INTERVAL_S)
        took_s = time.monotonic() - began_s
        cpu = {kind: seconds / took_s for kind, seconds in times.by_kind().items()}
        transactions = (arrivals.transaction_count - before) / took_s
        behind_count = len(arrivals.written_s) - len(arrivals.arrived_s)
        end_s = time.monotonic() + LATE_S
        while len(arrivals.arrived_s) < len(arrivals.written_s) and time.monotonic() < end_s:
            await pause(_POLL_S)
        assert not reading.done(), reading.result()
    finally:
        reading.cancel()
        await asyncio.wait([reading])
    latencies_s = arrivals.latencies_s(WARM_UP_ROUNDS)
    return Outcome(latencies_s, ROUNDS * task_count, behind_count, cpu, transactions)


async def measure(
    jars: KafkaJars, bootstrap: str, folder: Path, *, task_count: int
) -> list[Figure]:
    """One after the other, so that none has another's idle connectors beside it."""
    sides: dict[str, AbstractAsyncContextManager[StoppableSide]] = {
        "ours": drover_side(bootstrap, folder / "drover"),
        "at least once": connect_side(jars, bootstrap, folder / "connect"),
        "exactly once": connect_side(jars, bootstrap, folder / "connect-once", exactly_once=True),
    }
    found = {}
    for name, side in sides.items():
        async with side as started:
            files = folder / name.replace(" ", "-")
            found[name] = await outcome_of(started, bootstrap, files, task_count=task_count)
    ours = found.pop("ours")
    peers = {f"Kafka Connect {jars.version}, {name}": each for name, each in found.items()}
    return list(_figures(ours, peers, task_count))


def _figures(ours: Outcome, peers: Mapping[str, Outcome], task_count: int) -> Iterator[Figure]:
    what = f"{task_count} tasks, a line a second each, exactly once"
    compared: dict[str, tuple[Callable[[Outcome], float], str, str]] = {
        "in_time": (
            lambda each: each.in_time,
            f"share of lines that were in their topic within a second ({what})",
            ">= 0.99",
        ),
        "behind": (
            lambda each: each.behind_count,
            "lines written and not there a second after the last one",
            f"<= {task_count // 10}",
        ),
        "median": (lambda each: percentile(each.latencies_s, 0.5), _LATENCY, ""),
        "p99": (lambda each: percentile(each.latencies_s, 0.99), _LATENCY, ""),
        "transactions": (lambda each: each.transactions, "transactions in each second", ""),
        "cpu": (lambda each: sum(each.cpu.values()), f"{_CPU}, with the broker's", ""),
        "cpu_broker": (lambda each: each.cpu.get(_BROKER, 0.0), f"{_CPU}: {_BROKER}", ""),
    }
    for name, (value_of, unit, limit) in compared.items():
        for peer, theirs in peers.items():
            figure = f"kafka_small_tasks_{name}"
            yield Figure(figure, value_of(ours), unit, peer, value_of(theirs), limit)
    for kind in sorted(ours.cpu.keys() - {_BROKER}, key=lambda each: -ours.cpu[each]):
        yield Figure("kafka_small_tasks_cpu", ours.cpu[kind], f"{_CPU}: {kind}")


def figures() -> Iterator[Figure]:
    """200 files that get a line a second each, into 200 topics; beside Kafka Connect."""
    task_count = int(os.environ.get("DROVER_BENCH_TASKS") or TASK_COUNT)
    yield from figures_on_broker("kafka-small-tasks", partial(measure, task_count=task_count))
