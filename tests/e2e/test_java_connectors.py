"""Kafka's own Java connectors on a real worker: installed, validated, run, killed and deleted."""

from functools import partial
from pathlib import Path

import psutil
import pytest

from drover.client import ConnectClient
from tests.support.cluster import EmbeddedCluster, embedded_cluster
from tests.support.compiled_plugins import java_host, require_mvn
from tests.support.flow import Flow
from tests.support.java_cluster import (
    install_file_plugin,
    java_hosts,
    java_sink,
    java_source,
    wait_until_no_hosts,
)
from tests.support.java_plugins import FILE_SOURCE, STRING_CONVERTER
from tests.support.shared_cluster import SharedCluster
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(1_800),
]

#: Each start waits longer, up to half a minute.
KILL_COUNT = 4
BACK_TIMEOUT_S = 300.0
_LINES_PER_TICK = 100


class JavaFlow(Flow):
    """A flow from a Java source to a native sink, and to a Java sink with another output."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "java", lines_per_tick=_LINES_PER_TICK)
        self.java_sink = "java-sink-2"
        self.java_output = directory / "java-out-2.txt"
        self.java = (self.source, self.java_sink)

    async def create_connectors(self, client: ConnectClient) -> None:
        """See Flow."""
        await client.create_connector(self.source, java_source(self.input, self.name))
        native = {"connector.class": "FileStreamSink", "file": str(self.output)}
        await client.create_connector(self.sink, {**native, "topics": self.name})
        await client.create_connector(self.java_sink, java_sink(self.java_output, self.name))

    async def assert_java_output(self) -> None:
        """The Java sink has every line in order; Kafka's file sink may repeat lines that it wrote
        between a commit and a kill.
        """
        wanted = self.input.read_bytes().splitlines()

        def first_ones() -> list[bytes]:
            return list(dict.fromkeys(self.java_output.read_bytes().splitlines()))

        await wait_until_async(
            lambda: len(first_ones()) >= len(wanted),
            timeout_s=BACK_TIMEOUT_S,
            describe="the Java sink has all lines",
        )
        assert first_ones() == wanted


@pytest.fixture(autouse=True)
def _host() -> None:
    java_host()
    require_mvn()


async def next_host(cluster: EmbeddedCluster, *earlier: psutil.Process) -> psutil.Process:
    """The plugin's JVM that is started after these."""

    def found() -> list[psutil.Process]:
        return [each for each in java_hosts(cluster) if each not in earlier]

    (host,) = await wait_until_async(found, timeout_s=BACK_TIMEOUT_S, describe="a JVM is started")
    return host


async def test_kafkas_file_connectors_are_installed_validated_run_and_deleted(
    flowing: SharedCluster, tmp_path: Path
) -> None:
    cluster, client = flowing.cluster, flowing.client
    await install_file_plugin(flowing.java_plugins)
    lines = [f"line {number}" for number in range(5_000)]
    (tmp_path / "in").write_text("\n".join(lines) + "\n")
    source = java_source(tmp_path / "in", "java-lines")
    plugin = await client.get_plugin(f"java:{FILE_SOURCE}")
    assert {"file", "topic", "batch.size"} <= {each.name for each in plugin.config_keys}
    for name, text in (("batch.size", "many"), ("topic", "")):
        bad = await client.validate_config({"name": "bad", **source, name: text})
        assert [each.field for each in bad.violations] == [f'config["{name}"]']
    good = await client.validate_config({"name": "good", **source})
    assert not good.violations
    assert not java_hosts(cluster), "a validation leaves no JVM"
    native = {"connector.class": "FileStreamSink", "file": str(tmp_path / "native-out")}
    async with (
        flowing.connector("java-source", source),
        flowing.connector("java-sink", java_sink(tmp_path / "java-out", "java-lines")),
        flowing.connector("native-sink", {**native, "topics": "java-lines"}),
    ):
        wanted = "".join(f"{each}\n" for each in lines)
        for out in (tmp_path / "java-out", tmp_path / "native-out"):
            await wait_for_text(out, wanted)
        assert 1 <= len(java_hosts(cluster)) <= 2, "the tasks of a plugin on a worker share a JVM"
        for name in ("java-source", "java-sink"):
            task = await cluster.wait_for_task(name)
            assert not task.HasField("failures"), task
    await wait_until_no_hosts(cluster)


async def test_dead_letters_of_a_java_sink_are_replayed_through_it(
    flowing: SharedCluster, tmp_path: Path
) -> None:
    await install_file_plugin(flowing.java_plugins)
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_text('{"n":1}\nno json\n{"n":2}\n')
    sink = {
        **java_sink(target, "java-mixed"),
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "java-mixed-dead",
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    async with (
        flowing.connector("java-mixed-source", java_source(source, "java-mixed")),
        flowing.connector("java-mixed-sink", sink),
    ):
        await wait_for_text(target, "{n=1}\n{n=2}\n")
        await flowing.client.patch_connector_config(
            "java-mixed-sink", settings={"value.converter": STRING_CONVERTER}
        )
        replay = ("dlq", "replay", "java-mixed-sink")
        refused = await flowing.drover(*replay)
        # whether a later record has replaced it is not known of a plugin
        assert "its key cannot be determined" in refused.out
        done = await flowing.drover(*replay, "--force", "--wait", str(int(BACK_TIMEOUT_S)))
        assert done.exit_code == 0, done
        await wait_for_text(target, "{n=1}\n{n=2}\nno json\n")
        again = await flowing.drover(*replay)
        assert "no open dead letter is selected" in again.out


async def wait_for_text(path: Path, text: str) -> None:
    await wait_until_async(
        partial(has_text, path, text),
        timeout_s=BACK_TIMEOUT_S,
        describe=lambda: path.read_text() if path.exists() else f"there is no {path}",
    )


def has_text(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


@pytest.mark.faults("engine")
async def test_kills_of_a_plugins_jvm_lose_and_repeat_no_line(tmp_path: Path) -> None:
    home = tmp_path / "plugins"
    await install_file_plugin(home)
    flow, beside = JavaFlow(tmp_path), Flow(tmp_path, "native", lines_per_tick=_LINES_PER_TICK)
    async with (
        embedded_cluster(tmp_path, workers=1, env={"DROVER_PLUGIN_HOME": str(home)}) as cluster,
        cluster.client() as client,
    ):
        await cluster.wait_until_members()
        for each in (flow, beside):
            await each.create_connectors(client)
        async with flow.feeding(), beside.feeding():
            killed: list[psutil.Process] = []
            for number in range(KILL_COUNT):
                await flow.wait_until_passed(f"before kill {number}")
                killed.append(await next_host(cluster, *killed))
                killed[-1].kill()
            await flow.wait_until_passed("after all kills")
            await beside.wait_until_passed("beside the kills")
        await flow.assert_equal()
        await flow.assert_java_output()
        await beside.assert_equal()
        for name in flow.java:
            task = await cluster.wait_for_task(name)
            assert "was killed by signal 9" in task.failures.failures[0].message, task
        for name in (flow.sink, beside.source, beside.sink):
            task = await cluster.wait_for_task(name)
            assert not task.HasField("failures"), task
        for name in flow.java:
            await client.delete_connector(name)
        await wait_until_no_hosts(cluster)
