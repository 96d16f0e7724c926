"""A plugin as JSON: what its catalogue file contains."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drover.java_plugins.values import Jar, JavaClass, Kind, Plugin

#: The version of the form; a file with another one is not read.
FORMAT = 1
_BYTES_MAX = 32 * 1024 * 1024


def read_document(path: Path) -> Any:
    """The JSON in a file.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is too large, or no JSON.
    """
    with path.open("rb") as stream:
        data = stream.read(_BYTES_MAX + 1)
    if len(data) > _BYTES_MAX:
        raise ValueError(f"larger than {_BYTES_MAX} bytes")
    return json.loads(data)


def to_document(plugin: Plugin) -> dict[str, Any]:
    """The contents of the catalogue file."""
    return {
        "format": FORMAT,
        "plugin": plugin.name,
        "source": plugin.source,
        "jars": [
            {"path": each.path, "sha256": each.sha256, "size_bytes": each.size_bytes}
            for each in plugin.jars
        ],
        "classes": [
            {
                "name": each.name,
                "kind": each.kind.value,
                "version": each.version,
                "needs_kafka": each.needs_kafka,
                "java": each.java,
                "jar_sha256": each.jar_sha256,
            }
            for each in plugin.classes
        ],
        "problems": list(plugin.problems),
    }


def from_document(document: Mapping[str, Any], path: Path) -> Plugin:
    """The plugin of a catalogue file.

    Args:
        document: The contents of the file.
        path: The folder with the plugin's jars.

    Raises:
        ValueError: The file has another format.
        KeyError, TypeError: The file is damaged.
    """
    if document["format"] != FORMAT:
        raise ValueError(f"its format is {document['format']}, not {FORMAT}")
    name = str(document["plugin"])
    return Plugin(
        name=name,
        path=path,
        source=str(document["source"]),
        classes=tuple(
            JavaClass(
                name=str(each["name"]),
                kind=Kind(each["kind"]),
                version=str(each["version"]),
                plugin=name,
                path=path,
                needs_kafka=bool(each["needs_kafka"]),
                java=int(each["java"]),
                jar_sha256=str(each["jar_sha256"]),
            )
            for each in document["classes"]
        ),
        jars=tuple(
            Jar(str(each["path"]), str(each["sha256"]), int(each["size_bytes"]))
            for each in document["jars"]
        ),
        problems=tuple(str(each) for each in document["problems"]),
    )
