"""Draining workers through the admin API, over real services with fake engines."""

import asyncio

import grpc
import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.errors import Reason
from drover.rpc.status import from_rpc_error
from tests.support.fake_engine import SOURCE
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import RunningWorker, WorkerCluster

TASKS = 6


async def workers_with_work(
    cluster: WorkerCluster, count: int, **settings: str
) -> list[RunningWorker]:
    """The leader, then the followers; together they run a connector."""
    workers = await cluster.settled_workers(count, **settings)
    config = {"connector.class": SOURCE, "tasks.max": str(TASKS)}
    create = pb.CreateConnectorRequest(name="numbers", config=config)
    await workers[0].stub.CreateConnector(create, timeout=20)
    await cluster.running("numbers", TASKS, *workers)
    await cluster.settled(*workers)
    return sorted(workers, key=lambda worker: not worker.leads)


async def drain(via: RunningWorker, worker: RunningWorker) -> None:
    await via.stub.DrainWorker(pb.DrainWorkerRequest(worker_id=worker.address), timeout=20)


async def becomes(via: RunningWorker, worker: RunningWorker, state: int) -> None:
    async def shown() -> bool:
        answer = await via.stub.GetClusterInfo(pb.GetClusterInfoRequest(), timeout=20)
        return (worker.address, state) in {(each.worker_id, each.state) for each in answer.workers}

    await wait_until_async(shown)


@pytest.mark.parametrize("which", [0, 1], ids=["the leader", "a follower"])
async def test_a_drained_worker_holds_nothing_until_it_takes_work_again(
    cluster: WorkerCluster, which: int
) -> None:
    workers = await workers_with_work(cluster, 3)
    drained, via = workers[which], workers[2]
    others = [worker for worker in workers if worker is not drained]
    before = [set(worker.tasks) for worker in others]
    await drain(via, drained)
    await becomes(via, drained, pb.WORKER_STATE_DRAINED)
    await cluster.running("numbers", TASKS, *others)
    assert not drained.tasks
    assert all(b <= worker.tasks for b, worker in zip(before, others, strict=True))
    await drain(drained, drained)  # a repeated drain succeeds
    resume = pb.ResumeWorkerRequest(worker_id=drained.address)
    await via.stub.ResumeWorker(resume, timeout=20)
    await becomes(drained, drained, pb.WORKER_STATE_ACTIVE)
    await wait_until_async(lambda: len(drained.tasks) == TASKS // 3)
    await cluster.running("numbers", TASKS, *workers)


async def test_an_eager_group_drains_too(cluster: WorkerCluster) -> None:
    leader, follower = await workers_with_work(cluster, 2, connect_protocol="eager")
    await drain(leader, follower)
    await becomes(leader, follower, pb.WORKER_STATE_DRAINED)
    await cluster.running("numbers", TASKS, leader)


async def test_two_that_are_drained_at_once_do_not_both_go(cluster: WorkerCluster) -> None:
    workers = await workers_with_work(cluster, 2)
    answers = await asyncio.gather(
        *(drain(workers[0], worker) for worker in workers), return_exceptions=True
    )
    refusals = [from_rpc_error(each) for each in answers if isinstance(each, grpc.RpcError)]
    assert {each.reason for each in refusals} == {Reason.NO_OTHER_WORKER}
    await cluster.settled(*workers)
    await cluster.running("numbers", TASKS, *workers)


async def test_what_cannot_be_drained_is_told_at_once(cluster: WorkerCluster) -> None:
    (worker,) = await workers_with_work(cluster, 1)
    for worker_id, reason, says in (
        (worker.address, Reason.NO_OTHER_WORKER, "start another worker"),
        ("127.0.0.1:1", Reason.WORKER_NOT_FOUND, worker.address),
        ("worker-1", Reason.INVALID_REQUEST, "host:port"),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            await worker.stub.DrainWorker(pb.DrainWorkerRequest(worker_id=worker_id), timeout=20)
        error = from_rpc_error(caught.value)
        assert error.reason is reason
        assert says in error.message
    assert len(worker.tasks) == TASKS
