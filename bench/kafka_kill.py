"""The time to complete a copy through a topic of a real broker after a kill -9 in its middle."""

import asyncio
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.figure import Figure, percentile
from bench.kafka_sides import DroverSide, figures_on_broker, sink_config, source_config
from bench.running import sha256_of, size_of, wait_for, write_lines
from tests.support.cluster import EmbeddedCluster
from tests.support.kafka.clients import create_topic
from tests.support.kafka.connect import ConnectOptions
from tests.support.kafka.drover_cluster import drover_on_kafka
from tests.support.kafka.jars import KafkaJars

LINE_COUNT = 1_000_000
#: Rounds alternate: kill the worker of the source's task, kill the worker of the sink's task.
ROUNDS = 6
_TIMEOUT_S = 300.0


async def copy_with_kill(
    cluster: EmbeddedCluster, bootstrap: str, lines: Path, topic: str, *, killed: str
) -> float:
    """Seconds from the kill until all lines are in the target file, each exactly once.

    The kill hits the worker with the task of ``killed``, "source" or "sink", once a tenth of the
    lines is copied.

    Raises:
        TimeoutError: The copy is not complete in time.
        AssertionError: The copy differs from ``lines``.
    """
    await asyncio.to_thread(create_topic, bootstrap, topic)
    copied, target = lines.parent / f"{topic}-in.txt", lines.parent / f"{topic}-out.txt"
    copied.touch()
    async with cluster.client() as client:
        side = DroverSide(client)
        await side.create(f"{topic}-sink", sink_config(topic, target))
        await side.create(f"{topic}-source", source_config(topic, copied))
    task = await cluster.wait_for_task(f"{topic}-{killed}")
    await asyncio.to_thread(shutil.copyfile, lines, copied)
    size = lines.stat().st_size
    await wait_for(
        lambda: size_of(target) >= size // 10, timeout_s=_TIMEOUT_S, what=f"a tenth of {target}"
    )
    cluster.process(cluster.worker_name(task.worker_id)).kill()
    began_s = time.monotonic()
    assert size_of(target) < size, "the copy was complete before the kill"
    arrived_s = await wait_for(
        lambda: size_of(target) >= size, timeout_s=_TIMEOUT_S, what=f"all of {target}"
    )
    assert sha256_of(target) == sha256_of(lines), f"{target} is another file than {lines}"
    await cluster.wait_until_members()
    async with cluster.client() as client:
        for kind in ("source", "sink"):
            await DroverSide(client).delete(f"{topic}-{kind}")
    target.unlink()
    copied.unlink()
    return arrived_s - began_s


async def measure(jars: KafkaJars, bootstrap: str, folder: Path) -> Sequence[Figure]:
    """Measure with two workers; the killed one has restarted before the next round."""
    del jars
    lines = folder / "lines.txt"
    write_lines(lines, LINE_COUNT)
    options = ConnectOptions.named("bench-kill", exactly_once_source="enabled")
    (folder / "drover").mkdir()
    taken_s = []
    async with drover_on_kafka(bootstrap, options, folder / "drover", workers=2) as cluster:
        await cluster.wait_until_members()
        for number in range(ROUNDS):
            killed = ("source", "sink")[number % 2]
            topic = f"kill-{number}"
            taken_s.append(await copy_with_kill(cluster, bootstrap, lines, topic, killed=killed))
    figure = Figure(
        "kafka_copy_after_kill",
        percentile(taken_s, 0.5),
        f"s from kill -9 of a worker in a copy of {LINE_COUNT} lines until all are there, once;"
        " the worker of the source's task, then of the sink's",
        limit="<= 10 s",
        samples=taken_s,
    )
    return [figure]


def figures() -> Iterator[Figure]:
    """A copy through a topic is killed in its middle: the time until all lines are there, once."""
    yield from figures_on_broker("kafka-kill", measure)
