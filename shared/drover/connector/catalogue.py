"""Finds connector classes by entry point, alias or dotted path."""

import importlib
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from drover.config.near_names import did_you_mean, near_classes
from drover.config.other_products import nearest_connector
from drover.config.plugin_errors import PluginProblem, describe_error
from drover.config.plugin_imports import PLUGIN_IMPORTS
from drover.config.plugin_modules import module_fault
from drover.connector.connector import Connector
from drover.connector.sink import SinkConnector
from drover.connector.source import SourceConnector

GROUP = "drover.connectors"
#: The types of connectors.
SOURCE, SINK = "source", "sink"
_KNOWN_SHOWN_MAX = 20
_CLASS, _VERSION = "connector.class", "connector.plugin.version"


class PluginNotFoundError(Exception):
    """No connector class has that name; the message lists the known ones."""


@dataclass(frozen=True, slots=True)
class InstalledPlugin:
    """A connector class and the names that connector.class may use for it."""

    connector_class: type[Connector]
    aliases: tuple[str, ...]


def class_name(connector_class: type[Connector]) -> str:
    """The full name of a class."""
    return f"{connector_class.__module__}.{connector_class.__qualname__}"


def connector_type(connector_class: type[Connector]) -> str:
    """``source`` or ``sink``."""
    return SINK if issubclass(connector_class, SinkConnector) else SOURCE


class PluginRegistry:
    """The installed connectors; thread-safe.

    Each entry point is loaded separately on first use, so an import that fails affects only its
    own connector, and one that hangs delays others by ``IMPORT_LIMIT_S``. A failed import is
    retried on the next use.
    """

    def __init__(
        self,
        find_entry_points: Callable[[], Iterable[EntryPoint]] | None = None,
        *,
        place: str = "on this worker",
        find_other: Callable[[str, str], type[Connector] | None] = lambda _name, _version: None,
        prefers_other: Callable[[str], bool] = lambda _name: False,
    ) -> None:
        """Read the names of the entry points; imports nothing.

        Args:
            find_entry_points: Finds the entry points; by default all of this Python.
            place: Where the connectors are installed, in the words of an error.
            find_other: Finds a connector that is no Python class, by a name that no Python class
                has, or that has a prefix, and the wanted version; raises an exception whose
                message is for users.
            prefers_other: Whether the connector with a name is such a one, although a Python class
                has the name too.
        """
        self._place = place
        self._find_other = find_other
        self._prefers_other = prefers_other
        found = find_entry_points() if find_entry_points else entry_points(group=GROUP)
        unique = {(each.name, each.value): each for each in found}
        self._entries = [_Entry(each) for _, each in sorted(unique.items())]

    def find_of(self, config: Mapping[str, str | None]) -> type[Connector]:
        """The class that a config names, in the version that it names (KIP-891).

        Raises:
            PluginNotFoundError: No class has that name and version, or several have.
        """
        return self.find(config.get(_CLASS) or "", config.get(_VERSION) or "")

    def find(self, name: str, version: str = "") -> type[Connector]:
        """The class that ``connector.class`` names. Runs plugin code (imports).

        Args:
            name: Its name.
            version: The wanted version of a Java class; a Python class is installed in one version.

        Raises:
            PluginNotFoundError: No class has that name, or several have.
        """
        wanted = name.strip().replace(":", ".")
        if ":" in name or self._prefers_other(wanted):
            other = self._other(name, version)
            if other is not None:
                return other
        by_entry = [each for each in self._entries if wanted in each.names]
        problems = []
        for entry in by_entry:
            loaded = entry.load()
            if isinstance(loaded, PluginProblem):
                problems.append(f"{loaded.entry_point}: {loaded.message}")
        classes = {each.loaded_class for each in by_entry} - {None}
        if not classes and not problems:
            classes = {each.connector_class for each in self.list()[0] if wanted in each.aliases}
        if not classes and not problems:
            other = self._other(name, version)
            if other is not None:
                return other
        if not classes and not problems and "." in wanted:
            return self._import(name.strip(), wanted)
        if len(classes) == 1:
            (only,) = classes
            assert only is not None
            return only
        if problems:
            raise PluginNotFoundError(f"{name!r} cannot be loaded: {'; '.join(problems)}")
        if classes:
            candidates = ", ".join(sorted(class_name(each) for each in classes if each))
            raise PluginNotFoundError(f"{name!r} names several connectors: {candidates}")
        raise self._unknown(name)

    def _other(self, name: str, version: str) -> type[Connector] | None:
        try:
            return self._find_other(name, version)
        except Exception as error:
            raise PluginNotFoundError(f"{name!r} cannot be used: {error}") from error

    def built_in_module(self, name: str) -> str | None:
        """The module of the built-in connector that ``connector.class`` names; imports nothing."""
        wanted = name.strip().replace(":", ".")
        if self._prefers_other(wanted):
            return None
        found = {
            each.point.module
            for each in self._entries
            if wanted in each.names and each.point.module.startswith("drover.")
        }
        return found.pop() if len(found) == 1 else None

    def list(self) -> tuple[list[InstalledPlugin], list[PluginProblem]]:
        """Every connector that can be loaded, sorted by name, and the entry points that failed."""
        names: dict[type[Connector], set[str]] = {}
        problems = []
        for entry in self._entries:
            loaded = entry.load()
            if isinstance(loaded, PluginProblem):
                problems.append(loaded)
            else:
                names.setdefault(loaded, set()).update(
                    (entry.point.name, loaded.__name__, *loaded.aliases)
                )
        plugins = [
            InstalledPlugin(each, tuple(sorted(names[each] - {class_name(each)})))
            for each in sorted(names, key=class_name)
        ]
        return plugins, problems

    def _import(self, name: str, dotted: str) -> type[Connector]:
        """Import a class without an entry point, from a module that the operator allows."""
        module_name, _, attribute = dotted.rpartition(".")
        fault = module_fault(module_name)
        if fault is not None:
            raise self._unknown(name, own_class=fault)
        try:
            module = PLUGIN_IMPORTS.run(dotted, lambda: importlib.import_module(module_name))
            return checked_class(getattr(module, attribute))
        except Exception as error:
            # the import runs plugin code, which may raise anything
            raise self._unknown(
                name, why=f" and cannot be imported ({describe_error(error)})"
            ) from error

    def _unknown(self, name: str, *, why: str = "", own_class: str = "") -> PluginNotFoundError:
        text = f"no connector {name!r} is installed {self._place}{why}: {self._nearest(name)}"
        if own_class:
            end = "" if text.endswith("?") else "."
            text += f"{end} For a class of your own: {own_class} (docs/connectors.md)"
        return PluginNotFoundError(text)

    def _nearest(self, name: str) -> str:
        names = {each: entry.point.name for entry in self._entries for each in entry.names}
        question = did_you_mean([repr(each) for each in near_classes(name, names)])
        nearest = question or nearest_connector(name)
        if nearest is not None:
            return nearest
        known = sorted({each.point.name for each in self._entries})
        shown = ", ".join(known[:_KNOWN_SHOWN_MAX]) or "none"
        more = f" and {len(known) - _KNOWN_SHOWN_MAX} more" if len(known) > _KNOWN_SHOWN_MAX else ""
        return f"known: {shown}{more}"


