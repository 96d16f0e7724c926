"""The same Java plugins in Drover and in Kafka Connect: same database, same broker, one process of
each alternating.
"""

import asyncio
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from bench import cdc_changes, topic_sinks
from bench.cpu_time import kind_of
from bench.databases import (
    DEFAULTS,
    ROW_COUNT,
    Contestant,
    Stage,
    TopicEnd,
    arrived_s,
    measured_servers,
)
from bench.figure import Figure
from bench.kafka_copy import Job, compared
from bench.kafka_sides import connect_side, drover_side, source_config
from drover.java_plugins.host import Plugins, disposable
from drover.local.process import descendants
from tests.support.java_plugins import FILE_SINK, FILE_SOURCE, STRING_CONVERTER, file_plugin
from tests.support.kafka.clients import create_topic
from tests.support.kafka.debezium import find_debezium
from tests.support.kafka.jars import KafkaJars
from tests.support.kafka.missing import KafkaMissingError
from tests.support.postgres import Postgres
from tests.support.waiting import pause

ROUNDS = 5
#: With its defaults Debezium writes some ten thousand changes a second.
CHANGE_COUNT = min(ROW_COUNT, 200_000)
AT_LEAST_AS_FAST = "ratio >= 1"
HOSTED = "hosted"
_PLUGIN_JVM = "Java plugins"
#: A database, a topic and connectors without work.
_IDLE = "unused"
_START_TIMEOUT_S = 120.0
_POLL_S = 0.1
_SOURCE = {"connector.class": FILE_SOURCE}
FILE = Job(
    "java_file_copy",
    "file -> topic -> file by Kafka's file connectors",
    AT_LEAST_AS_FAST,
    source=_SOURCE,
    sink={"connector.class": FILE_SINK},
    is_flowing=True,
)
FILES = replace(
    FILE,
    figure="java_file_copies",
    way="4 files -> 4 topics -> 4 files by Kafka's file connectors",
    line_count=250_000,
    copy_count=4,
)


@dataclass(frozen=True, slots=True)
class JavaStage(Stage):
    """Drover runs Debezium's connectors too."""

    @property
    def contestants(self) -> tuple[Contestant, ...]:
        """Drover first; both with the connectors' defaults."""
        return Contestant(HOSTED, self.drover), Contestant(DEFAULTS, self.connect)


async def first_record_s(stage: Stage, number: int, topic: str, file: Path) -> float:
    """From the start of a stopped connector, with no JVM of the plugin, until its record is there.

    Raises:
        TimeoutError: It does not arrive, or the JVM of the round before does not end.
    """
    await stage.drover.stop(topic)
    await arrived_s(lambda: not _plugin_jvms(), "the end of the plugin's JVM")
    with TopicEnd(stage.bootstrap, topic) as end:
        before = await asyncio.to_thread(end)
        with file.open("a") as lines:
            lines.write(f"line {number}\n")
        began_s = time.monotonic()
        await stage.drover.resume(topic)
        # a transaction marker follows the record
        return await arrived_s(lambda: end() > before, f"line {number} in {topic}") - began_s


def _plugin_jvms() -> list[psutil.Process]:
    found = []
    for process in descendants(os.getpid()):
        try:
            if kind_of(" ".join(process.cmdline())) == _PLUGIN_JVM:
                found.append(process)
        except psutil.Error:
            continue
    return found


def host_alone_s(file: Path) -> float:
    """The start of a JVM with the same plugin, until a task in it has polled a record."""
    config = {**source_config("alone", file), **_SOURCE, "name": "alone"}
    config["key.converter"] = STRING_CONVERTER
    config["header.converter"] = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
    began_s = time.monotonic()
    with disposable(Plugins((file_plugin(),), "connect-file")) as host:
        run = host.call(
            "start_source",
            connector="alone",
            task=0,
            connector_config=config,
            task_config=config,
            offsets=[],
        )["run"]
        while not host.call("await_start", run=run, wait_ms=500)["started"]:
            pass
        while "batch" not in host.call("poll", run=run, records_max=1_000, bytes_max=1 << 20):
            pass
        return time.monotonic() - began_s


