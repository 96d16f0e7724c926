"""The same jobs with executors of several Spark masters: local ones, two in other processes, and
executors of a standalone cluster, one master after the other.
"""

import asyncio
import json
import secrets
import statistics
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.databases import TopicEnd, arrived_s
from bench.figure import Figure
from bench.kafka_copy import Job, Rounds, in_turn
from bench.kafka_first_row import first_row_s
from bench.kafka_sides import Side, drover_side, figures_on_broker, source_config
from bench.running import write_lines
from drover.local.spark_archive import write_archive
from tests.support.kafka.clients import create_topic
from tests.support.kafka.connect import JSON_CONVERTER
from tests.support.kafka.jars import KafkaJars
from tests.support.spark_cluster import SparkCluster

LINE_COUNT = 500_000
ROUNDS = 3
COPY = Job("spark_cluster_copy", "file -> topic -> file", "", line_count=LINE_COUNT, rounds=ROUNDS)
#: The lines of a job that spends its time in transforms.
HEAVY_LINE_COUNT = 100_000
_INSERTED = 40
LOCAL = "local[2]"
ONE_EXECUTOR, TWO_EXECUTORS = "local-cluster[1,1,1024]", "local-cluster[2,1,1024]"
STANDALONE = "a standalone cluster"
_PEER = f"the same with {LOCAL}"


@dataclass(slots=True)
class Measured:
    """What was measured with one master.

    Attributes:
        start_s: Until the worker of a new cluster is a member, with a warm engine.
        first_row_s: As kafka-first-row.
        copies: The rounds of the copy.
    """

    start_s: float = 0.0
    first_row_s: list[float] = field(default_factory=list)
    copies: Rounds = field(default_factory=Rounds)

    @property
    def cpu_us(self) -> float:
        """Microseconds of CPU for each line, without the broker's."""
        kinds = self.copies.cpu_s.keys() - {"broker"}
        return sum(self.copies.cpu_us(kind, LINE_COUNT) for kind in kinds)


@asynccontextmanager
async def on_master(bootstrap: str, folder: Path, master: str) -> AsyncIterator[tuple[Side, float]]:
    """A Drover cluster of one worker, and how many seconds its start took."""
    conf: dict[str, str] = {"spark.executor.memory": "512m"}
    async with AsyncExitStack() as stack:
        if master == STANDALONE:
            secret, archive = secrets.token_hex(16), folder / "drover.tar.gz"
            await asyncio.to_thread(write_archive, archive)
            cluster = stack.enter_context(
                closing(SparkCluster(folder / "spark", secret=secret, workers=1, cores=2))
            )
            await asyncio.to_thread(cluster.start)
            master = cluster.master_url
            conf |= cluster.engine_conf(archive)
        env = {"DROVER_SPARK_MASTER": master}
        if master != LOCAL:
            env["DROVER_SPARK_CONF"] = json.dumps(conf)
        began_s = time.monotonic()
        side = await stack.enter_async_context(drover_side(bootstrap, folder / "drover", env=env))
        yield side, time.monotonic() - began_s


async def measure_master(bootstrap: str, folder: Path, master: str, number: int) -> Measured:
    """Start, first row and copies with one master."""
    found = Measured()
    source = folder / "lines.txt"
    write_lines(source, LINE_COUNT)
    async with on_master(bootstrap, folder, master) as (side, start_s):
        found.start_s = start_s
        for row in range(ROUNDS + 1):
            seconds = await first_row_s(side, bootstrap, folder, f"first-{number}-{row}")
            if row:
                found.first_row_s.append(seconds)
        (found.copies,) = await in_turn([side], COPY, bootstrap, source, prefix=f"m{number}-")
    return found


def heavy_config(topic: str, source: Path) -> dict[str, str]:
    """A source whose transforms take most of its time."""
    inserted = [f"f{number}" for number in range(_INSERTED)]
    config = {
        **source_config(topic, source),
        "value.converter": JSON_CONVERTER,
        "transforms": ",".join(["hoist", *inserted]),
        "transforms.hoist.type": "org.apache.kafka.connect.transforms.HoistField$Value",
        "transforms.hoist.field": "line",
    }
    for name in inserted:
        config |= {
            f"transforms.{name}.type": "org.apache.kafka.connect.transforms.InsertField$Value",
            f"transforms.{name}.timestamp.field": name,
        }
    return config


