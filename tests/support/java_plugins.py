"""Kafka's own Java plugins, and the host that runs them, for tests."""

import shutil
from functools import cache
from pathlib import Path

import pytest

from drover.connector.connector import Connector
from drover.connectors.java.connectors import connector_of
from drover.java_plugins.catalogue import JavaClass, Kind
from drover.java_plugins.host import HOSTS, Lease, Plugins
from tests.support.compiled_plugins import compiled, jar
from tests.support.kafka.jars import CACHE, find_jars

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
FILE_SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
STRING_CONVERTER = "org.apache.kafka.connect.storage.StringConverter"


@cache
def file_plugin() -> Path:
    """The folder of Kafka's file connectors as a plugin.

    Raises:
        KafkaMissingError: Kafka's jars are missing.
    """
    return _plugin("connect-file", "connect-file-*.jar")


@cache
def mirror_plugin() -> Path:
    """The folder of MirrorMaker's connectors as a plugin; raises as ``file_plugin``."""
    return _plugin("connect-mirror", "connect-mirror-*.jar")


def _plugin(name: str, jars: str) -> Path:
    wanted = sorted(find_jars().directory.glob(jars))
    assert wanted, jars
    folder = CACHE / f"{wanted[0].stem}-plugin" / name
    for each in wanted:
        if not (folder / each.name).is_file():
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy2(each, folder / each.name)
    return folder


def java_connector(name: str, path: Path, kind: Kind) -> type[Connector]:
    """The connector class of a Java class in a folder of jars."""
    return connector_of(JavaClass(name, kind, "1.0", path.name, path), in_engine=True)


def compiled_plugin(folder: Path, sources: dict[str, str]) -> Path:
    """A plugin's folder with a jar of compiled classes and no service manifests."""
    plugin = folder / "test-plugin"
    jar(plugin / "plugin.jar", compiled(folder / "build", sources))
    return plugin


def noted_owners(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The owners of the JVMs that are used from now on; empty texts for shared ones."""
    owners: list[str] = []
    use = HOSTS.use

    def noted(plugins: Plugins, owner: str = "") -> Lease:
        owners.append(owner)
        return use(plugins, owner)

    monkeypatch.setattr(HOSTS, "use", noted)
    return owners
