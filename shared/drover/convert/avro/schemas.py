"""Parsed Avro schemas with full names and their definitions."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fastavro.schema import SchemaParseException, UnknownType, parse_schema

from drover.record.errors import SchemaError

NAMESPACE = "io.confluent.connect.avro"
#: The record name of an unnamed struct, and of an entry of a map that is written as an array.
DEFAULT_NAME, MAP_ENTRY = f"{NAMESPACE}.ConnectDefault", f"{NAMESPACE}.MapEntry"
#: The schema name of a union of several types, and the parameter that marks an enum.
UNION, ENUM = f"{NAMESPACE}.Union", f"{NAMESPACE}.Enum"
#: With generalized.sum.type.support, names of unions and their types: this prefix and a number.
GENERAL_UNION_PREFIX = "connect_union_"
#: Properties of Avro's types that only Kafka Connect reads.
CONNECT_TYPE, INTERNAL_TYPE = "connect.type", "connect.internal.type"
CONNECT_NAME, CONNECT_VERSION, CONNECT_DOC = "connect.name", "connect.version", "connect.doc"
CONNECT_DEFAULT, CONNECT_PARAMETERS = "connect.default", "connect.parameters"
FIXED_SIZE = "connect.fixed.size"
#: The precision of a decimal whose schema does not specify one.
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
        """Resolve a name to its definition, and unwrap nested ``{"type": …}`` objects."""
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
    """A property of a resolved schema; None if it is absent."""
    return node.get(name) if isinstance(node, dict) else None


def branch_name(node: Any) -> str:
    """The name of a resolved schema as a branch of a union: the last part of its full name."""
    kind = kind_of(node)
    return str(node["name"]).rpartition(".")[2] if kind in NAMED_KINDS else kind


@lru_cache(maxsize=_CACHED_SCHEMA_COUNT)
def parse_avro(text: str, references: tuple[str, ...] = ()) -> AvroSchema:
    """Parse a schema; ``references`` are the referenced schemas, each after its own references.

    Raises:
        SchemaError: A text is no Avro schema.
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
