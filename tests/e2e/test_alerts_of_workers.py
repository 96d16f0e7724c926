"""Alerts of a real Prometheus when workers leave, die, lose their coordinator, stall or grow."""

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from drover.client import ConnectClient
from tests.support.alerts import wait_until_fired, wait_until_over, wait_until_silent
from tests.support.cluster import EmbeddedCluster, running_cluster
from tests.support.fake_engine import SOURCE
from tests.support.idle_worker import LOOP_STALLS, idle_stages
from tests.support.prometheus import Prometheus, running_prometheus
from tests.support.rolling import create_connectors, wait_until_even
from tests.support.waiting import pause

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1_800), pytest.mark.faults("herder")]

CONNECTORS, TASKS = 2, 6
#: A leaving worker keeps its work assigned, and the rebalance delay is longer than an alert takes.
ENVIRONMENT = {
    "DROVER_DRAIN_TIMEOUT_MS": "0",
    "DROVER_SCHEDULED_REBALANCE_MAX_DELAY_MS": "45000",
}
SHORTER = {"DroverEventLoopStalls": ("2m", "10s")}
STALL_EVERY_S = 2.5
#: Each task has a series for each of three causes of failure.
MANY_TASKS = 3_400


async def test_workers_that_leave_die_lose_their_coordinator_and_stall(tmp_path: Path) -> None:
    async with watched_cluster(tmp_path, workers=2, env=ENVIRONMENT, replaced=SHORTER) as (
        cluster,
        prometheus,
        targets,
    ):
        async with cluster.client() as client:
            await create_connectors(client, CONNECTORS)
            await wait_until_even(client, tasks=TASKS)
            workers = (await client.get_cluster_info()).workers
        (follower,) = [cluster.worker_name(each.worker_id) for each in workers if not each.leader]
        await wait_until_silent(prometheus, targets)
        await a_worker_leaves(cluster, prometheus, follower)
        await wait_until_silent(prometheus, targets)
        await all_workers_are_killed(cluster, prometheus)
        await wait_until_silent(prometheus, targets)
        await the_coordinator_is_killed(cluster, prometheus)
        await wait_until_silent(prometheus, targets)
        await a_loop_stalls(cluster, prometheus)


async def a_worker_leaves(cluster: EmbeddedCluster, prometheus: Prometheus, worker: str) -> None:
    """The group reserves its tasks for its return until the rebalance delay expires."""
    cluster.process(worker).hold()
    cluster.process(worker).send(signal.SIGTERM)
    await wait_until_fired(
        prometheus, "DroverProcessDown", "DroverTasksUnassigned", "DroverTasksMissing"
    )
    cluster.process(worker).release()
    await wait_until_over(prometheus, "DroverTasksUnassigned", "DroverTasksMissing")


async def all_workers_are_killed(cluster: EmbeddedCluster, prometheus: Prometheus) -> None:
    """No worker remains that could report the missing leader."""
    workers = [cluster.process(cluster.worker_name(each)) for each in cluster.workers]
    for each in workers:
        each.hold()
        each.kill()
    await wait_until_fired(prometheus, "DroverNoLeader", "DroverTasksMissing")
    for each in workers:
        each.release()


async def the_coordinator_is_killed(cluster: EmbeddedCluster, prometheus: Prometheus) -> None:
    """Workers stop their tasks, and a worker started during the outage does not serve."""
    cluster.process("coordinator").hold()
    cluster.process("coordinator").kill()
    await wait_until_fired(
        prometheus, "DroverNoLeader", "DroverWorkerOutOfGroup", "DroverTasksUnassigned"
    )
    cluster.process("worker-1").kill()
    await wait_until_fired(prometheus, "DroverNotServing")
    cluster.process("coordinator").release()


async def a_loop_stalls(cluster: EmbeddedCluster, prometheus: Prometheus) -> None:
    """The loop stalls repeatedly: some scrapes are answered in time, others are not."""

    async def stall() -> None:
        while True:
            cluster.process("worker-1").send(LOOP_STALLS)
            await pause(STALL_EVERY_S)

    stalling = asyncio.create_task(stall())
    try:
        await wait_until_fired(prometheus, "DroverEventLoopStalls")
    finally:
        stalling.cancel()
        await asyncio.wait([stalling])
    await wait_until_over(prometheus, "DroverEventLoopStalls")


async def test_a_worker_with_more_tasks_than_it_has_series_for(tmp_path: Path) -> None:
    async with watched_cluster(tmp_path, workers=1, scrape_s=10) as (cluster, prometheus, targets):
        await wait_until_silent(prometheus, targets)
        async with cluster.client() as client:
            await create(client, "many", MANY_TASKS)
            await wait_until_fired(prometheus, "DroverSeriesLeftOut")
            await client.delete_connector("many")
            await wait_until_over(prometheus, "DroverSeriesLeftOut")


async def create(client: ConnectClient, name: str, tasks: int) -> None:
    await client.create_connector(name, {"connector.class": SOURCE, "tasks.max": str(tasks)})


@asynccontextmanager
async def watched_cluster(
    directory: Path,
    *,
    workers: int,
    env: Mapping[str, str] | None = None,
    replaced: Mapping[str, tuple[str, str]] | None = None,
    scrape_s: int = 2,
) -> AsyncIterator[tuple[EmbeddedCluster, Prometheus, list[str]]]:
    """A cluster of idle workers, a Prometheus that scrapes all processes, and the scraped
    addresses.
    """
    stages = idle_stages(directory, workers=workers, env=dict(env or {}))
    targets = [spec.metrics_address for stage in stages for spec in stage]
    (directory / "prometheus").mkdir()
    async with running_cluster(directory, stages) as cluster:
        await cluster.wait_until_members()
        with running_prometheus(
            directory / "prometheus", targets, replaced=replaced or {}, scrape_s=scrape_s
        ) as prometheus:
            yield cluster, prometheus, targets
