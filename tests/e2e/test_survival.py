"""A whole cluster of real processes: killed, frozen and stopped while data flows.

It is the shared cluster; by its name this is the last file that uses it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import ConnectClient
from drover.errors import AlreadyExistsError
from drover.local.process import SupervisedProcess, descendants
from drover.local.state import DATA_DIRECTORY
from tests.support.flow import Flow
from tests.support.freezing import freeze, thaw
from tests.support.shared_cluster import SharedCluster, errors_in, refused_for_now
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.timeout(1800),
    pytest.mark.asyncio(loop_scope="session"),
]

FAULTS = pytest.mark.faults("herder")
#: Enough lines for an engine without its herder to write under its old claim.
_PASSES_WHILE_FROZEN = 10
OTHER = {"connector.class": "FileStreamSource", "file": "/nowhere/other.txt", "topic": "other"}


@asynccontextmanager
async def more_flowing(shared: SharedCluster, flow: Flow) -> AsyncIterator[ConnectClient]:
    """A second flow for the block; at the end its output is checked and its connectors are
    deleted.
    """
    await flow.create_connectors(shared.client)
    async with flow.feeding():
        await flow.wait_until_passed("before anything happens")
        yield shared.client
    await flow.assert_equal()
    for connector in (flow.source, flow.sink):
        await shared.client.delete_connector(connector)


async def test_each_of_the_services_is_killed_while_data_flows(
    shared: SharedCluster, tmp_path: Path
) -> None:
    flow = Flow(tmp_path, "killed")
    async with more_flowing(shared, flow):
        for name in ("coordinator", "config-store", "status-store"):
            await _kill(shared, name)
            await flow.wait_until_passed(f"after {name} was killed")


@FAULTS
async def test_each_of_the_workers_is_killed_while_data_flows(
    shared: SharedCluster, tmp_path: Path
) -> None:
    """test_demo.py has one kill of each kind; here both workers must rejoin."""
    cluster, flow = shared.cluster, Flow(tmp_path, "killed-workers")
    async with more_flowing(shared, flow):
        for connector in (flow.sink, flow.source):
            running = await cluster.wait_for_task(connector)
            name = cluster.worker_name(running.worker_id)
            await _kill(shared, name)
            await flow.wait_until_passed(f"after {name}, which ran {connector}, was killed")
            await cluster.wait_until_members()


@pytest.mark.parametrize(
    "moment",
    [
        "herder alone",
        pytest.param("herder and engine", marks=FAULTS),
        pytest.param("in a write", marks=FAULTS),
    ],
)
async def test_the_tasks_of_a_frozen_worker_move_and_its_late_writes_are_fenced(
    shared: SharedCluster, tmp_path: Path, moment: str
) -> None:
    cluster = shared.cluster
    flow = Flow(tmp_path, f"frozen-{moment.replace(' ', '-')}")
    async with more_flowing(shared, flow):
        running = await cluster.wait_for_task(flow.source)
        frozen = cluster.worker_name(running.worker_id)
        starts, logged = cluster.process(frozen).start_count, len(cluster.log(frozen))
        other = next(name for name in ("worker-1", "worker-2") if name != frozen)
        whole_tree = moment != "herder alone"
        if whole_tree:
            shared.frozen.add(frozen)
        pids = await freeze(
            partial(_tree, cluster.process(frozen), whole_tree=whole_tree),
            cluster.directory / DATA_DIRECTORY,
            in_a_write=moment == "in a write",
        )
        try:
            async with cluster.client(other) as client:
                for worker in (await client.get_cluster_info()).workers:
                    if worker.worker_id == running.worker_id:  # until its session expires
                        assert worker.health == pb.WORKER_HEALTH_UNREACHABLE
            for connector in (flow.source, flow.sink):
                await cluster.wait_for_task(connector, ask=other, at=other)
            for number in range(_PASSES_WHILE_FROZEN):
                await flow.wait_until_passed(f"while a worker is frozen ({number})")
        finally:
            thaw(pids)
        await cluster.wait_until_members()
        await flow.wait_until_passed("after the freeze")
        assert cluster.process(frozen).start_count == starts, (
            "the frozen worker resumed without a restart"
        )
        if moment == "herder alone":
            # its engine kept writing under the old claim until the new owner's claim took effect
            await wait_until_async(
                lambda: '"task_fenced"' in cluster.log(frozen)[logged:],
                describe="a task was fenced",
            )


@FAULTS
@pytest.mark.parametrize("away", ["config-store", "status-store", "coordinator"])
async def test_a_service_that_is_away_for_a_while_is_waited_for(
    shared: SharedCluster, tmp_path: Path, away: str
) -> None:
    cluster = shared.cluster
    flow = Flow(tmp_path, f"without-{away}", lines_per_tick=100)
    processes = cluster.supervisor.processes
    logged = {name: len(cluster.log(name)) for name in processes}
    starts = {name: process.start_count for name, process in processes.items()}
    async with more_flowing(shared, flow) as client:
        for connector in (flow.source, flow.sink):
            await cluster.wait_for_task(connector)
        process = cluster.process(away)
        process.hold()
        shared.kill(away)
        if away == "coordinator":
            # a worker stops its tasks after a session timeout without the coordinator
            await _task_states_become(client, flow, pb.RUN_STATE_UNASSIGNED)
        else:
            await flow.wait_until_passed(f"without {away}")
        if away == "config-store":
            await refused_for_now(
                client, "late", OTHER, timeout_s=8, because="waits for the config store"
            )
        if away != "coordinator":
            await _task_states_become(client, flow, pb.RUN_STATE_RUNNING)
            await flow.wait_until_passed(f"still without {away}")
        process.release()
        await cluster.supervisor.wait_until_serving(
            away, start_count=starts[away] + 1, timeout_s=120
        )
        await flow.wait_until_passed(f"after {away} was away")
        if away == "config-store":
            # the failed create may still be executed late, which causes a rebalance
            with suppress(AlreadyExistsError):
                await client.create_connector("late", OTHER)
            await cluster.wait_for_task("late")
            await client.delete_connector("late")
        for connector in (flow.source, flow.sink):
            status = await cluster.wait_for_task(connector)
            assert status.trace == ""
        await client.create_connector("afterwards", OTHER)
        await cluster.wait_for_task("afterwards")
        await client.delete_connector("afterwards")
    for name in processes:
        log = cluster.log(name)[logged[name] :]
        assert '"task_failed"' not in log
        assert errors_in(log) == [], name
    for name in ("worker-1", "worker-2"):
        assert cluster.process(name).start_count == starts[name]


async def _task_states_become(
    client: ConnectClient, flow: Flow, state: pb.RunState.ValueType
) -> None:
    seen: list[pb.RunState.ValueType] = []

    async def reached() -> bool:
        statuses = [
            await client.get_connector_status(name, timeout_s=30)
            for name in (flow.source, flow.sink)
        ]
        seen[:] = [task.state for status in statuses for task in status.tasks]
        return set(seen) == {state}

    await wait_until_async(reached, timeout_s=120, describe=lambda: seen)


async def _kill(shared: SharedCluster, name: str) -> None:
    process = shared.cluster.process(name)
    starts = process.start_count
    shared.kill(name)
    await shared.cluster.supervisor.wait_until_serving(name, start_count=starts + 1, timeout_s=120)


def _tree(process: SupervisedProcess, *, whole_tree: bool) -> list[int]:
    assert process.pid is not None
    below = [each.pid for each in descendants(process.pid)] if whole_tree else []
    return [process.pid, *below]
