"""Connectors whose set of task configs is incomplete in the log, over real services."""

from pathlib import Path

import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import channel
from drover.client.config_store import ConfigStoreClient
from drover.clock import SystemClock
from drover.log.log import LogRecord
from drover.log.sqlite import SqliteLog
from drover.model.config import ConnectorEntry
from drover.model.ids import TaskId
from drover_config_store.core.records import CommitRecord, ConfigRecord, TaskRecord, encode
from tests.support.fake_engine import SOURCE
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import RunningWorker, WorkerCluster


@pytest.fixture
async def workers(cluster: WorkerCluster) -> list[RunningWorker]:
    pair = await cluster.settled_workers(2)
    request = pb.CreateConnectorRequest(
        name="c", config={"connector.class": SOURCE, "tasks.max": "2"}
    )
    await pair[0].stub.CreateConnector(request, timeout=20)
    await cluster.running("c", 2, *pair)
    return pair


async def write(directory: Path, *records: ConfigRecord, compact: bool = False) -> None:
    """Append records as another cluster on this log would, while the config store is stopped."""
    log = await SqliteLog.open(directory / "config.db", SystemClock())
    try:
        await log.append([LogRecord(*encode(record)) for record in records])
        if compact:
            await log.compact()
    finally:
        await log.close()


async def stored(cluster: WorkerCluster, name: str) -> ConnectorEntry:
    async with channel(cluster.config_store_address) as opened:
        snapshot = await ConfigStoreClient(opened).get_snapshot(timeout_s=60)
    return snapshot.connectors[name]


async def test_a_task_record_that_compaction_took_is_written_again_at_the_start(
    cluster: WorkerCluster,
    workers: list[RunningWorker],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("drover.log.sqlite.KEPT_RECORD_COUNT", 0)  # Kafka's compaction spares none
    for worker in workers:
        await worker.service.stop()
    await cluster.config_store.stop()
    # an incomplete set: its record supersedes the committed one, which compaction then deletes
    await write(tmp_path, TaskRecord(TaskId("c", 0), {"part": "new"}), compact=True)
    cluster.config_store.start()
    assert (await stored(cluster, "c")).inconsistent
    later = await cluster.add_worker()
    await cluster.settled(later)
    await cluster.state(later, "c", "RUNNING", "RUNNING", 2)
    await cluster.running("c", 2, later)
    assert not (await stored(cluster, "c")).inconsistent


async def test_a_marker_without_its_tasks_is_healed_while_the_workers_run(
    cluster: WorkerCluster, workers: list[RunningWorker], tmp_path: Path
) -> None:
    await cluster.config_store.stop()
    await write(tmp_path, CommitRecord("c", 3))
    cluster.config_store.start()
    before = max(worker.herder.context.view.tasks_offset("c") for worker in workers)

    async def healed() -> bool:
        views = [worker.herder.context.view for worker in workers]
        return all(view.tasks_offset("c") > before and view.tasks("c") for view in views)

    await wait_until_async(healed)
    await cluster.state(workers[0], "c", "RUNNING", "RUNNING", 2)
    await cluster.running("c", 2, *workers)
