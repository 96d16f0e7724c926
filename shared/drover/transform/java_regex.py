r"""Java's regular expressions and replacements, translated to Python's ``re``.

Patterns without an equivalent in ``re`` are refused: Unicode scripts and blocks, (?u), (?U), (?d),
\X, \G, lookbehind without a fixed length.
"""

import re
import unicodedata
from dataclasses import dataclass, replace
from functools import cache

_LINE_ENDS = r"\n\r\x85\u2028\u2029"
_LINE_END = rf"(?:\r\n|[{_LINE_ENDS}])"
_BEFORE_LAST_LINE_END = rf"(?={_LINE_END}?\Z)"
_HORIZONTAL = r"[ \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000]"
_VERTICAL = r"[\n\x0b\f\r\x85\u2028\u2029]"
_ANY = r"[\s\S]"
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9]*")
_QUANTIFIER = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})[+?]?")
_FLAGS = re.compile(r"([imsx]*)(?:-([imsx]*))?([:)])")
#: What may follow "(?"; the last one starts a group's name.
_GROUPS = (":", "=", "!", ">", "<=", "<!", "<")
#: Java's predefined character classes.
_ESCAPED_CLASSES = {
    "d": "[0-9]", "D": "[^0-9]", "w": r"[\w]", "W": r"[^\w]", "s": r"[\s]", "S": r"[^\s]",
    "h": _HORIZONTAL, "H": f"[^{_HORIZONTAL[1:]}", "v": _VERTICAL, "V": f"[^{_VERTICAL[1:]}",
}  # fmt: skip
_ESCAPED_CHARACTERS = {
    "t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b",
}  # fmt: skip
_ESCAPED_PLACES = {
    "b": r"(?:\b)", "B": r"(?:\B)", "A": r"(?:\A)", "z": r"(?:\Z)", "Z": _BEFORE_LAST_LINE_END,
    "R": rf"(?>\r\n|{_VERTICAL})",
}  # fmt: skip
_POSIX = {
    "Lower": "[a-z]", "Upper": "[A-Z]", "ASCII": r"[\x00-\x7f]", "Alpha": "[a-zA-Z]",
    "Digit": "[0-9]", "Alnum": "[0-9a-zA-Z]", "Punct": r"[!-/:-@\[-`{-~]", "Graph": "[!-~]",
    "Print": "[ -~]", "Blank": r"[ \t]", "Cntrl": r"[\x00-\x1f\x7f]",
    "XDigit": "[0-9a-fA-F]", "Space": r"[ \t\n\x0b\f\r]",
}  # fmt: skip
#: General categories of each binary property.
_BINARY = {
    "IsAlphabetic": ("L", "Nl"), "IsLetter": ("L",), "IsUppercase": ("Lu",),
    "IsLowercase": ("Ll",), "IsTitlecase": ("Lt",), "IsDigit": ("Nd",), "IsPunctuation": ("P",),
    "IsControl": ("Cc",), "IsWhite_Space": ("Z",), "javaLowerCase": ("Ll",),
    "javaUpperCase": ("Lu",), "javaLetter": ("L",), "javaDigit": ("Nd",),
    "javaLetterOrDigit": ("L", "Nd"), "javaAlphabetic": ("L", "Nl"),
}  # fmt: skip
_CATEGORIES = {
    "L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "Me", "N", "Nd", "Nl", "No", "P", "Pc",
    "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm", "Sc", "Sk", "So", "Z", "Zs", "Zl", "Zp", "C",
    "Cc", "Cf", "Co", "Cn",
}  # fmt: skip
_CODE_POINTS = 0x110000


class JavaRegex:
    """A pattern with the syntax of java.util.regex.Pattern."""

    def __init__(self, pattern: str) -> None:
        """Translate and compile a pattern.

        Raises:
            ValueError: The pattern is invalid, or has no equivalent in Python's ``re``.
        """
        translated = _Translator(pattern).translate()
        try:
            self._compiled = re.compile(translated, re.ASCII)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"{pattern!r} is no regular expression: {error}") from error

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        return self._compiled.fullmatch(text) is not None

    def replace_first(self, replacement: "JavaReplacement", text: str) -> str:
        """Replace the first match in a text."""
        found = self._compiled.search(text)
        if found is None:
            return text
        return text[: found.start()] + replacement.expand(found) + text[found.end() :]

    def replacement(self, text: str) -> "JavaReplacement":
        """Parse a replacement with $1, ${name} and characters escaped by a backslash.

        Raises:
            ValueError: The replacement is malformed, or the pattern lacks one of its groups.
        """
        return JavaReplacement(text, self._compiled)


