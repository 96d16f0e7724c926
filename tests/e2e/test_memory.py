"""A connector that exhausts memory fails for good; its neighbours keep running."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from drover.api.common.v1.failures_pb2 import FAILURE_CAUSE_ENGINE, FAILURE_CAUSE_PLUGIN
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import ConnectClient
from tests.support.cluster import EmbeddedCluster, embedded_cluster
from tests.support.flow import Flow
from tests.support.memory_limit import MemoryGroup, memory_group
from tests.support.plugins_for_tests import UsesUpTheHeap, UsesUpTheMemory, plugin
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.timeout(1_500),
    pytest.mark.faults("engine"),
]

ROOT = Path(__file__).parents[2]
#: Covers several engine starts one after another on a busy machine.
FAILED_TIMEOUT_S = 900.0
LIMIT_BYTES = 2_500 << 20


@pytest.fixture
def group() -> Iterator[MemoryGroup]:
    """A memory group with room for a healthy worker."""
    with memory_group(LIMIT_BYTES) as made:
        yield made


async def failed_for_good(client: ConnectClient, name: str) -> pb.TaskState:
    """The status of a connector's task once it is no longer retried."""

    async def found() -> pb.TaskState | None:
        status = await client.get_connector_status(name)
        for task in status.tasks:
            if task.failures.no_restart_reason:
                return task
        return None

    failed = await wait_until_async(
        found, timeout_s=FAILED_TIMEOUT_S, describe=f"{name} has failed for good"
    )
    assert failed is not None
    return failed


async def assert_only_it_fails(
    cluster: EmbeddedCluster, flow: Flow, config: dict[str, str]
) -> pb.TaskState:
    """The status of the failed task once it is no longer retried."""
    async with cluster.client() as client, flow.feeding():
        await flow.create_connectors(client)
        await flow.wait_until_passed("before anything uses up the memory")
        once = {"restart.attempts.max": "1"}
        await client.create_connector("greedy", {**config, **once})
        task = await failed_for_good(client, "greedy")
        assert task.trace.startswith("out of memory"), task.trace
        assert "batch.max.bytes" in task.trace
        causes = [each.cause for each in task.failures.failures]
        assert causes.count(FAILURE_CAUSE_PLUGIN) == 2, "restart.attempts.max, and one"
        await cluster.wait_for_task(flow.source)
        await cluster.wait_for_task(flow.sink)
        await flow.wait_until_passed("while what used up the memory stays failed")
        for name in (flow.source, flow.sink):
            status = await client.get_connector_status(name)
            for each in status.tasks:
                assert {f.cause for f in each.failures.failures} == {FAILURE_CAUSE_ENGINE}
    await flow.assert_equal()
    return task


async def test_a_connector_that_uses_up_the_jvms_heap(tmp_path: Path) -> None:
    env = {
        "DROVER_PLUGIN_MODULES": "tests.support",
        "DROVER_SPARK_CONF": '{"spark.driver.memory": "512m"}',
        "PYTHONPATH": str(ROOT),
    }
    config = {"connector.class": plugin(UsesUpTheHeap)}
    async with embedded_cluster(tmp_path, workers=1, env=env) as cluster:
        await cluster.wait_until_members()
        # either the task's call fails first or the JVM ends first
        await assert_only_it_fails(cluster, Flow(tmp_path, "heap"), config)
        assert "Spark's JVM ran out of its heap of 512m" in cluster.log("worker-1")


async def test_a_connector_that_the_kernel_has_the_engine_killed_for(
    tmp_path: Path, group: MemoryGroup
) -> None:
    env = {"DROVER_PLUGIN_MODULES": "tests.support", "PYTHONPATH": str(ROOT)}
    config = {"connector.class": plugin(UsesUpTheMemory)}
    async with embedded_cluster(tmp_path, workers=1, env=env) as cluster:
        await cluster.wait_until_members()
        worker = psutil.Process(cluster.process("worker-1").pid)
        group.add(each.pid for each in (worker, *worker.children(recursive=True)))
        task = await assert_only_it_fails(cluster, Flow(tmp_path, "kernel"), config)
    assert task.failures.failures[0].cause == FAILURE_CAUSE_ENGINE
    first, *_ = task.trace.splitlines()
    assert first.startswith("out of memory "), task.trace
    assert first.endswith(
        "the kernel killed the engine because the memory of 2.44 GiB was exhausted"
    )
