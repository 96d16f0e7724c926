"""A disk that fills up under a running cluster."""

from pathlib import Path

import grpc.aio
import pytest

from drover.api.config_store.v1 import config_store_service_pb2 as config_pb
from drover.api.config_store.v1.config_store_service_pb2_grpc import ConfigStoreServiceStub
from drover.client import channel
from drover.errors import (
    DeadlineExceededError,
    DroverError,
    Reason,
    UnavailableError,
)
from drover.rpc.status import from_rpc_error
from tests.support.cluster import EmbeddedCluster, embedded_cluster
from tests.support.flow import Flow
from tests.support.service_process import fill, small_disk
from tests.support.shared_cluster import assert_readable, errors_in, refused_for_now
from tests.support.waiting import wait_until_async

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(1800)]

#: Longer than the worker's timeout for one call to the config store.
FULL_S = 14.0
OTHER = {"connector.class": "FileStreamSource", "file": "/nowhere/other.txt", "topic": "other"}


async def assert_nothing_failed(cluster: EmbeddedCluster, flow: Flow) -> None:
    """No task has failed and no service has logged a defect, now or earlier."""
    for connector in (flow.source, flow.sink):
        status = await cluster.wait_for_task(connector)
        assert status.trace == ""
    for name in cluster.supervisor.processes:
        log = cluster.log(name)
        assert '"task_failed"' not in log
        assert errors_in(log) == [], name


async def refused_by_the_store(cluster: EmbeddedCluster) -> DroverError:
    """The config store's own error for the write."""
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


@pytest.mark.faults("herder")
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
                    error = await refused_for_now(
                        client, "late", OTHER, timeout_s=FULL_S, because="free space"
                    )
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
