"""New engines for changed plugins: every task keeps running, and none fails or runs twice."""

import grpc.aio
import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import ConnectClient
from drover.errors import InvalidArgumentError
from tests.support.fake_engine import SOURCE
from tests.support.worker_cluster import RunningWorker, WorkerCluster


async def test_every_workers_engine_is_replaced_while_its_work_goes_on(
    cluster: WorkerCluster, three_workers: list[RunningWorker]
) -> None:
    async with grpc.aio.insecure_channel(three_workers[1].address) as channel:
        client = ConnectClient(channel)
        config = {"connector.class": SOURCE, "tasks.max": "5", "restart.policy": "never"}
        await client.create_connector("c", config)
        await cluster.running("c", 5, *three_workers)
        before = await client.list_plugins()
        for worker in three_workers:
            old, held = worker.engine, worker.tasks
            held_count = len(held) + len(old.running_connectors)
            old_loaded = before.plugins[0].load_time.ToNanoseconds()
            done = await client.reload_plugins(worker.address, everything=True, timeout_s=60)
            assert (done.worker_id, done.moved_count) == (worker.address, held_count)
            assert worker.engine is not old
            assert old.process_id is None
            assert not old.running_tasks
            assert worker.tasks == held
        after = await client.list_plugins()
        assert after.plugins[0].load_time.ToNanoseconds() > old_loaded
        await cluster.running("c", 5, *three_workers)
        status = await cluster.state(three_workers[0], "c", "RUNNING", "RUNNING", 5)
        assert not any(task.HasField("failures") for task in status.tasks)


async def test_a_worker_that_there_is_not_is_told(three_workers: list[RunningWorker]) -> None:
    async with grpc.aio.insecure_channel(three_workers[1].address) as channel:
        with pytest.raises(InvalidArgumentError, match=three_workers[0].address):
            await ConnectClient(channel).reload_plugins("nobody:1")


async def test_without_a_name_it_is_the_worker_that_is_called(
    three_workers: list[RunningWorker],
) -> None:
    other = three_workers[1]
    old = other.engine
    answer = await other.stub.ReloadPlugins(pb.ReloadPluginsRequest(all=True), timeout=30)
    assert (answer.worker_id, answer.moved_count) == (other.address, 0)
    assert other.engine is not old


async def test_without_a_changed_package_nothing_moves(
    three_workers: list[RunningWorker],
) -> None:
    other = three_workers[1]
    old = other.engine
    answer = await other.stub.ReloadPlugins(pb.ReloadPluginsRequest(), timeout=30)
    assert answer.unchanged
    assert (answer.moved_count, answer.kept_count) == (0, 0)
    assert other.engine is old
