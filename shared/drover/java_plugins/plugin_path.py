"""Plugins in folders with the layout of Kafka Connect's ``plugin.path``, which are only read.

Each folder and each jar directly in such a folder is a plugin. A scan takes seconds for a large
plugin, so its result is kept in the plugin home, and in memory, until a jar changes.
"""

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from drover.java_plugins.archives import ArchiveError
from drover.java_plugins.documents import FORMAT, from_document, read_document, to_document
from drover.java_plugins.scan import ScanError, is_one_plugin, jar_paths, scan
from drover.java_plugins.values import Plugin, renamed
from drover.private_files import SharedDirectoryError, private_directory, replace_private

_KEPT_FOLDER = ".scanned"
#: One scan at a time: several connectors start at once, and need the same plugins.
_SCANNING = threading.Lock()
#: The results in memory, with their fingerprints, by a digest of their kind and their path.
_REMEMBERED: dict[str, tuple[str, Any]] = {}
_REMEMBERED_MAX = 1_000
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
        if folder.parent in folders:
            continue  # it is a plugin of its parent
        try:
            entries = sorted(_entries(folder))
        except OSError as error:
            reason = error.strerror or error
            problems.append(f"{folder} in DROVER_PLUGIN_PATH cannot be read: {reason}")
            continue
        if _is_one_plugin(folder, entries, home):
            problems.append(
                f"{folder} in DROVER_PLUGIN_PATH is the folder of one plugin, and is used as that:"
                f" name {folder.parent} instead, unless it has other plugins"
            )
            entries = [folder]
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
    """The folders in the text of ``plugin.path``, which are separated by commas. Relative ones are
    in the working directory.
    """
    return tuple(Path(each.strip()).absolute() for each in text.split(",") if each.strip())


def stored(
    path: Path, what: str, home: Path, compute: Callable[[], Any], fingerprint: str = ""
) -> Any:
    """A JSON value about a plugin from the plugin home; computed and stored there if a jar has
    changed since, or if there is none.

    Args:
        path: The plugin.
        what: Names the value.
        home: The plugin home; a value that cannot be stored is computed by each process.
        compute: Makes the value; what it raises is raised, and nothing is stored.
        fingerprint: That of the jars, if it is known.
    """
    place = home / _KEPT_FOLDER / f"{_key(path, what)}.json"
    try:
        # before the value is computed: a jar that changes then makes it outdated
        fingerprint = fingerprint or _fingerprint(path)
        kept = read_document(place)
        if kept["fingerprint"] == fingerprint:
            return kept[what]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    found = compute()
    if not fingerprint:
        return found
    try:
        private_directory(home)
        private_directory(place.parent)
        replace_private(place, json.dumps({"fingerprint": fingerprint, what: found}))
    except (OSError, SharedDirectoryError):
        pass  # it is computed again by the next process
    return found


def _key(path: Path, what: str) -> str:
    return hashlib.sha256(f"{what}:{path}".encode(errors="surrogateescape")).hexdigest()[:32]


def _entries(folder: Path) -> Iterator[Path]:
    for each in folder.iterdir():
        if each.name.startswith("."):
            continue
        if each.is_dir() or (each.is_file() and each.name.lower().endswith(_JAR_ENDS)):
            yield each


def _is_one_plugin(folder: Path, entries: Sequence[Path], home: Path | None) -> bool:
    """Whether a folder of plugins is itself a plugin: its jars need each other."""
    if len(entries) < 2 or any(each.is_dir() for each in entries):
        return False
    try:
        return bool(_kept(folder, "together", home, lambda: is_one_plugin(folder)))
    except (ScanError, ArchiveError, OSError):
        return False


def _scanned(path: Path, name: str, home: Path | None) -> Plugin:
    """A plugin, from the result that is kept if its jars are the same."""

    def scanned() -> Any:
        return to_document(scan(path, name, follow_links=True))

    found = from_document(_kept(path, "plugin", home, scanned), path)
    return renamed(found, name)


def _kept(path: Path, what: str, home: Path | None, compute: Callable[[], Any]) -> Any:
    """A result about the jars below ``path``, computed if one of them has changed."""
    key = _key(path, what)
    with _SCANNING:
        fingerprint = _fingerprint(path)
        remembered = _REMEMBERED.get(key)
        if remembered is not None and remembered[0] == fingerprint:
            return remembered[1]
        found = compute() if home is None else stored(path, what, home, compute, fingerprint)
        if len(_REMEMBERED) >= _REMEMBERED_MAX:
            _REMEMBERED.clear()
        _REMEMBERED[key] = (fingerprint, found)
        return found


def _fingerprint(path: Path) -> str:
    """Changes with each jar that is added, removed or replaced."""
    digest = hashlib.sha256(f"{FORMAT}".encode())
    for each in jar_paths(path, follow_links=True):
        status = each.stat()
        digest.update(os.fsencode(each))
        digest.update(f"\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()
