"""Encodes columns as Avro, with Arrow kernels for whole columns."""

import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drover.convert.avro.connect_schemas import connect_schema
from drover.convert.avro.schemas import AvroSchema, kind_of, property_of
from drover.convert.number_bytes import digits_of, fixed_width, padded, varints
from drover.record.arrow import in_unit, is_text
from drover.record.errors import RecordError
from drover.record.json.values import default_column
from drover.record.schema import (
    DECIMAL128_DIGITS,
    DECIMAL256_DIGITS,
    arrow_field,
)

_ARROW = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
#: What temporal values are in which the number of a logical type counts.
_COUNTED = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms"),
    "timestamp-micros": pa.timestamp("us"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_NOTHING = pa.scalar(b"", pa.binary())
_END = b"\x00"


def encode_records(
    field: pa.Field, values: Any, avro: AvroSchema, *, before: bytes, strict: bool, defaults: bool
) -> Any:
    """Each value as a record of the schema behind ``before``.

    ``strict``: fields that the schema does not have are an error, else they are left out;
    ``defaults``: nulls become the default of their own schema where it has one.

    Raises:
        RecordError: values are not of the schema.
    """
    writer = _Writer(avro, strict, defaults)
    body = writer.write(avro.root, field, values, None, field.name)
    return pc.binary_join_element_wise(pa.scalar(before), body, _NOTHING)


class _Writer:
    def __init__(self, avro: AvroSchema, strict: bool, defaults: bool) -> None:
        self._avro = avro
        self._strict = strict
        self._defaults = defaults

    def write(self, found: Any, field: pa.Field, values: Any, needed: Any, path: str) -> Any:
        """The bytes of values, none of them null; where ``needed`` is false they do not matter.

        ``needed`` None is true everywhere.
        """
        node = self._avro.resolved(found)
        kind = kind_of(node)
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        if self._defaults and values.null_count:
            values = _with_default(field, values)
        if kind == "union":
            return self._union(node, field, values, needed, path)
        if values.null_count:
            missing = values.is_null() if needed is None else pc.and_(values.is_null(), needed)
            if pc.any(missing).as_py():
                raise RecordError(f"{path} is null, and its schema in Avro has no null")
        if kind == "record":
            return self._record(node, field, values, needed, path)
        if kind in ("array", "map"):
            return self._items(node, kind, values, path)
        try:
            return _plain(node, kind, values)
        except (pa.ArrowException, ValueError, OverflowError) as error:
            told = str(error).splitlines()[0]
            raise RecordError(
                f"{path} of type {values.type} is no {kind} of Avro: {told}"
            ) from None

    def _union(self, nodes: list[Any], field: pa.Field, values: Any, needed: Any, path: str) -> Any:
        kinds = [kind_of(self._avro.resolved(each)) for each in nodes]
        others = [index for index, kind in enumerate(kinds) if kind != "null"]
        present = values.is_valid()
        wanted = present if needed is None else pc.and_(present, needed)
        if len(others) == 1:
            made = _joined(
                _branch(others[0]), self.write(nodes[others[0]], field, values, wanted, path)
            )
        else:
            made, present = self._choice(nodes, others, values, wanted, path)
        if pc.all(present).as_py():
            return made
        if "null" not in kinds:
            absent = pc.invert(present) if needed is None else pc.and_not(needed, present)
            if pc.any(absent).as_py():
                raise RecordError(f"{path} is null, and its schema in Avro has no null")
            return made
        return pc.if_else(present, made, pa.scalar(_branch(kinds.index("null"))))

    def _choice(
        self, nodes: list[Any], others: list[int], values: Any, wanted: Any, path: str
    ) -> tuple[Any, Any]:
        """Of several types: a struct with a field for each, of which one is not null."""
        if not pa.types.is_struct(values.type) or values.type.num_fields != len(others):
            raise RecordError(f"{path} of type {values.type} is no union of Avro")
        made: Any = pa.array([b""] * len(values), pa.binary())
        chosen: Any = pa.array([False] * len(values), pa.bool_())
        for place, index in enumerate(others):
            child, column = values.type.field(place), values.field(place)
            here = pc.and_(column.is_valid(), wanted)
            body = self.write(nodes[index], child, column, here, f"{path}.{child.name}")
            made = pc.if_else(here, _joined(_branch(index), body), made)
            chosen = pc.or_(chosen, here)
        return made, chosen

    def _record(self, node: Any, field: pa.Field, values: Any, needed: Any, path: str) -> Any:
        if not pa.types.is_struct(values.type):
            raise RecordError(f"{path} of type {values.type} is no record of Avro")
        kind = values.type
        names = {each["name"] for each in node["fields"]}
        further = [each.name for each in kind if each.name not in names]
        if further and self._strict:
            raise RecordError(
                f"{path} has the field {further[0]!r}, which the schema in the registry has not"
            )
        if values.null_count:
            needed = values.is_valid() if needed is None else pc.and_(values.is_valid(), needed)
        parts = []
        for each in node["fields"]:
            place = f"{path}.{each['name']}"
            index = kind.get_field_index(each["name"])
            if index >= 0:
                child = kind.field(index)
                parts.append(self.write(each["type"], child, values.field(index), needed, place))
            elif "default" in each:
                parts.append(pa.scalar(self._default(each, place)))
            else:
                raise RecordError(f"{place} is missing, and has no default in the registry")
        if not any(isinstance(each, pa.Array) for each in parts):
            parts.append(pa.array([b""] * len(values), pa.binary()))
        return pc.binary_join_element_wise(*parts, _NOTHING)

    def _default(self, each: dict[str, Any], path: str) -> bytes:
        """The bytes of a field's default."""
        schema = connect_schema(AvroSchema(each["type"], self._avro.named), each["default"])
        field = arrow_field(each["name"], schema)
        values = default_column(field, 1)
        if values is None:
            values = pa.nulls(1, field.type)
        made = self.write(each["type"], field, values, None, path)
        default: bytes = made[0].as_py()
        return default

    def _items(self, node: Any, kind: str, values: Any, path: str) -> Any:
        if pa.types.is_map(values.type):
            entries = self._entries(node, kind, values.drop_null(), path)
        elif kind == "array" and _is_list(values.type):
            child = values.type.value_field
            entries = self.write(node["items"], child, values.flatten(), None, f"{path}.item")
        else:
            raise RecordError(f"{path} of type {values.type} is no {kind} of Avro")
        lengths = np.diff(np.asarray(values.offsets, np.int64))
        if values.null_count:
            lengths[np.asarray(values.is_null())] = 0
        offsets = np.zeros(len(values) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), entries)
        joined = pc.binary_join(lists, _NOTHING)
        blocks = pc.binary_join_element_wise(varints(lengths), joined, pa.scalar(_END), _NOTHING)
        return pc.if_else(pa.array(lengths > 0), blocks, pa.scalar(_END))

    def _entries(self, node: Any, kind: str, values: Any, path: str) -> Any:
        start, end = (values.offsets[at].as_py() for at in (0, -1))
        keys, items = (each.slice(start, end - start) for each in (values.keys, values.items))
        if kind == "map":
            key_node, item_node = "string", node["values"]
        else:
            entry = self._avro.resolved(node["items"])
            if kind_of(entry) != "record" or len(entry["fields"]) != 2:
                raise RecordError(f"{path} of type {values.type} is no array in the registry")
            key_node, item_node = (each["type"] for each in entry["fields"])
        return pc.binary_join_element_wise(
            self.write(key_node, values.type.key_field, keys, None, f"{path}.key"),
            self.write(item_node, values.type.item_field, items, None, f"{path}.value"),
            _NOTHING,
        )


