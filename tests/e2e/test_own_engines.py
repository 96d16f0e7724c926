"""An engine for one connector is killed over and over; the other connectors do not notice."""

from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import ConnectClient
from tests.support.cluster import EmbeddedCluster, embedded_cluster
from tests.support.flow import Flow
from tests.support.plugins_for_tests import Idle, plugin
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.timeout(3_600),
    pytest.mark.faults("engine"),
]

ROOT = Path(__file__).parents[2]
#: Each start waits longer, up to half a minute; tests/integration has a hundred ends.
KILL_COUNT = 6
#: Covers an engine's start after the longest back-off, on a busy machine.
BACK_TIMEOUT_S = 300.0
NAME = "fragile"


def guards(cluster: EmbeddedCluster) -> list[psutil.Process]:
    """The guard of each engine of the worker."""
    found = []
    for process in psutil.Process(cluster.process("worker-1").pid).children():
        with suppress(psutil.Error):
            if "drover_worker.engine" in process.cmdline():
                found.append(process)
    return found


async def next_guard(cluster: EmbeddedCluster, *earlier: psutil.Process) -> psutil.Process:
    """The guard of the engine that is started after these."""

    def found() -> list[psutil.Process]:
        return [each for each in guards(cluster) if each not in earlier]

    (guard,) = await wait_until_async(
        found, timeout_s=BACK_TIMEOUT_S, describe="the engine is started"
    )
    return guard


async def own_engine_is_up(client: ConnectClient) -> bool:
    info = await client.get_cluster_info()
    return any(each.name == f"own/{NAME}" and each.up for each in info.engines)


async def task_of(client: ConnectClient, name: str) -> pb.TaskState:
    (task,) = (await client.get_connector_status(name)).tasks
    return task


async def test_kills_of_an_own_engine_restart_no_other_task(tmp_path: Path) -> None:
    env = {"DROVER_PLUGIN_MODULES": "tests.support", "PYTHONPATH": str(ROOT)}
    flow = Flow(tmp_path, "beside")
    async with (
        embedded_cluster(tmp_path, workers=1, env=env) as cluster,
        cluster.client() as client,
    ):
        await cluster.wait_until_members()
        (shared,) = guards(cluster)
        await flow.create_connectors(client)
        async with flow.feeding():
            await flow.wait_until_passed("before anything is killed")
            config = {"connector.class": plugin(Idle), "engine": "own", "engine.memory": "1g"}
            await client.create_connector(NAME, {**config, "engine.cores": "1"})
            await cluster.wait_for_task(NAME)
            own = await next_guard(cluster, shared)
            for number in range(KILL_COUNT):
                own.kill()
                own = await next_guard(cluster, shared, own)
                if number % 3 == 0:  # these live until Spark is up; the others are killed early
                    await wait_until_async(
                        partial(own_engine_is_up, client),
                        timeout_s=BACK_TIMEOUT_S,
                        describe="the engine is up again",
                    )
                    await flow.wait_until_passed(f"after kill {number}")
            await cluster.wait_for_task(NAME)
            assert shared in guards(cluster), "the shared engine is the first one"
            await flow.wait_until_passed("after all kills")
            for name in (flow.source, flow.sink):
                task = await task_of(client, name)
                assert task.state == pb.RUN_STATE_RUNNING
                assert not task.HasField("failures"), task
        await flow.assert_equal()
