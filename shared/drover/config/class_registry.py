"""Finds the class that a setting names, among built-in classes and plugins."""

from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from functools import cached_property
from importlib.metadata import entry_points
from typing import ClassVar, Generic, Protocol, TypeVar


class Named(Protocol):
    """A class that a setting can name."""

    #: Other names: short names, and the names of Kafka Connect's equivalent classes.
    aliases: ClassVar[Sequence[str]]


ClassT = TypeVar("ClassT", bound=Named)


class ClassRegistry(Generic[ClassT]):
    """Finds classes of one kind by their simple name, full name or alias.

    A plugin that fails to import is omitted; ``find`` reports its error.

    Args:
        what: The kind, for messages, such as "converter".
        group: The entry point group in which installed distributions offer their classes.
        built_in: Returns the built-in classes.
    """

    def __init__(
        self, what: str, group: str, built_in: Callable[[], Sequence[type[ClassT]]]
    ) -> None:
        self._what = what
        self._group = group
        self._built_in = built_in

    def find(self, name: str) -> type[ClassT]:
        """The class with this name.

        Raises:
            ValueError: There is no such class, or it fails to import. The message suggests a
                similar name.
        """
        name = name.strip()
        found = self._by_name.get(name)
        if found is not None:
            return found
        if name in self._broken:
            raise ValueError(f"{self._what} {name!r} cannot be imported: {self._broken[name]}")
        near = get_close_matches(name, self._by_name, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(self.names())}"
        raise ValueError(f"no {self._what} is called {name!r}: {hint}")

    def names(self) -> list[str]:
        """The simple names of all classes, sorted."""
        return sorted({each.__name__ for each in self})

    def __iter__(self) -> Iterator[type[ClassT]]:
        return iter(dict.fromkeys(self._by_name.values()))

    @cached_property
    def _by_name(self) -> dict[str, type[ClassT]]:
        return self._found[0]

    @cached_property
    def _broken(self) -> dict[str, str]:
        return self._found[1]

    @cached_property
    def _found(self) -> tuple[dict[str, type[ClassT]], dict[str, str]]:
        classes = list(self._built_in())
        broken: dict[str, str] = {}
        for entry in entry_points(group=self._group):
            try:
                classes.append(entry.load())
            except Exception as error:  # noqa: BLE001 - a plugin's code may raise anything
                broken[entry.name] = broken[entry.value] = f"{type(error).__name__}: {error}"
        by_name: dict[str, type[ClassT]] = {}
        for each in classes:
            full_name = f"{each.__module__}.{each.__qualname__}"
            for name in (each.__name__, full_name, *each.aliases):
                by_name.setdefault(name, each)
        return by_name, broken
