"""Parses properties files as Java does (java.util.Properties)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_MEANINGS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WHITE = " \t\f"
#: A key, up to an unescaped separator; white space is a separator too.
_LINE = re.compile(rf"((?:\\.|[^\\=:{_WHITE}])*)[{_WHITE}]*[=:]?[{_WHITE}]*(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Property:
    """A key and its value, and the line on which the key starts, from 1."""

    key: str
    value: str
    line: int


def parse_properties(text: str) -> dict[str, str]:
    """The keys and values of a properties file; the last value of a key wins.

    Raises:
        ValueError: An escape is malformed.
    """
    return {each.key: each.value for each in properties_of(text)}


def properties_of(text: str) -> Iterator[Property]:
    """The properties of a file in order, with repeated keys.

    Raises:
        ValueError: An escape is malformed; the message has the line.
    """
    for number, line in _logical_lines(text):
        match = _LINE.fullmatch(line)
        assert match is not None
        try:
            yield Property(_unescaped(match[1]), _unescaped(match[2]), number)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, with their numbers; a line that ends in a backslash is joined with
    the next.
    """
    line, start = "", 0
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        part = natural.lstrip(_WHITE)
        if not start:
            if not part or part[0] in "#!":
                continue
            start = number
        line += part
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            line = line[:-1]
            continue
        yield start, line
        line, start = "", 0
    if line:
        yield start, line


def _unescaped(text: str) -> str:
    """The text without escapes; two escapes of a surrogate pair are one character."""

    def meaning(match: re.Match[str]) -> str:
        escaped = match[1]
        if escaped == "u":
            raise ValueError("\\u is not followed by four hexadecimal digits")
        if len(escaped) == 5:
            return chr(int(escaped[1:], 16))
        return _MEANINGS.get(escaped, escaped)

    found = _ESCAPE.sub(meaning, text)
    try:
        return found.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError("a \\u escape is half of a surrogate pair") from None
