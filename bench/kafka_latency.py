"""The latency of a line from its file through a topic of a real broker into the sink's file.

The sink writes the source's bytes in order, so its file's size shows which lines have arrived.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.figure import Figure, percentile
from bench.kafka_sides import (
    Side,
    StoppableSide,
    connect_side,
    created_copy,
    drover_side,
    figures_on_broker,
)
from bench.running import size_of, wait_for, write_lines
from tests.support.kafka.clients import create_topic
from tests.support.kafka.jars import KafkaJars
from tests.support.waiting import pause

#: Lines through the measured connectors: in total, and per append.
FLOW_LINES = 1_000_000
CHUNK_LINES = 1_000
CHUNKS_A_SECOND = 50
#: Copies of as many lines by other connectors of the worker, one after another.
COPIES = 5
MARKS_A_SECOND = 20
TRICKLE_S = 60.0
TRICKLE_PAUSE_S = 1.0
ARRIVAL_TIMEOUT_S = 120.0
_POLL_S = 0.005
_MEDIAN_LIMIT, _P99_LIMIT = "<= 0.5 s", "<= 1.5 s"


@dataclass(slots=True)
class Pair:
    """A source and a sink, and the latencies of appended lines."""

    source: Path
    target: Path
    #: The end position of each appended batch in the source file, and the time of the append.
    appended: list[tuple[int, float]] = field(default_factory=list)
    latencies_s: list[float] = field(default_factory=list)

    def append(self, text: str) -> None:
        """Append lines of ASCII; the last line is measured."""
        with self.source.open("a") as file:
            file.write(text)
            end = file.tell()
        self.appended.append((end, time.monotonic()))

    async def follow(self) -> None:
        """Record the arrival times of lines until cancelled."""
        while True:
            size, now_s = size_of(self.target), time.monotonic()
            while len(self.latencies_s) < len(self.appended):
                end, appended_s = self.appended[len(self.latencies_s)]
                if size < end:
                    break
                self.latencies_s.append(now_s - appended_s)
            await pause(_POLL_S)

    async def all_there(self, name: str) -> None:
        """Wait until the last line has arrived."""
        await wait_for(
            lambda: len(self.latencies_s) == len(self.appended),
            timeout_s=ARRIVAL_TIMEOUT_S,
            what=f"the lines of {self.target} by {name}",
        )


@asynccontextmanager
async def running_pair(side: Side, bootstrap: str, folder: Path, topic: str) -> AsyncIterator[Pair]:
    """Two connectors that have copied a first line."""
    await asyncio.to_thread(create_topic, bootstrap, topic)
    pair = Pair(folder / f"{topic}-in.txt", folder / f"{topic}-out.txt")
    pair.append("the first line\n")
    async with created_copy(side, topic, pair.source, pair.target):
        following = asyncio.create_task(pair.follow())
        try:
            await pair.all_there(side.name)
            pair.appended.clear()
            pair.latencies_s.clear()
            yield pair
            await pair.all_there(side.name)
        finally:
            following.cancel()


async def flowing(side: Side, bootstrap: str, folder: Path, topic: str) -> Sequence[float]:
    """A million lines, appended a thousand at a time; the last of each thousand is measured."""
    async with running_pair(side, bootstrap, folder, topic) as pair:
        began_s = time.monotonic()
        for number in range(FLOW_LINES // CHUNK_LINES):
            due_s = began_s + number / CHUNKS_A_SECOND
            await pause(max(0.0, due_s - time.monotonic()))
            first = number * CHUNK_LINES
            pair.append("".join(f"{first + n},a line to carry\n" for n in range(CHUNK_LINES)))
    return pair.latencies_s


async def beside(side: Side, bootstrap: str, folder: Path, topic: str) -> Sequence[float]:
    """Latencies of single lines while two other connectors repeatedly copy a million lines."""
    lines = folder / "lines.txt"
    async with running_pair(side, bootstrap, folder, topic) as pair:
        for number in range(COPIES):
            copy = f"{topic}-copy-{number}"
            await asyncio.to_thread(create_topic, bootstrap, copy)
            target = folder / f"{copy}.txt"
            async with created_copy(side, copy, lines, target):
                marks = asyncio.create_task(_mark(pair, 1 / MARKS_A_SECOND))
                try:
                    await _copied(lines, target)
                finally:
                    marks.cancel()
            target.unlink()
    return pair.latencies_s


async def trickling(side: Side, bootstrap: str, folder: Path, topic: str) -> Sequence[float]:
    """Latencies of about one line a second on an otherwise idle worker."""
    async with running_pair(side, bootstrap, folder, topic) as pair:
        draw = random.Random(1)
        end_s = time.monotonic() + TRICKLE_S
        while time.monotonic() < end_s:
            pair.append("a line to carry\n")
            await pause(TRICKLE_PAUSE_S * draw.uniform(0.5, 1.5))
    return pair.latencies_s


async def _mark(pair: Pair, every_s: float) -> None:
    while True:
        pair.append("a line to carry\n")
        await pause(every_s)


async def _copied(lines: Path, target: Path) -> None:
    size = lines.stat().st_size
    await wait_for(
        lambda: size_of(target) >= size, timeout_s=ARRIVAL_TIMEOUT_S, what=f"all of {target}"
    )


#: The measured cases and their descriptions.
_CASES = (
    ("flowing", flowing, "1 M lines flow through the same connectors, 50,000 a second"),
    ("beside", beside, "other connectors of the worker copy 1 M lines as fast as they can"),
    ("trickle", trickling, "the worker is idle but for about one line a second"),
)


async def _latencies(side: StoppableSide, bootstrap: str, folder: Path) -> list[Sequence[float]]:
    """The latencies of each case, after a warm-up copy."""
    folder.mkdir()
    write_lines(folder / "lines.txt", FLOW_LINES)
    async with running_pair(side, bootstrap, folder, f"{folder.name}-warm-up") as pair:
        pair.append((folder / "lines.txt").read_text())
    return [
        await measured(side, bootstrap, folder, f"{folder.name}-{name}")
        for name, measured, _ in _CASES
    ]


async def measure(jars: KafkaJars, bootstrap: str, folder: Path) -> Iterator[Figure]:
    """Measure one side after the other: neither runs beside the other's idle worker."""
    async with drover_side(bootstrap, folder / "drover") as drover:
        ours = await _latencies(drover, bootstrap, folder / "ours")
    async with connect_side(jars, bootstrap, folder / "connect") as connect:
        theirs = await _latencies(connect, bootstrap, folder / "theirs")
    return _figures(ours, theirs, f"Kafka Connect {jars.version} on the same broker, at least once")


def _figures(
    ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]], peer: str
) -> Iterator[Figure]:
    for (name, _, what), own, other in zip(_CASES, ours, theirs, strict=True):
        for part_name, part, limit in (("median", 0.5, _MEDIAN_LIMIT), ("p99", 0.99, _P99_LIMIT)):
            yield Figure(
                f"kafka_latency_{name}_{part_name}",
                percentile(own, part),
                f"s from file to file, {len(own)} lines, while {what}",
                peer=peer,
                peer_value=percentile(other, part),
                limit=limit,
            )


def figures() -> Iterator[Figure]:
    """How long a line takes from file to file through a topic, under load and without."""
    yield from figures_on_broker("kafka-latency", measure)
