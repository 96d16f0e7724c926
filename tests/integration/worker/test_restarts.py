"""Failed tasks restart automatically, over real services."""

from drover.api.common.v1.failures_pb2 import FAILURE_CAUSE_ENGINE, FAILURE_CAUSE_PLUGIN
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.model.ids import TaskId
from tests.support.fake_engine import SOURCE, FakeEngine
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import RunningWorker, WorkerCluster

TASK = TaskId("c", 0)


async def create(worker: RunningWorker, name: str = "c", **settings: str) -> None:
    config = {"connector.class": SOURCE, **{k.replace("_", "."): v for k, v in settings.items()}}
    await worker.stub.CreateConnector(
        pb.CreateConnectorRequest(name=name, config=config), timeout=20
    )


def engine_of(workers: list[RunningWorker]) -> FakeEngine:
    (owner,) = [worker for worker in workers if TASK in worker.tasks]
    return owner.engine


async def shown(worker: RunningWorker) -> pb.TaskState:
    return (await worker.status("c")).tasks[0]


async def reached(worker: RunningWorker, state: int, *, failure_count: int) -> pb.TaskState:
    async def is_reached() -> bool:
        task = await shown(worker)
        return task.state == state and task.failures.failure_count == failure_count

    await wait_until_async(is_reached)
    return await shown(worker)


async def test_a_task_that_fails_runs_again_and_every_worker_tells_how_often(
    cluster: WorkerCluster, workers: list[RunningWorker]
) -> None:
    await create(workers[0], restart_backoff_ms="20", restart_attempts_max="2")
    await cluster.running("c", 1, *workers)
    for count in (1, 2):
        engine_of(workers).fail_task(TASK, "boom")
        for worker in workers:
            await reached(worker, pb.RUN_STATE_RUNNING, failure_count=count)
    engine_of(workers).fail_task(TASK, "boom")
    for worker in workers:
        task = await reached(worker, pb.RUN_STATE_FAILED, failure_count=3)
        assert [each.message for each in task.failures.failures] == ["boom"] * 3
        assert task.failures.failures[0].cause == FAILURE_CAUSE_PLUGIN
        assert "restart.attempts.max=2" in task.failures.no_restart_reason
        assert not task.failures.HasField("restart_time")
    await workers[1].stub.RestartTask(pb.RestartTaskRequest(name="c", task=0), timeout=20)
    await reached(workers[0], pb.RUN_STATE_RUNNING, failure_count=0)


async def test_a_change_of_another_connector_leaves_what_failed_alone(
    cluster: WorkerCluster, workers: list[RunningWorker]
) -> None:
    await create(workers[0], restart_policy="never")
    await cluster.running("c", 1, *workers)
    engine_of(workers).fail_task(TASK, "boom")
    failed = await reached(workers[0], pb.RUN_STATE_FAILED, failure_count=1)
    assert failed.failures.no_restart_reason == "restart.policy=never"
    for name in ("a", "b", "d"):
        await create(workers[0], name)
        await cluster.running(name, 1, *workers)
    await cluster.settled(*workers)
    task = await reached(workers[1], pb.RUN_STATE_FAILED, failure_count=1)
    assert task.failures == failed.failures
    assert task.trace == "boom"


async def test_the_end_of_an_engine_is_counted_against_nobody(
    cluster: WorkerCluster, workers: list[RunningWorker]
) -> None:
    await create(workers[0], restart_policy="never")
    await cluster.running("c", 1, *workers)
    for count in (1, 2):
        engine = engine_of(workers)
        engine.die()
        await reached(workers[0], pb.RUN_STATE_FAILED, failure_count=count)
        engine.come_back()
        task = await reached(workers[0], pb.RUN_STATE_RUNNING, failure_count=count)
        assert {each.cause for each in task.failures.failures} == {FAILURE_CAUSE_ENGINE}
