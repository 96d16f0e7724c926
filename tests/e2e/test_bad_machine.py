"""A machine that fails under a running cluster: a full disk, and services that are away."""

import asyncio
from contextlib import suppress
from pathlib import Path

import grpc.aio
import pytest

from drover.api.config_store.v1 import config_store_service_pb2 as config_pb
from drover.api.config_store.v1.config_store_service_pb2_grpc import ConfigStoreServiceStub
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import ConnectClient, channel
from drover.errors import (
    AlreadyExistsError,
    DeadlineExceededError,
    DroverError,
    Reason,
    UnavailableError,
)
from drover.rpc.status import from_rpc_error
from tests.support.cluster import EmbeddedCluster, embedded_cluster
from tests.support.flow import Flow
from tests.support.service_process import fill, small_disk
from tests.support.shared_cluster import assert_readable, errors_in
from tests.support.waiting import wait_until_async

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(1800)]

AWAY_S = 20.0
#: Longer than the worker waits for one answer of the config store.
FULL_S = 14.0
ASKED_MAX = 5
OTHER = {"connector.class": "FileStreamSource", "file": "/nowhere/other.txt", "topic": "other"}


async def assert_nothing_failed(cluster: EmbeddedCluster, flow: Flow) -> None:
    """Neither now nor at any time before: no task ended, no service logged a defect."""
    for connector in (flow.source, flow.sink):
        status = await cluster.wait_for_task(connector)
        assert status.trace == ""
    for name in cluster.supervisor.processes:
        log = cluster.log(name)
        assert '"task_failed"' not in log
        assert errors_in(log) == [], name


async def task_states(client: ConnectClient, flow: Flow) -> set[pb.RunState.ValueType]:
    statuses = [
        await client.get_connector_status(name, timeout_s=30) for name in (flow.source, flow.sink)
    ]
    return {task.state for status in statuses for task in status.tasks}


async def all_run(client: ConnectClient, flow: Flow) -> bool:
    return await task_states(client, flow) == {pb.RUN_STATE_RUNNING}


async def refused(
    client: ConnectClient, name: str, *, timeout_s: float, because: str
) -> DroverError:
    """What a create says that cannot be done now; it may still be done later.

    On a busy machine the answer may reach this client too late, so it asks again.
    """
    for _ in range(ASKED_MAX):
        with pytest.raises(DroverError) as caught:
            await client.create_connector(name, OTHER, timeout_s=timeout_s)
        assert_readable(caught.value)
        if because in caught.value.message:
            return caught.value
    raise AssertionError(f"not refused because of {because!r}: {caught.value}")


async def refused_by_the_store(cluster: EmbeddedCluster) -> DroverError:
    """What the config store says to the write itself."""
    async with channel(cluster.process("config-store").spec.address) as connection:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ConfigStoreServiceStub(connection).PutTargetState(
                config_pb.PutTargetStateRequest(
                    name="flow-sink", target_state=config_pb.TARGET_STATE_STARTED, request_id="full"
                ),
                timeout=10,
            )
    error = from_rpc_error(caught.value)
    assert_readable(error)
    return error


async def test_stores_and_coordinator_away_for_a_while_are_waited_for(tmp_path: Path) -> None:
    flow = Flow(tmp_path, lines_per_tick=100)
    async with embedded_cluster(tmp_path / "cluster") as cluster:
        await cluster.wait_until_members()
        async with cluster.client() as client:
            await flow.create_connectors(client)
            async with flow.feeding():
                for away in ("config-store", "status-store", "coordinator"):
                    await flow.wait_until_passed(f"before {away} goes away")
                    await wait_until_async(lambda: all_run(client, flow))
                    process = cluster.process(away)
                    process.hold()
                    process.kill()
                    before = flow.output.stat().st_size
                    await asyncio.sleep(AWAY_S)
                    states = await task_states(client, flow)
                    if away == "coordinator":
                        # after a session timeout without it a worker lets its tasks go
                        assert states <= {pb.RUN_STATE_RUNNING, pb.RUN_STATE_UNASSIGNED}
                    else:
                        assert states == {pb.RUN_STATE_RUNNING}
                        assert flow.output.stat().st_size > before, "nothing moves without it"
                    if away == "config-store":
                        await refused(
                            client, "late", timeout_s=8, because="waits for the config store"
                        )
                    process.release()
                    await cluster.supervisor.wait_until_serving(away, start_count=2, timeout_s=120)
                    await flow.wait_until_passed(f"after {away} was away")
                    if away == "config-store":
                        # what was refused was given up, or is done late, and work moves for it
                        with suppress(AlreadyExistsError):
                            await client.create_connector("late", OTHER)
                        await cluster.wait_for_task("late")
            await flow.assert_equal()
            await assert_nothing_failed(cluster, flow)
            await client.create_connector("afterwards", OTHER)
            await cluster.wait_for_task("afterwards")
        for name in ("worker-1", "worker-2"):
            assert cluster.process(name).start_count == 1


async def test_a_disk_that_is_full_for_a_while_stops_nothing_for_good(tmp_path: Path) -> None:
    flow = Flow(tmp_path, lines_per_tick=100)
    with small_disk(tmp_path / "disk", "64m") as disk:
        async with embedded_cluster(disk / "cluster", workers=1) as cluster:
            await cluster.wait_until_members()
            async with cluster.client() as client:
                await flow.create_connectors(client)
                async with flow.feeding():
                    await flow.wait_until_passed("before the disk is full")
                    filler = fill(disk)
                    before = flow.output.stat().st_size
                    error = await refused_by_the_store(cluster)
                    assert isinstance(error, UnavailableError)
                    assert error.reason is Reason.STORAGE_UNAVAILABLE
                    assert "free space" in error.message
                    error = await refused(client, "late", timeout_s=FULL_S, because="free space")
                    assert isinstance(error, DeadlineExceededError)
                    listed = await client.list_connectors(include_status=True)
                    assert [entry.name for entry in listed] == [flow.sink, flow.source]
                    filler.unlink()
                    await wait_until_async(
                        lambda: flow.output.stat().st_size > before, timeout_s=60
                    )
                    await flow.wait_until_passed("after the disk was full")
                    await client.create_connector("afterwards", OTHER)
                    await cluster.wait_for_task("afterwards")
                await flow.assert_equal()
                await assert_nothing_failed(cluster, flow)
            for name, process in cluster.supervisor.processes.items():
                assert process.start_count == 1, name
