"""Two workers with fake engines, real stores and a real coordinator."""

import asyncio

import grpc
import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.api.worker.v1 import worker_service_pb2 as worker_pb
from drover.api.worker.v1.worker_service_pb2_grpc import WorkerServiceStub
from drover.client import ConfigStoreClient, multipart
from drover.client.calls import channel
from drover.client.worker import WorkerClient
from drover.errors import AbortedError, Reason
from drover.model.ids import TaskId
from drover.rpc.status import from_rpc_error
from tests.support.fake_engine import SOURCE, UNLISTED
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import RunningWorker, WorkerCluster


def create(name: str, **settings: str) -> pb.CreateConnectorRequest:
    config = {"connector.class": SOURCE, "tasks.max": "4", **settings}
    return pb.CreateConnectorRequest(name=name, config=config)


@pytest.fixture
async def busy(cluster: WorkerCluster, workers: list[RunningWorker]) -> list[RunningWorker]:
    """The leader, then the follower; they run the connector ``numbers`` with four tasks."""
    await workers[0].stub.CreateConnector(create("numbers"), timeout=20)
    await cluster.state(workers[0], "numbers", "RUNNING", "RUNNING", 4)
    return workers


async def test_a_connector_created_through_a_follower_runs_on_both_workers(
    cluster: WorkerCluster, workers: list[RunningWorker]
) -> None:
    leader, follower = workers
    created = await follower.stub.CreateConnector(create("numbers"), timeout=20)
    assert created.connector.name == "numbers"
    assert created.connector.revision > 0
    both = {leader.address, follower.address}
    await cluster.state(follower, "numbers", "RUNNING", "RUNNING", 4, workers=both)
    await cluster.running("numbers", 4, leader, follower)
    assert (len(leader.tasks), len(follower.tasks)) == (2, 2)


async def test_task_configs_larger_than_a_message_reach_the_leader(
    cluster: WorkerCluster, workers: list[RunningWorker]
) -> None:
    leader, follower = workers
    # together the task configs exceed gRPC's 4 MiB
    large = {"tasks.max": "6", "padding": "900000"}
    for name in ("a", "b"):  # one connector for each worker
        await follower.stub.CreateConnector(create(name, **large), timeout=20)
    for name in ("a", "b"):
        await cluster.running(name, 6, leader, follower)
    assert [len(worker.engine.running_connectors) for worker in workers] == [1, 1]
    starts = [start for worker in workers for start in worker.engine.started.values()]
    assert {len(start.task_config["padding"]) for start in starts} == {900_000}
    assert len(starts) == 12


