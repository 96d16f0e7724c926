"""Columns as JSON: texts of whole columns are joined by Arrow's kernels, whatever their nesting."""

import base64
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drover.record import schema as schemas
from drover.record.decimals import quoted_base64
from drover.record.errors import RecordError
from drover.record.json.values import decimal_text, exact_json, reader_of
from drover.record.schema import SCALE, Schema, Type, arrow_type

_TEMPORAL = {schemas.DATE: pa.int32(), schemas.TIME: pa.int32(), schemas.TIMESTAMP: pa.int64()}
_NULL = "null"
#: A number's text without anything that tells a fraction.
_WHOLE = r"^-?[0-9]+$"


def json_texts(
    values: Any,
    schema: Schema,
    *,
    numeric_decimals: bool = False,
    replace_null: bool = True,
    before: str = "",
    after: str = "",
) -> Any:
    """The JSON of every value, between ``before`` and ``after``; null is the schema's default, else
    ``null``.

    ``replace_null``: defaults stand for nulls; ``numeric_decimals``: decimals are numbers instead
    of base64.

    Raises:
        RecordError: a required value is null, and has no default.
    """
    writer = _Writer(numeric_decimals, replace_null)
    if schema.type is Type.STRUCT and schema.fields and not values.null_count:
        return writer.structs(values, schema, before, after)  # spares a copy of every text
    texts = writer.write(values, schema, None)
    if not (before or after):
        return texts
    return pc.binary_join_element_wise(pa.scalar(before), texts, pa.scalar(after), pa.scalar(""))


def default_text(schema: Schema, *, numeric_decimals: bool) -> str:
    """The default of a schema that has one, as JSON."""
    assert schema.default is not None
    if not (numeric_decimals and has_decimal(schema)):
        return schema.default
    value = pa.array([reader_of(schema)(exact_json(schema.default))], arrow_type(schema))
    return str(json_texts(value, schema, numeric_decimals=True)[0])


def has_decimal(schema: Schema) -> bool:
    """Whether there is a decimal in it."""
    parts = [*(each.schema for each in schema.fields), schema.key_schema, schema.value_schema]
    return (schema.name == schemas.DECIMAL and schema.type is Type.BYTES) or any(
        has_decimal(part) for part in parts if part is not None
    )


class _Writer:
    def __init__(self, numeric_decimals: bool, replace_null: bool) -> None:
        self._numeric = numeric_decimals
        self._replace_null = replace_null

    def write(self, values: Any, schema: Schema, parent: Any) -> Any:
        """``parent``: where the value that these are part of is not null; None for everywhere."""
        if not values.null_count:
            return self._texts(values, schema)
        missing = _NULL
        if self._replace_null and schema.default is not None:
            missing = default_text(schema, numeric_decimals=self._numeric)
        elif not schema.optional:
            absent = values.is_null() if parent is None else pc.and_(values.is_null(), parent)
            if pc.any(absent).as_py():
                raise RecordError(
                    f"null for a required value of type {schema.type}, which has no default"
                )
        return pc.fill_null(self._texts(values, schema), missing)

    def _texts(self, values: Any, schema: Schema) -> Any:
        match schema.type:
            case Type.STRUCT:
                return self.structs(values, schema)
            case Type.ARRAY:
                return self._arrays(values, schema)
            case Type.MAP:
                return self._maps(values, schema)
            case Type.STRING:
                return _quoted(values)
            case Type.BYTES if schema.name == schemas.DECIMAL:
                return self._decimals(values, schema)
            case Type.BYTES:
                return _base64(values)
            case Type.FLOAT32 | Type.FLOAT64:
                return _floats(values)
        temporal = _TEMPORAL.get(schema.name or "")
        if temporal is not None and not pa.types.is_integer(values.type):
            return _temporal(values, schema, temporal).cast(pa.string())
        if pa.types.is_uint64(values.type):
            values = values.cast(pa.int64())  # an error for what is larger
        return values.cast(pa.string())

    def structs(self, values: Any, schema: Schema, begin: str = "", end: str = "") -> Any:
        """Structs as objects, null for null."""
        parent = values.is_valid() if values.null_count else None
        if not schema.fields:
            empty = pa.repeat(pa.scalar("{}"), len(values))
            return empty if parent is None else pc.if_else(parent, empty, None)
        parts: list[Any] = []
        before, quote = begin + "{", ""
        # flatten: a child's nulls are the struct's, too, and its slice is
        for each, child in zip(schema.fields, values.flatten(), strict=True):
            # quotes beside texts are part of what is between them, which spares a copy of each
            quote = '"' if each.schema.type is Type.STRING and not child.null_count else ""
            try:
                text = _inner_text(child) if quote else self.write(child, each.schema, parent)
            except RecordError as error:
                raise RecordError(f"field {each.name}: {error}") from None
            parts += [pa.scalar(f"{before}{_json(each.name)}:{quote}"), text]
            before = f"{quote},"
        behind = pa.scalar(f"{quote}}}{end}")
        joined = pc.binary_join_element_wise(*parts, behind, pa.scalar(""))
        return joined if parent is None else pc.if_else(parent, joined, None)

    def _arrays(self, values: Any, schema: Schema) -> Any:
        assert schema.value_schema is not None
        if not pa.types.is_list(values.type):
            values = values.cast(pa.list_(values.type.value_type))
        items = self.write(values.flatten(), schema.value_schema, None)
        return _joined(values, items, "[", "]")

    def _maps(self, values: Any, schema: Schema) -> Any:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        entries = values.cast(pa.list_(pa.struct([values.type.key_field, values.type.item_field])))
        keys, items = entries.flatten().flatten()
        keys = self.write(keys, schema.key_schema, None)
        items = self.write(items, schema.value_schema, None)
        if schema.key_schema.type is Type.STRING:
            pairs = pc.binary_join_element_wise(keys, items, pa.scalar(":"))
            return _joined(entries, pairs, "{", "}")
        pairs = pc.binary_join_element_wise(
            pa.scalar("["), keys, pa.scalar(","), items, pa.scalar("]"), pa.scalar("")
        )
        return _joined(entries, pairs, "[", "]")

    def _decimals(self, values: Any, schema: Schema) -> Any:
        if self._numeric:
            return values.cast(pa.string())
        scale = int(schema.parameters[SCALE])
        texts = quoted_base64(values, scale)
        if texts is not None:
            return texts
        return pa.array(
            [
                None if each is None else f'"{decimal_text(_unscaled(each, scale))}"'
                for each in values.to_pylist()
            ],
            pa.string(),
        )


