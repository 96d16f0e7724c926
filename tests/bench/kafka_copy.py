"""A file copied through a topic of a real broker: by Drover and by Kafka Connect in turn.

As text, and as JSON with schemas through three transforms that make the same lines of it again.
"""

import asyncio
import hashlib
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.figure import Figure
from tests.bench.kafka_sides import (
    Side,
    connect_side,
    drover_side,
    measured_broker,
    sink_config,
    source_config,
)
from tests.bench.running import size_of, wait_for, write_lines
from tests.support.kafka.clients import create_topic
from tests.support.kafka.connect import JSON_CONVERTER
from tests.support.kafka.jars import KafkaJars

LINE_COUNT = 1_000_000
ROUNDS = 5
TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Job:
    """What the two connectors have beside their topic and file."""

    figure: str
    way: str
    limit: str
    source: Mapping[str, str] = field(default_factory=dict)
    sink: Mapping[str, str] = field(default_factory=dict)


TEXT = Job("kafka_file_copy", "file -> topic -> file", "ratio >= 2")
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


async def copy_seconds(side: Side, job: Job, topic: str, source: Path, target: Path) -> float:
    """From the connectors' creation until the last byte is in ``target``; the topic is there.

    Raises:
        TimeoutError: It does not come.
        AssertionError: What came is not what is in ``source``.
    """
    size = source.stat().st_size
    started_s = time.monotonic()
    await side.create(f"{topic}-sink", {**sink_config(topic, target), **job.sink})
    await side.create(f"{topic}-source", {**source_config(topic, source), **job.source})
    arrived_s = await wait_for(
        lambda: size_of(target) >= size, timeout_s=TIMEOUT_S, what=f"{target} by {side.name}"
    )
    assert _sha256(target) == _sha256(source), f"{side.name} made another file of {source}"
    for kind in ("source", "sink"):
        await side.delete(f"{topic}-{kind}")
    return arrived_s - started_s


async def in_turn(
    sides: Sequence[Side],
    job: Job,
    bootstrap: str,
    source: Path,
    *,
    line_count: int,
    rounds: int,
) -> list[list[float]]:
    """Lines a second of each side by round; a first round only warms up."""
    rates: list[list[float]] = [[] for _ in sides]
    for number in range(rounds + 1):
        for index, side in enumerate(sides):
            topic = f"{job.figure}-{index}-{number}"
            await asyncio.to_thread(create_topic, bootstrap, topic)
            target = source.parent / f"{topic}.txt"
            seconds = await copy_seconds(side, job, topic, source, target)
            if number:
                rates[index].append(line_count / seconds)
    return rates


async def measure(
    jars: KafkaJars,
    bootstrap: str,
    folder: Path,
    job: Job,
    *,
    line_count: int = LINE_COUNT,
    rounds: int = ROUNDS,
) -> Figure:
    """Both are up all the while, and each waits while the other works."""
    source = folder / "lines.txt"
    write_lines(source, line_count)
    async with AsyncExitStack() as stack:
        drover = await stack.enter_async_context(drover_side(bootstrap, folder / "drover"))
        connect = await stack.enter_async_context(connect_side(jars, bootstrap, folder / "connect"))
        ours, theirs = await in_turn(
            [drover, connect], job, bootstrap, source, line_count=line_count, rounds=rounds
        )
    return Figure(
        job.figure,
        statistics.median(ours),
        f"lines/s ({line_count} lines, {job.way})",
        peer=f"Kafka Connect {jars.version} on the same broker",
        peer_value=statistics.median(theirs),
        limit=job.limit,
        samples=ours,
    )


def figures() -> Iterator[Figure]:
    """A file copied through a topic of Kafka, by Drover and by Kafka Connect."""
    yield from _figures("kafka-copy", TEXT)


def json_figures() -> Iterator[Figure]:
    """As kafka-copy, but as JSON with schemas and through three transforms."""
    yield from _figures("kafka-json", JSON)


def _figures(part: str, job: Job) -> Iterator[Figure]:
    with measured_broker(part) as found:
        if found is not None:
            yield asyncio.run(measure(*found, job))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
