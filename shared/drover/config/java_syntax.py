r"""The syntax of java.util.regex.Pattern, translated for the package ``regex`` and for RE2.

Refused is what has another meaning there: (?u), (?U), (?d), back references without case,
groups that capture or do not backtrack in a look-behind, and Java's own binary properties.
"""

import re
import string
import unicodedata
from dataclasses import dataclass, replace

import regex

PATTERN_MAX_CHARS = 4_096
#: Of a pattern with its repetitions written out; ``regex`` recurses so deeply, and an overflow of
#: the stack ends the process.
_PARTS_MAX = 5_000
_LINE_ENDS = "\n\r\x85\u2028\u2029"
_LINE_END = rf"(?:\r\n|[{_LINE_ENDS}])"
_WITHIN_LINE_END = r"(?!(?<=\r)\n)"
_BEFORE_LAST_LINE_END = rf"(?:(?={_LINE_END}?\Z){_WITHIN_LINE_END})"
_WORD = "a-zA-Z0-9_"
_HORIZONTAL = " \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000"
_VERTICAL = "\n\x0b\f\r\x85\u2028\u2029"
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9]*")
_QUANTIFIER = re.compile(r"(?:[*+?]|\{(?P<least>\d+)(?P<comma>,)?(?P<most>\d*)\})(?P<kind>[+?]?)")
_FLAGS = re.compile(r"([imsx]*)(?:-([imsx]*))?([:)])")
_LITERALS = re.compile(r"[A-Za-z0-9_ -]+")
_ESCAPED = frozenset(string.punctuation) - {"_"}
#: What may follow "(?"; the last one starts a group's name.
_GROUPS = (":", "=", "!", ">", "<=", "<!", "<")
#: The contents of Java's predefined character classes.
_ESCAPED_CLASSES = {
    "d": "0-9", "w": _WORD, "s": " \t\n\x0b\f\r", "h": _HORIZONTAL, "v": _VERTICAL,
}  # fmt: skip
_ESCAPED_CHARACTERS = {
    "t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b",
}  # fmt: skip
#: The sources of an escaped place or text for ``regex`` and RE2.
_ESCAPED_PLACES = {
    "b": (rf"(?:(?<=[{_WORD}])(?![{_WORD}])|(?<![{_WORD}])(?=[{_WORD}]))", r"(?:\b)"),
    "B": (rf"(?:(?<=[{_WORD}])(?=[{_WORD}])|(?<![{_WORD}])(?![{_WORD}]))", r"(?:\B)"),
    "A": (r"(?:\A)", r"(?:\A)"),
    "z": (r"(?:\Z)", r"(?:\z)"),
    "Z": (_BEFORE_LAST_LINE_END, r"(?:\z)"),
    "G": (r"(?:\G)", None),
    "R": (rf"(?>\r\n|[{_VERTICAL}])", None),
    "X": (r"\X", None),
}  # fmt: skip
_POSIX = {
    "Lower": "a-z", "Upper": "A-Z", "ASCII": "\x00-\x7f", "Alpha": "a-zA-Z", "Digit": "0-9",
    "Alnum": "0-9a-zA-Z", "Punct": r"!-\/:-@\[-`\{-\~", "Graph": r"!-\~", "Print": r" -\~",
    "Blank": " \t", "Cntrl": "\x00-\x1f\x7f", "XDigit": "0-9a-fA-F", "Space": " \t\n\x0b\f\r",
}  # fmt: skip
#: The expressions of ``regex`` for Java's binary properties.
_BINARY = {
    "IsAlphabetic": r"\p{Alphabetic}", "IsLetter": r"\p{L}", "IsUppercase": r"\p{Uppercase}",
    "IsLowercase": r"\p{Lowercase}", "IsTitlecase": r"\p{Lt}", "IsDigit": r"\p{Nd}",
    "IsPunctuation": r"\p{P}", "IsControl": r"\p{Cc}", "IsWhite_Space": r"\p{White_Space}",
    "IsIdeographic": r"\p{Ideographic}", "javaLowerCase": r"\p{Lowercase}",
    "javaUpperCase": r"\p{Uppercase}", "javaLetter": r"\p{L}", "javaDigit": r"\p{Nd}",
    "javaLetterOrDigit": r"[\p{L}\p{Nd}]", "javaAlphabetic": r"\p{Alphabetic}",
}  # fmt: skip
_CATEGORIES = {
    "L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N", "Nd", "Nl", "No", "P", "Pc",
    "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z", "Zs", "Zl", "Zp", "C",
    "Cc", "Cf", "Co", "Cn",
}  # fmt: skip
#: Values of a property after "name=", by Java's names of the property.
_VALUED = {
    "sc": "Script", "script": "Script", "blk": "Block", "block": "Block",
    "gc": "General_Category", "general_category": "General_Category",
}  # fmt: skip
#: Without case, Java takes all letters with a case for each of these.
_CASED = {
    "Lu", "Ll", "Lt", "IsLu", "IsLl", "IsLt", "IsUppercase", "IsLowercase", "IsTitlecase",
    "javaUpperCase", "javaLowerCase",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Translated:
    r"""A pattern in other syntaxes.

    Attributes:
        source: For ``regex`` with VERSION1 and no other flags.
        linear: For RE2, to match whole texts of printable ASCII, where no line ends; None if the
            syntax of RE2 does not suffice.
    """

    source: str
    linear: str | None


@dataclass(frozen=True, slots=True)
class _Modes:
    ignore_case: bool = False
    dot_all: bool = False
    multiline: bool = False
    comments: bool = False

    def changed(self, on: str, off: str) -> "_Modes":
        names = {"i": "ignore_case", "s": "dot_all", "m": "multiline", "x": "comments"}
        return replace(self, **{names[flag]: flag in on and flag not in off for flag in on + off})


@dataclass(frozen=True, slots=True)
class _Class:
    """The expression of one character, and whether RE2 reads it; ``contents`` if it is only what
    stands between brackets.
    """

    source: str
    contents: str | None = None
    is_linear: bool = False

    @classmethod
    def of(cls, contents: str) -> "_Class":
        return cls(f"[{contents}]", contents, is_linear=True)

    def negated(self) -> "_Class":
        if self.contents is None:
            return _Class(f"[^{self.source}]")
        return _Class(f"[^{self.contents}]", is_linear=True)


@dataclass(slots=True)
class _Open:
    """A group whose end is not reached: what applies behind it, and the number of its parts."""

    modes: _Modes
    looks_behind: bool
    count: int = 0
    last_count: int = 0


def translated(pattern: str) -> Translated:
    """Translate a pattern.

    Raises:
        ValueError: The pattern is invalid, too long or has no equivalent.
    """
    if len(pattern) > PATTERN_MAX_CHARS:
        raise ValueError(
            f"{pattern[:40]!r}… has more than {PATTERN_MAX_CHARS} characters, the most of a pattern"
        )
    return _Translator(pattern).translated()


class _Translator:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._source: list[str] = []
        self._linear: list[str] | None = []
        self._modes = _Modes()
        self._looks_behind = False
        self._open = [_Open(self._modes, looks_behind=False)]
        self._names: set[str] = set()
        self._group_count = len(re.findall(r"(?<!\\)\((?!\?)|\(\?<[a-zA-Z]", pattern))

    def translated(self) -> Translated:
        while self._at < len(self._pattern):
            self._next()
        if len(self._open) > 1:
            raise self._fault("a group is not closed")
        linear = None if self._linear is None else "".join(self._linear)
        return Translated("".join(self._source), linear)

    def _fault(self, what: str) -> ValueError:
        return ValueError(f"{self._pattern!r} cannot be used, {what} (character {self._at + 1})")

    def _put(self, source: str, linear: str | None) -> None:
        self._source.append(source)
        if linear is None:
            self._linear = None
        elif self._linear is not None:
            self._linear.append(linear)
        self._count(1)

    def _count(self, parts: int, *, replaced: int = 0) -> None:
        level = self._open[-1]
        level.count += parts - replaced
        level.last_count = parts
        if level.count > _PARTS_MAX:
            raise self._fault(
                f"its repetitions make more than {_PARTS_MAX} parts: use * or + for high numbers"
            )

    def _put_class(self, found: _Class) -> None:
        self._put(found.source, found.source if found.is_linear else None)

    def _take(self, count: int = 1) -> str:
        taken = self._pattern[self._at : self._at + count]
        if len(taken) < count:
            raise self._fault("its end is missing")
        self._at += count
        return taken

    def _rest(self) -> str:
        return self._pattern[self._at :]

    def _next(self) -> None:
        char = self._pattern[self._at]
        quantifier = _QUANTIFIER.match(self._pattern, self._at)
        if quantifier is not None:
            self._repeat(quantifier)
        elif char == "\\":
            self._escape()
        elif char == "[":
            self._put_class(self._class())
        elif char == "(":
            self._group()
        elif char == ")":
            self._close()
        elif self._modes.comments and (char.isspace() or char == "#"):
            self._skip_comment()
        else:
            self._take()
            self._plain(char)

    def _repeat(self, found: re.Match[str]) -> None:
        if not self._open[-1].last_count:
            raise self._fault("there is nothing to repeat")
        if self._looks_behind:
            if found["kind"] == "+":
                raise self._fault("Drover does not support possessive repetition in a look-behind")
            if found[0][0] in "*+" or (found["comma"] and not found["most"]):
                raise self._fault("a look-behind has no greatest length")
        self._source.append(found[0])
        if found["kind"] == "+":
            self._linear = None
        elif self._linear is not None:
            self._linear.append(found[0])
        times = max(1, int(found["least"] or 1), int(found["most"] or 1))
        before = self._open[-1].last_count
        self._count(before * times, replaced=before)
        self._at = found.end()

    def _plain(self, char: str) -> None:
        modes = self._modes
        match char:
            case "|":
                self._put("|", "|")
                self._open[-1].last_count = 0
            case ".":
                self._put(r"[\s\S]" if modes.dot_all else f"[^{_LINE_ENDS}]", "(?s:.)")
            case "^":
                behind_line_end = rf"(?<=[{_LINE_ENDS}]){_WITHIN_LINE_END}(?!\Z)"
                self._put(rf"(?:\A|{behind_line_end})" if modes.multiline else r"(?:\A)", r"(?:\A)")
            case "$":
                ends = rf"(?:(?=[{_LINE_ENDS}]|\Z){_WITHIN_LINE_END})"
                self._put(ends if modes.multiline else _BEFORE_LAST_LINE_END, r"(?:\z)")
            case "{":
                raise self._fault("a brace without a number: escape it")
            case _:
                self._literal(char)

    def _literal(self, char: str) -> None:
        if self._modes.ignore_case and char.isascii() and char.isalpha():
            self._put_class(self._range(char, char))
        else:
            self._put(_escaped(char), _escaped(char))

    def _skip_comment(self) -> None:
        if self._take() == "#":
            while self._at < len(self._pattern) and self._take() not in "\n\r":
                pass

    def _group(self) -> None:
        self._take()
        if not self._rest().startswith("?"):
            self._refuse_behind("a group that captures: begin it with ?:")
            self._enter("(", "(")
            return
        self._take()
        kind = next((each for each in _GROUPS if self._rest().startswith(each)), None)
        if kind is not None:
            self._take(len(kind))
            self._special_group(kind)
            return
        flags = _FLAGS.match(self._pattern, self._at)
        if flags is None:
            raise self._fault("a group of an unknown kind, or flags other than i, m, s and x")
        self._at = flags.end()
        on, off, end = flags[1], flags[2] or "", flags[3]
        if end == ":":
            self._enter("(?:", "(?:")
        self._modes = self._modes.changed(on, off)

    def _special_group(self, kind: str) -> None:
        match kind:
            case ":":
                self._enter("(?:", "(?:")
            case "<":
                self._refuse_behind("a group that captures: begin it with ?:")
                name = self._name()
                if name in self._names:
                    raise self._fault(f"two groups are called {name!r}")
                self._names.add(name)
                self._enter(f"(?P<{name}>", "(")
            case ">":
                self._refuse_behind("an atomic group")
                self._enter("(?>", None)
            case _:
                self._enter(f"(?{kind}", None)
                self._looks_behind |= kind.startswith("<")

    def _refuse_behind(self, what: str) -> None:
        if self._looks_behind:
            raise self._fault(f"Drover does not support, in a look-behind, {what}")

    def _name(self) -> str:
        found = _NAME.match(self._pattern, self._at)
        if found is None or not self._pattern.startswith(">", found.end()):
            raise self._fault("a group has an invalid name")
        self._at = found.end() + 1
        return found[0]

    def _enter(self, source: str, linear: str | None) -> None:
        self._put(source, linear)
        self._open.append(_Open(self._modes, self._looks_behind))

    def _close(self) -> None:
        if len(self._open) == 1:
            raise self._fault("a closing parenthesis has no group")
        self._take()
        inner = self._open.pop()
        self._modes, self._looks_behind = inner.modes, inner.looks_behind
        self._source.append(")")
        if self._linear is not None:
            self._linear.append(")")
        self._count(inner.count + 1, replaced=1)

    def _escape(self) -> None:
        self._take()
        char = self._take()
        if char == "Q":
            # one part per character: a quantifier applies to the last character only
            for each in self._quoted():
                self._literal(each)
        elif char in _ESCAPED_PLACES:
            if char == "b" and self._rest().startswith("{"):
                raise self._fault("Drover does not support this boundary")
            if char in "RX":
                self._refuse_behind(rf"\{char}")
            self._put(*_ESCAPED_PLACES[char])
        elif char == "k":
            if self._take() != "<":
                raise self._fault(r"\k needs a name: \k<name>")
            self._refer(f"(?P={self._name()})")
        elif char in "123456789":
            while self._rest()[:1].isdigit() and int(char + self._rest()[0]) <= self._group_count:
                char += self._take()
            self._refer(rf"(?:\{char})")
        elif (found := self._character_class(char)) is not None:
            self._put_class(found)
        else:
            self._literal(self._character(char))

    def _quoted(self) -> str:
        quoted, _, _ = self._rest().partition(r"\E")
        self._at = min(len(self._pattern), self._at + len(quoted) + 2)
        return quoted

    def _refer(self, source: str) -> None:
        if self._modes.ignore_case:
            raise self._fault("Drover does not support a back reference without case")
        self._put(source, None)

    def _character_class(self, char: str) -> _Class | None:
        """The character class of an alphabetic escape; None if it is no class."""
        if char in ("p", "P"):
            name = self._take()
            if name == "{":
                name, closed, _ = self._rest().partition("}")
                self._take(len(name) + len(closed))
            found = self._property(name)
            return found if char == "p" else found.negated()
        contents = _ESCAPED_CLASSES.get(char.lower())
        if contents is None:
            return None
        found = _Class.of(contents)
        return found if char.islower() else found.negated()

    def _property(self, name: str) -> _Class:
        if self._modes.ignore_case and name.rpartition("=")[2] in _CASED:
            return _Class(r"[\p{Lu}\p{Ll}\p{Lt}]")
        if name in _POSIX:
            is_cased = self._modes.ignore_case and name in ("Lower", "Upper")
            return _Class.of(_POSIX["Alpha" if is_cased else name])
        if name in _BINARY:
            return _Class(_BINARY[name])
        kind, equals, value = name.partition("=")
        if equals:
            kind = _VALUED.get(kind.lower(), "")
        elif name.removeprefix("Is") in _CATEGORIES:
            kind, value = "General_Category", name.removeprefix("Is")
        else:
            kind, value = {"Is": "Script", "In": "Block"}.get(name[:2], ""), name[2:]
        source = rf"\p{{{kind}={value}}}"
        try:
            if not kind or not _LITERALS.fullmatch(value):
                raise regex.error(f"unknown property {name}")
            regex.compile(source)
        except regex.error:
            raise self._fault(f"Drover does not support the property {name!r}") from None
        return _Class(source)

    def _character(self, char: str) -> str:
        """The character of an alphabetic escape."""
        if char in _ESCAPED_CHARACTERS:
            return _ESCAPED_CHARACTERS[char]
        try:
            match char:
                case "x" if self._rest().startswith("{"):
                    return chr(int(self._braced(), 16))
                case "x":
                    return chr(int(self._take(2), 16))
                case "u":
                    return chr(int(self._take(4), 16))
                case "N":
                    return unicodedata.lookup(self._braced())
                case "c":
                    return chr(ord(self._take()) ^ 64)
                case "0":
                    found = re.match(r"[0-3]?[0-7]{1,2}", self._rest())
                    return chr(int(self._take(found.end() if found else 1), 8))
        except (ValueError, KeyError, OverflowError) as error:
            raise self._fault(f"a backslash and {char!r} need a character's number") from error
        if char.isascii() and char.isalpha():
            raise self._fault(f"a backslash before {char!r} is no escape")
        return char

    def _braced(self) -> str:
        text, closed, _ = self._rest().removeprefix("{").partition("}")
        self._take(len(text) + 1 + len(closed))
        return text

    def _class(self) -> _Class:
        self._take()
        negated = self._rest().startswith("^")
        if negated:
            self._take()
        operands: list[list[_Class]] = [[]]
        is_first = True
        while self._rest()[:1] != "]" or is_first:
            is_first = False
            if not self._rest():
                raise self._fault("a class is not closed")
            if self._rest().startswith("&&"):
                self._take(2)
                operands.append([])
            elif self._rest().startswith("["):
                operands[-1].append(self._class())
            elif self._modes.comments and self._rest()[0].isspace():
                self._take()
            else:
                operands[-1] += self._class_items()
        self._take()
        united = [_union(each) for each in operands if each]
        if not united:
            raise self._fault("a class is empty")
        found = united[0]
        if len(united) > 1:
            found = _Class(f"[{'&&'.join(each.source for each in united)}]")
        return found.negated() if negated else found

    def _class_items(self) -> list[_Class]:
        if self._rest().startswith(r"\Q"):
            self._take(2)
            return [self._range(each, each) for each in self._quoted()]
        first = self._class_character()
        if isinstance(first, _Class):
            return [first]
        following = self._rest()
        if not following.startswith("-") or following[1:2] in ("", "]", "["):
            return [self._range(first, first)]
        self._take()
        last = self._class_character()
        if isinstance(last, _Class) or last < first:
            raise self._fault("a range has no end, or its end is below its start")
        return [self._range(first, last)]

    def _class_character(self) -> str | _Class:
        char = self._take()
        if char != "\\":
            return char
        char = self._take()
        return self._character_class(char) or self._character(char)

    def _range(self, first: str, last: str) -> _Class:
        contents = _escaped(first) if first == last else f"{_escaped(first)}-{_escaped(last)}"
        if self._modes.ignore_case:
            letters = string.ascii_letters
            contents += "".join(each.swapcase() for each in letters if first <= each <= last)
        return _Class.of(contents)


def _union(items: list[_Class]) -> _Class:
    contents = [each.contents for each in items if each.contents is not None]
    if len(contents) == len(items):
        return _Class.of("".join(contents))
    return items[0] if len(items) == 1 else _Class(f"[{''.join(each.source for each in items)}]")


def _escaped(char: str) -> str:
    return f"\\{char}" if char in _ESCAPED else char
