"""A whole cluster of real processes, killed and frozen while data flows."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from drover.cli.process import SupervisedProcess, descendants
from drover.cli.state import DATA_DIRECTORY
from tests.support.cluster import EmbeddedCluster, embedded_cluster
from tests.support.flow import Flow
from tests.support.freezing import freeze, thaw
from tests.support.waiting import wait_until_async

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

FAULTS = pytest.mark.faults("herder")
FROZEN_S = 20.0


async def test_each_of_the_five_processes_is_killed_while_data_flows(tmp_path: Path) -> None:
    flow = Flow(tmp_path)
    async with embedded_cluster(tmp_path / "cluster") as cluster:
        await cluster.wait_until_members()
        async with cluster.client() as client:
            await flow.create_connectors(client)
        async with flow.feeding():
            await flow.wait_until_passed("before anything is killed")
            for name in ("coordinator", "config-store", "status-store"):
                await _kill(cluster, name)
                await flow.wait_until_passed(f"after {name} was killed")
            for connector in (flow.sink, flow.source):
                running = await cluster.wait_for_task(connector)
                name = cluster.worker_name(running.worker_id)
                await _kill(cluster, name)
                await flow.wait_until_passed(f"after {name}, which ran {connector}, was killed")
                await cluster.wait_until_members()
        await flow.assert_equal()


@pytest.mark.parametrize(
    "moment",
    [
        "herder alone",
        pytest.param("herder and engine", marks=FAULTS),
        pytest.param("in a write", marks=FAULTS),
    ],
)
async def test_the_tasks_of_a_frozen_worker_move_and_its_late_writes_are_fenced(
    tmp_path: Path, moment: str
) -> None:
    flow = Flow(tmp_path)
    async with embedded_cluster(tmp_path / "cluster") as cluster:
        await cluster.wait_until_members()
        async with cluster.client() as client:
            await flow.create_connectors(client)
        async with flow.feeding():
            await flow.wait_until_passed("before the freeze")
            running = await cluster.wait_for_task(flow.source)
            frozen = cluster.worker_name(running.worker_id)
            other = next(name for name in ("worker-1", "worker-2") if name != frozen)
            pids = await freeze(
                partial(_tree, cluster.process(frozen), whole_tree=moment != "herder alone"),
                cluster.directory / DATA_DIRECTORY,
                in_a_write=moment == "in a write",
            )
            try:
                await asyncio.sleep(FROZEN_S)
                for connector in (flow.source, flow.sink):
                    await cluster.wait_for_task(connector, ask=other, at=other)
                await flow.wait_until_passed("while a worker is frozen")
            finally:
                thaw(pids)
            await cluster.wait_until_members()
            await flow.wait_until_passed("after the freeze")
        await flow.assert_equal()
        assert cluster.process(frozen).start_count == 1, "the frozen worker went on, not anew"
        if moment == "herder alone":
            # its engine went on writing under the old claim until the new owner's took effect
            await wait_until_async(
                lambda: '"task_fenced"' in cluster.log(frozen), describe="a task was fenced"
            )


async def _kill(cluster: EmbeddedCluster, name: str) -> None:
    cluster.note_processes()
    process = cluster.process(name)
    starts = process.start_count
    process.kill()
    await cluster.supervisor.wait_until_serving(name, start_count=starts + 1, timeout_s=120)


def _tree(process: SupervisedProcess, *, whole_tree: bool) -> list[int]:
    assert process.pid is not None
    below = [each.pid for each in descendants(process.pid)] if whole_tree else []
    return [process.pid, *below]
