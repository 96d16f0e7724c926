"""Plugins that some workers have and others lack."""

from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import ConnectClient
from drover.errors import InvalidArgumentError
from drover_worker.admin import cluster_plugins
from tests.support.fake_engine import SINK, SOURCE, FakeEngine
from tests.support.worker_cluster import RunningWorker, WorkerCluster


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, a worker that lives is not silent."""
    monkeypatch.setattr(cluster_plugins, "_WORKER_TIMEOUT_S", 15.0)
    monkeypatch.setattr(cluster_plugins, "_LEADER_TIMEOUT_S", 18.0)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[WorkerCluster]:
    async with WorkerCluster(tmp_path) as running:
        yield running


@pytest.fixture
async def workers(cluster: WorkerCluster) -> list[RunningWorker]:
    """The leader, then two followers."""
    three = [await cluster.add_worker() for _ in range(3)]
    await cluster.settled(*three)
    return sorted(three, key=lambda worker: not worker.leads)


def engine_of(worker: RunningWorker) -> FakeEngine:
    assert worker.engine is not None
    return worker.engine


async def only_on(via: RunningWorker) -> dict[str, list[str]]:
    """By class: the workers that have it, if not all have."""
    listing = await via.stub.ListPlugins(pb.ListPluginsRequest(), timeout=20)
    return {each.class_name: list(each.worker_ids) for each in listing.plugins}


async def refusal(via: RunningWorker, connector_class: str) -> InvalidArgumentError:
    async with grpc.aio.insecure_channel(via.address) as channel:
        with pytest.raises(InvalidArgumentError) as caught:
            await ConnectClient(channel).create_connector("c", {"connector.class": connector_class})
    return caught.value


async def test_every_worker_lists_the_plugins_of_all(workers: list[RunningWorker]) -> None:
    for worker in workers:
        listing = await worker.stub.ListPlugins(pb.ListPluginsRequest(), timeout=20)
        assert [each.class_name for each in listing.plugins] == [SINK, SOURCE]
        assert list(listing.worker_ids) == sorted(each.address for each in workers)
        assert not listing.silent_worker_ids
        assert await only_on(worker) == {SINK: [], SOURCE: []}


@pytest.mark.parametrize("lacking", [0, 1], ids=["on the leader", "on a follower"])
async def test_a_plugin_that_a_worker_lacks_is_one_fault_with_the_workers(
    cluster: WorkerCluster, workers: list[RunningWorker], lacking: int
) -> None:
    without = workers[lacking]
    engine_of(without).lacking = {SOURCE}
    others = sorted(each.address for each in workers if each is not without)
    for worker in workers:
        assert await only_on(worker) == {SINK: [], SOURCE: others}
        (fault,) = (await refusal(worker, SOURCE)).violations
        assert fault.field == 'config["connector.class"]'
        assert f"is not installed on {without.address}, only on {', '.join(others)}" in (
            fault.description
        )
        request = pb.ValidateConfigRequest(config={"name": "c", "connector.class": SOURCE})
        validation = await worker.stub.ValidateConfig(request, timeout=20)
        assert [each.description for each in validation.violations] == [fault.description]
    await workers[0].stub.CreateConnector(
        pb.CreateConnectorRequest(name="good", config={"connector.class": SINK}), timeout=20
    )
    # a new engine of the worker has it
    engine_of(without).lacking = set()
    engine_of(without).die()
    engine_of(without).come_back()
    await cluster.settled(*workers)
    await workers[1].stub.CreateConnector(
        pb.CreateConnectorRequest(name="c", config={"connector.class": SOURCE}), timeout=20
    )


async def test_a_worker_that_does_not_answer_is_named_and_no_reason_to_refuse(
    cluster: WorkerCluster, workers: list[RunningWorker]
) -> None:
    leader, other, silent = workers
    engine_of(silent).die()
    for worker in (leader, other):
        listing = await worker.stub.ListPlugins(pb.ListPluginsRequest(), timeout=20)
        assert list(listing.silent_worker_ids) == [silent.address]
    await other.stub.CreateConnector(
        pb.CreateConnectorRequest(name="c", config={"connector.class": SOURCE}), timeout=20
    )
