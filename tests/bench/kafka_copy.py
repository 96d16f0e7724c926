"""A file copied through a topic of a real broker: by Drover and by Kafka Connect in turn."""

import asyncio
import hashlib
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
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
from tests.support.kafka.jars import KafkaJars

LINE_COUNT = 1_000_000
ROUNDS = 5
TIMEOUT_S = 300.0


async def copy_seconds(side: Side, topic: str, source: Path, target: Path) -> float:
    """From the connectors' creation until the last byte is in ``target``; the topic is there.

    Raises:
        TimeoutError: It does not come.
        AssertionError: What came is not what is in ``source``.
    """
    size = source.stat().st_size
    started_s = time.monotonic()
    await side.create(f"{topic}-sink", sink_config(topic, target))
    await side.create(f"{topic}-source", source_config(topic, source))
    arrived_s = await wait_for(
        lambda: size_of(target) >= size, timeout_s=TIMEOUT_S, what=f"{target} by {side.name}"
    )
    assert _sha256(target) == _sha256(source), f"{side.name} made another file of {source}"
    for kind in ("source", "sink"):
        await side.delete(f"{topic}-{kind}")
    return arrived_s - started_s


async def in_turn(
    sides: Sequence[Side], bootstrap: str, source: Path, *, line_count: int, rounds: int
) -> list[list[float]]:
    """Lines a second of each side by round; a first round only warms up."""
    rates: list[list[float]] = [[] for _ in sides]
    for number in range(rounds + 1):
        for index, side in enumerate(sides):
            topic = f"copy-{index}-{number}"
            await asyncio.to_thread(create_topic, bootstrap, topic)
            target = source.parent / f"{topic}.txt"
            seconds = await copy_seconds(side, topic, source, target)
            if number:
                rates[index].append(line_count / seconds)
    return rates


async def measure(
    jars: KafkaJars,
    bootstrap: str,
    folder: Path,
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
            [drover, connect], bootstrap, source, line_count=line_count, rounds=rounds
        )
    return Figure(
        "kafka_file_copy",
        statistics.median(ours),
        f"lines/s ({line_count} lines, file -> topic -> file)",
        peer=f"Kafka Connect {jars.version} on the same broker",
        peer_value=statistics.median(theirs),
        limit="ratio > 1",
        samples=ours,
    )


def figures() -> Iterator[Figure]:
    """A file copied through a topic of Kafka, by Drover and by Kafka Connect."""
    with measured_broker("kafka-copy") as found:
        if found is not None:
            yield asyncio.run(measure(*found))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
