"""Parses JSON and YAML into values whose scalars keep the text of the file."""

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # most commands read no YAML, and it takes a tenth of their start
    import yaml

_NULL_TAG = "tag:yaml.org,2002:null"
_INT_TAG = "tag:yaml.org,2002:int"
_BOOL_WORDS = {"true": "true", "false": "false"}
#: Words that are booleans in YAML 1.1, which Kubernetes reads.
_KUBERNETES_WORDS = _BOOL_WORDS | {"yes": "true", "on": "true", "no": "false", "off": "false"}

#: A key that every resource of Kubernetes has.
_RESOURCE_KEY = "apiVersion"
#: Numbers of YAML 1.1 that have another value in decimal digits.
_NOT_DECIMAL = re.compile(r"[-+]?(0[0-7_]+|0[xb][0-9a-fA-F_]+|[0-9][0-9_]*_[0-9_]*)")

#: A parsed document; scalars are text, None is null.
Value = str | None | list["Value"] | dict[str, "Value"]


class DefinitionError(Exception):
    """A definition cannot be read; the message is one line with the file and the position."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file.

    Attributes:
        value: Its content.
        as_kubernetes: Its content with the booleans of YAML 1.1, as Kubernetes reads it.
    """

    value: Value
    as_kubernetes: Value


def parse_json(text: str, label: str) -> Document:
    """Parse one JSON document.

    Raises:
        DefinitionError: The text is not JSON, or an object has a key twice.
    """

    def pairs(items: list[tuple[str, Value]]) -> dict[str, Value]:
        seen: dict[str, Value] = {}
        for key, value in items:
            if key in seen:
                raise DefinitionError(f'{label}: the key "{key}" is duplicated in one object')
            seen[key] = value if not isinstance(value, bool) else str(value).lower()
        return seen

    def constant(word: str) -> str:
        raise DefinitionError(f"{label}: {word} is not JSON")

    try:
        value: Value = json.loads(
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
    except RecursionError:
        raise DefinitionError(f"{label}: nested too deeply") from None
    return Document(value, value)


def parse_yaml(text: str, label: str) -> list[Document]:
    """Parse YAML documents.

    An alias is the value of its anchor, not a copy, so nested aliases need no more memory.

    Raises:
        DefinitionError: The text is not YAML, or a mapping has a key twice.
    """
    import yaml

    try:
        nodes = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
        return [_document(node, label) for node in nodes]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise DefinitionError(f"{label}{place}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        first = str(error).splitlines()[0]
        raise DefinitionError(f"{label}: not YAML: {first}") from error
    except RecursionError:
        raise DefinitionError(f"{label}: nested too deeply") from None


def _document(node: "yaml.Node | None", label: str) -> Document:
    value = _Values(label).of(node)
    if isinstance(value, dict) and _RESOURCE_KEY in value:
        return Document(value, _Values(label, as_kubernetes=True).of(node))
    return Document(value, value)


class _Values:
    """Converts the nodes of a document."""

    def __init__(self, label: str, *, as_kubernetes: bool = False) -> None:
        self._label = label
        self._as_kubernetes = as_kubernetes
        self._bool_words = _KUBERNETES_WORDS if as_kubernetes else _BOOL_WORDS
        self._converted: dict[int, Value] = {}

    def of(self, node: "yaml.Node | None") -> Value:
        """The value of a node, converted once, whatever the number of its aliases."""
        if node is None:
            return None
        known = id(node)
        if known not in self._converted:
            self._converted[known] = self._convert(node)
        return self._converted[known]

    def _convert(self, node: "yaml.Node") -> Value:
        import yaml

        if isinstance(node, yaml.ScalarNode):
            if node.style is not None:
                return str(node.value)
            if node.tag == _NULL_TAG:
                return None
            if self._as_kubernetes and node.tag == _INT_TAG and _NOT_DECIMAL.fullmatch(node.value):
                raise DefinitionError(
                    f"{self._place(node)}: Kubernetes does not read {node.value} as decimal "
                    "digits: write the decimal number, or quote the text"
                )
            return self._bool_words.get(node.value.lower(), str(node.value))
        if isinstance(node, yaml.SequenceNode):
            return [self.of(each) for each in node.value]
        mapping: dict[str, Value] = {}
        for key_node, value_node in node.value:
            place = self._place(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                raise DefinitionError(f"{place}: a key must be a string")
            key = str(key_node.value)
            if key in mapping:
                raise DefinitionError(f'{place}: the key "{key}" is duplicated in one object')
            mapping[key] = self.of(value_node)
        return mapping

    def _place(self, node: "yaml.Node") -> str:
        return f"{self._label}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"
