"""Java plugins and their classes, as values."""

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

#: Between the name and the version of a plugin.
VERSION_MARK = "@"


class Kind(StrEnum):
    """The kinds of classes that a plugin can have."""

    SOURCE = "source"
    SINK = "sink"
    CONVERTER = "converter"
    HEADER_CONVERTER = "header_converter"
    TRANSFORM = "transform"
    PREDICATE = "predicate"


class JavaPluginError(Exception):
    """A plugin or one of its classes cannot be used; the message has the reason and the remedy."""


class JavaVersionError(JavaPluginError):
    """A class is not installed in the wanted version; the message lists the versions."""


@dataclass(frozen=True, slots=True)
class JavaClass:
    """A class of a plugin. A class that is a converter and a header converter is listed twice.

    Attributes:
        name: The full name, with ``$`` before the name of a nested class.
        kind: What the class is.
        version: The version that the class reports; if it was not run, the version of its jar.
            Empty if neither has one.
        plugin: The name of the plugin's folder, such as ``connect-file@4.3.1``.
        path: The folder with the plugin's jars, at any depth; for a jar that is a plugin, the jar.
        needs_kafka: Whether the class connects to Kafka with clients that are in no task, such as
            MirrorMaker's connectors and Debezium's schema history.
        java: The oldest Java release that can load the class, such as 17.
        jar_sha256: The SHA-256 of its jar, in hexadecimal.
    """

    name: str
    kind: Kind
    version: str
    plugin: str
    path: Path
    needs_kafka: bool = False
    java: int = 8
    jar_sha256: str = ""

    @property
    def simple_name(self) -> str:
        """The name without its package."""
        return self.name.rpartition(".")[2].replace("$", ".")


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar of a plugin.

    Attributes:
        path: Its path in the plugin's folder of jars.
        sha256: Its SHA-256, in hexadecimal.
        size_bytes: Its size.
    """

    path: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin: jars that share a class loader.

    Attributes:
        name: The name of its folder, such as ``connect-file@4.3.1``.
        path: The folder with its jars, at any depth; or its only jar.
        source: The path or the Maven coordinates from which it was installed. Empty if Drover
            did not install it.
        classes: Its classes, sorted by name.
        jars: Its jars, sorted by path.
        problems: Reasons why some of its classes cannot be used, as sentences.
    """

    name: str
    path: Path
    source: str
    classes: tuple[JavaClass, ...]
    jars: tuple[Jar, ...]
    problems: tuple[str, ...] = ()

    @property
    def base_name(self) -> str:
        """The name without the version."""
        return self.name.partition(VERSION_MARK)[0]

    @property
    def version(self) -> str:
        """The version in the folder's name; empty if it has none."""
        return self.name.partition(VERSION_MARK)[2]


def renamed(plugin: Plugin, name: str) -> Plugin:
    """The plugin and its classes under another name."""
    classes = tuple(replace(each, plugin=name) for each in plugin.classes)
    return replace(plugin, name=name, classes=classes)