async def first_task(stage: Stage, *, rounds: int = ROUNDS) -> Figure:
    """The start of a plugin's first task on a warm worker, beside the JVM alone."""
    topic, file = "java-first-task", stage.folder / "first-task.txt"
    file.write_text("the first line\n")
    await asyncio.to_thread(create_topic, stage.bootstrap, topic)
    await stage.drover.create(topic, {**source_config(topic, file), **_SOURCE})
    with TopicEnd(stage.bootstrap, topic) as end:
        await arrived_s(lambda: end() > 0, f"the first line in {topic}")
    ours, alone = [], []
    for number in range(rounds):
        ours.append(await first_record_s(stage, number, topic, file))
        alone.append(await asyncio.to_thread(host_alone_s, file))
    await stage.drover.delete(topic)
    return Figure(
        "java_first_task",
        statistics.median(ours),
        "s from the start of a connector until its first record is in the topic, with a new JVM",
        peer="the JVM, the task and a poll alone",
        peer_value=statistics.median(alone),
        limit="ratio <= 1.5",
        samples=ours,
    )


async def _keep_debezium(stage: JavaStage) -> None:
    """Run idle connectors in Debezium's JVMs, which end some time after their last use: rounds that
    take long would each measure a JVM that compiles its code again.
    """
    stage.postgres.execute(f"CREATE DATABASE {_IDLE}")
    source = {
        **cdc_changes.debezium_config(stage.postgres, _IDLE),
        "database.dbname": _IDLE,
        "publication.autocreate.mode": "all_tables",
    }
    sink = {**topic_sinks.debezium_sink(stage.postgres, _IDLE), "topics": _IDLE}
    await asyncio.to_thread(create_topic, stage.bootstrap, _IDLE)
    await stage.drover.create(f"{_IDLE}-source", source)
    await stage.drover.create(f"{_IDLE}-sink", sink)
    async with asyncio.timeout(_START_TIMEOUT_S):
        while await stage.drover.running_count() < 2:
            await pause(_POLL_S)


async def measure(stage: JavaStage, jars: KafkaJars) -> AsyncIterator[Figure]:
    """All figures."""
    sides = [stage.drover, stage.connect]
    peer = f"Kafka Connect {jars.version} on the same broker, at least once"
    yield await first_task(stage)
    # keeps the plugin's JVM running between the rounds, as Kafka Connect's runs
    idle = stage.folder / "idle.txt"
    idle.touch()
    await stage.drover.create("idle", {**source_config("idle", idle), **_SOURCE})
    for job in (FILE, FILES):
        for figure in await compared(sides, job, stage.bootstrap, stage.folder, peer):
            yield figure
    await stage.drover.delete("idle")
    await _keep_debezium(stage)
    for figure in await cdc_changes.measure(
        stage,
        change_count=CHANGE_COUNT,
        rounds=ROUNDS,
        name="java_changes",
        limit=AT_LEAST_AS_FAST,
    ):
        yield figure
    await topic_sinks.fill_topic(stage.bootstrap, CHANGE_COUNT)
    for figure in await topic_sinks.upserts(
        stage,
        record_count=CHANGE_COUNT,
        rounds=ROUNDS,
        name="java_upserts",
        limit=AT_LEAST_AS_FAST,
    ):
        yield figure


@asynccontextmanager
async def staged(
    jars: KafkaJars, bootstrap: str, folder: Path, postgres: Postgres
) -> AsyncIterator[JavaStage]:
    """Both sides with the plugins.

    Raises:
        KafkaMissingError: Debezium's connectors are not available.
    """
    debezium = find_debezium()
    plugins = {
        "DROVER_PLUGIN_PATH": f"{file_plugin().parent},{debezium.directory}",
        "DROVER_JAVA_PREFERRED": "org.apache.kafka.connect.file.*,io.debezium.*",
    }
    async with (
        connect_side(
            jars, bootstrap, folder / "connect", settings=debezium.worker_settings
        ) as connect,
        drover_side(bootstrap, folder / "drover", env=plugins) as drover,
    ):
        yield JavaStage(postgres, bootstrap, drover, connect, debezium, folder)


async def _measured(
    jars: KafkaJars, bootstrap: str, folder: Path, postgres: Postgres
) -> AsyncIterator[Figure]:
    async with staged(jars, bootstrap, folder, postgres) as stage:
        async for figure in measure(stage, jars):
            yield figure


def figures() -> Iterator[Figure]:
    """Java plugins in Drover beside Kafka Connect: files, Debezium's changes and JDBC sink."""
    with measured_servers("java") as servers:
        if servers is None:
            return
        measured = _measured(*servers)

        async def next_figure() -> Figure | None:
            return await anext(measured, None)

        # each figure as soon as it is there: all of them take half an hour
        with asyncio.Runner() as runner:
            try:
                while (figure := runner.run(next_figure())) is not None:
                    yield figure
            except KafkaMissingError as error:
                sys.stderr.write(f"java is skipped: {error}\n")