def _plain(node: Any, kind: str, values: Any) -> Any:
    logical = property_of(node, "logicalType")
    if pa.types.is_decimal(values.type):
        return _decimal(node, kind, values)
    if pa.types.is_temporal(values.type):
        if kind not in ("int", "long") or logical not in _COUNTED:
            raise ValueError("it has no such logical type")
        counted = _COUNTED[logical]
        if pa.types.is_timestamp(values.type):
            values = in_unit(values, counted.unit)
        else:
            values = values.cast(counted, safe=False)
        values = values.cast(pa.int32() if counted.bit_width == 32 else pa.int64())
    elif kind not in _kinds_of(values.type):
        raise ValueError("the types differ")
    if kind == "enum":
        return _symbols(node["symbols"], values)
    if kind == "fixed":
        values = values.cast(pa.binary()).fill_null(bytes(node["size"]))
        if pc.any(pc.not_equal(pc.binary_length(values), node["size"])).as_py():
            raise ValueError(f"it has not {node['size']} bytes")
        return values
    values = values.cast(_ARROW[kind])
    if kind in ("string", "bytes"):
        return _with_length(values.fill_null("" if kind == "string" else b"").cast(pa.binary()))
    numbers = np.asarray(values.fill_null(False if kind == "boolean" else 0))
    if kind in ("int", "long"):
        return varints(numbers)
    if kind == "boolean":
        return fixed_width(numbers.astype(np.uint8).reshape(-1, 1))
    width = 4 if kind == "float" else 8
    return fixed_width(numbers.astype(f"<f{width}").view(np.uint8).reshape(-1, width))


