"""Two coordinators and two workers with Spark: moves of the group do not affect its tasks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from drover.cli.output.connectors import run_state
from drover.client import CoordinatorsClient
from drover.errors import DroverError
from drover.local.state import DATA_DIRECTORY
from drover.model.group import GroupDescription, GroupState
from drover.model.ids import TaskId, Term
from tests.support.cluster import EmbeddedCluster, embedded_cluster
from tests.support.coordinator_pair import SHARDS, group_of
from tests.support.flow import Flow
from tests.support.freezing import freeze, thaw
from tests.support.waiting import pause, wait_until_async

pytestmark = [pytest.mark.e2e, pytest.mark.faults("coordinator"), pytest.mark.timeout(1800)]

GROUP = "drover"
COORDINATORS = ("coordinator", "coordinator-2")
WATCH_EVERY_S = 0.1
#: A group loses its members when it has no coordinator for this long. A move takes a few seconds;
#: the rest allows for a stalling machine.
ENVIRONMENT = {"DROVER_SESSION_TIMEOUT_MS": "25000"}


class Watched:
    """Every observed state of the group and its tasks."""

    def __init__(self, cluster: EmbeddedCluster, flow: Flow) -> None:
        self.client = CoordinatorsClient([cluster.process(n).spec.address for n in COORDINATORS])
        self._cluster = cluster
        self._flow = flow
        self.descriptions: list[GroupDescription] = []
        self.task_states: set[tuple[str, str, str]] = set()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Record every state while the block runs."""
        tasks = [
            asyncio.create_task(self._watch_tasks()),
            asyncio.create_task(self._watch_group()),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch_tasks(self) -> None:
        async with self._cluster.client() as client:
            while True:
                for connector in (self._flow.source, self._flow.sink):
                    with suppress(DroverError):
                        status = await client.get_connector_status(connector, timeout_s=5)
                        self.task_states |= {
                            (connector, run_state(each.state), each.worker_id)
                            for each in status.tasks
                        }
                await pause(WATCH_EVERY_S)

    async def _watch_group(self) -> None:
        while True:
            with suppress(DroverError):
                self.descriptions.append(await self.client.describe(GROUP, timeout_s=5))
            await pause(WATCH_EVERY_S)

    async def owner(self) -> str:
        """The name of the coordinator that serves the workers' group."""
        address = await self.client.find_coordinator(GROUP, timeout_s=30)
        return self._cluster.supervisor.process_at(address).spec.name

    async def stable_group(self) -> GroupDescription:
        """The workers' group, once it is stable."""

        async def stable() -> GroupDescription | None:
            with suppress(DroverError):
                group = await self.client.describe(GROUP, timeout_s=5)
                return group if group.state is GroupState.STABLE else None
            return None

        group = await wait_until_async(stable, timeout_s=60, describe="the group is stable")
        assert group is not None
        return group

    async def claim_beside(self, group: GroupDescription) -> Term:
        """Claim a task that no worker runs, with the same request id each time."""
        return await self.client.claim_task(
            group_id=GROUP,
            member_id=group.members[0].member_id,
            generation=group.generation,
            task=TaskId("beside", 0),
            task_config_generation=1,
            request_id="the same",
            timeout_s=30,
        )

    async def wait_until_owner_is(self, name: str) -> None:
        async def is_owner() -> bool:
            with suppress(DroverError):
                return await self.owner() == name
            return False

        await wait_until_async(is_owner, timeout_s=60, describe=f"{name} serves the group")


async def test_tasks_and_group_go_on_through_every_kind_of_move(tmp_path: Path) -> None:
    flow = Flow(tmp_path)
    async with embedded_cluster(tmp_path / "cluster", coordinators=2, env=ENVIRONMENT) as cluster:
        await cluster.wait_until_members()
        async with cluster.client() as client:
            await flow.create_connectors(client)
        async with flow.feeding():
            await flow.wait_until_passed("before anything happens")
            for connector in (flow.source, flow.sink):
                await cluster.wait_for_task(connector)
            watched = Watched(cluster, flow)
            before = await watched.stable_group()
            claimed = await watched.claim_beside(before)
            async with watched.watching():
                for killing in ("first", "second"):
                    await _kill_the_owner(cluster, watched, flow)
                    assert await watched.claim_beside(before) == claimed, killing
                await _freeze_the_owner(cluster, watched, flow)
                assert await watched.claim_beside(before) == claimed
            after = await watched.stable_group()
            await watched.client.close()
        await flow.assert_equal()
        assert after == before, "the same generation, leader, members and assignments"
        assert {each.generation for each in watched.descriptions} == {before.generation}
        assert {each.state for each in watched.descriptions} == {GroupState.STABLE}
        assert {state for _, state, _ in watched.task_states} == {"RUNNING"}
        assert len(watched.task_states) == 2, f"no task changed its worker {watched.task_states}"
        for name in ("worker-1", "worker-2"):
            assert cluster.process(name).start_count == 1
            assert '"task_fenced"' not in cluster.log(name)
        for name in COORDINATORS:
            assert "Traceback" not in cluster.log(name)


async def _kill_the_owner(cluster: EmbeddedCluster, watched: Watched, flow: Flow) -> None:
    """The other coordinator takes over; then the killed one restarts."""
    owner = await watched.owner()
    process = cluster.process(owner)
    starts = process.start_count
    process.hold()
    process.kill()
    await watched.wait_until_owner_is(_other(owner))
    await flow.wait_until_passed(f"while {owner} is down")
    process.release()
    await cluster.supervisor.wait_until_serving(owner, start_count=starts + 1, timeout_s=120)
    await flow.wait_until_passed(f"after {owner} is back")


async def _freeze_the_owner(cluster: EmbeddedCluster, watched: Watched, flow: Flow) -> None:
    """The frozen coordinator is fenced when it resumes, and then serves as the other one does."""
    owner = await watched.owner()
    process = cluster.process(owner)
    assert process.pid is not None
    pid, starts = process.pid, process.start_count
    frozen = await freeze(lambda: [pid], cluster.directory / DATA_DIRECTORY)
    try:
        await watched.wait_until_owner_is(_other(owner))
        await flow.wait_until_passed(f"while {owner} is frozen")
    finally:
        thaw(frozen)
    address = process.spec.address

    async def shares() -> bool:
        with suppress(DroverError):
            groups = [group_of(shard) for shard in range(SHARDS)]
            owners = [await watched.client.find_coordinator(g, timeout_s=5) for g in groups]
            return owners.count(address) == SHARDS // 2
        return False

    await wait_until_async(shares, timeout_s=60, describe=f"{owner} serves half of the shards")
    await flow.wait_until_passed(f"after {owner} went on")
    assert process.pid == pid, "it resumed without a restart"
    assert process.start_count == starts


def _other(name: str) -> str:
    [other] = [each for each in COORDINATORS if each != name]
    return other
