"""Logs written by Kafka Connect: Drover runs their connectors and keeps records it does not use."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.clock import SystemClock
from drover.log.log import LogRecord, StoredRecord
from drover.log.sqlite import SqliteLog
from drover.model.failures import NEVER, RESTART_POLICY
from tests.support.fake_engine import SOURCE
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import RunningWorker, WorkerCluster

JAVA = "io.debezium.connector.postgresql.PostgresConnector"
CONNECT_WORKER = "10.0.0.9:8083"
#: A generation of Kafka Connect, higher than any of Drover's in these tests.
CONNECT_GENERATION = 57


def record(key: str, value: object) -> LogRecord:
    return LogRecord(key.encode(), json.dumps(value, separators=(",", ":")).encode())


def connector(name: str, class_name: str, **settings: str) -> list[LogRecord]:
    """The records of a connector with one task, as Kafka Connect writes them."""
    config = {"connector.class": class_name, **settings, "name": name}
    return [
        record(f"connector-{name}", {"properties": config}),
        record(f"task-{name}-0", {"properties": {**config, "task.class": f"{class_name}Task"}}),
        record(f"commit-{name}", {"tasks": 1}),
    ]


def status(key: str, state: str) -> LogRecord:
    value = {
        "state": state,
        "trace": None,
        "worker_id": CONNECT_WORKER,
        "generation": CONNECT_GENERATION,
        "version": "4.3.1",
    }
    return record(f"status-{key}", value)


async def write(path: Path, *records: LogRecord) -> None:
    log = await SqliteLog.open(path, SystemClock())
    try:
        await log.append(records)
    finally:
        await log.close()


async def latest(path: Path) -> Mapping[bytes, bytes | None]:
    """The last value of each key of a closed log."""
    log = await SqliteLog.open(path, SystemClock())
    try:
        found: list[StoredRecord] = [stored async for batch in log.read() for stored in batch]
    finally:
        await log.close()
    return {stored.record.key: stored.record.value for stored in found}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[WorkerCluster]:
    """A cluster whose services are not started."""
    async with WorkerCluster(tmp_path, start=False) as running:
        yield running


async def start(cluster: WorkerCluster) -> list[RunningWorker]:
    cluster.start()
    return await cluster.settled_workers(2)


async def test_connectors_without_a_plugin_fail_with_a_clear_word_and_disturb_no_other(
    cluster: WorkerCluster, tmp_path: Path
) -> None:
    names = [f"java-{number:02}" for number in range(50)]
    settings = {"tasks.max": "1", RESTART_POLICY: NEVER}
    records = [each for name in names for each in connector(name, JAVA, **settings)]
    await write(tmp_path / "config.db", *records, *connector("good", SOURCE))
    left = [each for name in (*names, "good") for each in (f"connector-{name}", f"task-{name}-0")]
    await write(tmp_path / "status.db", *(status(key, "RUNNING") for key in left))
    workers = await start(cluster)
    await cluster.running("good", 1, *workers)
    await cluster.state(workers[0], "good", "RUNNING", "RUNNING", 1)
    for name in names:
        await cluster.state(workers[0], name, "FAILED", "FAILED", 1)
        shown = await workers[0].status(name)
        assert JAVA in shown.connector.trace
        assert "is installed" in shown.tasks[0].trace
        addresses = {worker.address for worker in workers}
        assert {shown.connector.worker_id, shown.tasks[0].worker_id} <= addresses

    def generation() -> int:
        return workers[0].herder.context.generation

    # the joins of two workers, and the rewrite of the good connector's task config
    assert generation() <= 4
    request = pb.CreateConnectorRequest(name="later", config={"connector.class": SOURCE})
    before = generation()
    await workers[0].stub.CreateConnector(request, timeout=20)
    await cluster.running("later", 1, *workers)
    assert generation() <= before + 2


async def test_statuses_of_connect_workers_give_way_to_those_of_drovers(
    cluster: WorkerCluster, tmp_path: Path
) -> None:
    await write(tmp_path / "config.db", *connector("c", SOURCE), *connector("j", JAVA))
    stale = [
        status(f"{kind}-{name}", "RUNNING")
        for kind, name in (
            ("connector", "c"),
            ("task", "c-0"),
            ("connector", "j"),
            ("task", "j-0"),
            ("task", "c-7"),
        )
    ]
    await write(tmp_path / "status.db", *stale, status("connector-gone", "FAILED"))
    workers = await start(cluster)
    await cluster.state(workers[0], "c", "RUNNING", "RUNNING", 1)
    await cluster.state(workers[0], "j", "FAILED", "FAILED", 1)
    statuses = workers[0].herder.context.statuses
    await wait_until_async(
        lambda: CONNECT_WORKER not in {each.worker_id for each in statuses.values()}
    )


async def test_what_only_kafka_connect_uses_is_left_alone(
    cluster: WorkerCluster, tmp_path: Path
) -> None:
    own: list[tuple[str, Any]] = [
        ("tasks-fencing-c", {"task-count": 1}),
        ("logger-cluster-org.apache.kafka", {"level": "TRACE"}),
    ]
    foreign = [record(key, value) for key, value in own]
    await write(tmp_path / "config.db", *connector("c", SOURCE), *foreign)
    workers = await start(cluster)
    await cluster.running("c", 1, *workers)
    put = pb.PutConnectorConfigRequest(
        name="c", config={"connector.class": SOURCE, "tasks.max": "2"}
    )
    await workers[0].stub.PutConnectorConfig(put, timeout=20)
    await cluster.running("c", 2, *workers)
    for worker in workers:
        await worker.service.stop()
    await cluster.config_store.stop()
    values = await latest(tmp_path / "config.db")
    for each in foreign:
        assert values[each.key] == each.value


async def test_task_configs_that_drover_would_make_otherwise_are_written_anew(
    cluster: WorkerCluster, tmp_path: Path
) -> None:
    await write(tmp_path / "config.db", *connector("c", SOURCE))
    workers = await start(cluster)
    await cluster.running("c", 1, *workers)

    async def rewritten() -> bool:
        request = pb.ListTasksRequest(name="c")
        (task,) = (await workers[0].stub.ListTasks(request, timeout=10)).tasks
        return "task.class" not in task.config

    await wait_until_async(rewritten)
    await cluster.running("c", 1, *workers)
