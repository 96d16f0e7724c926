"""Processes of Spark clusters are killed and frozen for two minutes, while files, tables and
changes of a database are copied.
"""

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import psutil
import pyarrow.dataset
import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.errors import DroverError
from drover.local.spark_archive import write_archive
from tests.support.child_process import ChildProcess
from tests.support.cluster import EmbeddedCluster
from tests.support.freezing import suspend
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import create_topic
from tests.support.kafka.connect import JSON_CONVERTER, ConnectOptions
from tests.support.kafka.copy import FileCopy
from tests.support.kafka.drover_cluster import drover_on_kafka
from tests.support.postgres import Postgres, running_postgres
from tests.support.spark_cluster import SparkCluster
from tests.support.waiting import pause, wait_until_async
from tests.support.yarn_cluster import YarnCluster

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.faults("spark"),
    pytest.mark.timeout(2_400),
]

SEED = 49
FAULTS_S = 120.0
PAUSE_S = (4.0, 10.0)
FROZEN_S = (3.0, 20.0)
#: The recovery after the last fault, on a shared machine.
RECOVERY_MAX_S = 900.0
ROWS_A_TURN = 200
_SECRET = "a-secret-of-tests-only"
_EXECUTOR = "executor"
_HOWS = ("kill", "freeze")


class Cluster(Protocol):
    """A cluster manager on this machine."""

    @property
    def services(self) -> Mapping[str, tuple[ChildProcess, Callable[[], None]]]:
        """Its processes, and what starts each."""
        ...

    def executors(self) -> list[psutil.Process]:
        """The executors."""
        ...


@dataclass(frozen=True, slots=True)
class Spark:
    """A cluster, and the environment of Drover's workers that use it."""

    cluster: Cluster
    env: Mapping[str, str]


@pytest.fixture(params=["standalone", "yarn"])
def spark(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Spark]:
    archive = tmp_path / "drover.tar.gz"
    write_archive(archive)
    if request.param == "standalone":
        standalone = SparkCluster(tmp_path / "spark", secret=_SECRET)
        cluster: SparkCluster | YarnCluster = standalone
        env = {"DROVER_SPARK_MASTER": standalone.master_url}
    else:
        yarn = YarnCluster(tmp_path / "yarn")
        cluster = yarn
        env = {"DROVER_SPARK_MASTER": "yarn", "HADOOP_CONF_DIR": str(yarn.conf)}
    conf = {**cluster.engine_conf(archive), "spark.executor.memory": "512m"}
    try:
        cluster.start()
        yield Spark(cluster, {**env, "DROVER_SPARK_CONF": json.dumps(conf)})
    finally:
        cluster.close()


@pytest.fixture
def database() -> Iterator[Postgres]:
    with running_postgres() as postgres:
        postgres.execute(
            "CREATE TABLE orders (id BIGINT PRIMARY KEY, note TEXT)",
            # without a key: a row that is written twice is there twice
            "CREATE TABLE inserted (LIKE orders)",
            "CREATE TABLE people (id BIGINT PRIMARY KEY, note TEXT)",
            "CREATE TABLE copied (LIKE people INCLUDING INDEXES)",
        )
        yield postgres


class Work:
    """Lines, rows and changes that grow, and their copies."""

    def __init__(self, postgres: Postgres, folder: Path, prefix: str) -> None:
        self._postgres = postgres
        self._prefix = prefix
        self._turn = 0
        self.lines = FileCopy(folder, "lines", f"{prefix}lines")
        self._parquet = folder / "parquet"
        values = {"value.converter": JSON_CONVERTER}
        self.lines.configs[self.lines.source] |= {
            **values,
            "transforms": "hoist",
            "transforms.hoist.type": "HoistField$Value",
            "transforms.hoist.field": "line",
        }
        self.lines.configs[self.lines.sink] = {
            "connector.class": "FilesSink",
            "topics": self.lines.topic,
            "path": str(self._parquet),
            "format": "parquet",
            **values,
        }

    @property
    def configs(self) -> dict[str, dict[str, str]]:
        """The connectors' configs by name."""
        patient = {"errors.retry.timeout": "120000"}
        sink = {**self._postgres.settings, **patient, "connector.class": "JdbcSink"}
        return {
            **self.lines.configs,
            "orders-source": {
                "connector.class": "JdbcSource",
                **self._postgres.settings,
                **patient,
                "mode": "incrementing",
                "incrementing.column.name": "id",
                "table.whitelist": "orders",
                "topic.prefix": f"{self._prefix}db-",
            },
            "orders-sink": {
                **sink,
                "topics": f"{self._prefix}db-orders",
                "table.name.format": "inserted",
            },
            "people-source": {
                "connector.class": "PostgresCdcSource",
                **self._postgres.cdc_settings,
                **patient,
                "topic.prefix": f"{self._prefix}cdc",
                "table.include.list": "public[.]people",
                "record.layout": "flat",
            },
            "people-sink": {
                **sink,
                "topics": f"{self._prefix}cdc.public.people",
                "table.name.format": "copied",
                "insert.mode": "upsert",
                "pk.mode": "record_key",
                "delete.enabled": "true",
            },
        }

    @property
    def topics(self) -> list[str]:
        """The topics between the sources and the sinks."""
        return [each["topics"] for each in self.configs.values() if "topics" in each]

    def grow(self) -> None:
        """Add lines and rows, and change and delete some rows."""
        first, self._turn = self._turn * ROWS_A_TURN, self._turn + 1
        numbers = range(first, first + ROWS_A_TURN)
        self.lines.append("".join(f"line {number}\n" for number in numbers))
        rows = f"SELECT n, 'note ' || n FROM generate_series({first}, {numbers[-1]}) n"
        self._postgres.execute(
            f"INSERT INTO orders {rows}",
            f"INSERT INTO people {rows}",
            f"UPDATE people SET note = note || '.' WHERE id % 7 = {self._turn % 7}",
            f"DELETE FROM people WHERE id % 61 = {self._turn % 61}",
        )

    def differences(self) -> list[str]:
        """What differs from its source; empty if all copies are complete, each row once."""
        found = []
        wanted = self.lines.input.read_text().splitlines()
        if self._copied_lines() != wanted:
            found.append(f"{len(self._copied_lines())} of {len(wanted)} lines")
        for source, copy in (("orders", "inserted"), ("people", "copied")):
            ((count,),) = self._postgres.rows(
                f"SELECT count(*) FROM ((TABLE {source} EXCEPT ALL TABLE {copy})"
                f" UNION ALL (TABLE {copy} EXCEPT ALL TABLE {source})) differing"
            )
            if count:
                found.append(f"{count} rows of {copy}")
        return found

    def _copied_lines(self) -> list[str]:
        # names have the offsets of the first record and behind the last one
        files = sorted(
            self._parquet.glob("*.parquet"), key=lambda path: int(path.name.split("-")[-3])
        )
        if not files:
            return []
        table = pyarrow.dataset.dataset([str(each) for each in files]).to_table(columns=["line"])
        return [str(each) for each in table["line"].to_pylist()]


