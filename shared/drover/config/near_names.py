"""Suggests known names for an unknown one: names with the same words, apart from typing errors."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping

#: The words of a name: JdbcSinkConnector has three, batch.max.bytes too, S3Sink two.
_WORDS = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z]?[a-z]+\d*|[A-Z]\d*|\d+")
#: Words that do not distinguish what classes do.
_NEUTRAL = frozenset(
    ("connector", "converter", "transform", "transforms", "predicate", "config", "provider", "task")
)
#: Words that distinguish them, and may be missing.
_EITHER = frozenset(("sink", "source", "key", "value"))
_SUGGESTED_MAX = 3
#: Longer names are no typing errors, and would take long to compare.
_NAME_MAX_LENGTH = 120
#: Words up to this length may differ by one character only, and not in the first: many are alike.
_SHORT = 5
_PREFIX_MIN_LENGTH = 3
#: Words with one meaning in names of settings.
_PLACES = frozenset(("path", "directory", "dir", "folder"))

_Words = tuple[str, ...]


def near_settings(wanted: str, known: Iterable[str]) -> list[str]:
    """The known settings that ``wanted`` may mean, the nearest first.

    A word of another known setting is no typing error: ``table.include.list`` never suggests
    ``table.exclude.list``.
    """
    names = {each: each for each in known}
    vocabulary = _vocabulary(names)
    return _near(wanted, names, lambda words, each: _settings_alike(words, each, vocabulary))


def near_classes(wanted: str, known: Mapping[str, str]) -> list[str]:
    """The classes that ``wanted`` may mean, the nearest first.

    Packages are ignored, and words such as Connector. A name without Sink or Source, or without
    Key or Value, may mean both.

    Args:
        wanted: A class name.
        known: The name to suggest, by each name of a class.
    """
    names = {simple_name(each): shown for each, shown in known.items()}
    vocabulary = _vocabulary(names) | _EITHER
    return _near(
        simple_name(wanted), names, lambda words, each: _classes_alike(words, each, vocabulary)
    )


def simple_name(name: str) -> str:
    """A class name without its package."""
    return name.strip().replace(":", ".").rpartition(".")[2]


def words_of(name: str) -> _Words:
    """The words of a name, in lower case."""
    return tuple(each.lower() for each in _WORDS.findall(name[:_NAME_MAX_LENGTH]))


def did_you_mean(names: Collection[str]) -> str:
    """The question about the names; empty if there are none."""
    if not names:
        return ""
    *first, last = names
    return f"did you mean {', '.join(first)}{' or ' if first else ''}{last}?"


def edit_distance(one: str, other: str) -> int:
    """The number of characters to insert, delete, replace or exchange with the next."""
    before: list[int] = []
    last: list[int] = []
    row = list(range(len(other) + 1))
    for i, char in enumerate(one, 1):
        before, last, row = last, row, [i]
        for j, of_other in enumerate(other, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (char != of_other))
            if i > 1 and j > 1 and (char, one[i - 2]) == (other[j - 2], of_other):
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
    return row[-1]


def _near(
    wanted: str, known: Mapping[str, str], alike: Callable[[_Words, _Words], bool]
) -> list[str]:
    if len(wanted) > _NAME_MAX_LENGTH:
        return []
    words, joined = words_of(wanted), _joined(wanted)
    found = [
        (edit_distance(wanted.lower(), each.lower()), shown)
        for each, shown in known.items()
        if _joined(each) == joined or (words and alike(words, words_of(each)))
    ]
    return [*dict.fromkeys(each for _, each in sorted(found))][:_SUGGESTED_MAX]


def _joined(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower()


def _vocabulary(names: Iterable[str]) -> frozenset[str]:
    return frozenset(word for each in names for word in words_of(each))


def _settings_alike(wanted: _Words, known: _Words, vocabulary: frozenset[str]) -> bool:
    """The same words; the first, or the last of several, may be missing, and words may be longer or
    shorter.
    """
    if wanted == known[1:]:
        return True
    if len(wanted) > 1 and len(known) == len(wanted) + 1:
        known = known[:-1]
    return _same_words(wanted, known, vocabulary, _same_setting_word)


def _classes_alike(wanted: _Words, known: _Words, vocabulary: frozenset[str]) -> bool:
    if _same_words(wanted, known, vocabulary, _same_word):
        return True
    wanted = tuple(each for each in wanted if each not in _NEUTRAL)
    known = tuple(each for each in known if each not in _NEUTRAL)
    if not _EITHER & {*wanted}:
        known = tuple(each for each in known if each not in _EITHER)
    return bool(known) and _same_words(wanted, known, vocabulary, _same_word)


def _same_words(
    wanted: _Words,
    known: _Words,
    vocabulary: frozenset[str],
    same: Callable[[str, str], bool],
) -> bool:
    return len(wanted) == len(known) and all(
        one == other or _is_plural(one, other) or (one not in vocabulary and same(one, other))
        for one, other in zip(wanted, known, strict=True)
    )


def _is_plural(one: str, other: str) -> bool:
    return one.removesuffix("s") == other.removesuffix("s")


def _same_setting_word(wanted: str, known: str) -> bool:
    if {wanted, known} <= _PLACES:
        return True
    shorter, longer = sorted((wanted, known), key=len)
    cut = len(shorter) >= _PREFIX_MIN_LENGTH and longer.startswith(shorter)
    return cut or _same_word(wanted, known)


def _same_word(wanted: str, known: str) -> bool:
    if len(known) <= _SHORT and (len(known) < _PREFIX_MIN_LENGTH or wanted[0] != known[0]):
        return False
    return edit_distance(wanted, known) <= (1 if len(known) <= _SHORT else 2)