def _decimal(node: Any, kind: str, values: Any) -> Any:
    if kind not in ("bytes", "fixed") or property_of(node, "logicalType") != "decimal":
        raise ValueError("it has no such logical type")
    make, digits_max = (
        (pa.decimal128, DECIMAL128_DIGITS)
        if pa.types.is_decimal128(values.type)
        else (pa.decimal256, DECIMAL256_DIGITS)
    )
    exact = values.cast(make(min(node["precision"], digits_max), node.get("scale", 0)))
    if exact.null_count:
        exact = exact.fill_null(pa.scalar(decimal.Decimal(0), exact.type))
    digits = digits_of(exact)
    return padded(digits, node["size"]) if kind == "fixed" else _with_length(digits)


def _symbols(symbols: list[str], values: Any) -> Any:
    found = pc.index_in(values.cast(pa.string()), pa.array(symbols, pa.string()))
    unknown = values.filter(pc.and_(found.is_null(), values.is_valid()))
    if len(unknown):
        raise ValueError(f"{unknown[0].as_py()[:80]!r} is none of its symbols")
    return varints(found.fill_null(0))


def _kinds_of(kind: pa.DataType) -> tuple[str, ...]:
    """Avro's types that take all values of Arrow's."""
    if pa.types.is_boolean(kind):
        return ("boolean",)
    if pa.types.is_integer(kind):
        return ("int", "long", "float", "double")
    if pa.types.is_floating(kind):
        return ("double",) if kind.bit_width == 64 else ("float", "double")
    if is_text(kind) or pa.types.is_null(kind):
        return ("string", "enum")
    return ("bytes", "fixed")


def _with_length(values: Any) -> Any:
    lengths = varints(np.asarray(pc.binary_length(values)))
    return pc.binary_join_element_wise(lengths, values, _NOTHING)


def _with_default(field: pa.Field, values: Any) -> Any:
    default = default_column(field, 1)
    if default is None:
        return values
    # not if_else, which nested types do not have
    places = pa.array(np.where(np.asarray(values.is_null()), len(values), np.arange(len(values))))
    return pa.concat_arrays([values, default]).take(places)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _branch(index: int) -> bytes:
    """The number of a union's branch."""
    branch: bytes = varints(np.array([index]))[0].as_py()
    return branch


def _joined(before: bytes, values: Any) -> Any:
    return pc.binary_join_element_wise(pa.scalar(before), values, _NOTHING)
