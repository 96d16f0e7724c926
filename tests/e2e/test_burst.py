"""Connectors created concurrently while workers end, freeze and join: no client sees an error."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from drover.client import ConnectClient
from drover.client.failover import FailoverChannel
from drover.local.process import ProcessPhase
from tests.support.cluster import EmbeddedCluster, running_cluster
from tests.support.fake_engine import SOURCE
from tests.support.idle_worker import Line, Story, idle_stages
from tests.support.rolling import wait_until_even
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(1_200),
    pytest.mark.faults("herder"),
]

CONNECTORS, CLIENTS = 200, 16
CONFIG = {"connector.class": SOURCE, "tasks.max": "2"}
#: For calls that wait until the group detects a frozen worker.
CALL_TIMEOUT_S = 120.0


@asynccontextmanager
async def a_client(cluster: EmbeddedCluster, number: int = 0) -> AsyncIterator[ConnectClient]:
    """A client that knows all workers and calls one of them first."""
    count = len(cluster.workers)
    addresses = [cluster.workers[(number + each) % count] for each in range(count)]
    async with FailoverChannel(addresses) as workers:
        yield ConnectClient(workers.as_channel())


class Burst:
    """Creates connectors through many clients; any error fails the test."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self._names = iter([f"c{number}" for number in range(CONNECTORS)])
        self.created = 0

    async def run(self) -> None:
        """Create all of them."""
        async with asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(self._create(number))

    async def _create(self, number: int) -> None:
        async with a_client(self._cluster, number) as client:
            for name in self._names:
                await client.create_connector(name, CONFIG, timeout_s=CALL_TIMEOUT_S)
                self.created += 1

    async def reaches(self, share: float) -> None:
        """Wait until this fraction of the connectors is created."""
        await wait_until_async(
            lambda: self.created >= share * CONNECTORS,
            timeout_s=600,
            describe=lambda: f"{self.created} were created",
        )


async def test_a_burst_of_connectors_meets_no_error_while_workers_come_and_go(
    tmp_path: Path,
) -> None:
    env = {"DROVER_SESSION_TIMEOUT_MS": "20000"}  # a stalling machine removes no member
    story = Story(tmp_path)
    async with running_cluster(tmp_path, idle_stages(tmp_path, workers=4, env=env)) as cluster:
        killed, frozen, ended, added = (cluster.process(f"worker-{n}") for n in (1, 2, 3, 4))
        await cluster.wait_until_members()
        added.hold()
        added.send(signal.SIGTERM)
        await wait_until_async(lambda: added.phase is ProcessPhase.DEAD)
        burst = Burst(cluster)
        creating = asyncio.create_task(burst.run())
        await burst.reaches(0.2)
        killed.kill()
        await burst.reaches(0.3)
        ended.send(signal.SIGTERM)
        await burst.reaches(0.5)
        frozen.send(signal.SIGSTOP)
        await burst.reaches(0.7)
        added.release()
        await creating
        await _work_moves_from(cluster, frozen.spec.address)
        frozen.send(signal.SIGCONT)
        await cluster.wait_until_members()
        async with a_client(cluster) as client:
            await wait_until_even(client, tasks=2 * CONNECTORS)
            assert len(await client.list_connectors()) == CONNECTORS
        lines = list(story.lines())
    in_vain = stops_in_vain(lines)
    count = sum(line.verb == "stop" for line in lines)
    assert not in_vain, f"of {count} stops {len(in_vain)} moved nothing: {in_vain[:5]}"


async def _work_moves_from(cluster: EmbeddedCluster, worker_id: str) -> None:
    """Wait until the group has removed a frozen worker."""

    async def moved() -> bool:
        async with a_client(cluster, 2) as client:
            workers = (await client.get_cluster_info()).workers
        return bool(workers) and worker_id not in {each.worker_id for each in workers}

    await wait_until_async(moved, timeout_s=120)


def stops_in_vain(lines: list[Line]) -> list[Line]:
    """Stops of tasks whose next start is on the same worker."""
    found = []
    owners: dict[str, str] = {}
    for line in reversed(lines):
        if line.verb == "start":
            owners[line.task] = line.worker
        elif owners.get(line.task) == line.worker:
            found.append(line)
    return found
