"""Many idle connectors: the time from the first creation until all are RUNNING."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.figure import Figure
from bench.kafka_sides import (
    Side,
    connect_side,
    drover_side,
    figures_on_broker,
    source_config,
)
from tests.support.kafka.jars import KafkaJars
from tests.support.waiting import pause

WORKERS = 3
CONNECTOR_COUNT = 1_000
#: Kafka Connect's count: there each further connector takes longer than the one before.
PEER_COUNT = 100
CALLERS = 8
TIMEOUT_S = 600.0
_POLL_S = 0.1


async def connectors_a_second(side: Side, empty_file: Path, count: int) -> float:
    """Create connectors, ``CALLERS`` at a time, and wait until all are RUNNING.

    A failed or late call fails the measurement.
    """
    numbers = iter(range(count))

    async def caller() -> None:
        for number in numbers:
            await side.create(f"idle-{number:04}", source_config("idle", empty_file))

    started_s = time.monotonic()
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as calls:
        for _ in range(CALLERS):
            calls.create_task(caller())
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            if await side.running_count() == count:
                return count / (time.monotonic() - started_s)
            await pause(_POLL_S)


async def measure(
    jars: KafkaJars,
    bootstrap: str,
    folder: Path,
    *,
    workers: int = WORKERS,
    connector_count: int = CONNECTOR_COUNT,
    peer_count: int = PEER_COUNT,
) -> Sequence[Figure]:
    """Measure one side after the other: neither runs beside the other's idle connectors."""
    empty_file = folder / "empty.txt"
    empty_file.touch()
    async with connect_side(jars, bootstrap, folder / "connect", workers=workers) as connect:
        theirs = await connectors_a_second(connect, empty_file, peer_count)
    async with drover_side(bootstrap, folder / "drover", workers=workers) as drover:
        ours = await connectors_a_second(drover, empty_file, connector_count)
    figure = Figure(
        "kafka_connectors_running",
        ours,
        f"connectors/s ({connector_count} created and RUNNING, {workers} workers)",
        peer=f"Kafka Connect {jars.version}, {peer_count} of them, {workers} workers",
        peer_value=theirs,
        limit="ratio >= 10",
    )
    return [figure]


def figures() -> Iterator[Figure]:
    """1,000 connectors created until all are RUNNING on three workers; fewer by Kafka Connect."""
    yield from figures_on_broker("kafka-connectors", measure)
