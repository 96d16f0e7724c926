"""Versions of Java plugins, compared as Maven compares them, and the ranges of KIP-891."""

import re
from dataclasses import dataclass
from functools import total_ordering

_TOKEN = re.compile(r"\d+|[a-z]+")
_QUALIFIERS = {
    name: rank
    for rank, names in enumerate(
        (("alpha", "a"), ("beta", "b"), ("milestone", "m"), ("rc", "cr"), ("snapshot",)), start=-5
    )
    for name in names
} | {"final": 0, "ga": 0, "release": 0, "sp": 1}
_OTHER_QUALIFIER, _NUMBER = 2, 3
_RANGE = re.compile(r"([\[(])([^\[\]()]*)([\])])")


class VersionRangeError(ValueError):
    """A text is no version or range; the message is a clause."""


@total_ordering
class Version:
    """A version, ordered as by Maven: 1.0-rc1 < 1.0 = 1.0.0 = 1.0.Final < 1.0.1 < 1.10."""

    def __init__(self, text: str) -> None:
        self.text = text
        items = [_item(each) for each in _TOKEN.findall(text.lower())]
        while items and items[-1] == _RELEASE:
            items.pop()
        self._items = items

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._items == other._items

    def __hash__(self) -> int:
        return hash(tuple(self._items))

    def __lt__(self, other: "Version") -> bool:
        length = max(len(self._items), len(other._items))
        return _padded(self._items, length) < _padded(other._items, length)

    def __repr__(self) -> str:
        return f"Version({self.text!r})"


_Item = tuple[int, int, str]
_RELEASE: _Item = (0, 0, "")


def _item(token: str) -> _Item:
    if token.isdigit():
        number = int(token)
        return (_NUMBER, number, "") if number else _RELEASE
    rank = _QUALIFIERS.get(token, _OTHER_QUALIFIER)
    return (rank, 0, token if rank == _OTHER_QUALIFIER else "")


def _padded(items: list[_Item], length: int) -> list[_Item]:
    return items + [_RELEASE] * (length - len(items))


@dataclass(frozen=True, slots=True)
class _Interval:
    low: Version | None
    low_included: bool
    high: Version | None
    high_included: bool

    def __contains__(self, version: Version) -> bool:
        if self.low is not None and (
            version < self.low or (version == self.low and not self.low_included)
        ):
            return False
        return self.high is None or (
            version < self.high or (version == self.high and self.high_included)
        )


@dataclass(frozen=True, slots=True)
class VersionRange:
    """The versions that ``connector.plugin.version`` and its siblings allow (KIP-891).

    Attributes:
        text: The setting's value: a version, which is exact; ``latest``, which is any; or Maven's
            ranges, such as ``[1.0,2.0)`` or ``(,1.2],[1.5,)``.
    """

    text: str
    _intervals: tuple[_Interval, ...]

    def __contains__(self, version: str) -> bool:
        parsed = Version(version)
        return any(parsed in each for each in self._intervals)

    @classmethod
    def parse(cls, text: str) -> "VersionRange":
        """The range that a text states.

        Raises:
            VersionRangeError: The text is no version and no range.
        """
        stripped = text.strip()
        if stripped in ("", "latest"):
            return cls(text, (_Interval(None, True, None, True),))
        if not any(each in stripped for each in "[](),"):
            exact = Version(stripped)
            return cls(text, (_Interval(exact, True, exact, True),))
        found = list(_RANGE.finditer(stripped))
        rest = _RANGE.sub("", stripped).replace(",", "").strip()
        if not found or rest:
            raise VersionRangeError(
                f"must be a version, latest, or ranges such as [1.0,2.0), not {text!r}"
            )
        return cls(text, tuple(_interval(each, text) for each in found))


def _interval(found: re.Match[str], text: str) -> _Interval:
    opening, inner, closing = found.groups()
    low, comma, high = (each.strip() for each in inner.partition(","))
    if not comma:
        if (opening, closing) != ("[", "]") or not low:
            raise VersionRangeError(f"has a range with one version that is not in []: {text!r}")
        high = low
    interval = _Interval(
        Version(low) if low else None,
        opening == "[",
        Version(high) if high else None,
        closing == "]",
    )
    if interval.low is not None and interval.high is not None and interval.high < interval.low:
        raise VersionRangeError(f"has a range that ends before it starts: {text!r}")
    return interval