@asynccontextmanager
async def growing(work: Work) -> AsyncIterator[None]:
    """Let the work grow twice a second within the block."""

    async def grow() -> None:
        while True:
            await asyncio.to_thread(work.grow)
            await pause(0.5)

    task = asyncio.create_task(grow())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def fault(cluster: Cluster, rng: random.Random, kind: str, how: str) -> None:
    """Kill a process and start it again, or freeze it for some seconds."""
    if kind == _EXECUTOR:
        for executor in cluster.executors()[:1]:
            with suppress(psutil.NoSuchProcess):
                if how == "kill":
                    executor.kill()
                    continue
                suspend(executor.pid)
                await pause(rng.uniform(*FROZEN_S))
                executor.resume()
        return
    process, start = cluster.services[kind]
    if how == "kill":
        process.kill()
        await pause(rng.uniform(*PAUSE_S))
        await asyncio.to_thread(start)
    else:
        process.freeze()
        await pause(rng.uniform(*FROZEN_S))
        process.thaw()


async def all_run(cluster: EmbeddedCluster, connectors: Mapping[str, object]) -> bool:
    """Whether all connectors and their tasks are RUNNING."""
    async with cluster.client() as client:
        for name in connectors:
            try:
                status = await client.get_connector_status(name, timeout_s=10)
            except DroverError:
                return False
            states = [status.connector.state, *(task.state for task in status.tasks)]
            if len(states) < 2 or set(states) != {pb.RUN_STATE_RUNNING}:
                return False
    return True


async def test_nothing_is_lost_or_written_twice_whatever_happens_to_the_cluster(
    spark: Spark, database: Postgres, kafka: Kafka, topic_prefix: str, tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    work = Work(database, tmp_path, topic_prefix)
    for topic in work.topics:
        create_topic(kafka.bootstrap, topic)
    options = ConnectOptions.named(f"{topic_prefix}cluster", exactly_once_source="enabled")
    done: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(
            drover_on_kafka(kafka.bootstrap, options, tmp_path / "drover", env=spark.env)
        )
        await cluster.wait_until_members()
        work.grow()
        client = await stack.enter_async_context(cluster.client())
        for name, config in work.configs.items():
            await client.create_connector(name, config)
        await wait_until_async(
            lambda: not work.differences(), timeout_s=RECOVERY_MAX_S, describe=work.differences
        )
        kinds = [(kind, how) for kind in (_EXECUTOR, *spark.cluster.services) for how in _HOWS]
        async with growing(work):
            end_s = time.monotonic() + FAULTS_S
            # each at least once, however slow the machine is
            while time.monotonic() < end_s or len(done) < len(kinds):
                left = [each for each in kinds if not done[" ".join(each)]] or kinds
                kind, how = rng.choice(left)
                await fault(spark.cluster, rng, kind, how)
                done[f"{kind} {how}"] += 1
                await pause(rng.uniform(*PAUSE_S))
            last_s = time.monotonic()
            await wait_until_async(
                partial(all_run, cluster, work.configs), timeout_s=RECOVERY_MAX_S
            )
            seconds = time.monotonic() - last_s
        await wait_until_async(
            lambda: not work.differences(), timeout_s=RECOVERY_MAX_S, describe=work.differences
        )
    sys.stdout.write(f"{dict(done)}; all ran {seconds:.1f} s after the last one\n")
