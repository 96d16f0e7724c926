"""Avro's schemas, parsed: names are in full, and lead to what they name."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fastavro.schema import SchemaParseException, UnknownType, parse_schema

from drover.record.errors import SchemaError

NAMESPACE = "io.confluent.connect.avro"
#: The record that stands for a struct without a name, and an entry of a map that is an array.
DEFAULT_NAME, MAP_ENTRY = f"{NAMESPACE}.ConnectDefault", f"{NAMESPACE}.MapEntry"
#: The schema of a union of several types, and the parameters by which an enum is known.
UNION, ENUM = f"{NAMESPACE}.Union", f"{NAMESPACE}.Enum"
#: What unions and their types are called with generalized.sum.type.support, with numbers behind it.
GENERAL_UNION_PREFIX = "connect_union_"
#: Properties of Avro's types that only Kafka Connect reads.
CONNECT_TYPE, INTERNAL_TYPE = "connect.type", "connect.internal.type"
CONNECT_NAME, CONNECT_VERSION, CONNECT_DOC = "connect.name", "connect.version", "connect.doc"
CONNECT_DEFAULT, CONNECT_PARAMETERS = "connect.default", "connect.parameters"
FIXED_SIZE = "connect.fixed.size"
#: The precision that a decimal has whose schema names none.
UNTOLD_PRECISION = 64

_CACHED_SCHEMA_COUNT = 1000
NAMED_KINDS = ("record", "enum", "fixed")
_PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema with everything that it refers to, by full names."""

    root: Any
    named: Mapping[str, Any]

    def resolved(self, node: Any) -> Any:
        """The definition of a name, and of a type in an object of its own; others as they are."""
        while True:
            if isinstance(node, str) and node not in _PRIMITIVES:
                node = self.named[node]
            elif isinstance(node, dict) and not isinstance(node["type"], str):
                node = node["type"]
            else:
                return node


def kind_of(node: Any) -> str:
    """The type of a resolved schema: ``union``, or Avro's word."""
    if isinstance(node, list):
        return "union"
    kind: str = node["type"] if isinstance(node, dict) else node
    return "record" if kind == "error" else kind


def property_of(node: Any, name: str) -> Any:
    """What a resolved schema says besides its type; None when it does not."""
    return node.get(name) if isinstance(node, dict) else None


def branch_name(node: Any) -> str:
    """What a resolved schema is called as a branch of a union: the last part of its name."""
    kind = kind_of(node)
    return str(node["name"]).rpartition(".")[2] if kind in NAMED_KINDS else kind


@lru_cache(maxsize=_CACHED_SCHEMA_COUNT)
def parse_avro(text: str, references: tuple[str, ...] = ()) -> AvroSchema:
    """The schema of a text; ``references`` are those that it refers to, each after its own ones.

    Raises:
        SchemaError: it is none.
    """
    named: dict[str, Any] = {}
    try:
        for each in references:
            parse_schema(_json(each), named_schemas=named)
        root = parse_schema(_json(text), named_schemas=named)
    except (SchemaParseException, UnknownType, ValueError, TypeError, KeyError) as error:
        raise SchemaError(f"no schema of Avro: {type(error).__name__}: {error}") from None
    except RecursionError:
        raise SchemaError("no schema of Avro: it is nested too deeply") from None
    return AvroSchema(root, named)


def _json(text: str) -> Any:
    # a registry may have a primitive's bare name
    return text if text in _PRIMITIVES else json.loads(text)