def _unscaled(value: Any, scale: int) -> int:
    sign, digits, exponent = value.as_tuple()
    magnitude: int = int("".join(map(str, digits))) * 10 ** (exponent + scale)
    return -magnitude if sign else magnitude


def _joined(lists: Any, texts: Any, begin: str, end: str) -> Any:
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    texts_of_rows = pa.ListArray.from_arrays(offsets_of(lengths), texts)
    joined = pc.binary_join(texts_of_rows, ",")
    framed = pc.binary_join_element_wise(pa.scalar(begin), joined, pa.scalar(end), pa.scalar(""))
    return pc.if_else(lists.is_valid(), framed, None) if lists.null_count else framed


def offsets_of(lengths: Any) -> Any:
    """Where lists of these lengths begin, and where the last one ends."""
    zero = pa.array([0], pa.int32())
    return pa.concat_arrays([zero, pc.cumulative_sum(lengths.cast(pa.int32()))])


def _quoted(values: Any) -> Any:
    quote = pa.scalar('"')
    return pc.binary_join_element_wise(quote, _inner_text(values), quote, pa.scalar(""))


def _inner_text(values: Any) -> Any:
    """What is between the quotes of texts."""
    values = values.cast(pa.string())
    special = _special_bytes(values)
    return _escaped(values, special) if special else values


def _special_bytes(values: Any) -> bytes:
    """The first of the bytes among those that JSON escapes; empty for none.

    It looks at all bytes of the column at once, which costs much less than a regular expression.
    """
    data = text_bytes(values)
    if not ((data < 0x20) | (data == 0x22) | (data == 0x5C)).any():
        return b""
    return b"\0" if (data < 0x20).any() else b'"'


def text_bytes(values: Any) -> Any:
    """The bytes of all texts one after the other, as a numpy array without copying."""
    _, offsets, data = values.buffers()
    if data is None:
        return np.empty(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    return np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]


def _escaped(values: Any, special: bytes) -> Any:
    if special == b"\0":
        return pa.array(
            [None if each is None else _json(each)[1:-1] for each in values.to_pylist()],
            pa.string(),
        )
    values = pc.replace_substring(values, "\\", "\\\\")
    return pc.replace_substring(values, '"', '\\"')


def _base64(values: Any) -> Any:
    encode = base64.b64encode
    return pa.array(
        [None if each is None else f'"{encode(each).decode()}"' for each in values.to_pylist()],
        pa.string(),
    )


def _floats(values: Any) -> Any:
    texts = values.cast(pa.string())
    whole = pc.match_substring_regex(texts, _WHOLE)
    if pc.any(whole).as_py():
        # a fraction tells readers without a schema that this is no integer
        texts = pc.if_else(
            whole, pc.binary_join_element_wise(texts, pa.scalar(".0"), pa.scalar("")), texts
        )
    if pc.any(pc.invert(pc.is_finite(values))).as_py():
        texts = pc.if_else(pc.is_nan(values), '"NaN"', texts)
        infinite = pc.if_else(pc.greater(values, 0), '"Infinity"', '"-Infinity"')
        texts = pc.if_else(pc.is_inf(values), infinite, texts)
    return texts


def _temporal(values: Any, schema: Schema, wire: pa.DataType) -> Any:
    """Days or milliseconds; what is finer than a millisecond is cut off."""
    kind = arrow_type(schema)
    if values.type != kind:
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.timestamp(values.type.unit, tz="UTC"), safe=False)
        values = values.cast(kind, safe=False)
    return values.cast(wire)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
