"""Real worker processes stopped one after another with SIGTERM; the test counts task stops."""

import signal
from pathlib import Path

import pytest

from drover.local.process import ProcessPhase, SupervisedProcess
from tests.support.cluster import embedded_cluster, running_cluster
from tests.support.flow import Flow
from tests.support.idle_worker import Story, idle_stages
from tests.support.rolling import create_connectors, restart_one_by_one
from tests.support.waiting import wait_until_async

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1_800)]


async def test_a_rolling_restart_moves_each_task_away_and_back_and_stops_nothing_else(
    tmp_path: Path,
) -> None:
    story = Story(tmp_path)
    async with running_cluster(tmp_path, idle_stages(tmp_path, workers=3)) as cluster:
        await cluster.wait_until_members()
        async with cluster.client() as client:
            await create_connectors(client, 6)
            moved: set[str] = set()
            async for restarted in restart_one_by_one(cluster, client, story):
                assert restarted.stops == dict.fromkeys(restarted.own, 2)
                moved |= restarted.own
    assert len(moved) == 18


@pytest.mark.spark
@pytest.mark.faults("herder")
async def test_data_flows_on_while_each_worker_with_spark_hands_over_and_comes_back(
    tmp_path: Path,
) -> None:
    flow = Flow(tmp_path)
    async with embedded_cluster(tmp_path / "cluster", workers=3) as cluster:
        await cluster.wait_until_members()
        async with cluster.client() as client:
            await flow.create_connectors(client)
        async with flow.feeding():
            await flow.wait_until_passed("before anything happens")
            for worker_id in cluster.workers:
                name = cluster.worker_name(worker_id)
                await _end(cluster.process(name))
                await flow.wait_until_passed(f"after {name} has ended")
                cluster.process(name).release()
                await cluster.wait_until_members()
                await flow.wait_until_passed(f"after {name} is back")
        await flow.assert_equal()
        for worker_id in cluster.workers:
            log = cluster.log(cluster.worker_name(worker_id))
            assert "the work was not handed over in time" not in log


async def _end(process: SupervisedProcess) -> None:
    """Stop a process with SIGTERM, and keep it down."""
    process.hold()
    process.send(signal.SIGTERM)
    await wait_until_async(lambda: process.phase is ProcessPhase.DEAD)
