"""Kafka's own Java plugins, and the host that runs them, for tests."""

import shutil
from functools import cache
from pathlib import Path

from drover.connector.connector import Connector
from drover.connectors.java.connectors import connector_of
from drover.java_plugins.catalogue import JavaClass, Kind
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
    jars = find_jars()
    (wanted,) = jars.directory.glob("connect-file-*.jar")
    folder = CACHE / f"{wanted.stem}-plugin" / "connect-file"
    if not (folder / wanted.name).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy2(wanted, folder / wanted.name)
    return folder


def java_connector(name: str, path: Path, kind: Kind) -> type[Connector]:
    """The connector class of a Java class in a folder of jars."""
    return connector_of(JavaClass(name, kind, "1.0", path.name, path), in_engine=True)


def compiled_plugin(folder: Path, sources: dict[str, str]) -> Path:
    """A plugin's folder with a jar of compiled classes and no service manifests."""
    plugin = folder / "test-plugin"
    jar(plugin / "plugin.jar", compiled(folder / "build", sources))
    return plugin
