"""Parses properties files as Java does (java.util.Properties)."""

import re
from collections.abc import Iterator

_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_MEANINGS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
#: A key, up to an unescaped separator; white space is a separator too.
_LINE = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", re.DOTALL)


def parse_properties(text: str) -> dict[str, str]:
    """The keys and values of a properties file; the last value of a key wins."""
    found = {}
    for line in _logical_lines(text):
        match = _LINE.fullmatch(line)
        assert match is not None
        found[_unescaped(match[1])] = _unescaped(match[2])
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments; a line that ends in a backslash is joined with the next."""
    line = ""
    for natural in re.split(r"\r\n|\r|\n", text):
        part = natural.lstrip(" \t\f")
        if not line and (not part or part[0] in "#!"):
            continue
        line += part
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            line = line[:-1]
            continue
        yield line
        line = ""
    if line:
        yield line


def _unescaped(text: str) -> str:
    def meaning(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) == 5:
            return chr(int(escaped[1:], 16))
        return _MEANINGS.get(escaped, escaped)

    return _ESCAPE.sub(meaning, text)
