"""Connectors with their own engine, over real services."""

import pytest

from drover.api.common.v1.failures_pb2 import FAILURE_CAUSE_ENGINE
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import ConnectClient
from drover.errors import InvalidArgumentError
from drover.model.ids import TaskId
from drover_worker.core.engine_slots import SHARED, EngineSlot
from drover_worker.shell.engines import LimitKind, LimitsInForce
from tests.support.fake_engine import SOURCE
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import RunningWorker, WorkerCluster

CONFIG = {"connector.class": SOURCE, "tasks.max": "2"}
OWN = {**CONFIG, "engine": "own"}
SLOT = EngineSlot("own/b")
A0, B0, B1 = TaskId("a", 0), TaskId("b", 0), TaskId("b", 1)


@pytest.mark.parametrize("end_count", [3, pytest.param(100, marks=[pytest.mark.faults("engine")])])
async def test_the_end_of_an_own_engine_restarts_no_other_connector(
    cluster: WorkerCluster, worker: RunningWorker, client: ConnectClient, end_count: int
) -> None:
    await client.create_connector("a", CONFIG)
    await client.create_connector("b", OWN)
    for name in ("a", "b"):
        await cluster.running(name, 2, worker)
    own = worker.engines[SLOT]
    assert set(own.running_tasks) == {B0, B1}
    assert set(own.running_connectors) == {"b"}
    runs = dict(worker.engine.running_tasks)
    for count in range(1, end_count + 1):
        own.die()
        status = await cluster.state(worker, "b", "FAILED", "FAILED", 2)
        assert "the engine own/b ended" in status.tasks[0].trace
        own.come_back()
        status = await cluster.state(worker, "b", "RUNNING", "RUNNING", 2)
        failures = status.tasks[0].failures
        assert failures.failure_count == count
        assert {each.cause for each in failures.failures} == {FAILURE_CAUSE_ENGINE}
    assert worker.engine.running_tasks == runs
    assert not (await worker.status("a")).tasks[0].HasField("failures")


async def test_an_answer_goes_to_the_engine_that_asked(
    cluster: WorkerCluster, worker: RunningWorker, client: ConnectClient
) -> None:
    await client.create_connector("a", CONFIG)
    await client.create_connector("b", OWN)
    for name in ("a", "b"):
        await cluster.running(name, 2, worker)
    shared, own = worker.engine, worker.engines[SLOT]
    of_shared = shared.commit(A0, '{"file": "a"}', '{"line": 1}')
    of_own = own.commit(B0, '{"file": "b"}', '{"line": 1}')
    await wait_until_async(lambda: of_shared in shared.commit_results)
    await wait_until_async(lambda: of_own in own.commit_results)
    assert (len(shared.commit_results), len(own.commit_results)) == (1, 1)


async def test_a_change_of_the_engine_moves_the_connector(
    cluster: WorkerCluster, worker: RunningWorker, client: ConnectClient
) -> None:
    await client.create_connector("b", CONFIG)
    await cluster.running("b", 2, worker)
    await client.put_connector_config("b", {**OWN, "engine.memory": "1g", "engine.cores": "1"})
    slot = EngineSlot("own/b", 1 << 30, 1)
    await wait_until_async(lambda: slot in worker.engines)
    await wait_until_async(lambda: len(worker.engines[slot].running_tasks) == 2)
    assert not worker.engine.running_tasks
    worker.engines[slot].limits = LimitsInForce(LimitKind.CONTROL_GROUP, LimitKind.SPARK)
    info = await worker.stub.GetClusterInfo(pb.GetClusterInfoRequest(), timeout=20)
    shared, own = info.engines
    assert (shared.name, shared.up, shared.memory_bytes) == ("shared", True, 0)
    assert (own.name, own.up, own.memory_bytes, own.cores) == ("own/b", True, 1 << 30, 1)
    assert own.memory_limit == pb.ENGINE_LIMIT_CONTROL_GROUP
    assert own.cores_limit == pb.ENGINE_LIMIT_SPARK
    await client.put_connector_config("b", CONFIG)
    await wait_until_async(lambda: len(worker.engine.running_tasks) == 2)
    await wait_until_async(lambda: worker.engines[slot].process_id is None)
    assert worker.herder.context.engines.up == {SHARED}


async def test_an_engine_that_this_worker_cannot_run_is_rejected(
    worker: RunningWorker, client: ConnectClient
) -> None:
    wanted = {**OWN, "engine.memory": "100t", "engine.cores": "100000"}
    with pytest.raises(InvalidArgumentError) as caught:
        await client.create_connector("b", wanted)
    found = {each.field: each.description for each in caught.value.violations}
    assert "must be at most" in found['config["engine.cores"]']
    memory = found['config["engine.memory"]']
    assert "needs 100 TiB" in memory
    assert "- 2 GiB (the shared engine) =" in memory
    with pytest.raises(InvalidArgumentError) as caught:
        await client.create_connector("b", {**CONFIG, "engine.memory": "1g"})
    (violation,) = caught.value.violations
    assert "only with engine=own" in violation.description
