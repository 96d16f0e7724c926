"""A connector's config as YAML and JSON, as ``drover connector create FILE`` reads it. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from drover.cli.definitions import DefinitionError, initial_state, parse_definition
from drover.model.config import TargetState

#: The longest texts; YAML takes seconds per megabyte.
JSON_MAX_CHARS, YAML_MAX_CHARS = 2 * 1024 * 1024, 256 * 1024
#: Texts that every reader of YAML takes as texts without quotes, and decimal numbers.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*|[1-9][0-9]{0,14}|0")
_KEY = re.compile(
    r"""[\s{,]*+(?:"(?P<double>[^"\\]+)"|'(?P<single>[^']+)'|(?P<plain>[^\s"':#{,][^\s"':]*))\s*:"""
)
_WORDS = frozenset(("null", "yes", "no", "on", "off", "y", "n", "true", "false"))
#: Characters that YAML or HTML does not allow, or that YAML takes as ends of lines.
_ESCAPED = re.compile(r"[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


class Notation(StrEnum):
    """How a config is written as text."""

    YAML = "yaml"
    JSON = "json"


class TextError(Exception):
    """A text that is not a config; the message has the line if it is known."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a text defines; ``state`` is None if it sets no initial state."""

    name: str
    config: Mapping[str, str]
    state: TargetState | None
    warnings: tuple[str, ...] = ()


def to_text(notation: Notation, name: str, config: Mapping[str, str]) -> str:
    """A config as text, with its settings in alphabetical order after the class."""
    settings = {key: config[key] for key in sorted(config, key=_order) if key != "name"}
    if notation is Notation.JSON:
        text = json.dumps({"name": name, "config": settings}, indent=2, ensure_ascii=False)
        return _escaped(text) + "\n"
    lines = [f"name: {_scalar(name)}", "config:" if settings else "config: {}"]
    lines += [f"  {_scalar(key)}: {_scalar(value)}" for key, value in settings.items()]
    return "\n".join(lines) + "\n"


def from_text(notation: Notation, text: str) -> Written:
    """Read a text, with the reader of ``drover connector create``.

    Raises:
        TextError: It is too long, malformed, or defines no connector, or several.
    """
    limit = JSON_MAX_CHARS if notation is Notation.JSON else YAML_MAX_CHARS
    if len(text) > limit:
        other = "" if notation is Notation.JSON else ": use JSON"
        raise TextError(f"The text has {len(text):,} characters; the maximum is {limit:,}{other}.")
    label = f"config.{notation}"
    try:
        found = parse_definition(text, label)
        state = initial_state(found)
    except DefinitionError as error:
        raise TextError(_with_line(str(error), label)) from None
    return Written(found.name, found.config, state, tuple(found.warnings))


def lines_of(text: str) -> Mapping[str, int]:
    """The first line of each key that starts a line of a text."""
    found: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        key = _KEY.match(line)
        if key:
            found.setdefault(key["double"] or key["single"] or key["plain"], number)
    return found


def _with_line(message: str, label: str) -> str:
    place = re.match(rf"{re.escape(label)}:(\d+):(\d+): ", message)
    if place:
        return f"Line {place[1]}, column {place[2]}: {message[place.end() :]}"
    return re.sub(rf"^{re.escape(label)}\b(: )?", lambda m: "" if m[1] else "The text", message)


def _order(setting: str) -> tuple[bool, str]:
    return setting != "connector.class", setting


def _scalar(text: str) -> str:
    if text in ("true", "false") or (_PLAIN.fullmatch(text) and text.lower() not in _WORDS):
        return text
    return _escaped(json.dumps(text, ensure_ascii=False))


def _escaped(quoted: str) -> str:
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)
