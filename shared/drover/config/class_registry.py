"""Finds the class that a setting names, among built-in classes and plugins."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from drover.config.config_def import ConfigKey, ConfigType
from drover.config.near_names import did_you_mean, near_classes
from drover.config.other_classes import OtherClasses, nearest_class
from drover.config.plugin_errors import PluginProblem
from drover.config.plugin_imports import PLUGIN_IMPORTS


class Named(Protocol):
    """A class that a setting can name."""

    #: Other names: short names, and the names of Kafka Connect's equivalent classes.
    aliases: ClassVar[Sequence[str]]


ClassT = TypeVar("ClassT", bound=Named)

#: Finds a class that is no Python class, by the name and the wanted version in a config; None if
#: there is none.
FindOther = Callable[[str, str], type[Any] | None]
#: Before the name of a class that is no Python class, where Drover has one of the same name.
OTHER_MARK = ":"
#: The version that any class has.
LATEST = "latest"
#: The setting with the wanted version, behind the prefix of a class.
VERSION_KEY = ConfigKey(
    "plugin.version",
    ConfigType.STRING,
    default=None,
    documentation="The version of a Java class, where several are installed: a version, or a range "
    "such as [1.0,2.0) (KIP-891). By default the latest one.",
)


def version_setting(setting: str) -> str:
    """The setting with the wanted version of the class that ``setting`` names."""
    return f"{setting.removesuffix('.class').removesuffix('.type')}.{VERSION_KEY.name}"


class VersionUnavailableError(ValueError):
    """A class does not exist in the wanted version; the message is a clause."""


class ClassRegistry(Generic[ClassT]):
    """Finds classes of one kind by their simple name, full name or alias.

    An import of a plugin runs its code, which may hang. Drover's own classes are therefore found
    without plugins, and a plugin by its entry point without the others. A plugin that fails to
    import is omitted, and retried on the next use; ``find`` reports its error.

    Args:
        what: The kind, for messages, such as "converter".
        group: The entry point group in which installed distributions offer their classes.
        built_in: Returns the built-in classes.
        elsewhere: Classes of other products, for messages about unknown names.
    """

    def __init__(
        self,
        what: str,
        group: str,
        built_in: Callable[[], Sequence[type[ClassT]]],
        elsewhere: Sequence[OtherClasses] = (),
    ) -> None:
        self._what = what
        self._group = group
        self._built_in = built_in
        self._elsewhere = elsewhere
        self._classes: dict[str, type[ClassT]] = {}
        self._own: Sequence[type[ClassT]] | None = None
        self._pending: list[EntryPoint] | None = None
        self._problems: dict[EntryPoint, PluginProblem] = {}
        self._find_other: FindOther = lambda _name, _version: None

    def also_find(self, find_other: FindOther) -> None:
        """Let ``find_other`` find the classes that are no Python classes."""
        self._find_other = find_other

    def problems(self) -> list[PluginProblem]:
        """The plugins whose last import failed. Imports nothing."""
        return [each for _, each in sorted(self._problems.items())]

    def find(self, name: str, version: str = "") -> type[ClassT]:
        """The class with this name.

        Args:
            name: Its name.
            version: The wanted version or range of versions; only classes that are no Python
                classes are installed in several.

        Raises:
            VersionUnavailableError: The class is not installed in the version.
            ValueError: There is no such class, or it fails to import. The message names the class
                that does the same job, if there is one.
        """
        name = name.strip()
        if OTHER_MARK in name:
            other = self._find_other(name, version)
            if other is not None:
                return other
        found = self._find_by_name(name, version)
        if version.strip() not in ("", LATEST) and found in self._classes.values():
            raise VersionUnavailableError(
                f"selects a version of a Java plugin, but {name} is a class in Python: remove the "
                "setting, or select the Java class with java: before its name"
            )
        return found

    def find_named(self, setting: str, config: Mapping[str, Any]) -> type[ClassT]:
        """The class that ``setting`` of a config names, in the version that the config wants.

        Raises:
            VersionUnavailableError, ValueError: As ``find``.
        """
        return self.find(config[setting], config.get(version_setting(setting)) or "")

    def _find_by_name(self, name: str, version: str) -> type[ClassT]:
        found = self._classes.get(name)
        if found is not None:
            return found
        self._load_own()
        broken: dict[str, str] = {}
        if name not in self._classes:
            broken = self._load_plugins(lambda entry: name in _names_of(entry))
        if name not in self._classes and name not in broken:
            self._load_plugins(lambda _: True)  # it may be an alias
        if name in self._classes:
            return self._classes[name]
        other = None if name in broken else self._find_other(name, version)
        if other is not None:
            return other
        if name in broken:
            raise ValueError(f"{self._what} {name!r} cannot be imported: {broken[name]}")
        raise ValueError(f"no {self._what} is called {name!r}: {self._hint(name)}")

    def _hint(self, name: str) -> str:
        nearest = nearest_class(name, self._elsewhere)
        if nearest is not None:
            return nearest
        known = {each: found.__name__ for each, found in self._classes.items()}
        return did_you_mean([repr(each) for each in near_classes(name, known)]) or (
            f"there are {', '.join(self.names())}"
        )

    def names(self) -> list[str]:
        """The simple names of all classes, sorted. Imports plugins."""
        return _names(self)

    def own_names(self) -> list[str]:
        """The simple names of Drover's own classes, sorted."""
        return _names(self._load_own())

    def __iter__(self) -> Iterator[type[ClassT]]:
        self._load_plugins(lambda _: True)
        return iter(dict.fromkeys(list(self._classes.values())))

    def _load_own(self) -> Sequence[type[ClassT]]:
        """Import Drover's own classes.

        A thread may see the classes of another thread's import before it has ended; it then
        imports the rest itself.
        """
        if self._own is None:
            own = PLUGIN_IMPORTS.run(f"every {self._what} of Drover", self._built_in)
            self._add(own)
            self._own = own
        return self._own

    def _load_plugins(self, is_wanted: Callable[[EntryPoint], bool]) -> dict[str, str]:
        """Import the plugins that are not imported yet, and return the errors by their names."""
        self._load_own()
        if self._pending is None:
            self._pending = list(entry_points(group=self._group))
        broken: dict[str, str] = {}
        for entry in filter(is_wanted, self._pending):
            try:
                self._add([PLUGIN_IMPORTS.run(f"{entry.name} = {entry.value}", entry.load)])
                self._pending = [each for each in self._pending if each != entry]
                self._problems.pop(entry, None)
            except Exception as error:  # noqa: BLE001 - a plugin's code may raise anything
                self._problems[entry] = PluginProblem.of(entry, error)
                fault = f"{type(error).__name__}: {error}"
                broken.update(dict.fromkeys(_names_of(entry), fault))
        return broken

    def _add(self, classes: Sequence[type[ClassT]]) -> None:
        for each in classes:
            full_name = f"{each.__module__}.{each.__qualname__}"
            for name in (each.__name__, full_name, *each.aliases):
                self._classes.setdefault(name, each)


def _names(classes: Iterable[type[object]]) -> list[str]:
    return sorted({each.__name__ for each in classes})


def _names_of(entry: EntryPoint) -> set[str]:
    """The names of a plugin's class that are known before its import."""
    dotted = entry.value.split("[")[0].strip().replace(":", ".")
    return {entry.name, entry.value, dotted, dotted.rpartition(".")[2]}
