"""How long after its creation a copy through a topic of a real broker has its first line there."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

from tests.bench.figure import Figure, percentile
from tests.bench.kafka_sides import (
    Side,
    connect_side,
    drover_side,
    measured_broker,
    sink_config,
    source_config,
)
from tests.bench.running import size_of, wait_for
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
    began_s = time.monotonic()
    await side.create(f"{topic}-sink", sink_config(topic, target))
    await side.create(f"{topic}-source", source_config(topic, source))
    arrived_s = await wait_for(
        lambda: size_of(target) >= len(_LINE), timeout_s=_TIMEOUT_S, what=f"{target} by {side.name}"
    )
    for kind in ("source", "sink"):
        await side.delete(f"{topic}-{kind}")
    return arrived_s - began_s


async def measure(jars: KafkaJars, bootstrap: str, folder: Path) -> Figure:
    """In turn; the first round of each does not count."""
    async with AsyncExitStack() as stack:
        sides: list[Side] = [
            await stack.enter_async_context(drover_side(bootstrap, folder / "drover")),
            await stack.enter_async_context(connect_side(jars, bootstrap, folder / "connect")),
        ]
        samples_s: list[list[float]] = [[], []]
        for number in range(ROUNDS + 1):
            for index, side in enumerate(sides):
                topic = f"first-row-{index}-{number}"
                taken_s = await first_row_s(side, bootstrap, folder, topic)
                if number:
                    samples_s[index].append(taken_s)
    ours, theirs = samples_s
    return Figure(
        "kafka_first_row",
        percentile(ours, 0.5),
        "s from the creation of a sink and a source until the first line is in the sink's file",
        peer=f"Kafka Connect {jars.version} on the same broker, at least once",
        peer_value=percentile(theirs, 0.5),
        limit="<= 0.65 s",
        samples=ours,
    )


def figures() -> Iterator[Figure]:
    """The first line of a new copy through a topic, on a warm worker."""
    with measured_broker("kafka-first-row") as found:
        if found is not None:
            yield asyncio.run(measure(*found))