async def heavy_rates(bootstrap: str, folder: Path, master: str) -> Sequence[float]:
    """Lines a second of the source with many transforms, with one master."""
    source = folder / "heavy.txt"
    write_lines(source, HEAVY_LINE_COUNT)
    rates = []
    async with on_master(bootstrap, folder, master) as (side, _):
        for number in range(ROUNDS + 1):
            topic = f"heavy-{folder.name}-{number}"
            await asyncio.to_thread(create_topic, bootstrap, topic)
            with TopicEnd(bootstrap, topic) as end:
                began_s = time.monotonic()
                await side.create(topic, heavy_config(topic, source))
                done_s = await arrived_s(
                    lambda end=end: end() >= HEAVY_LINE_COUNT,  # type: ignore[misc]
                    f"{HEAVY_LINE_COUNT} records of {topic}",
                )
            await side.delete(topic)
            if number:
                rates.append(HEAVY_LINE_COUNT / (done_s - began_s))
    return rates


async def measure(jars: KafkaJars, bootstrap: str, folder: Path) -> Sequence[Figure]:
    """All masters, one after the other."""
    del jars
    found: dict[str, Measured] = {}
    for number, master in enumerate((LOCAL, TWO_EXECUTORS, STANDALONE)):
        own = folder / str(number)
        own.mkdir()
        found[master] = await measure_master(bootstrap, own, master, number)
    heavy: dict[str, Sequence[float]] = {}
    for name, master in (("one", ONE_EXECUTOR), ("two", TWO_EXECUTORS)):
        own = folder / name
        own.mkdir()
        heavy[name] = await heavy_rates(bootstrap, own, master)
    return [*_figures(found), _two_executors(heavy)]


def _figures(found: Mapping[str, Measured]) -> Iterator[Figure]:
    local = found[LOCAL]
    for master, each in found.items():
        figure = partial(_beside_local, is_local=master == LOCAL)
        yield figure(
            "spark_cluster_copy_cpu",
            each.cpu_us,
            f"us of CPU a line ({LINE_COUNT} lines, {COPY.way}) with {master}",
            local.cpu_us,
            "ratio <= 1.15",
        )
        rate = statistics.median(each.copies.lines_per_s)
        yield figure(
            "spark_cluster_copy",
            rate,
            f"lines/s with {master}",
            statistics.median(local.copies.lines_per_s),
            samples=each.copies.lines_per_s,
        )
        yield figure(
            "spark_cluster_first_row",
            statistics.median(each.first_row_s),
            f"s until the first line is in the sink's file, with {master}",
            statistics.median(local.first_row_s),
            samples=each.first_row_s,
        )
        yield figure(
            "spark_cluster_start",
            each.start_s,
            f"s until the worker of a started cluster is a member, with {master}",
            local.start_s,
        )


def _beside_local(
    name: str,
    value: float,
    unit: str,
    local: float,
    limit: str = "",
    *,
    is_local: bool,
    samples: Sequence[float] = (),
) -> Figure:
    if is_local:
        return Figure(name, value, unit, samples=samples)
    return Figure(name, value, unit, _PEER, local, limit, samples)


def _two_executors(heavy: Mapping[str, Sequence[float]]) -> Figure:
    return Figure(
        "spark_cluster_two_executors",
        statistics.median(heavy["two"]),
        f"lines/s ({HEAVY_LINE_COUNT}, file -> {_INSERTED + 1} transforms -> JSON with schema)"
        " with two executors of one core",
        peer="the same with one executor",
        peer_value=statistics.median(heavy["one"]),
        limit="ratio >= 1.6",
        samples=heavy["two"],
    )


def figures() -> Iterator[Figure]:
    """CPU of a record, first row and start with local executors, others, and a Spark cluster."""
    yield from figures_on_broker("spark-cluster", measure)
