"""Installs Java plugins into the plugin home, and removes them.

A plugin is put together in a temporary folder of the home and gets its name by a rename: a crash
leaves nothing half-installed, and a repeated call has no further effect. One process at a time
changes a home.
"""

import errno
import fcntl
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from drover.java_plugins.archives import ArchiveError, copy_file, copy_folder, unpack
from drover.java_plugins.catalogue import (
    CATALOGUE_FILE,
    JARS_FOLDER,
    check_home,
    installed,
    read_plugin,
)
from drover.java_plugins.class_settings import SETTINGS_FILE, write_settings
from drover.java_plugins.describe import Description, JavaHost, describe
from drover.java_plugins.documents import to_document
from drover.java_plugins.maven import Coordinates, fetch, parse_coordinates
from drover.java_plugins.scan import ScanError, scan
from drover.java_plugins.values import VERSION_MARK, JavaPluginError, Plugin
from drover.private_files import SharedDirectoryError, private_directory

_ADDING, _REMOVING, _LOCK_FILE = ".adding-", ".removing-", ".lock"
_ARCHIVE_ENDS = (".tar.gz", ".tgz", ".tar", ".zip")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_VERSIONED = re.compile(r"(?P<name>.+?)[-_]v?(?P<version>\d[A-Za-z0-9.+_-]*)")
#: What distributions append to the name of an archive.
_DISTRIBUTION = re.compile(r"-(?:plugin|archive|all|dist|bin|jar-with-dependencies|shaded)$")
#: Errors of a full disk, a quota that is used up, and a limit of the size of files.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_MANIFEST_BYTES_MAX = 1024 * 1024
_NO_NAME = "plugin"


