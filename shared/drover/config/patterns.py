"""Regular expressions in configs: Java's syntax, and a limit of the time of each call.

RE2 matches where its syntax suffices: it takes time in proportion to the text. Otherwise the
package ``regex`` matches. It ends a call at the limit, and other threads run during the call.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import regex

from drover.config.java_syntax import translated

MATCH_MAX_S = 1.0


class PatternTimeoutError(ValueError):
    """A call exceeded its time limit; the message names the pattern."""

    def __init__(self, pattern: str) -> None:
        super().__init__(
            f"the pattern {pattern!r} did not match within {MATCH_MAX_S:g} s: write it without "
            "repetitions of repetitions and of alternatives that begin alike"
        )
        self.pattern = pattern


class Pattern:
    """A regular expression with the syntax of java.util.regex.Pattern. It can be pickled."""

    def __init__(self, text: str) -> None:
        """Parse a pattern.

        Raises:
            ValueError: The pattern is invalid, too long, or uses syntax that Drover does not
                support.
        """
        self.text = text
        try:
            found = translated(text)
            self._compiled = regex.compile(found.source, regex.VERSION1)
        except (regex.error, OverflowError) as error:
            raise ValueError(f"{text!r} is not a regular expression: {error}") from error
        except RecursionError:
            raise ValueError(f"{text[:40]!r}… is nested too deeply") from None
        self._linear = found.linear

    def __reduce__(self) -> tuple[type["Pattern"], tuple[str]]:
        return Pattern, (self.text,)

    def matches(self, text: str) -> bool:
        """Whether the whole text matches.

        Raises:
            PatternTimeoutError: This cannot be determined within the time limit.
        """
        if self._linear is not None and text.isascii() and text.isprintable():
            matched = _matched_by_re2(self._linear, text)
            if matched is not None:
                return matched
            self._linear = None
        with _limited(self.text):
            found = self._compiled.fullmatch(text, timeout=MATCH_MAX_S)
        return found is not None

    def replacement(self, text: str) -> "Replacement":
        """Parse a replacement with $1, ${name} and characters escaped by a backslash.

        Raises:
            ValueError: The replacement is malformed, or the pattern lacks one of its groups.
        """
        return Replacement(text, self._compiled)

    def replace_first(self, replacement: "Replacement", text: str) -> str:
        """Replace the first match in a text.

        Raises:
            PatternTimeoutError: The match is not found within the time limit.
        """
        with _limited(self.text):
            found = self._compiled.search(text, timeout=MATCH_MAX_S)
        if found is None:
            return text
        return text[: found.start()] + replacement.expand(found) + text[found.end() :]


class Replacement:
    """A replacement with the syntax of Java's Matcher.replaceFirst."""

    def __init__(self, text: str, pattern: Any) -> None:
        self._parts: list[tuple[str, int | str | None]] = []
        at = 0
        while at < len(text):
            char, at = text[at], at + 1
            if char == "\\":
                if at == len(text):
                    raise ValueError("a backslash at the end escapes nothing: double it")
                self._parts.append((text[at], None))
                at += 1
            elif char == "$":
                group, at = _group(text, at, pattern)
                self._parts.append(("", group))
            else:
                self._parts.append((char, None))

    def expand(self, found: Any) -> str:
        """The text for a match; groups that did not match are empty."""
        return "".join(text if group is None else found[group] or "" for text, group in self._parts)


@lru_cache(maxsize=1_000)
def compiled_pattern(text: str) -> Pattern:
    """The pattern of a text, compiled once.

    Raises:
        ValueError: See Pattern.
    """
    return Pattern(text)


def any_matches(patterns: Iterable[str], text: str) -> bool:
    """Whether the whole text matches one of the patterns.

    Raises:
        ValueError: A pattern is invalid.
        PatternTimeoutError: This cannot be determined within the time limit.
    """
    return any(compiled_pattern(each).matches(text) for each in patterns)


def pattern_fault(text: str) -> str | None:
    """The error of a setting's pattern, as the end of a sentence; None if it is valid."""
    try:
        compiled_pattern(text)
    except ValueError as error:
        return f"must be a regular expression (Java syntax): {error}"
    return None


def patterns_fault(texts: Iterable[str]) -> str | None:
    """The error of the first invalid pattern in a setting; None if all are valid."""
    return next((fault for fault in map(pattern_fault, texts) if fault), None)


def whole_matcher(source: str, shown: str) -> Callable[[str], bool]:
    """A function that returns whether a whole text matches; it raises PatternTimeoutError.

    Args:
        source: A pattern in the syntax of ``re``, such as the translation of a glob.
        shown: What error messages name instead.
    """
    fullmatch = regex.compile(source).fullmatch

    def matches(text: str) -> bool:
        with _limited(shown):
            return fullmatch(text, timeout=MATCH_MAX_S) is not None

    return matches


@contextmanager
def _limited(shown: str) -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise PatternTimeoutError(shown) from None


def _matched_by_re2(pattern: str, text: str) -> bool | None:
    """Whether the whole text matches; None if RE2 refuses the pattern, such as for its size."""
    # only processes that match need it
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        return bool(pc.match_substring_regex(pa.array([text]), rf"\A(?:{pattern})\z")[0].as_py())
    except pa.ArrowInvalid:
        return None


def _group(text: str, at: int, pattern: Any) -> tuple[int | str, int]:
    """The group after a dollar sign, and the end of its name or number."""
    if text.startswith("{", at):
        name, closed, _ = text[at + 1 :].partition("}")
        if not closed or name not in pattern.groupindex:
            raise ValueError(f"there is no group called {name!r} in the pattern")
        return name, at + len(name) + 2
    if not (text[at : at + 1].isascii() and text[at : at + 1].isdigit()):
        raise ValueError("a dollar sign needs a group's number or name: escape it with a backslash")
    end = at + 1
    while text[end : end + 1].isdigit() and int(text[at : end + 1]) <= pattern.groups:
        end += 1
    if int(text[at:end]) > pattern.groups:
        raise ValueError(f"there is no group {text[at:end]} in the pattern")
    return int(text[at:end]), end
