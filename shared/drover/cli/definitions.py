"""Connector definitions in JSON or YAML files.

A definition is ``{"name": …, "config": {…}}`` as in Kafka Connect, or a flat config that includes
"name". Values are strings; numbers and booleans keep their text.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from drover.model.config import TargetState

MAX_BYTES = 8 * 1024 * 1024
_ENVELOPE_KEYS = {"name", "config", "initial_state"}
_NULL_TAG = "tag:yaml.org,2002:null"
_YAML = {".yaml", ".yml"}
_SUFFIXES = {".json", *_YAML}
_BOOL_WORDS = {"true", "false"}

#: A parsed file, not yet interpreted; scalars are strings, None is null.
_Value = str | None | list["_Value"] | dict[str, "_Value"]


class DefinitionError(Exception):
    """A definition cannot be read; the message is one line with the file and the position."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A connector as defined in a file.

    Attributes:
        name: Empty if the file gives none.
        config: Settings by name.
        initial_state: As written in the file; empty if it gives none.
        place: The file, and the number of the document if it has several.
    """

    name: str
    config: Mapping[str, str]
    initial_state: str = ""
    place: str = field(default="", compare=False)


def read_definition(file: str) -> Definition:
    """Read a definition from a file, or from standard input when ``file`` is "-".

    Raises:
        DefinitionError: The file cannot be read, is malformed, or holds no definition.
    """
    return parse_definition(read_text(file), file_label(file))


def read_definitions(paths: Sequence[str]) -> list[Definition]:
    """Read the definitions in files, in folders, and in standard input for "-".

    The files of a folder are read in order of names, without subfolders. A YAML file may have
    several documents.

    Raises:
        DefinitionError: A file cannot be read or is malformed, a definition has no name, two have
            the same name, or there is no definition.
    """
    found: dict[str, Definition] = {}
    for file in [each for path in paths for each in _files_of(path)]:
        for definition in parse_definitions(read_text(file), file_label(file)):
            if not definition.name:
                raise DefinitionError(f"{definition.place}: the connector has no name")
            other = found.setdefault(definition.name, definition)
            if other is not definition:
                text = f"{definition.place}: {definition.name} is defined in {other.place} already"
                raise DefinitionError(text)
    if not found:
        raise DefinitionError(f"no definitions in {', '.join(paths)}")
    return list(found.values())


def parse_definitions(text: str, label: str) -> list[Definition]:
    """``parse_definition`` for text with several YAML documents; empty documents are ignored."""
    documents = _documents(text, label)
    places = [f"{label}, document {number}" for number in range(1, len(documents) + 1)]
    if len(documents) == 1:
        places = [label]
    return [
        replace(_definition(document, place), place=place)
        for document, place in zip(documents, places, strict=True)
        if document is not None or len(documents) == 1
    ]


def parse_definition(text: str, label: str) -> Definition:
    """Read a definition from text.

    Args:
        text: JSON or YAML.
        label: The file's name for messages; its suffix selects the format.

    Raises:
        DefinitionError: The text is malformed or holds no definition.
    """
    documents = _documents(text, label)
    if len(documents) > 1:
        raise DefinitionError(f"{label} holds {len(documents)} documents; only apply takes several")
    return replace(_definition(documents[0], label), place=label)


def _documents(text: str, label: str) -> list[_Value]:
    """The documents of a file, at least one; None for an empty document."""
    suffix = Path(label).suffix.lower()
    is_json = suffix == ".json" or (suffix not in _YAML and text.lstrip()[:1] in "{[")
    try:
        return [_parse_json(text, label)] if is_json else _parse_yaml(text, label) or [None]
    except RecursionError:
        raise DefinitionError(f"{label}: nested too deeply") from None


def _files_of(path: str) -> list[str]:
    if path == "-" or not Path(path).is_dir():
        return [path]
    files = sorted(Path(path).iterdir())
    return [str(file) for file in files if file.suffix.lower() in _SUFFIXES and file.is_file()]


def initial_state(definition: Definition) -> TargetState | None:
    """The target state of a new connector; None if the file does not set it.

    Raises:
        DefinitionError: The state does not exist.
    """
    if not definition.initial_state:
        return None
    try:
        return TargetState(definition.initial_state.upper())
    except ValueError:
        raise DefinitionError(
            f'{definition.place}: "initial_state" is {definition.initial_state!r}; it must be one '
            f"of {', '.join(TargetState)}"
        ) from None


def file_label(file: str) -> str:
    """The name of a file in messages; "standard input" for "-"."""
    return "standard input" if file == "-" else file


def read_text(file: str) -> str:
    """The text of a file, or of standard input when ``file`` is "-".

    Raises:
        DefinitionError: The file cannot be read, is too large, or is not UTF-8.
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
        return Definition(flat.get("name", "").strip(), flat)
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
        name=envelope.get("name", settings.get("name", "")).strip(),
        config=settings,
        initial_state=envelope.get("initial_state", ""),
    )


def _strings(values: Mapping[str, _Value], label: str, prefix: str) -> dict[str, str]:
    for key, value in values.items():
        if value is None:
            raise DefinitionError(
                f'{label}: "{prefix}{key}" has no value (null); leave it out for the default. An '
                'empty value ("") is only for texts, lists and passwords: numbers, booleans and '
                "classes reject it"
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
                raise DefinitionError(f'{label}: the key "{key}" is duplicated in one object')
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


def _parse_yaml(text: str, label: str) -> list[_Value]:
    try:
        nodes = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise DefinitionError(f"{label}{place}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        first = str(error).splitlines()[0]
        raise DefinitionError(f"{label}: not YAML: {first}") from error
    return [None if node is None else _from_node(node, label) for node in nodes]


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
            raise DefinitionError(f'{place}: the key "{key}" is duplicated in one object')
        mapping[key] = _from_node(value_node, label)
    return mapping
