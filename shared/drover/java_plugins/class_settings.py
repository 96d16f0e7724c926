"""The settings of Java classes, asked for once and kept in the plugin home."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from drover.java_plugins.describe import (
    Description,
    JavaHost,
    describe,
    from_document,
    to_document,
)
from drover.java_plugins.documents import read_document
from drover.java_plugins.plugin_path import stored
from drover.java_plugins.values import JavaClass, JavaPluginError
from drover.private_files import replace_private

SETTINGS_FILE = "settings.json"


def settings_of(java_class: JavaClass, host: JavaHost, home: Path | None) -> Description:
    """The settings of a class. Runs code of its plugin, unless the plugin home has the answer.

    An answer is kept until the plugin's jars change; a failure is not.

    Args:
        java_class: The class.
        host: The JVM that runs the plugin, and its limits.
        home: The plugin home; None for none.

    Raises:
        JavaPluginError: The class failed; the message has the phase and the remedy.
    """
    if home is None:
        return _asked(java_class, host)
    file = _kept_file(java_class, home)
    if file is None:
        what = f"settings of {java_class.name}"

        def asked() -> Any:
            return to_document(_asked(java_class, host))

        answer = stored(java_class.path, what, home, asked)
        try:
            return from_document(answer)
        except (KeyError, TypeError, ValueError, AttributeError):  # it is damaged
            return _asked(java_class, host)
    answers = _read(file)
    if java_class.name in answers:
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            return from_document(answers[java_class.name])
    found = _asked(java_class, host)
    with suppress(OSError):  # asked again the next time
        write_settings(file, [found], answers)
    return found


def _asked(java_class: JavaClass, host: JavaHost) -> Description:
    found = describe(host, java_class.path, [java_class.name])[java_class.name]
    if isinstance(found, JavaPluginError):
        raise found
    return found


def write_settings(
    path: Path, descriptions: Sequence[Description], others: Mapping[str, Any] | None = None
) -> None:
    """Write the file of a plugin's settings.

    Args:
        path: The file.
        descriptions: What its classes declare.
        others: The answers that the file has.

    Raises:
        OSError: It cannot be written.
    """
    classes = {**(others or {}), **{each.class_name: to_document(each) for each in descriptions}}
    replace_private(path, json.dumps({"classes": classes}))


def _kept_file(java_class: JavaClass, home: Path) -> Path | None:
    """Where the answers for a plugin in the plugin home are; None for others."""
    folder = java_class.path.parent
    return folder / SETTINGS_FILE if folder.parent == home else None


def _read(path: Path) -> dict[str, Any]:
    try:
        answers = read_document(path)["classes"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return answers if isinstance(answers, dict) else {}
