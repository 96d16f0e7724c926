"""Java plugins on a real cluster: their installation, their connectors and their JVMs."""

from contextlib import suppress
from pathlib import Path

import psutil

from tests.support.cluster import EmbeddedCluster, run_drover
from tests.support.java_plugins import FILE_SINK, FILE_SOURCE, STRING_CONVERTER
from tests.support.waiting import wait_until_async

FILE_PLUGIN = "org.apache.kafka:connect-file:4.3.1"
_HOST_CLASS = "io.drover.host.Main"
#: Covers a JVM's start and a restart's back-off on a busy machine.
_TIMEOUT_S = 120.0


def java_source(file: Path, topic: str) -> dict[str, str]:
    """Kafka's file source, as a Java plugin."""
    return {
        "connector.class": f"java:{FILE_SOURCE}",
        "file": str(file),
        "topic": topic,
        "value.converter": STRING_CONVERTER,
    }


def java_sink(file: Path, topics: str) -> dict[str, str]:
    """Kafka's file sink, as a Java plugin."""
    return {
        "connector.class": f"java:{FILE_SINK}",
        "file": str(file),
        "topics": topics,
        "value.converter": STRING_CONVERTER,
    }


async def install_file_plugin(home: Path) -> None:
    """Install Kafka's file connectors with the command."""
    env = {"DROVER_PLUGIN_HOME": str(home)}
    done = await run_drover("plugin", "add", FILE_PLUGIN, cwd=home.parent, env=env)
    assert done.exit_code == 0, done.err


def java_hosts(cluster: EmbeddedCluster) -> list[psutil.Process]:
    """The JVMs of Java plugins of all workers."""
    found = []
    for name in map(cluster.worker_name, cluster.workers):
        for process in psutil.Process(cluster.process(name).pid).children(recursive=True):
            with suppress(psutil.Error):
                if _HOST_CLASS in process.cmdline() and "serve" in process.cmdline():
                    found.append(process)
    return found


async def wait_until_no_hosts(cluster: EmbeddedCluster) -> None:
    """Wait until no JVM of a Java plugin runs."""
    await wait_until_async(
        lambda: not java_hosts(cluster),
        timeout_s=_TIMEOUT_S,
        describe="no JVM of a Java plugin runs",
    )