class JavaReplacement:
    """A replacement with the syntax of Matcher.replaceFirst."""

    def __init__(self, text: str, pattern: re.Pattern[str]) -> None:
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

    def expand(self, found: re.Match[str]) -> str:
        """The text for a match; groups that did not match are empty."""
        return "".join(text if group is None else found[group] or "" for text, group in self._parts)


@dataclass(frozen=True, slots=True)
class _Modes:
    dot_all: bool = False
    multiline: bool = False
    comments: bool = False

    def changed(self, on: str, off: str) -> "_Modes":
        names = {"s": "dot_all", "m": "multiline", "x": "comments"}
        changes = {names[flag]: flag in on for flag in on + off if flag in names}
        return replace(self, **changes)


class _Translator:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._out: list[str] = []
        self._modes = _Modes()
        #: For each open group: the modes around it, and the flags set within it.
        self._open: list[tuple[_Modes, list[str]]] = []
        self._flags: list[str] = []
        self._group_count = len(re.findall(r"(?<!\\)\((?!\?)|\(\?<[a-zA-Z]", pattern))

    def translate(self) -> str:
        while self._at < len(self._pattern):
            self._next()
        if self._open:
            raise self._fault("a group is not closed")
        return "".join(self._out) + ")" * len(self._flags)

    def _fault(self, what: str) -> ValueError:
        return ValueError(f"{self._pattern!r} cannot be used, {what} (character {self._at + 1})")

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
            if not self._out:
                raise self._fault("there is nothing to repeat")
            self._out.append(quantifier[0])
            self._at = quantifier.end()
        elif char == "\\":
            self._escape()
        elif char == "[":
            self._out.append(self._class())
        elif char == "(":
            self._group()
        elif char == ")":
            self._close()
        elif self._modes.comments and (char.isspace() or char == "#"):
            self._skip_comment()
        else:
            self._take()
            self._plain(char)

    def _plain(self, char: str) -> None:
        modes = self._modes
        match char:
            case "|":
                # flags set within a group also apply to its further alternatives
                self._out.append(")" * len(self._flags) + "|" + "".join(self._flags))
            case ".":
                self._out.append(_ANY if modes.dot_all else f"[^{_LINE_ENDS}]")
            case "^":
                self._out.append(
                    rf"(?:\A|(?<=[{_LINE_ENDS}])(?!\Z))" if modes.multiline else r"(?:\A)"
                )
            case "$":
                ends = rf"(?=[{_LINE_ENDS}]|\Z)" if modes.multiline else _BEFORE_LAST_LINE_END
                self._out.append(ends)
            case "{":
                raise self._fault("a brace without a number: escape it")
            case _:
                self._out.append(re.escape(char))

    def _skip_comment(self) -> None:
        if self._take() == "#":
            while self._at < len(self._pattern) and self._take() not in "\n\r":
                pass

    def _group(self) -> None:
        self._take()
        if not self._rest().startswith("?"):
            self._enter("(")
            return
        self._take()
        kind = next((each for each in _GROUPS if self._rest().startswith(each)), None)
        if kind is not None:
            self._take(len(kind))
            self._enter(f"(?P<{self._name()}>" if kind == "<" else f"(?{kind}")
            return
        flags = _FLAGS.match(self._pattern, self._at)
        if flags is None:
            raise self._fault("a group of an unknown kind, or flags other than i, m, s and x")
        self._at = flags.end()
        on, off, end = flags[1], flags[2] or "", flags[3]
        case = "(?-i:" if "i" in off else "(?i:" if "i" in on else "(?:"
        if end == ":":
            self._enter(case)
        elif case != "(?:":
            self._flags.append(case)
            self._out.append(case)
        self._modes = self._modes.changed(on, off)

    def _name(self) -> str:
        found = _NAME.match(self._pattern, self._at)
        if found is None or not self._pattern.startswith(">", found.end()):
            raise self._fault("a group has an invalid name")
        self._at = found.end() + 1
        return found[0]

    def _enter(self, opening: str) -> None:
        self._open.append((self._modes, self._flags))
        self._flags = []
        self._out.append(opening)

    def _close(self) -> None:
        if not self._open:
            raise self._fault("a closing parenthesis has no group")
        self._take()
        self._out.append(")" * (len(self._flags) + 1))
        self._modes, self._flags = self._open.pop()

    def _escape(self) -> None:
        self._take()
        char = self._take()
        if char == "Q":
            quoted, _, _ = self._rest().partition(r"\E")
            self._at = min(len(self._pattern), self._at + len(quoted) + 2)
            # one item per character: a quantifier applies to the last character only
            self._out += map(re.escape, quoted)
        elif char in _ESCAPED_PLACES:
            if self._rest().startswith("{"):
                raise self._fault("Drover does not support this boundary")
            self._out.append(_ESCAPED_PLACES[char])
        elif char == "k":
            if self._take() != "<":
                raise self._fault(r"\k needs a name: \k<name>")
            self._out.append(f"(?P={self._name()})")
        elif char in "123456789":
            self._reference(char)
        else:
            self._out.append(self._character_class(char) or re.escape(self._character(char)))

    def _reference(self, digits: str) -> None:
        while self._rest()[:1].isdigit() and int(digits + self._rest()[0]) <= self._group_count:
            digits += self._take()
        self._out.append(rf"(?:\{digits})")

    def _character_class(self, char: str) -> str | None:
        """The character class of an alphabetic escape; None if it is no class."""
        if char in ("p", "P"):
            name = self._take()
            if name == "{":
                name, closed, _ = self._rest().partition("}")
                self._take(len(name) + len(closed))
            return _property(name, negated=char == "P") or self._refuse_property(name)
        return _ESCAPED_CLASSES.get(char)

    def _refuse_property(self, name: str) -> str:
        raise self._fault(f"Drover does not support the property {name!r}")

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

    # a class becomes an expression for one character, because Python has no nested classes

    def _class(self) -> str:
        self._take()
        negated = self._rest().startswith("^")
        if negated:
            self._take()
        intersected: list[str] = []
        united: list[str] = []
        is_first = True
        while self._rest()[:1] != "]" or is_first:
            is_first = False
            if not self._rest():
                raise self._fault("a class is not closed")
            if self._rest().startswith("&&"):
                self._take(2)
                intersected += [_union(united)] if united else []
                united = []
            elif self._rest().startswith("["):
                united.append(self._class())
            elif self._modes.comments and self._rest()[0].isspace():
                self._take()
            else:
                united += self._class_item()
        self._take()
        intersected += [_union(united)] if united else []
        if not intersected:
            raise self._fault("a class is empty")
        *ahead, last = intersected
        found = "".join(f"(?={each})" for each in ahead) + last
        return f"(?:(?!{found}){_ANY})" if negated else f"(?:{found})"

    def _class_item(self) -> list[str]:
        if self._rest().startswith(r"\Q"):
            self._take(2)
            quoted, _, _ = self._rest().partition(r"\E")
            self._at = min(len(self._pattern), self._at + len(quoted) + 2)
            return [re.escape(each) for each in quoted]
        first = self._class_character()
        if len(first) > 1:
            return [first]
        following = self._rest()
        if not following.startswith("-") or following[1:2] in ("", "]", "["):
            return [re.escape(first)]
        self._take()
        last = self._class_character()
        if len(last) > 1 or last < first:
            raise self._fault("a range has no end, or its end is below its start")
        return [f"[{re.escape(first)}-{re.escape(last)}]"]

    def _class_character(self) -> str:
        """A character, or the expression of a class, which is longer."""
        char = self._take()
        if char != "\\":
            return char
        char = self._take()
        return self._character_class(char) or self._character(char)


def _union(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"(?:{'|'.join(items)})"


def _property(name: str, *, negated: bool) -> str | None:
    plain = name.removeprefix("Is")
    if name in _POSIX:
        found = _POSIX[name]
    elif name in _BINARY:
        found = _category_class(_BINARY[name])
    elif plain in _CATEGORIES:
        found = _category_class((plain,))
    else:
        return None
    return f"[^{found[1:]}" if negated else found


@cache
def _category_class(categories: tuple[str, ...]) -> str:
    ranges: list[str] = []
    start: int | None = None
    for code in range(_CODE_POINTS + 1):
        inside = code < _CODE_POINTS and unicodedata.category(chr(code)).startswith(categories)
        if inside and start is None:
            start = code
        elif not inside and start is not None:
            ranges.append(f"\\U{start:08x}-\\U{code - 1:08x}")
            start = None
    return f"[{''.join(ranges)}]"


def _group(text: str, at: int, pattern: re.Pattern[str]) -> tuple[int | str, int]:
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
