"""Connector definitions in JSON or YAML files.

A definition is ``{"name": …, "config": {…}}`` as Kafka Connect takes it, or a flat config that
holds its name. Values are strings; numbers and booleans are taken as they are written.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

MAX_BYTES = 8 * 1024 * 1024
_ENVELOPE_KEYS = {"name", "config", "initial_state"}
_NULL_TAG = "tag:yaml.org,2002:null"
_BOOL_WORDS = {"true", "false"}

#: A parsed file before its meaning is looked at; scalars are strings, None is null.
_Value = str | None | list["_Value"] | dict[str, "_Value"]


class DefinitionError(Exception):
    """A definition cannot be read; the message is one line with the file and the place."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A connector as a file defines it; ``name`` is empty when the file does not give one."""

    name: str
    config: Mapping[str, str]
    initial_state: str = ""


def read_definition(file: str) -> Definition:
    """Read a definition from a file, or from standard input when ``file`` is "-".

    Raises:
        DefinitionError: it cannot be read, is malformed, or is no definition.
    """
    return parse_definition(read_text(file), file_label(file))


def parse_definition(text: str, label: str) -> Definition:
    """Read a definition from text; ``label`` names where it came from, and its suffix the format.

    Raises:
        DefinitionError: it is malformed or is no definition.
    """
    suffix = Path(label).suffix.lower()
    is_json = suffix == ".json" or (suffix not in {".yaml", ".yml"} and text.lstrip()[:1] in "{[")
    try:
        value = _parse_json(text, label) if is_json else _parse_yaml(text, label)
    except RecursionError:
        raise DefinitionError(f"{label}: nested too deeply") from None
    return _definition(value, label)


def file_label(file: str) -> str:
    """What messages call a file, or standard input when ``file`` is "-"."""
    return "standard input" if file == "-" else file


def read_text(file: str) -> str:
    """The text of a file, or of standard input when ``file`` is "-".

    Raises:
        DefinitionError: it cannot be read.
    """
    label = file_label(file)
    try:
        if file == "-":
            raw = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(file).open("rb") as stream:
                raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise DefinitionError(f"cannot read {label}: {error.strerror}") from error
    if len(raw) > MAX_BYTES:
        raise DefinitionError(f"{label} is larger than {MAX_BYTES} bytes")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DefinitionError(f"{label} is not UTF-8: byte {error.start}") from error


def _definition(value: _Value, label: str) -> Definition:
    if not isinstance(value, dict):
        raise DefinitionError(
            f"{label} holds {_describe(value)}; a definition is an object like "
            '{"name": …, "config": {…}}'
        )
    config = value.get("config")
    if "config" not in value or ("connector.class" in value and not isinstance(config, dict)):
        flat = _strings(value, label, "")
        return Definition(flat.get("name", ""), flat)
    if not isinstance(config, dict):
        raise DefinitionError(f'{label}: "config" is {_describe(config)}; it must be an object')
    unknown = sorted(value.keys() - _ENVELOPE_KEYS)
    if unknown:
        raise DefinitionError(
            f'{label}: unknown key "{unknown[0]}" beside "config"; settings go inside "config"'
        )
    envelope = _strings({key: value[key] for key in value if key != "config"}, label, "")
    settings = _strings(config, label, "config.")
    return Definition(
        name=envelope.get("name", settings.get("name", "")),
        config=settings,
        initial_state=envelope.get("initial_state", ""),
    )


def _strings(values: Mapping[str, _Value], label: str, prefix: str) -> dict[str, str]:
    for key, value in values.items():
        if value is None:
            raise DefinitionError(
                f'{label}: "{prefix}{key}" has no value (null); write "" or leave it out'
            )
        if isinstance(value, list):
            raise DefinitionError(
                f'{label}: "{prefix}{key}" is a list; write it as one string: "a,b"'
            )
        if isinstance(value, dict):
            raise DefinitionError(f'{label}: "{prefix}{key}" is an object; it must be a string')
    return {key: value for key, value in values.items() if isinstance(value, str)}


def _describe(value: _Value) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, list):
        return "a list"
    return "an object" if isinstance(value, dict) else "a single value"


def _parse_json(text: str, label: str) -> _Value:
    def pairs(items: list[tuple[str, _Value]]) -> dict[str, _Value]:
        seen: dict[str, _Value] = {}
        for key, value in items:
            if key in seen:
                raise DefinitionError(f'{label}: the key "{key}" stands twice in one object')
            seen[key] = value if not isinstance(value, bool) else str(value).lower()
        return seen

    def constant(word: str) -> str:
        raise DefinitionError(f"{label}: {word} is not JSON")

    try:
        value: _Value = json.loads(
            text,
            object_pairs_hook=pairs,
            parse_float=str,
            parse_int=str,
            parse_constant=constant,
        )
    except json.JSONDecodeError as error:
        raise DefinitionError(
            f"{label}:{error.lineno}:{error.colno}: not JSON: {error.msg}"
        ) from error
    return value


def _parse_yaml(text: str, label: str) -> _Value:
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise DefinitionError(f"{label}{place}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        first = str(error).splitlines()[0]
        raise DefinitionError(f"{label}: not YAML: {first}") from error
    return None if node is None else _from_node(node, label)


def _from_node(node: yaml.Node, label: str) -> _Value:
    if isinstance(node, yaml.ScalarNode):
        if node.style is not None:
            return str(node.value)
        if node.tag == _NULL_TAG:
            return None
        word = node.value.lower()
        return word if word in _BOOL_WORDS else str(node.value)
    if isinstance(node, yaml.SequenceNode):
        return []
    mapping: dict[str, _Value] = {}
    for key_node, value_node in node.value:
        place = f"{label}:{key_node.start_mark.line + 1}:{key_node.start_mark.column + 1}"
        if not isinstance(key_node, yaml.ScalarNode):
            raise DefinitionError(f"{place}: a key must be a string")
        key = str(key_node.value)
        if key in mapping:
            raise DefinitionError(f'{place}: the key "{key}" stands twice in one object')
        mapping[key] = _from_node(value_node, label)
    return mapping
