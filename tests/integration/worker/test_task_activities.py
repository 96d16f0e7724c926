"""What tasks do at present, read from every worker over gRPC."""

import pytest

from drover.api.common.v1 import activity_pb2
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.codec.common import decode_counts, encode_timestamp
from drover.model.ids import TaskId
from drover.model.status import RecordCounts
from drover_worker.admin import figures
from drover_worker.shell import connector_figures
from tests.support.fake_engine import SINK, SOURCE
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import RunningWorker, WorkerCluster

C0, C1 = TaskId("c", 0), TaskId("c", 1)


def retrying(message: str) -> activity_pb2.TaskActivity:
    return activity_pb2.TaskActivity(
        step=activity_pb2.TASK_STEP_WAITING_TO_RETRY,
        step_time=encode_timestamp(1_000_000),
        retry=activity_pb2.TaskRetry(operation="poll()", failure_count=3, message=message),
    )


@pytest.fixture
async def workers(cluster: WorkerCluster) -> list[RunningWorker]:
    """Two workers; each runs a task of connector c."""
    found = await cluster.settled_workers(2)
    config = {"connector.class": SOURCE, "tasks.max": "2"}
    await found[0].stub.CreateConnector(
        pb.CreateConnectorRequest(name="c", config=config), timeout=20
    )
    await cluster.running("c", 2, *found)
    return found


def act(workers: list[RunningWorker], task: TaskId, message: str, read_count: int = 0) -> None:
    (owner,) = (each for each in workers if task in each.tasks)
    owner.engine.act(task, retrying(message), read_count)


def run_of(workers: list[RunningWorker], task: TaskId) -> int | None:
    runs = [each.herder.work.tasks[task] for each in workers if task in each.herder.work.tasks]
    return next((each.run_id for each in runs if each.running), None)


async def test_a_retry_is_visible_through_every_worker_while_the_state_is_running(
    workers: list[RunningWorker],
) -> None:
    act(workers, C0, "the API is down")
    act(workers, C1, "the table is locked")

    async def is_shown() -> bool:
        for worker in workers:
            request = pb.ListConnectorsRequest(include_status=True)
            listed = (await worker.stub.ListConnectors(request, timeout=20)).connectors[0].status
            for status in (await worker.status("c"), listed):
                told = [(each.state, each.activity.retry.message) for each in status.tasks]
                running = pb.RUN_STATE_RUNNING
                if told != [(running, "the API is down"), (running, "the table is locked")]:
                    return False
                assert all(each.HasField("records_per_second") for each in status.tasks)
        return True

    await wait_until_async(is_shown)


async def test_steps_write_nothing_to_the_status_store(workers: list[RunningWorker]) -> None:

    async def are_running() -> bool:
        return {each.state for each in (await workers[0].status("c")).tasks} == {
            pb.RUN_STATE_RUNNING
        }

    await wait_until_async(are_running)
    before = dict(workers[0].herder.context.statuses)
    for number in range(200):
        act(workers, C0, f"attempt {number}")

    async def is_shown() -> bool:
        status = await workers[1].status("c")
        return status.tasks[0].activity.retry.message == "attempt 199"

    await wait_until_async(is_shown)
    assert workers[0].herder.context.statuses == before


async def test_counts_are_totals_over_restarts(workers: list[RunningWorker]) -> None:
    act(workers, C0, "", 100)
    first_run = run_of(workers, C0)
    await workers[0].stub.RestartConnector(
        pb.RestartConnectorRequest(name="c", include_tasks=True), timeout=20
    )
    await wait_until_async(lambda: run_of(workers, C0) not in (None, first_run))
    act(workers, C0, "", 20)

    async def summed() -> bool:
        statuses = [await each.status("c") for each in workers]
        return all(decode_counts(each.counts) == RecordCounts(read_count=120) for each in statuses)

    await wait_until_async(summed)


async def test_a_total_is_the_sum_of_its_tasks_at_every_time(workers: list[RunningWorker]) -> None:
    for count in (100, 30, 7):
        act(workers, C0, "", count)
        for each in workers:
            status = await each.status("c")
            read_counts = [task.counts.read_count for task in status.tasks]
            assert status.counts.read_count == sum(read_counts)


async def test_counts_are_totals_over_a_stop(workers: list[RunningWorker]) -> None:
    act(workers, C0, "", 100)
    act(workers, C1, "", 11)
    await workers[0].stub.StopConnector(pb.StopConnectorRequest(name="c"), timeout=20)

    async def stopped() -> bool:
        status = await workers[1].status("c")
        return not status.tasks and status.counts.read_count == 111

    await wait_until_async(stopped)
    await workers[0].stub.ResumeConnector(pb.ResumeConnectorRequest(name="c"), timeout=20)

    async def resumed() -> bool:
        status = await workers[1].status("c")
        return len(status.tasks) == 2 and status.counts.read_count == 111

    await wait_until_async(resumed)


async def test_a_deleted_connectors_counts_end_with_it(workers: list[RunningWorker]) -> None:
    act(workers, C0, "", 100)
    await workers[0].stub.DeleteConnector(pb.DeleteConnectorRequest(name="c"), timeout=20)
    await wait_until_async(lambda: not any(C0 in each.herder.context.statuses for each in workers))


async def test_the_lag_of_a_sink_is_told(cluster: WorkerCluster) -> None:
    (worker,) = await cluster.settled_workers(1)
    config = {"connector.class": SINK, "topics": "t"}
    await worker.stub.CreateConnector(
        pb.CreateConnectorRequest(name="s", config=config), timeout=20
    )
    await cluster.running("s", 1, worker)
    worker.engine.count(TaskId("s", 0), RecordCounts(), lag_count=999)

    async def is_told() -> bool:
        status = await worker.status("s")
        return (status.lag, status.tasks[0].lag) == (999, 999)

    await wait_until_async(is_told)


async def test_figures_of_all_workers_are_one_series(
    workers: list[RunningWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (connector_figures, figures):
        monkeypatch.setattr(module, "INTERVAL_MS", 200)
    act(workers, C0, "", 100)
    act(workers, C1, "", 11)
    request = pb.GetConnectorFiguresRequest(name="c")

    async def are_complete() -> bool:
        for each in workers:
            found = await each.stub.GetConnectorFigures(request, timeout=20)
            assert not found.silent_worker_ids
            # at 200 ms, 1 record is 5 per second
            if sum(point.read_per_second for point in found.points) / 5 != pytest.approx(111):
                return False
        return True

    await wait_until_async(are_complete)
