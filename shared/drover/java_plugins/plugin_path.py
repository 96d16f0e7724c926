"""Plugins in folders with the layout of Kafka Connect's ``plugin.path``, which are only read.

Each folder and each jar directly in such a folder is a plugin. A scan takes seconds for a large
plugin, so its result is kept in the plugin home until a jar changes.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from drover.java_plugins.archives import ArchiveError
from drover.java_plugins.documents import FORMAT, from_document, read_document, to_document
from drover.java_plugins.scan import ScanError, jar_paths, scan
from drover.java_plugins.values import Plugin
from drover.private_files import SharedDirectoryError, private_directory, replace_private

_KEPT_FOLDER = ".scanned"
_JAR_ENDS = (".jar", ".zip")


def plugins_in(
    folders: Sequence[Path], home: Path | None, taken: frozenset[str]
) -> tuple[list[Plugin], list[str]]:
    """The plugins in folders, and what is wrong with the others, as sentences.

    Args:
        folders: The folders; a missing one is a problem.
        home: The plugin home, where results are kept; None for nowhere.
        taken: Names of plugins that are in use. A plugin has the name of its folder or jar; if
            another plugin has it, its path.
    """
    plugins: list[Plugin] = []
    problems: list[str] = []
    names = set(taken)
    for folder in dict.fromkeys(folders):
        try:
            entries = sorted(_entries(folder))
        except OSError as error:
            reason = error.strerror or error
            problems.append(f"{folder} in DROVER_PLUGIN_PATH cannot be read: {reason}")
            continue
        for each in entries:
            name = each.name if each.name not in names else str(each)
            try:
                found = _scanned(each, name, home)
            except ScanError:
                continue  # a folder without jars is no plugin, as in Kafka Connect
            except (ArchiveError, OSError) as error:
                problems.append(f"the plugin {each} cannot be used: {error}")
                continue
            names.add(name)
            plugins.append(found)
    return plugins, problems


def split_plugin_path(text: str) -> tuple[Path, ...]:
    """The folders in the text of ``plugin.path``, which are separated by commas."""
    return tuple(Path(each.strip()) for each in text.split(",") if each.strip())


def _entries(folder: Path) -> Iterator[Path]:
    for each in folder.iterdir():
        if each.name.startswith("."):
            continue
        if each.is_dir() or each.name.lower().endswith(_JAR_ENDS):
            yield each


def _scanned(path: Path, name: str, home: Path | None) -> Plugin:
    """A plugin, from the result that is kept if its jars are the same."""
    if home is None or not home.is_dir():
        return scan(path, name, follow_links=True)
    fingerprint = _fingerprint(path)
    place = home / _KEPT_FOLDER / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:32]}.json"
    try:
        kept = read_document(place)
        if kept["fingerprint"] == fingerprint and kept["name"] == name:
            return from_document(kept["plugin"], path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    found = scan(path, name, follow_links=True)
    document = {"fingerprint": fingerprint, "name": name, "plugin": to_document(found)}
    try:
        private_directory(place.parent)
        replace_private(place, json.dumps(document))
    except (OSError, SharedDirectoryError):
        pass  # it is scanned again at the next start
    return found


def _fingerprint(path: Path) -> str:
    """Changes with each jar that is added, removed or replaced."""
    digest = hashlib.sha256(f"{FORMAT}".encode())
    for each in jar_paths(path, follow_links=True):
        status = each.stat()
        digest.update(os.fsencode(each))
        digest.update(f"\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()
