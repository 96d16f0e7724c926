"""Plugins that are installed on some workers only."""

import grpc.aio
import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import ConnectClient
from drover.errors import InvalidArgumentError
from drover_worker.admin import every_worker
from tests.support.fake_engine import SINK, SOURCE
from tests.support.worker_cluster import RunningWorker, WorkerCluster


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the timeouts: on a busy machine a live worker must not count as silent."""
    monkeypatch.setattr(every_worker, "_WORKER_TIMEOUT_S", 15.0)
    monkeypatch.setattr(every_worker, "_LEADER_TIMEOUT_S", 18.0)


async def only_on(via: RunningWorker) -> dict[str, list[str]]:
    """The workers that have each plugin class; empty if all have it."""
    listing = await via.stub.ListPlugins(pb.ListPluginsRequest(), timeout=20)
    return {each.class_name: list(each.worker_ids) for each in listing.plugins}


async def refusal(via: RunningWorker, connector_class: str) -> InvalidArgumentError:
    async with grpc.aio.insecure_channel(via.address) as channel:
        with pytest.raises(InvalidArgumentError) as caught:
            await ConnectClient(channel).create_connector("c", {"connector.class": connector_class})
    return caught.value


async def test_every_worker_lists_the_plugins_of_all(three_workers: list[RunningWorker]) -> None:
    for worker in three_workers:
        listing = await worker.stub.ListPlugins(pb.ListPluginsRequest(), timeout=20)
        assert [each.class_name for each in listing.plugins] == [SINK, SOURCE]
        assert list(listing.worker_ids) == sorted(each.address for each in three_workers)
        assert not listing.silent_worker_ids
        assert await only_on(worker) == {SINK: [], SOURCE: []}


@pytest.mark.parametrize("lacking", [0, 1], ids=["on the leader", "on a follower"])
async def test_a_plugin_that_a_worker_lacks_is_one_fault_with_the_workers(
    cluster: WorkerCluster, three_workers: list[RunningWorker], lacking: int
) -> None:
    without = three_workers[lacking]
    without.engine.lacking = {SOURCE}
    others = sorted(each.address for each in three_workers if each is not without)
    for worker in three_workers:
        assert await only_on(worker) == {SINK: [], SOURCE: others}
        (fault,) = (await refusal(worker, SOURCE)).violations
        assert fault.field == 'config["connector.class"]'
        assert f"is not installed on {without.address}, only on {', '.join(others)}" in (
            fault.description
        )
        request = pb.ValidateConfigRequest(config={"name": "c", "connector.class": SOURCE})
        validation = await worker.stub.ValidateConfig(request, timeout=20)
        assert [each.description for each in validation.violations] == [fault.description]
    await three_workers[0].stub.CreateConnector(
        pb.CreateConnectorRequest(name="good", config={"connector.class": SINK}), timeout=20
    )
    # the worker's next engine has the plugin
    without.engine.lacking = set()
    without.engine.die()
    without.engine.come_back()
    await cluster.settled(*three_workers)
    await three_workers[1].stub.CreateConnector(
        pb.CreateConnectorRequest(name="c", config={"connector.class": SOURCE}), timeout=20
    )


async def test_a_worker_that_does_not_answer_is_named_and_no_reason_to_refuse(
    cluster: WorkerCluster, three_workers: list[RunningWorker]
) -> None:
    leader, other, silent = three_workers
    silent.engine.die()
    for worker in (leader, other):
        listing = await worker.stub.ListPlugins(pb.ListPluginsRequest(), timeout=20)
        assert list(listing.silent_worker_ids) == [silent.address]
    await other.stub.CreateConnector(
        pb.CreateConnectorRequest(name="c", config={"connector.class": SOURCE}), timeout=20
    )


#: A setting, the class that it names, and the rest of its config.
OF_RECORDS = [
    ("value.converter", "tests.Converter", {}),
    ("transforms.t.type", "tests.Transform", {"transforms": "t"}),
    ("predicates.p.type", "tests.Predicate", {"predicates": "p"}),
]


async def validated(via: RunningWorker, **config: str) -> pb.ValidateConfigResponse:
    request = pb.ValidateConfigRequest(config={"name": "c", "connector.class": SOURCE, **config})
    return await via.stub.ValidateConfig(request, timeout=20)


@pytest.mark.parametrize(("setting", "name", "more"), OF_RECORDS)
async def test_a_transform_or_converter_that_a_worker_lacks_is_a_fault_with_the_workers(
    three_workers: list[RunningWorker], setting: str, name: str, more: dict[str, str]
) -> None:
    three_workers[2].engine.lacking = {name}
    for written in (name, f" {name} ", name.rpartition(".")[2]):
        answer = await validated(three_workers[0], **more, **{setting: written})
        found = [each for each in answer.violations if each.field == f'config["{setting}"]']
        assert f"is not installed on {three_workers[2].address}, only on" in found[-1].description
    config = {"name": "c", "connector.class": SOURCE, **more, setting: name}
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await three_workers[1].stub.CreateConnector(
            pb.CreateConnectorRequest(name="c", config=config), timeout=20
        )
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert three_workers[2].address in (caught.value.details() or "") + str(
        caught.value.trailing_metadata()
    )


async def test_different_versions_of_a_class_are_a_warning(
    three_workers: list[RunningWorker],
) -> None:
    three_workers[1].engine.versions = {SOURCE: "2", "tests.Converter": "2"}
    answer = await validated(three_workers[0], **{"value.converter": "tests.Converter"})
    assert not answer.violations
    assert {each.field for each in answer.warnings} == {
        'config["connector.class"]',
        'config["value.converter"]',
    }
    for each in answer.warnings:
        assert f"2 on {three_workers[1].address}" in each.description
    await three_workers[0].stub.CreateConnector(
        pb.CreateConnectorRequest(name="c", config={"connector.class": SOURCE}), timeout=20
    )


async def test_a_worker_that_does_not_answer_is_a_skipped_check(
    three_workers: list[RunningWorker],
) -> None:
    three_workers[2].engine.die()
    answer = await validated(three_workers[0])
    assert not answer.violations
    (skipped,) = answer.skipped_checks
    assert skipped.setting == "connector.class"
    assert f"whether {three_workers[2].address} has the classes" in skipped.reason
