"""New engines for changed plugins: nothing fails, nothing runs twice, everything runs on."""

from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import ConnectClient
from drover.errors import InvalidArgumentError
from tests.support.fake_engine import SOURCE, FakeEngine
from tests.support.worker_cluster import RunningWorker, WorkerCluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[WorkerCluster]:
    async with WorkerCluster(tmp_path) as running:
        yield running


@pytest.fixture
async def workers(cluster: WorkerCluster) -> list[RunningWorker]:
    """The leader, then two followers."""
    three = [await cluster.add_worker() for _ in range(3)]
    await cluster.settled(*three)
    return sorted(three, key=lambda worker: not worker.leads)


def engine_of(worker: RunningWorker) -> FakeEngine:
    assert worker.engine is not None
    return worker.engine


async def test_every_workers_engine_is_replaced_while_its_work_goes_on(
    cluster: WorkerCluster, workers: list[RunningWorker]
) -> None:
    async with grpc.aio.insecure_channel(workers[1].address) as channel:
        client = ConnectClient(channel)
        config = {"connector.class": SOURCE, "tasks.max": "5", "restart.policy": "never"}
        await client.create_connector("c", config)
        await cluster.running("c", 5, *workers)
        before = await client.list_plugins()
        for worker in workers:
            old, held = engine_of(worker), worker.tasks
            held_count = len(held) + len(old.running_connectors)
            old_loaded = before.plugins[0].load_time.ToNanoseconds()
            done = await client.reload_plugins(worker.address, timeout_s=60)
            assert (done.worker_id, done.moved_count) == (worker.address, held_count)
            assert engine_of(worker) is not old
            assert old.process_id is None
            assert not old.running_tasks
            assert worker.tasks == held
        after = await client.list_plugins()
        assert after.plugins[0].load_time.ToNanoseconds() > old_loaded
        await cluster.running("c", 5, *workers)
        status = await cluster.state(workers[0], "c", "RUNNING", "RUNNING", 5)
        assert not any(task.HasField("failures") for task in status.tasks)


async def test_a_worker_that_there_is_not_is_told(workers: list[RunningWorker]) -> None:
    async with grpc.aio.insecure_channel(workers[1].address) as channel:
        with pytest.raises(InvalidArgumentError, match=workers[0].address):
            await ConnectClient(channel).reload_plugins("nobody:1")


async def test_without_a_name_it_is_the_worker_that_is_called(
    workers: list[RunningWorker],
) -> None:
    other = workers[1]
    old = engine_of(other)
    answer = await other.stub.ReloadPlugins(pb.ReloadPluginsRequest(), timeout=30)
    assert (answer.worker_id, answer.moved_count) == (other.address, 0)
    assert engine_of(other) is not old