def checked_class(found: object) -> type[Connector]:
    """``found``, if it is a usable connector class.

    Also creates the module's logger, so that it can be listed and set before its first use.

    Raises:
        TypeError: It is not one.
    """
    if not (isinstance(found, type) and issubclass(found, SourceConnector | SinkConnector)):
        raise TypeError(f"{found!r} is not a subclass of SourceConnector or SinkConnector")
    if inspect.isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise TypeError(f"{found.__qualname__} is abstract: it lacks {missing}")
    if not isinstance(getattr(found, "task_class", None), type):
        raise TypeError(f"{found.__qualname__} has no task_class")
    logging.getLogger(found.__module__)
    return found


class _Entry:
    """An entry point. Its class is kept once loaded; a failed import is retried."""

    def __init__(self, point: EntryPoint) -> None:
        self.point = point
        dotted = point.value.split("[")[0].strip().replace(":", ".")
        self.names = {point.name, dotted, dotted.rpartition(".")[2]}
        self.loaded_class: type[Connector] | None = None

    def load(self) -> type[Connector] | PluginProblem:
        """Import the class, or return the reason of the failure."""
        if self.loaded_class is None:
            name = f"{self.point.name} = {self.point.value}"
            try:
                loaded = PLUGIN_IMPORTS.run(name, lambda: checked_class(self.point.load()))
            except BaseException as error:  # noqa: BLE001 - a plugin's import may raise anything
                return PluginProblem.of(self.point, error)
            self.names |= {class_name(loaded), *loaded.aliases}
            self.loaded_class = loaded
        return self.loaded_class