@dataclass(frozen=True, slots=True)
class Installed:
    """A plugin in the plugin home after a call.

    Attributes:
        plugin: The plugin.
        is_new: Whether the call changed anything.
        replaced: The names of the plugins that the call removed.
        warnings: What its classes need before they can run, as sentences.
    """

    plugin: Plugin
    is_new: bool
    replaced: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def add(
    what: str,
    home: Path,
    *,
    host: JavaHost | None,
    name: str = "",
    upgrades: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> Installed:
    """Install a plugin.

    Args:
        what: A folder, a zip or tar archive, a jar, or Maven coordinates.
        home: The plugin home; it is created for the current user only.
        host: Asks the plugin's classes for versions and settings; None without a JVM, then a
            worker asks when they are used.
        name: The name of the plugin, without its version; by default that of the archive.
        upgrades: Whether other versions of the plugin are removed, and another plugin with this
            name and version is replaced.
        environ: The environment of mvn.

    Raises:
        JavaPluginError: It is no plugin, or the home cannot be used.
    """
    if name and not _NAME.fullmatch(name):
        raise JavaPluginError(f"{name!r} is not a name: use letters, digits, '.', '_' and '-'")
    with _home_alone(home), _errors(home):
        place = Path(tempfile.mkdtemp(prefix=_ADDING, dir=home))
        try:
            found = _put_together(what, place, host, name, environ)
            return _move_in(found, place, home, upgrades=upgrades)
        finally:
            shutil.rmtree(place, ignore_errors=True)


def remove(name: str, home: Path) -> Plugin:
    """Remove a plugin.

    Args:
        name: Its name, with the version if several are installed.
        home: The plugin home.

    Raises:
        JavaPluginError: No plugin has the name, or several do; or the home cannot be used.
    """
    if not home.is_dir():
        raise JavaPluginError(f"{home} has no plugin {name}: nothing is installed there")
    with _home_alone(home), _errors(home):
        plugins = installed(home).plugins
        found = [each for each in plugins if name in (each.name, each.base_name)]
        if not found:
            others = ", ".join(each.name for each in plugins)
            raise JavaPluginError(
                f"{home} has no plugin {name}" + (f", but {others}" if others else "")
            )
        exact = [each for each in found if each.name == name]
        if len(found) > 1 and not exact:
            names = ", ".join(each.name for each in found)
            raise JavaPluginError(f"{name} is installed in several versions: name one of {names}")
        (plugin,) = exact or found
        _remove(home / plugin.name, home)
        return plugin


def _put_together(
    what: str, place: Path, host: JavaHost | None, name: str, environ: Mapping[str, str]
) -> tuple[Plugin, tuple[str, ...]]:
    """The plugin in the folder ``place``, and its warnings."""
    jars = place / JARS_FOLDER
    own_name, version, source = _bring(what, jars, place / "fetched", environ)
    manifest = _hub_manifest(jars)
    base = name or _clean(str(manifest.get("name") or own_name)) or _NO_NAME
    version = _clean(str(manifest.get("version") or version))
    try:
        plugin = scan(jars, base, source=source)
    except ScanError as error:
        inner = sorted(each.name for each in jars.rglob("*") if each.name.endswith(_ARCHIVE_ENDS))
        if inner:
            raise JavaPluginError(
                f"{what} has no jar, but an archive in it: unpack {what}, then add {inner[0]}"
            ) from None
        raise JavaPluginError(str(error).replace(str(jars), what)) from None
    if not plugin.classes:
        problems = f" ({'; '.join(plugin.problems)})" if plugin.problems else ""
        raise JavaPluginError(
            f"{what} has no connector, converter, transform or predicate of Kafka Connect{problems}"
        )
    version = version or _clean(plugin.classes[0].version)
    plugin = replace(plugin, name=f"{base}{VERSION_MARK}{version}" if version else base)
    plugin, descriptions, warnings = _described(plugin, host)
    _write(place / CATALOGUE_FILE, to_document(plugin))
    if descriptions:
        write_settings(place / SETTINGS_FILE, descriptions)
    return plugin, (*plugin.problems, *warnings)


def _bring(
    what: str, jars: Path, fetched: Path, environ: Mapping[str, str]
) -> tuple[str, str, str]:
    """Put the files of a plugin into ``jars``. Returns its name, its version, where it is from."""
    path = Path(what)
    coordinates = None if path.exists() else parse_coordinates(what)
    if coordinates is not None:
        return _bring_artifact(coordinates, jars, fetched, environ)
    if "://" in what:
        raise JavaPluginError(f"{what} is an address: download the file, then give its path")
    if not path.exists():
        raise JavaPluginError(
            f"{what} is neither a file or folder nor Maven coordinates, which are"
            " group:artifact:version or group:artifact:type:classifier:version"
        )
    path = path.resolve()
    if path.is_dir():
        copy_folder(path, jars)
        return (*_name_and_version(path.name), str(path))
    _bring_file(path, jars)
    return (*_name_and_version(_without_end(path.name)), str(path))


def _bring_artifact(
    coordinates: Coordinates, jars: Path, fetched: Path, environ: Mapping[str, str]
) -> tuple[str, str, str]:
    if coordinates.classifier:
        fetch(coordinates, fetched, environ)
        for each in fetched.iterdir():
            _bring_file(each, jars)
        shutil.rmtree(fetched)
    else:
        fetch(coordinates, jars, environ)
    return coordinates.artifact, coordinates.version, str(coordinates)


def _bring_file(path: Path, jars: Path) -> None:
    if path.name.lower().endswith(_ARCHIVE_ENDS):
        unpack(path, jars)
    elif path.name.lower().endswith(".jar"):
        jars.mkdir(mode=0o700, exist_ok=True)
        copy_file(path, jars / path.name)
    else:
        raise JavaPluginError(
            f"{path} is no plugin: give a folder, a .zip, .tar.gz or .jar file, or Maven"
            " coordinates"
        )


def _described(
    plugin: Plugin, host: JavaHost | None
) -> tuple[Plugin, list[Description], tuple[str, ...]]:
    """The plugin with the versions that its classes report, and their settings."""
    if host is None:
        return plugin, [], ()
    try:
        answers = describe(host, plugin.path, [each.name for each in plugin.classes])
    except JavaPluginError as error:  # workers ask again
        return plugin, [], (str(error),)
    described = {k: v for k, v in answers.items() if isinstance(v, Description)}
    classes = tuple(
        replace(
            each,
            plugin=plugin.name,
            version=(described[each.name].version if each.name in described else "")
            or each.version,
        )
        for each in plugin.classes
    )
    warnings = tuple(str(each) for each in answers.values() if isinstance(each, JavaPluginError))
    return replace(plugin, classes=classes), list(described.values()), warnings


def _move_in(
    found: tuple[Plugin, tuple[str, ...]], place: Path, home: Path, *, upgrades: bool
) -> Installed:
    plugin, warnings = found
    target = home / plugin.name
    before = _read(target)
    is_same = before is not None and before.jars == plugin.jars
    others = [
        each
        for each in (installed(home).plugins if upgrades else ())
        if each.base_name == plugin.base_name and each.name != plugin.name
    ]
    if not is_same:
        if before is not None and not upgrades:
            raise JavaPluginError(
                f"{plugin.name} is installed from {before.source}, with other jars: `drover plugin"
                " upgrade` replaces it, --name installs it under another name"
            )
        _sync(place)
        if target.exists():
            _remove(target, home)
        place.rename(target)
        _sync_folder(home)
    for each in others:
        _remove(home / each.name, home)
    return Installed(
        read_plugin(target),
        is_new=not is_same or bool(others),
        replaced=tuple(each.name for each in others),
        warnings=warnings,
    )


def _read(folder: Path) -> Plugin | None:
    """The installed plugin in a folder; None if it is missing or damaged."""
    try:
        return read_plugin(folder)
    except JavaPluginError:
        return None


def _remove(folder: Path, home: Path) -> None:
    """Remove a plugin's folder at once, and its files afterwards."""
    gone = home / f"{_REMOVING}{folder.name}"  # a new folder would need space on a full disk
    folder.rename(gone)
    _sync_folder(home)
    shutil.rmtree(gone, ignore_errors=True)


@contextmanager
def _home_alone(home: Path) -> Iterator[None]:
    """Lock a private home, and clean up after processes that crashed."""
    try:
        try:
            check_home(home)
        except FileNotFoundError:
            private_directory(home)
        lock = os.open(home / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except SharedDirectoryError as error:
        raise JavaPluginError(f"the plugin home {home}: {error}") from None
    except OSError as error:
        raise _unusable(home, error) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for each in home.iterdir():
            if each.name.startswith((_ADDING, _REMOVING)):
                shutil.rmtree(each, ignore_errors=True)
        yield
    finally:
        os.close(lock)


@contextmanager
def _errors(home: Path) -> Iterator[None]:
    try:
        yield
    except ArchiveError as error:
        raise JavaPluginError(str(error)) from None
    except OSError as error:
        raise _unusable(home, error) from error


def _unusable(home: Path, error: OSError) -> JavaPluginError:
    if error.errno in _FULL:
        return JavaPluginError(
            f"the plugin home {home} has not enough space ({error.strerror}): free some on its "
            "disk, or set DROVER_PLUGIN_HOME to a folder on another one. Its plugins are unchanged"
        )
    where = f"{error.filename}: " if error.filename not in (None, str(home)) else ""
    return JavaPluginError(
        f"the plugin home {home} cannot be used ({where}{error.strerror or error}): make it"
        " writable, or set DROVER_PLUGIN_HOME to another folder"
    )


def _hub_manifest(jars: Path) -> Mapping[str, Any]:
    """The manifest of an archive of Confluent's hub; empty if there is none."""
    for path in (jars / "manifest.json", *sorted(jars.glob("*/manifest.json"))):
        with suppress(OSError, ValueError):
            with path.open("rb") as stream:
                found = json.loads(stream.read(_MANIFEST_BYTES_MAX))
            if isinstance(found, dict):
                return found
    return {}


def _without_end(name: str) -> str:
    for each in (*_ARCHIVE_ENDS, ".jar"):
        if name.lower().endswith(each):
            return name[: -len(each)]
    return name


def _name_and_version(text: str) -> tuple[str, str]:
    """The parts of ``debezium-connector-postgres-3.6.3.Final-plugin``."""
    shortened = _DISTRIBUTION.sub("", text)
    found = _VERSIONED.fullmatch(shortened)
    return (found["name"], found["version"]) if found else (shortened, "")


def _clean(text: str) -> str:
    """A part of a folder's name."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text).strip("-._+")[:100]


def _write(path: Path, document: Any) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        json.dump(document, stream, indent=1)


def _sync(folder: Path) -> None:
    """Write a folder's files to the disk, before the rename that shows them."""
    for at, _, files in os.walk(folder):
        for each in files:
            descriptor = os.open(Path(at) / each, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        _sync_folder(Path(at))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
