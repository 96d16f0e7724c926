"""The time from a copy's creation until its first line is in the sink's file, on a real broker."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from bench.figure import Figure, percentile
from bench.kafka_sides import (
    Side,
    connect_side,
    created_copy,
    drover_side,
    figures_on_broker,
)
from bench.running import in_turn, size_of, wait_for
from tests.support.kafka.clients import create_topic
from tests.support.kafka.jars import KafkaJars

ROUNDS = 10
_TIMEOUT_S = 120.0
_LINE = "the first line\n"


async def first_row_s(side: Side, bootstrap: str, folder: Path, topic: str) -> float:
    """From the creation of the sink and then the source until the line is in the sink's file."""
    await asyncio.to_thread(create_topic, bootstrap, topic)
    source, target = folder / f"{topic}-in.txt", folder / f"{topic}-out.txt"
    source.write_text(_LINE)
    what = f"{target} by {side.name}"
    began_s = time.monotonic()
    async with created_copy(side, topic, source, target):
        arrived_s = await wait_for(
            lambda: size_of(target) >= len(_LINE), timeout_s=_TIMEOUT_S, what=what
        )
    return arrived_s - began_s


async def measure(jars: KafkaJars, bootstrap: str, folder: Path) -> Sequence[Figure]:
    """Measure both sides alternately, on warm workers."""
    async with AsyncExitStack() as stack:
        sides: list[Side] = [
            await stack.enter_async_context(drover_side(bootstrap, folder / "drover")),
            await stack.enter_async_context(connect_side(jars, bootstrap, folder / "connect")),
        ]
        ours, theirs = await in_turn(
            sides,
            lambda side, number: first_row_s(
                side, bootstrap, folder, f"first-row-{sides.index(side)}-{number}"
            ),
            rounds=ROUNDS,
        )
    figure = Figure(
        "kafka_first_row",
        percentile(ours, 0.5),
        "s from the creation of a sink and a source until the first line is in the sink's file",
        peer=f"Kafka Connect {jars.version} on the same broker, at least once",
        peer_value=percentile(theirs, 0.5),
        limit="<= 0.65 s",
        samples=ours,
    )
    return [figure]


def figures() -> Iterator[Figure]:
    """The first line of a new copy through a topic, on a warm worker."""
    yield from figures_on_broker("kafka-first-row", measure)
