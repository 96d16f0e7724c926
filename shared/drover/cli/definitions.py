"""Connector definitions in files: JSON, YAML, and the .properties files of Kafka Connect.

A definition is ``{"name": …, "config": {…}}`` as in Kafka Connect, or a flat config that includes
"name", or Strimzi's resource KafkaConnector. Values are strings; numbers and booleans keep their
text.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from drover.cli.documents import DefinitionError as DefinitionError
from drover.cli.documents import Document, Value, parse_json, parse_yaml
from drover.cli.strimzi import is_resource, read_resource, resources_in
from drover.config.properties import properties_of
from drover.model.config import TargetState

MAX_BYTES = 8 * 1024 * 1024
_ENVELOPE_KEYS = {"name", "config", "initial_state"}
_YAML = {".yaml", ".yml"}
_PROPERTIES = ".properties"
_PROBLEMS_SHOWN_MAX = 20
_SUFFIXES = {".json", _PROPERTIES, *_YAML}


@dataclass(frozen=True, slots=True)
class Definition:
    """A connector as defined in a file.

    Attributes:
        name: Empty if the file gives none.
        config: Settings by name.
        initial_state: As written in the file; empty if it gives none.
        has_state: Whether the file also gives the state of a connector that exists, as Strimzi's
            resource does.
        place: The file, and the number of the document if it has several.
        warnings: What in the file has no effect.
    """

    name: str
    config: Mapping[str, str]
    initial_state: str = ""
    has_state: bool = field(default=False, compare=False)
    place: str = field(default="", compare=False)
    warnings: Sequence[str] = field(default=(), compare=False)


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
        definition
        for document, place in zip(documents, places, strict=True)
        if document.value is not None or len(documents) == 1
        for definition in _definitions(document, place)
    ]


def parse_definition(text: str, label: str) -> Definition:
    """Read a definition from text.

    Args:
        text: JSON, YAML or properties.
        label: The file's name for messages; its suffix selects the format.

    Raises:
        DefinitionError: The text is malformed or holds no definition, or several.
    """
    documents = _documents(text, label)
    if len(documents) > 1:
        filled = [each for each in documents if each.value is not None]
        if len(filled) != 1:
            raise DefinitionError(
                f"{label} holds {len(documents)} documents; only `drover apply` takes several"
            )
        documents = filled
    found = _definitions(documents[0], label)
    if len(found) != 1:
        raise DefinitionError(
            f"{label} holds {len(found)} connectors; only `drover apply` takes several"
        )
    return found[0]


def _documents(text: str, label: str) -> list[Document]:
    """The documents of a file, at least one."""
    suffix = Path(label).suffix.lower()
    if suffix == _PROPERTIES:
        return [_parse_properties(text, label)]
    if suffix == ".json" or (suffix not in _YAML and text.lstrip()[:1] in "{["):
        return [parse_json(text, label)]
    return parse_yaml(text, label) or [Document(None, None)]


def _parse_properties(text: str, label: str) -> Document:
    """A flat config in a file of Kafka Connect's standalone mode.

    Raises:
        DefinitionError: A key is repeated, of which Java takes the last, or an escape is malformed.
    """
    found: dict[str, Value] = {}
    lines: dict[str, int] = {}
    try:
        for each in properties_of(text):
            if each.key in found:
                raise DefinitionError(
                    f'{label}:{each.line}: the key "{each.key}" is in line {lines[each.key]} '
                    "already"
                )
            found[each.key], lines[each.key] = each.value, each.line
    except ValueError as error:
        raise DefinitionError(f"{label}: {error}") from None
    return Document(found, found) if found else Document(None, None)


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

    A properties file that is not UTF-8 is ISO-8859-1, as in Java.

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
        if Path(file).suffix.lower() == _PROPERTIES:
            return raw.decode("iso-8859-1")
        raise DefinitionError(f"{label} is not UTF-8: byte {error.start}") from error


def _definitions(document: Document, place: str) -> list[Definition]:
    """The definitions in a document: several in a list of `kubectl get` only."""
    if not is_resource(document.value):
        return [replace(_definition(document.value, place), place=place)]
    return [_of_resource(resource, where) for resource, where in resources_in(document, place)]


def _of_resource(value: Value, place: str) -> Definition:
    resource = read_resource(value)
    problems = [*resource.problems]
    config = _strings(resource.config, "spec.config.", problems)
    if problems:
        raise _faulty(place, problems)
    return Definition(
        name=resource.name.strip(),
        config=config,
        initial_state=resource.initial_state,
        has_state=bool(resource.initial_state),
        place=place,
        warnings=tuple(f"{place}: {each}" for each in resource.warnings),
    )


def _definition(value: Value, label: str) -> Definition:
    if not isinstance(value, dict):
        raise DefinitionError(
            f"{label} holds {_describe(value)}; a definition is an object like "
            '{"name": …, "config": {…}}'
        )
    problems: list[str] = []
    config = value.get("config")
    if "config" not in value or ("connector.class" in value and not isinstance(config, dict)):
        settings = _strings(value, "", problems)
        envelope = {"name": settings.get("name", "")}
    elif not isinstance(config, dict):
        raise DefinitionError(f'{label}: "config" is {_describe(config)}; it must be an object')
    else:
        problems += [
            f'unknown key "{each}" beside "config"; settings go inside "config"'
            for each in sorted(value.keys() - _ENVELOPE_KEYS)
        ]
        around = {key: value[key] for key in sorted(_ENVELOPE_KEYS & value.keys() - {"config"})}
        envelope = _strings(around, "", problems)
        settings = _strings(config, "config.", problems)
    if problems:
        raise _faulty(label, problems)
    return Definition(
        name=envelope.get("name", settings.get("name", "")).strip(),
        config=settings,
        initial_state=envelope.get("initial_state", ""),
    )


def _strings(values: Mapping[str, Value], prefix: str, problems: list[str]) -> dict[str, str]:
    """The values that are texts; others are added to ``problems``."""
    for key, value in values.items():
        if value is None:
            problems.append(
                f'"{prefix}{key}" has no value (null); leave it out for the default. An '
                'empty value ("") is only for texts, lists and passwords: numbers, booleans and '
                "classes reject it"
            )
        elif isinstance(value, list):
            problems.append(f'"{prefix}{key}" is a list; write it as one string: "a,b"')
        elif isinstance(value, dict) and "valueFrom" not in value:
            problems.append(f'"{prefix}{key}" is an object; it must be a string')
        elif isinstance(value, dict):
            problems.append(
                f'"{prefix}{key}" has valueFrom, which only containers have; give a placeholder of '
                "a config provider, such as ${file:/run/secrets/db.properties:password}"
            )
    return {key: value for key, value in values.items() if isinstance(value, str)}


def _faulty(place: str, problems: Sequence[str]) -> DefinitionError:
    more = len(problems) - _PROBLEMS_SHOWN_MAX
    shown = [*problems[:_PROBLEMS_SHOWN_MAX], *([f"and {more} more faults"] if more > 0 else [])]
    return DefinitionError(f"{place}: {'; '.join(shown)}")


def _describe(value: Value) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, list):
        return "a list"
    return "an object" if isinstance(value, dict) else "a single value"
