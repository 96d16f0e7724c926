"""Counts phrases that hide actor or object in comments, docstrings, messages and pages."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

#: Sentences with these phrases name no actor or no object: name them, with the field's noun.
PHRASES = (
    *(r"(?:un)?told|tell(?:s|ing)?", r"said|saying|says? (?:so|that|which|whether|what|how|no|it)"),
    *(r"hear(?:d|s|ing)?", r"anew|once more|(?:comes?|came) again"),
    *(r"go(?:es)? on|went on|going on|goes by", r"meanwhile|by then|(?:from then|since) then"),
    r"stands? (?:still|alone|beside|there|for|over|in|at)|stood",
    r"(?:what|that|those|this) (?:is|was|are|were|has|had|have) (?:not )?(?:there|gone|left|to)",
    r"what(?:ever)? (?:comes?|came|goes|went|stands|follows|ends|nobody|somebody|they|one)",
    r"(?:those|these|such) (?:of|that|which|who|with|without)",
    *(r"somebody|nobody|everybody|anybody|whoever|whom", r"mend(?:s|ed|ing)?"),
    r"look(?:s|ed|ing)? (?:again|soon|whether|what|after|for what)",
    *(r"(?:is )?known? of|being known", r"(?:by|of) itself|of its own"),
    *(r"tak(?:es?|en) (?:on|up)", r"no longer wanted|(?:not )?any more"),
    *(r"in turn|turns? over|its turn", r"(?:its|their|each) share"),
    r"(?:so|as) (?:long|many|much|often) as|however (?:long|often|many|much|it|they)",
    *(r"begun|begins? (?:again|with|at|where)", r"can(?:not)? be had|to be had|is had"),
    r"ha(?:s|ve) it that|had (?:it|them) (?:made|done|told|stop|go|come)",
    r"g(?:ives?|ave) (?:back|up|out|it a)",
)
_PHRASES = re.compile("|".join(rf"\b(?:{phrase})\b" for phrase in PHRASES), re.IGNORECASE)
_CODE = re.compile(r"``?[^`]*``?")
_LINK_TARGET = re.compile(r"\]\([^)]*\)")
#: A literal with so many words is a sentence for people: a message, a log event, a help text.
_TEXT_MIN_WORDS = 4


class Line(NamedTuple):
    """A line of prose and where it is in its file."""

    number: int
    text: str


class Count(NamedTuple):
    """How many words some prose has, and how many of the phrases."""

    words: int
    hits: int

    @property
    def per_thousand(self) -> float:
        """Hits per 1,000 words."""
        return 1000 * self.hits / self.words if self.words else 0.0


#: How many folders name a package, by the first of them; one elsewhere.
_PACKAGE_DEPTH = {"services": 4, "shared": 3, "tests": 2, "docs": 2}
_SUFFIXES = (".md", ".proto", ".py")


def package_of(path: Path) -> str | None:
    """The package that a file's prose is counted for, or a page itself; None without prose."""
    if path.suffix not in _SUFFIXES or "golden" in path.parts:
        return None
    folders = path.parts[:-1]
    return "/".join(folders[: _PACKAGE_DEPTH.get(path.parts[0], 1)]) or str(path)


def prose_of(path: Path, text: str) -> Iterator[Line]:
    """A page without its code; the comments, docstrings and messages of a program."""
    if path.suffix == ".md":
        yield from _page(text)
    elif path.suffix == ".proto":
        for number, line in enumerate(text.splitlines(), 1):
            if "//" in line:
                yield Line(number, _CODE.sub(" ", line.split("//", 1)[1]))
    elif path.suffix == ".py":
        yield from _program(text)


def hits_in(path: Path, text: str) -> list[str]:
    """``path:line: phrase`` of every phrase found."""
    return [
        f"{path}:{line.number}: {found.group(0)}"
        for line in prose_of(path, text)
        for found in _PHRASES.finditer(line.text)
    ]


def count(path: Path, text: str) -> Count:
    """Words and phrases of a file."""
    lines = [line.text for line in prose_of(path, text)]
    words = sum(len(re.findall(r"[A-Za-z']+", line)) for line in lines)
    return Count(words, sum(len(_PHRASES.findall(line)) for line in lines))


def _page(text: str) -> Iterator[Line]:
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield Line(number, _LINK_TARGET.sub("]", _CODE.sub(" ", line)))


def _program(text: str) -> Iterator[Line]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield Line(token.start[0], _CODE.sub(" ", token.string.lstrip("#: ")))
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Constant(value=str(value)) if len(value.split()) >= _TEXT_MIN_WORDS:
                for offset, line in enumerate(value.splitlines()):
                    yield Line(node.lineno + offset, _CODE.sub(" ", line))
