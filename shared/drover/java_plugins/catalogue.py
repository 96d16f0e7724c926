"""The Java plugins that are installed, and the catalogue file that each has.

Each plugin has a folder in the plugin home (``DROVER_PLUGIN_HOME``), which only Drover
writes::

    connect-file@4.3.1/
        catalogue.json      the classes, and the SHA-256 of each jar
        jars/               the jars, and whatever else the plugin's archive had

Folders of ``DROVER_PLUGIN_PATH`` have the layout of Kafka Connect's ``plugin.path`` and are only
read: each of their folders and jars is a plugin.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from drover.java_plugins.documents import from_document, read_document
from drover.java_plugins.plugin_path import plugins_in
from drover.java_plugins.values import (
    VERSION_MARK,
    Jar,
    JavaClass,
    JavaPluginError,
    JavaVersionError,
    Kind,
    Plugin,
)
from drover.java_plugins.versions import Version, VersionRange, VersionRangeError
from drover.private_files import user_name

__all__ = [
    "Catalogue",
    "Jar",
    "JavaClass",
    "JavaPluginError",
    "JavaVersionError",
    "Kind",
    "Plugin",
    "installed",
]

CATALOGUE_FILE = "catalogue.json"
JARS_FOLDER = "jars"
_OF_OTHERS = 0o077


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All installed plugins.

    Attributes:
        plugins: The plugins, sorted by name.
        problems: Folders and archives that are no usable plugins, with the reasons, as sentences.
    """

    plugins: tuple[Plugin, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def classes(self) -> tuple[JavaClass, ...]:
        """The classes of all plugins."""
        return tuple(each for plugin in self.plugins for each in plugin.classes)

    def __contains__(self, name: object) -> bool:
        return any(each.name == name for each in self.classes)

    def find(
        self, name: str, kind: Kind | None = None, version: str = "", *, beside: str = ""
    ) -> JavaClass:
        """The class with this name.

        Args:
            name: The full name, or the name without its package.
            kind: The wanted kind; None for any.
            version: The wanted version, as in ``connector.plugin.version``; empty for the latest.
            beside: The plugin of the connector, which is preferred.

        Raises:
            JavaPluginError: No class has this name, kind and version, or several plugins have it.
        """
        found = [each for each in self.classes if name in (each.name, each.simple_name)]
        found = [each for each in found if kind in (None, each.kind)]
        if not found:
            what = f"a {kind.value.replace('_', ' ')}" if kind is not None else "a class"
            raise JavaPluginError(f"no installed Java plugin has {what} {name}")
        return only(name, found, version, beside)


def installed(home: Path | None, plugin_path: Sequence[Path] = ()) -> Catalogue:
    """The plugins in the plugin home and in the folders of ``plugin_path``.

    It runs no code of plugins. A plugin that cannot be read is a problem of the catalogue.

    Args:
        home: Drover's own folder; None for none. It may be missing.
        plugin_path: Folders with the layout of Kafka Connect's ``plugin.path``, which are only
            read.

    Raises:
        JavaPluginError: The plugin home belongs to another user, or other users can write to it.
    """
    plugins: list[Plugin] = []
    problems: list[str] = []
    if home is not None:
        for folder in _folders(home):
            try:
                plugins.append(read_plugin(folder))
            except JavaPluginError as error:
                problems.append(str(error))
    taken = frozenset(each.name for each in plugins)
    others, faults = plugins_in(plugin_path, home, taken)
    plugins += others
    problems += faults
    return Catalogue(tuple(sorted(plugins, key=lambda each: each.name)), tuple(problems))


def read_plugin(folder: Path) -> Plugin:
    """The plugin in a folder of the plugin home.

    Raises:
        JavaPluginError: Its catalogue file is missing or damaged.
    """
    path = folder / CATALOGUE_FILE
    try:
        return from_document(read_document(path), folder / JARS_FOLDER)
    except FileNotFoundError:
        raise JavaPluginError(f"{folder} has no {CATALOGUE_FILE}: it was not installed") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise JavaPluginError(
            f"{path} cannot be read ({reason}): install the plugin again with `drover plugin add`"
        ) from error


def check_home(home: Path) -> None:
    """Check that only the current user can write to the plugin home.

    Raises:
        JavaPluginError: It belongs to another user, or its mode gives rights to others.
        OSError: It is missing or cannot be read.
    """
    status = home.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise JavaPluginError(f"the plugin home {home} is not a folder")
    if status.st_uid != os.geteuid():
        raise JavaPluginError(
            f"the plugin home {home} belongs to {user_name(status.st_uid)}, not to"
            f" {user_name(os.geteuid())}, the user of this process: set DROVER_PLUGIN_HOME to a"
            " folder of this user, or add the folder to DROVER_PLUGIN_PATH, which is only read"
        )
    mode = stat.S_IMODE(status.st_mode)
    if mode & _OF_OTHERS:
        raise JavaPluginError(
            f"the plugin home {home} has mode {mode:04o}, which gives rights to other users: run"
            f" `chmod 700 {home}`"
        )


def _folders(home: Path) -> Iterator[Path]:
    """The folders of plugins; names with a leading dot are installations in progress."""
    try:
        check_home(home)
        found = sorted(home.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise JavaPluginError(f"the plugin home {home} cannot be read: {error}") from error
    for each in found:
        if not each.name.startswith(".") and each.is_dir():
            yield each


def only(name: str, found: Sequence[JavaClass], wanted: str = "", beside: str = "") -> JavaClass:
    """The one to use of classes with one name.

    Args:
        name: The name in a config.
        found: The classes with the name.
        wanted: The wanted version, or a range of versions.
        beside: The plugin that is preferred.

    Raises:
        JavaPluginError: Several can be meant, or none has the version (JavaVersionError).
    """
    full_names = {each.name for each in found}
    if len(full_names) > 1:
        raise JavaPluginError(
            f"{name} is a class of several packages: use the full name of one:"
            f" {', '.join(sorted(full_names))}"
        )
    try:
        allowed = VersionRange.parse(wanted)
    except VersionRangeError as error:
        raise JavaVersionError(f"the version of {name} {error}") from None
    matching = [
        each
        for each in found
        if each.version in allowed or each.plugin.partition(VERSION_MARK)[2] in allowed
    ]
    if not matching:
        versions = sorted({each.version for each in found}, key=Version)
        raise JavaVersionError(
            f"{name} is not installed in a version {wanted}, but in {', '.join(versions)}"
        )
    near = [each for each in matching if each.plugin == beside]
    if near:
        return near[0]
    latest = max(Version(each.version) for each in matching)
    best = [each for each in matching if Version(each.version) == latest]
    plugins = sorted({each.plugin for each in best})
    # a library that several plugins contain, such as Debezium's transforms, is the same file
    if len(plugins) > 1 and len({each.jar_sha256 for each in best}) > 1:
        raise JavaPluginError(
            f"{name} {best[0].version} is in several plugins, with different jars:"
            f" {', '.join(plugins)}; remove all but one with `drover plugin remove`, or take its"
            " folder out of DROVER_PLUGIN_PATH"
        )
    return best[0]
