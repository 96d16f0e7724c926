"""What Kafka Connect's REST API shows of plugins, statuses and the cluster, over gRPC."""

import grpc.aio
import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from tests.integration.worker.test_admin_api import create, fields
from tests.support.fake_engine import SINK, SOURCE
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import RunningWorker


async def test_plugins_of_every_kind_are_listed(worker: RunningWorker) -> None:
    for kinds, expected in (
        (["sink"], [SINK]),
        (["converter"], ["tests.Converter"]),
        (["header_converter", "transforms"], ["tests.Converter", "tests.Transform"]),
        (["predicates", "source"], [SOURCE, "tests.Predicate"]),
    ):
        listed = await worker.stub.ListPlugins(pb.ListPluginsRequest(kinds=kinds), timeout=20)
        found = [
            *(each.class_name for each in listed.plugins),
            *(each.class_name for each in listed.record_plugins),
        ]
        assert found == expected
        assert listed.worker_ids == [worker.address]


async def test_an_unknown_kind_is_a_violation(worker: RunningWorker) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await worker.stub.ListPlugins(pb.ListPluginsRequest(kinds=["sink", "Sink"]), timeout=20)
    assert fields(caught.value) == ["kinds[1]"]


async def test_a_plugin_of_another_kind_than_connector_is_described(worker: RunningWorker) -> None:
    for name in ("tests.Transform", "Transform", "Converter"):
        shown = await worker.stub.GetPlugin(pb.GetPluginRequest(class_name=name), timeout=20)
        assert name in (shown.record_plugin.class_name, *shown.record_plugin.aliases)
        assert [each.name for each in shown.config_keys] == ["field"]
        assert not shown.HasField("plugin")


async def test_a_status_has_the_version_of_the_plugin_that_ran(worker: RunningWorker) -> None:
    worker.engine.versions[SOURCE] = "2.5"
    await worker.stub.CreateConnector(create("a"), timeout=20)

    async def has_versions() -> bool:
        status = await worker.status("a")
        found = [status.connector.plugin_version, *(each.plugin_version for each in status.tasks)]
        return found == ["2.5", "2.5"]

    await wait_until_async(has_versions)


async def test_cluster_info_has_the_id_of_the_kafka_cluster(worker: RunningWorker) -> None:
    info = await worker.stub.GetClusterInfo(pb.GetClusterInfoRequest(), timeout=20)
    assert info.kafka_cluster_id == ""
    worker.engine.find_own_cluster("kafka-7")
    info = await worker.stub.GetClusterInfo(pb.GetClusterInfoRequest(), timeout=20)
    assert info.kafka_cluster_id == "kafka-7"