async def test_the_leader_writes_a_set_that_comes_in_parts_as_one_and_once(
    cluster: WorkerCluster, workers: list[RunningWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, follower = workers
    await follower.stub.CreateConnector(create("a", tasks="0"), timeout=20)
    # a paused connector does not run, so its owner sends no task configs
    await follower.stub.PauseConnector(pb.PauseConnectorRequest(name="a"), timeout=20)
    await cluster.state(follower, "a", "PAUSED", "PAUSED", 0)
    monkeypatch.setattr(multipart, "PART_MAX_BYTES", 1_000)
    configs = [{"part": str(number), "padding": "x" * 600} for number in range(3)]
    ends = []
    async with (
        await leader.internal_channel() as own,
        channel(cluster.config_store_address) as store,
    ):
        for _ in range(2):  # repeat the request, as after a lost response
            await WorkerClient(own).submit_task_configs(
                connector="a", task_configs=configs, request_id="r"
            )
            ends.append(await ConfigStoreClient(store).get_end_offset())
        assert ends[0] == ends[1]
        await cluster.running("a", 3, leader, follower)
        part = worker_pb.SubmitTaskConfigsRequest(connector="a", request_id="other", part=1)
        with pytest.raises(grpc.RpcError) as caught:
            await WorkerServiceStub(own).SubmitTaskConfigs(part, timeout=10)
    error = from_rpc_error(caught.value)
    assert isinstance(error, AbortedError)
    assert error.reason is Reason.PART_MISSING


@pytest.mark.parametrize(
    ("class_name", "expected"),
    [
        (SOURCE, pb.CONNECTOR_TYPE_SOURCE),
        ("IdleSink", pb.CONNECTOR_TYPE_SINK),
        (UNLISTED, pb.CONNECTOR_TYPE_SOURCE),
    ],
)
async def test_every_answer_tells_a_connectors_type_whether_its_plugin_is_listed_or_not(
    workers: list[RunningWorker], class_name: str, expected: int
) -> None:
    config = {"connector.class": class_name}
    create = pb.CreateConnectorRequest(name="a", config=config)
    put = pb.PutConnectorConfigRequest(name="a", config={**config, "tasks.max": "2"})
    leader, follower = workers
    answers = [
        (await follower.stub.CreateConnector(create, timeout=20)).connector,
        (await leader.stub.PutConnectorConfig(put, timeout=20)).connector,
    ]
    for worker in (follower, leader):
        get = pb.GetConnectorRequest(name="a")
        listing = pb.ListConnectorsRequest(include_config=True)
        answers.append((await worker.stub.GetConnector(get, timeout=20)).connector)
        page = await worker.stub.ListConnectors(listing, timeout=20)
        answers.append(page.connectors[0].connector)
        watch = worker.stub.WatchConnectors(pb.WatchConnectorsRequest(), timeout=20)
        answers.append((await anext(aiter(watch))).connector)
        watch.cancel()
    assert [answer.type for answer in answers] == [expected] * len(answers)


async def test_a_burst_of_connectors_costs_few_generations(
    cluster: WorkerCluster, workers: list[RunningWorker]
) -> None:
    def generation() -> int:
        return workers[0].herder.context.generation

    names = [f"c{index}" for index in range(50)]
    before = generation()
    await asyncio.gather(
        *(
            w.stub.CreateConnector(create(n), timeout=60)
            for n, w in zip(names, workers * 25, strict=True)
        )
    )
    for name in names:
        await cluster.running(name, 4, *workers)
    assert generation() - before < 20


async def test_a_deleted_connector_stops_and_its_statuses_go(
    cluster: WorkerCluster, busy: list[RunningWorker]
) -> None:
    leader, follower = busy
    await follower.stub.DeleteConnector(pb.DeleteConnectorRequest(name="numbers"), timeout=20)
    await cluster.running("numbers", 0, leader, follower)
    await wait_until_async(lambda: not follower.herder.context.statuses)


async def test_pause_keeps_tasks_where_they_are_and_resume_goes_on(
    cluster: WorkerCluster, busy: list[RunningWorker]
) -> None:
    leader, follower = busy
    before = {w.address: w.tasks for w in busy}
    await follower.stub.PauseConnector(pb.PauseConnectorRequest(name="numbers"), timeout=20)
    await cluster.state(leader, "numbers", "PAUSED", "PAUSED", 4)
    assert {w.address: w.tasks for w in busy} == before
    await follower.stub.ResumeConnector(pb.ResumeConnectorRequest(name="numbers"), timeout=20)
    await cluster.state(leader, "numbers", "RUNNING", "RUNNING", 4)


async def test_stop_takes_the_tasks_away_and_resume_brings_them_back(
    cluster: WorkerCluster, busy: list[RunningWorker]
) -> None:
    leader, follower = busy
    await follower.stub.StopConnector(pb.StopConnectorRequest(name="numbers"), timeout=20)
    await cluster.state(leader, "numbers", "STOPPED", "", 0)
    await cluster.running("numbers", 0, leader, follower)
    await follower.stub.ResumeConnector(pb.ResumeConnectorRequest(name="numbers"), timeout=20)
    await cluster.state(leader, "numbers", "RUNNING", "RUNNING", 4)


@pytest.mark.parametrize("victim", [0, 1], ids=["the leader", "the follower"])
async def test_the_work_of_a_killed_worker_moves_to_the_other(
    cluster: WorkerCluster, busy: list[RunningWorker], victim: int
) -> None:
    dead, survivor = busy[victim], busy[1 - victim]
    await dead.service.kill()
    await cluster.running("numbers", 4, survivor)
    await cluster.state(survivor, "numbers", "RUNNING", "RUNNING", 4, workers={survivor.address})


async def test_tasks_of_a_killed_worker_that_cannot_start_are_not_shown_as_running(
    cluster: WorkerCluster, busy: list[RunningWorker]
) -> None:
    leader, follower = busy
    lost = {task.task for task in follower.tasks}
    leader.engine.die()
    await follower.service.kill()

    async def nobody_runs_them() -> bool:
        status = await leader.status("numbers")
        return {t.task for t in status.tasks if t.state == pb.RUN_STATE_UNASSIGNED} == lost

    await wait_until_async(nobody_runs_them)
    leader.engine.come_back()
    await cluster.state(leader, "numbers", "RUNNING", "RUNNING", 4, workers={leader.address})


async def test_a_stopped_worker_hands_its_work_over_and_says_so(
    cluster: WorkerCluster, busy: list[RunningWorker]
) -> None:
    leader, follower = busy
    await leader.service.stop()
    await cluster.running("numbers", 4, follower)
    await cluster.state(follower, "numbers", "RUNNING", "RUNNING", 4)


async def test_its_work_does_not_wait_for_the_return_of_a_worker_that_was_told_to_end(
    cluster: WorkerCluster,
) -> None:
    a_day = {"scheduled_rebalance_max_delay_ms": 86_400_000}
    pair = [await cluster.add_worker(**a_day) for _ in range(2)]
    await cluster.settled(*pair)
    await pair[0].stub.CreateConnector(create("numbers"), timeout=20)
    await cluster.running("numbers", 4, *pair)
    follower = next(worker for worker in pair if not worker.leads)
    await follower.service.stop()
    (leader,) = [worker for worker in pair if worker is not follower]
    await cluster.running("numbers", 4, leader)


async def test_its_work_does_not_wait_for_the_return_of_a_worker_whose_connection_is_gone(
    cluster: WorkerCluster,
) -> None:
    a_day = {"scheduled_rebalance_max_delay_ms": 86_400_000}
    trio = [await cluster.add_worker(**a_day) for _ in range(3)]
    await cluster.settled(*trio)
    await trio[0].stub.CreateConnector(create("numbers", **{"tasks.max": "6"}), timeout=20)
    await cluster.running("numbers", 6, *trio)
    killed = next(worker for worker in trio if not worker.leads)
    await killed.service.kill()
    left = [worker for worker in trio if worker is not killed]
    await cluster.running("numbers", 6, *left)


async def test_workers_that_are_told_to_end_together_just_end(busy: list[RunningWorker]) -> None:
    await asyncio.gather(*(worker.service.stop() for worker in busy))
    for worker in busy:
        assert worker.loop.halted.is_set()


async def test_a_restart_through_the_worker_that_does_not_own_the_task(
    busy: list[RunningWorker],
) -> None:
    leader, follower = busy
    theirs = min(leader.tasks)
    before = leader.engine.running_tasks[theirs]
    await follower.stub.RestartTask(
        pb.RestartTaskRequest(name="numbers", task=theirs.task), timeout=20
    )
    assert leader.engine.running_tasks[theirs] > before
    mine = min(follower.tasks)
    before = follower.engine.running_tasks[mine]
    await leader.stub.RestartTask(pb.RestartTaskRequest(name="numbers", task=mine.task), timeout=20)
    assert follower.engine.running_tasks[mine] > before


async def test_only_what_failed_restarts(cluster: WorkerCluster, busy: list[RunningWorker]) -> None:
    leader, follower = busy
    failed = min(follower.tasks)
    follower.engine.fail_task(failed, "Traceback: the file is gone")
    others = {w.address: dict(w.engine.running_tasks) for w in busy}

    async def shows_failure() -> bool:
        status = await leader.status("numbers")
        return status.tasks[failed.task].trace == "Traceback: the file is gone"

    await wait_until_async(shows_failure)
    restarted = await leader.stub.RestartConnector(
        pb.RestartConnectorRequest(name="numbers", include_tasks=True, only_failed=True),
        timeout=20,
    )
    states = {t.task: pb.RunState.Name(t.state) for t in restarted.planned_status.tasks}
    expected = dict.fromkeys(range(4), "RUN_STATE_RUNNING")
    assert states == {**expected, failed.task: "RUN_STATE_RESTARTING"}
    await cluster.state(leader, "numbers", "RUNNING", "RUNNING", 4)
    for worker in busy:
        for task, run_id in worker.engine.running_tasks.items():
            assert (run_id == others[worker.address][task]) == (task != failed)


async def test_tasks_come_back_with_their_engine(
    cluster: WorkerCluster, busy: list[RunningWorker]
) -> None:
    leader, follower = busy
    lost = follower.tasks
    follower.engine.die()

    async def lost_tasks_failed() -> bool:
        status = await leader.status("numbers")
        failed = {t.task for t in status.tasks if t.state == pb.RUN_STATE_FAILED}
        return failed == {task.task for task in lost}

    await wait_until_async(lost_tasks_failed)
    follower.engine.come_back()
    await cluster.state(leader, "numbers", "RUNNING", "RUNNING", 4)
    assert follower.tasks == lost


async def test_sink_commits_travel_to_the_coordinator_and_back(
    busy: list[RunningWorker],
) -> None:
    leader, follower = busy
    engine = follower.engine
    assert engine is not None
    task = min(follower.tasks)
    partition = '{"kafka_topic":"t","kafka_partition":0}'
    call_id = engine.commit(task, partition, '{"kafka_offset":5}')
    await wait_until_async(lambda: call_id in engine.commit_results)
    assert engine.commit_results[call_id].message == ""
    offsets = await leader.stub.GetConnectorOffsets(
        pb.GetConnectorOffsetsRequest(name="numbers"), timeout=20
    )
    assert [(o.partition_json, o.offset_json) for o in offsets.offsets] == [
        (partition, '{"kafka_offset":5}')
    ]


async def test_workers_wait_for_stores_that_are_away(
    cluster: WorkerCluster, busy: list[RunningWorker]
) -> None:
    leader, follower = busy
    before = {w.address: w.tasks for w in busy}
    await cluster.config_store.stop()
    await cluster.status_store.stop()
    follower.engine.fail_task(min(follower.tasks), "failed while the status store was away")
    restart = follower.stub.PauseConnector(pb.PauseConnectorRequest(name="numbers"), timeout=30)
    cluster.config_store.start()
    cluster.status_store.start()
    await restart
    await wait_until_async(lambda: all(w.stage == "SETTLED" for w in busy))
    assert {w.address: w.tasks for w in busy} == before

    async def failure_arrived() -> bool:
        status = await leader.status("numbers")
        return any(t.state == pb.RUN_STATE_FAILED for t in status.tasks)

    await wait_until_async(failure_arrived)
    assert TaskId("numbers", 0) in set().union(*before.values())
