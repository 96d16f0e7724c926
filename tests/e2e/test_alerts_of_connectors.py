"""Alerts of a real Prometheus for connectors, tasks and engines, with real Spark."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from drover.client import ConnectClient
from tests.support import plugins_for_tests as plugins
from tests.support.alerts import firing, wait_until_fired, wait_until_over, wait_until_silent
from tests.support.cluster import EmbeddedCluster, embedded_cluster
from tests.support.deadly_plugins import DeadlySource
from tests.support.flow import Flow
from tests.support.prometheus import Prometheus, running_prometheus
from tests.support.random_kills import find_of_kind
from tests.support.repository import REPOSITORY

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.timeout(1_500),
    pytest.mark.faults("engine"),
]

ENVIRONMENT = {
    "DROVER_PLUGIN_MODULES": "tests.support",
    "DROVER_PLUGIN_CALL_TIMEOUT_MS": "12000",
    "DROVER_PLUGIN_POLL_TIMEOUT_MS": "12000",
    "PYTHONPATH": str(REPOSITORY),
}
#: Shortened intervals: minutes become seconds.
SHORTER = {"DroverSinkStalled": ("600", "5"), "DroverHeapAlmostFull": ("10m", "10s")}
BAD_LINES = b"no JSON\n" * 10
JSON = {"value.converter": "JsonConverter", "value.converter.schemas.enable": "false"}


async def test_each_fires_in_what_it_is_named_after(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, workers=1, env=ENVIRONMENT) as cluster:
        await cluster.wait_until_members()
        processes = cluster.supervisor.processes.values()
        targets = [process.spec.metrics_address for process in processes]
        (tmp_path / "prometheus").mkdir()
        with running_prometheus(tmp_path / "prometheus", targets, replaced=SHORTER) as prometheus:
            async with cluster.client() as client:
                await wait_until_silent(prometheus, targets)
                await failures(prometheus, client)
                await bad_records(prometheus, client, tmp_path)
                await a_sink_that_cannot_write(prometheus, client, tmp_path)
                await a_heap_that_is_held(prometheus, client)
                await engines_that_are_killed(prometheus, cluster)
                await a_connector_that_ends_its_engine(prometheus, client)
                await wait_until_over(prometheus, "DroverHeapAlmostFull")


async def failures(prometheus: Prometheus, client: ConnectClient) -> None:
    """Connectors that each fail in one way."""
    never = {"restart.policy": "never"}
    for name, kind, more in (
        ("unmade", plugins.RaisesInConstructor, never),
        ("raises", plugins.RaisesInPoll, never),
        ("again", plugins.RaisesInPoll, {"restart.backoff.max.ms": "500"}),
        ("hangs", plugins.HangsInPoll, never),
    ):
        await client.create_connector(name, {"connector.class": plugins.plugin(kind), **more})
    await wait_until_fired(
        prometheus,
        "DroverConnectorFailed",
        "DroverTaskFailed",
        "DroverTaskRestartsOften",
        "DroverPluginsHang",
    )
    for name in ("unmade", "raises", "again", "hangs"):
        await client.delete_connector(name)


async def bad_records(prometheus: Prometheus, client: ConnectClient, directory: Path) -> None:
    """Bad records with a dead letter queue, and without one."""
    (directory / "bad.txt").write_bytes(BAD_LINES)
    await client.create_connector("bad", source_of(directory / "bad.txt", "bad"))
    sink = {
        "connector.class": "FilesSink",
        "topics": "bad",
        "format": "json",
        "errors.tolerance": "all",
        **JSON,
    }
    queue = {"errors.deadletterqueue.topic.name": "letters"}
    await client.create_connector("kept", {**sink, "path": str(directory / "kept"), **queue})
    await wait_until_fired(prometheus, "DroverDeadLetters")
    assert "DroverRecordsSkipped" not in await firing(prometheus)
    await client.create_connector("skipped", {**sink, "path": str(directory / "skipped")})
    await wait_until_fired(prometheus, "DroverRecordsSkipped")


async def a_sink_that_cannot_write(
    prometheus: Prometheus, client: ConnectClient, directory: Path
) -> None:
    """The sink retries its batch while records keep arriving."""
    flow = Flow(directory, "lines")
    mark = directory / "away"
    mark.touch()
    await client.create_connector(flow.source, source_of(flow.input, flow.name))
    kind = plugins.plugin(plugins.WritesWhileNothingIsMarked)
    config = {
        "connector.class": kind,
        "topics": flow.name,
        "away.file": str(mark),
        "errors.retry.timeout": "-1",
    }
    async with flow.feeding():
        await client.create_connector(flow.sink, config)
        of_sink = {"DroverTaskRetries", "DroverSinkStalled", "DroverSinkFallsBehind"}
        await wait_until_fired(prometheus, *of_sink)
        mark.unlink()
        await wait_until_over(prometheus, "DroverSinkStalled")


async def a_heap_that_is_held(prometheus: Prometheus, client: ConnectClient) -> None:
    """A plugin holds most of the heap; Spark continues with the rest."""
    assert "DroverHeapAlmostFull" not in await firing(prometheus)
    kind = plugins.plugin(plugins.HoldsTheHeap)
    await client.create_connector("holds", {"connector.class": kind})
    await wait_until_fired(prometheus, "DroverHeapAlmostFull")
    await client.delete_connector("holds")


async def engines_that_are_killed(prometheus: Prometheus, cluster: EmbeddedCluster) -> None:
    """Spark restarts after each kill."""
    for _ in range(4):
        await wait_until_over(prometheus, "DroverEngineDown")
        engine = find_of_kind(cluster, "worker-1", "engine")
        assert engine is not None
        cluster.note_processes()
        engine.kill()
        await wait_until_fired(prometheus, "DroverEngineDown")
    await wait_until_fired(prometheus, "DroverEngineRestarts")


async def a_connector_that_ends_its_engine(prometheus: Prometheus, client: ConnectClient) -> None:
    """It is named at its second end."""
    await wait_until_over(prometheus, "DroverEngineDown")
    config = {"connector.class": plugins.plugin(DeadlySource), "how": "exit"}
    await client.create_connector("exits", config)
    await wait_until_fired(prometheus, "DroverConnectorQuarantined")
    await client.delete_connector("exits")
    await wait_until_over(prometheus, "DroverConnectorQuarantined")


def source_of(file: Path, topic: str) -> Mapping[str, str]:
    """The config of a source of lines."""
    return {"connector.class": "FileStreamSource", "file": str(file), "topic": topic}
