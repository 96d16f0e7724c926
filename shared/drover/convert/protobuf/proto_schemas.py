"""From Kafka Connect's schemas to the text of Protobuf's."""

import json
import re
from dataclasses import dataclass, field, replace
from urllib.parse import quote_plus

from drover.convert.protobuf.connect_schemas import Conventions, is_union
from drover.convert.protobuf.names import (
    DATE,
    DECIMAL,
    DEFAULT_NAME,
    ENUM,
    FILES,
    META_FILE,
    TAG,
    TIME,
    TIMESTAMP,
    TYPE,
    UNION_PREFIX,
    WRAPPERS,
    entry_name,
    last_part,
)
from drover.convert.registered.sum_types import GENERAL_UNION, enum_parameter, symbols_of
from drover.record import schema as schemas
from drover.record.errors import SchemaError
from drover.record.schema import PRECISION, SCALE, Field, Schema, Type

_SCALARS = {
    Type.INT8: "int32",
    Type.INT16: "int32",
    Type.INT32: "int32",
    Type.INT64: "int64",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "bool",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
_WRAPPERS = {kind: name for name, kind in WRAPPERS.items()}
_WRAPPERS |= {"fixed32": _WRAPPERS["uint32"], "fixed64": _WRAPPERS["uint64"]}
_WRAPPERS |= dict.fromkeys(("sint32", "sfixed32"), _WRAPPERS["int32"])
_WRAPPERS |= dict.fromkeys(("sint64", "sfixed64"), _WRAPPERS["int64"])
#: The file of the messages that values are which are no structs.
_WRAPPERS_TEXT = 'syntax = "proto3";\npackage google.protobuf;\n' + "".join(
    f"\nmessage {last_part(name)} {{\n  {kind} value = 1;\n}}\n" for name, kind in WRAPPERS.items()
)
_LOGICAL = {
    schemas.DECIMAL: DECIMAL,
    schemas.DATE: DATE,
    schemas.TIME: TIME,
    schemas.TIMESTAMP: TIMESTAMP,
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def proto_text(schema: Schema, conventions: Conventions) -> str:
    """The Protobuf schema to register for a Kafka Connect schema, as text.

    Raises:
        SchemaError: Protobuf cannot express the schema: nested arrays, or invalid names.
    """
    writer = _Writer(conventions)
    if schema.type in (Type.ARRAY, Type.MAP):
        raise SchemaError(
            f"Protobuf's records are messages, and the value is of type {schema.type}: HoistField "
            "can put it into one"
        )
    if schema.name in _LOGICAL:
        raise SchemaError(
            f"the value is of type {last_part(schema.name or '')}, which Protobuf has only within "
            "messages: HoistField can put it into one"
        )
    if schema.type is not Type.STRUCT:
        return _WRAPPERS_TEXT
    package, _, name = (schema.name or writer.free_name()).rpartition(".")
    body = writer.message(writer.valid(name), schema)
    imports = [f'import "{each}";\n' for each in sorted(writer.imports)]
    head = [f"package {package};\n"] if package else []
    return "".join(['syntax = "proto3";\n', *head, *imports, "\n", *body.lines("")])


def message_name(schema: Schema) -> str | None:
    """The full name of the message of a schema's values; None if the struct has no name."""
    return schema.name if schema.type is Type.STRUCT else _WRAPPERS[_SCALARS[schema.type]]


def valid_name(name: str, conventions: Conventions) -> str:
    """A name as Protobuf has it.

    Raises:
        SchemaError: it has signs that names cannot have, and is not to be scrubbed.
    """
    if _NAME.fullmatch(name):
        return name
    if not conventions.scrubbed_names:
        raise SchemaError(
            f"{name!r} is no name in Protobuf, whose names have letters, digits and _ only and "
            "begin with no digit; set scrub.invalid.names, or let ReplaceField rename it"
        )
    scrubbed = re.sub(r"[^A-Za-z0-9_]", "_", quote_plus(name))
    return f"x{scrubbed}" if scrubbed[:1].isdigit() or scrubbed[:1] == "_" else scrubbed


@dataclass
class _Message:
    """A message while it is written."""

    name: str
    inner: "list[_Message | _Enum]" = field(default_factory=list)
    fields: list[str] = field(default_factory=list)
    schemas: dict[str, Schema] = field(default_factory=dict)
    numbers: set[int] = field(default_factory=set)

    def lines(self, indent: str) -> list[str]:
        within = indent + "  "
        found = [f"{indent}message {self.name} {{\n"]
        for each in self.inner:
            found += each.lines(within)
        return [*found, *(f"{within}{each}\n" for each in self.fields), f"{indent}}}\n"]


@dataclass
class _Enum:
    name: str
    symbols: list[tuple[str, int]]

    def lines(self, indent: str) -> list[str]:
        # the first one has to be 0
        symbols = sorted(self.symbols, key=lambda each: (each[1] != 0, each[1]))
        numbers = [number for _, number in symbols]
        is_clear = len({*numbers}) == len(numbers)
        alias = [] if is_clear else [f"{indent}  option allow_alias = true;\n"]
        values = [f"{indent}  {symbol} = {number};\n" for symbol, number in symbols]
        return [f"{indent}enum {self.name} {{\n", *alias, *values, f"{indent}}}\n"]


class _Writer:
    def __init__(self, conventions: Conventions) -> None:
        self._conventions = conventions
        self._unnamed = 0
        self.imports: set[str] = set()

    def free_name(self) -> str:
        self._unnamed += 1
        return f"{DEFAULT_NAME}{self._unnamed}"

    def valid(self, name: str) -> str:
        return valid_name(name, self._conventions)

    def message(self, name: str, schema: Schema) -> _Message:
        found = _Message(name)
        flat = [
            inner
            for each in schema.fields
            for inner in (each.schema.fields if is_union(each.schema) else (each,))
        ]
        found.numbers = {int(tag) for each in flat if (tag := each.schema.parameters.get(TAG))}
        for each in schema.fields:
            if is_union(each.schema):
                named = each.schema.name or each.schema.parameters[GENERAL_UNION]
                union = self.valid(last_part(named.removeprefix(UNION_PREFIX)))
                found.fields.append(f"oneof {union} {{")
                found.fields += [
                    f"  {self._field(found, inner, in_union=True)}" for inner in each.schema.fields
                ]
                found.fields.append("}")
            else:
                found.fields.append(self._field(found, each))
        return found

    def _field(self, owner: _Message, found: Field, *, in_union: bool = False) -> str:
        schema, name = found.schema, self.valid(found.name)
        tag = schema.parameters.get(TAG)
        number = int(tag) if tag is not None else self._free_number(owner)
        label = ""
        if schema.type is Type.ARRAY:
            assert schema.value_schema is not None
            label, schema = "repeated ", schema.value_schema
            if schema.type in (Type.ARRAY, Type.MAP):
                raise SchemaError(
                    f"field {found.name!r}: an array of Protobuf holds no other array or map"
                )
        elif schema.type is Type.MAP:
            label = "repeated "
        elif self._conventions.optional_nulls and schema.optional and not in_union:
            label = "optional "
        kind = self._type(owner, name, schema, wrapped=not label or label == "optional ")
        return f"{label}{kind} {name} = {number}{self._options(schema)};"

    def _free_number(self, owner: _Message) -> int:
        number = 1
        # 19000 to 19999 are Protobuf's own
        while number in owner.numbers or 19_000 <= number < 20_000:
            number += 1
        owner.numbers.add(number)
        return number

    def _type(self, owner: _Message, name: str, schema: Schema, *, wrapped: bool) -> str:
        logical = _LOGICAL.get(schema.name or "")
        if logical is not None:
            self.imports.add(FILES[logical])
            return f".{logical}"
        if schema.type is Type.STRUCT:
            return self._struct(owner, name, schema)
        if schema.type is Type.MAP:
            return self._map(owner, schema)
        enum = enum_parameter(schema, ENUM)
        if enum is not None and schema.type in (Type.STRING, Type.INT32):
            return self._enum(owner, schema, enum)
        kind = _SCALARS[schema.type]
        if schema.type in (Type.INT32, Type.INT64):
            kind = schema.parameters.get(TYPE, kind)
        if wrapped and self._conventions.wrapped_nulls and schema.optional:
            wrapper = _WRAPPERS[kind]
            self.imports.add(FILES[wrapper])
            return f".{wrapper}"
        return kind

    def _struct(self, owner: _Message, field_name: str, schema: Schema) -> str:
        name = self.valid(last_part(schema.name or self.free_name()))
        if name == field_name:
            name += "Message"
        if not self._is_there(owner, name, schema):
            owner.inner.append(self.message(name, schema))
        return name

    def _map(self, owner: _Message, schema: Schema) -> str:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        name = entry_name(self.valid(last_part(schema.name or self.free_name())))
        entry = Schema(
            Type.STRUCT,
            fields=(
                Field("key", _untagged(schema.key_schema)),
                Field("value", _untagged(schema.value_schema)),
            ),
        )
        if not self._is_there(owner, name, entry):
            owner.inner.append(self.message(name, entry))
        return name

    def _enum(self, owner: _Message, schema: Schema, parameter: str) -> str:
        name = self.valid(last_part(schema.name or schema.parameters[parameter]))
        symbols = {each: int(number) for each, number in symbols_of(schema, parameter).items()}
        wanted = Schema(Type.STRING, parameters={each: str(n) for each, n in symbols.items()})
        if not self._is_there(owner, name, wanted):
            owner.inner.append(_Enum(name, list(symbols.items())))
        return name

    def _is_there(self, owner: _Message, name: str, schema: Schema) -> bool:
        plain = Schema(
            schema.type, fields=schema.fields,
            parameters={k: v for k, v in schema.parameters.items() if k != TAG},
        )  # fmt: skip
        before = owner.schemas.setdefault(name, plain)
        if before is not plain and before != plain:
            raise SchemaError(f"the name {name} stands for two different schemas")
        return before is not plain

    def _options(self, schema: Schema) -> str:
        """What Protobuf has no word for."""
        params: dict[str, str] = {}
        if schema.name == schemas.DECIMAL:
            names = (("precision", PRECISION), ("scale", SCALE))
            given = schema.parameters
            params = {told: given[name] for told, name in names if name in given}
        elif schema.type in (Type.INT8, Type.INT16):
            params = {"connect.type": str(schema.type)}
        if not params:
            return ""
        self.imports.add(META_FILE)
        told = ", ".join(
            f"{{key: {json.dumps(key)}, value: {json.dumps(value)}}}"
            for key, value in params.items()
        )
        return f" [(confluent.field_meta) = {{params: [{told}]}}]"


def _untagged(schema: Schema) -> Schema:
    """A part of an entry, whose numbers are 1 and 2."""
    kept = {name: text for name, text in schema.parameters.items() if name != TAG}
    return replace(schema, parameters=kept)
