"""Classes that a setting names: built-in ones, and those of installed distributions."""

from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from functools import cached_property
from importlib.metadata import entry_points
from typing import ClassVar, Generic, Protocol, TypeVar


class Named(Protocol):
    """A class that a setting can name."""

    #: Other names: short ones, and those that Kafka Connect has for the same.
    aliases: ClassVar[Sequence[str]]


ClassT = TypeVar("ClassT", bound=Named)


class ClassRegistry(Generic[ClassT]):
    """Finds classes of one kind (``what``: "converter") by their name, full name or alias.

    Distributions offer theirs as entry points of ``group``. One that cannot be imported is left
    out, and its fault is told to whoever asks for it.
    """

    def __init__(
        self, what: str, group: str, built_in: Callable[[], Sequence[type[ClassT]]]
    ) -> None:
        self._what = what
        self._group = group
        self._built_in = built_in

    def find(self, name: str) -> type[ClassT]:
        """The class of that name.

        Raises:
            ValueError: there is none, or it cannot be imported; the message names near ones.
        """
        wanted = name.strip()
        found = self._by_name.get(wanted)
        if found is not None:
            return found
        if wanted in self._broken:
            raise ValueError(f"{self._what} {wanted!r} cannot be imported: {self._broken[wanted]}")
        near = get_close_matches(wanted, self._by_name, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(self.names())}"
        raise ValueError(f"no {self._what} is called {wanted!r}: {hint}")

    def names(self) -> list[str]:
        """The simple names of all classes, in order."""
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
