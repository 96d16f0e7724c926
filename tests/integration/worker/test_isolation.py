"""One connector ends the engine; the others of the worker keep running, over real services."""

from collections import Counter

from drover.api.common.v1.failures_pb2 import FAILURE_CAUSE_ENGINE, FAILURE_CAUSE_LIMIT
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.model.ids import TaskId
from drover_worker.core.engine_slots import SHARED
from tests.support.fake_engine import SOURCE, FakeEngine
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import RunningWorker, WorkerCluster

BAD = TaskId("tickets", 0)
GOOD = [f"good-{number}" for number in range(10)]
WHY = "the engine ended with exit code 3"


def engine_of(worker: RunningWorker, task: TaskId) -> FakeEngine | None:
    return next((each for each in worker.engines.values() if task in each.running_tasks), None)


async def end_engine_of_bad(worker: RunningWorker) -> None:
    """``os._exit(3)`` in poll(): its engine ends, and a new one starts."""
    await wait_until_async(lambda: engine_of(worker, BAD) is not None)
    engine = engine_of(worker, BAD)
    assert engine is not None
    engine.die(WHY, at_work=[BAD])
    engine.come_back()


async def create(worker: RunningWorker, name: str) -> None:
    config = {"connector.class": SOURCE, "tasks": "1", "restart.backoff.ms": "1"}
    await worker.stub.CreateConnector(
        pb.CreateConnectorRequest(name=name, config=config), timeout=20
    )


async def test_of_ten_good_connectors_beside_a_bad_one_none_restarts_more_than_twice(
    cluster: WorkerCluster, worker: RunningWorker
) -> None:
    for name in (*GOOD, BAD.connector):
        await create(worker, name)
    for name in (*GOOD, BAD.connector):
        await cluster.running(name, 1, worker)
    for _ in range(5):
        await end_engine_of_bad(worker)

    async def is_stopped() -> bool:
        status = await worker.status(BAD.connector)
        return bool(status.tasks) and status.tasks[0].state == pb.RUN_STATE_FAILED

    await wait_until_async(is_stopped)
    restarts: Counter[str] = Counter()
    for name in GOOD:
        await cluster.running(name, 1, worker)
        task = (await worker.status(name)).tasks[0]
        restarts[name] = task.failures.failure_count
        assert {each.cause for each in task.failures.failures} == {FAILURE_CAUSE_ENGINE}
        assert "while tickets was at work" in task.failures.failures[0].message
        assert engine_of(worker, TaskId(name, 0)) is worker.engines[SHARED]
    assert max(restarts.values()) <= 2
    bad = await worker.status(BAD.connector)
    assert bad.tasks[0].failures.failures[-1].cause == FAILURE_CAUSE_LIMIT
    assert "in quarantine" in bad.tasks[0].trace.splitlines()[0]
    assert WHY in bad.tasks[0].trace
