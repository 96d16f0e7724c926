"""Writes columns as JSON: Arrow's kernels join the texts of whole columns, at any nesting."""

import base64
import json

import pyarrow as pa
import pyarrow.compute as pc

from drover.record.arrow import (
    Array,
    Mask,
    Texts,
    are_equal,
    has_decimal,
    in_unit,
    is_binary,
    is_list,
    is_text,
    offsets_of,
    text_bytes,
)
from drover.record.decimals import decimal_base64, quoted_base64, unscaled
from drover.record.errors import RecordError
from drover.record.json.form import PLAIN, Decimals, JsonForm
from drover.record.json.schemaless import plain_texts, value_text
from drover.record.json.values import default_column
from drover.record.schema import SCALE, Schema, arrow_type, default_of, is_schemaless, schema_of
from drover.record.semantic_types import as_counted, counted_type, variable_decimals

_NULL = "null"
# pa.scalar would import pandas into each process that validates configs
_NO_TEXT = pa.nulls(1, pa.string())[0]
#: How Arrow writes dates, times and timestamps that ISO 8601 has no text for.
_OUT_OF_RANGE = "<value"
#: The text of a number without a fraction.
_WHOLE = r"^-?[0-9]+$"


def json_texts(field: pa.Field, values: Array, form: JsonForm = PLAIN) -> Texts:
    """The JSON of every value, null for null; ``field`` carries the schema.

    Nulls within values are ``null``, even where the schema requires a value. Schemaless texts
    remain unchanged, except values for which JSON has no type (see ``schemaless``).
    """
    if is_schemaless(field):
        return plain_texts(values, form)
    field, values = _decoded(field, values)
    texts = _Writer(form, defaults=False, checked=False).texts(field, values)
    return texts if not values.null_count else pc.if_else(values.is_valid(), texts, _NO_TEXT)


def checked_texts(
    field: pa.Field, values: Array, form: JsonForm, *, defaults: bool = True
) -> Texts:
    """The JSON of every value of the schema that ``field`` carries; null is ``null``.

    ``defaults``: the schema's default, if any, replaces null.

    Raises:
        RecordError: a required value is null, and no default replaces it.
    """
    return _Writer(form, defaults=defaults, checked=True).write(field, values, None)


def default_text(field: pa.Field, form: JsonForm) -> str:
    """The default of ``field``'s schema, in a form of Kafka Connect's. The schema must have one."""
    default = default_of(field)
    assert default is not None
    if form.decimals is Decimals.BASE64 or not has_decimal(field.type):
        return default
    text: str = json_texts(field, default_column(field, 1), form)[0].as_py()
    return text


def iso_texts(times: Array) -> Texts:
    """Dates, times and timestamps in ISO 8601, without quotes."""
    if pa.types.is_timestamp(times.type) and times.type.tz is not None:
        # converts to UTC without the machine's time zone database
        unit = times.type.unit
        texts = times.cast(pa.int64()).cast(pa.timestamp(unit)).cast(pa.string())
        texts = pc.binary_join_element_wise(texts, "Z", "")
    else:
        texts = times.cast(pa.string())
    return pc.replace_substring(texts, " ", "T", max_replacements=1)


def base64_texts(values: Array) -> Texts:
    """Bytes as base64, without quotes."""
    encode = base64.b64encode
    return pa.array(
        [None if each is None else encode(each).decode() for each in values.to_pylist()],
        pa.string(),
    )


class _Writer:
    """Writes values as JSON. ``checked``: values that the schema does not allow are errors."""

    def __init__(self, form: JsonForm, *, defaults: bool, checked: bool) -> None:
        self._form = form
        self._defaults = defaults
        self._checked = checked

    def write(self, field: pa.Field, values: Array, parent: Mask | None) -> Texts:
        """JSON of values or defaults. ``parent``: rows with a non-null parent, None for all."""
        field, values = _decoded(field, values)
        if not values.null_count:
            return self.texts(field, values)
        missing = self._missing(field, values, parent)
        return pc.fill_null(self.texts(field, values), missing)

    def _missing(self, field: pa.Field, values: Array, parent: Mask | None) -> str:
        """The JSON of the column's nulls."""
        if self._defaults and default_of(field) is not None:
            return default_text(field, self._form)
        if self._checked and not field.nullable:
            absent = values.is_null() if parent is None else pc.and_(values.is_null(), parent)
            if pc.any(absent).as_py():
                kind = _schema_of(field).type
                raise RecordError(f"null for a required value of type {kind}, which has no default")
        return _NULL

    def texts(self, field: pa.Field, values: Array) -> Texts:
        """The JSON of values; the text of a null value is arbitrary."""
        if self._form.semantic_types:
            meant = self._semantic_texts(field, values)
            if meant is not None:
                return meant
        kind, types = values.type, pa.types
        if types.is_struct(kind):
            return self._structs(field, values)
        if is_text(kind):
            return _quoted(values)
        if types.is_decimal(kind):
            return self._decimals(field, values)
        if types.is_floating(kind):
            return self._floats(values)
        if types.is_temporal(kind):
            return self._times(field, values)
        if is_binary(kind):
            begin, end = ('{"bytes":"', '"}') if self._form.bytes_are_labelled else ('"', '"')
            return _framed(begin, base64_texts(values), end)
        if types.is_map(kind):
            return self._maps(field, values)
        if is_list(kind):
            return self._arrays(field, values)
        if self._checked and types.is_uint64(kind):
            values = values.cast(pa.int64())  # raises for values beyond int64
        return values.cast(pa.string())

    def _structs(self, field: pa.Field, values: Array) -> Texts:
        """Structs as JSON objects, null for null."""
        parent = values.is_valid() if values.null_count else None
        joined = _joined_parts(self._members(field, values, parent), len(values))
        return joined if parent is None else pc.if_else(parent, joined, _NO_TEXT)

    def _members(self, field: pa.Field, values: Array, parent: Mask | None) -> list[Texts | str]:
        """The parts of objects, in order."""
        parts: list[Texts | str] = ["{"]
        # flatten() applies the struct's nulls and its slice to the children
        for each, child in map(_decoded, field.type, values.flatten()):
            parts.append(f"{_json(each.name)}:" if len(parts) == 1 else f",{_json(each.name)}:")
            try:
                parts += self._parts(each, child, parent)
            except RecordError as error:
                raise RecordError(f"field {each.name}: {error}") from None
        return [*parts, "}"]

    def _parts(self, field: pa.Field, values: Array, parent: Mask | None) -> list[Texts | str]:
        """The JSON of a member as parts to join: texts of each row, and texts of all rows.

        Joining the parts of nested objects once saves a copy of each text, and so do the quotes
        around texts.
        """
        if values.null_count:
            if values.null_count == len(values):
                return [self._missing(field, values, parent)]
            return [self.write(field, values, parent)]
        if are_equal(values):
            return [self.texts(field, values.slice(0, 1))[0].as_py()]
        if is_text(values.type):
            return ['"', _inner_text(values), '"']
        if pa.types.is_struct(values.type) and not self._form.semantic_types:
            return self._members(field, values, None)
        return [self.texts(field, values)]

    def _arrays(self, field: pa.Field, values: Array) -> Texts:
        if not pa.types.is_list(values.type):
            values = values.cast(pa.list_(values.type.value_type))
        items = self.write(field.type.value_field, values.flatten(), None)
        return _joined(values, items, "[", "]")

    def _maps(self, field: pa.Field, values: Array) -> Texts:
        entries = values.cast(pa.list_(pa.struct([values.type.key_field, values.type.item_field])))
        keys, items = entries.flatten().flatten()
        key_field, keys = _decoded(field.type.key_field, keys)
        key_texts = self.write(key_field, keys, None)
        item_texts = self.write(field.type.item_field, items, None)
        if is_text(keys.type) or self._form.maps_are_objects:
            names = key_texts if is_text(keys.type) else _as_texts(key_texts)
            pairs = pc.binary_join_element_wise(names, item_texts, pa.scalar(":"))
            return _joined(entries, pairs, "{", "}")
        pairs = pc.binary_join_element_wise(
            pa.scalar("["), key_texts, pa.scalar(","), item_texts, pa.scalar("]"), pa.scalar("")
        )
        return _joined(entries, pairs, "[", "]")

    def _decimals(self, field: pa.Field, values: Array) -> Texts:
        if self._form.decimals is Decimals.NUMBER:
            return values.cast(pa.string())
        if self._form.decimals is Decimals.TEXT:
            return _framed('"', values.cast(pa.string()), '"')
        scale = int(_schema_of(field).parameters[SCALE])
        texts = quoted_base64(values, scale)
        if texts is not None:
            return texts
        return pa.array(
            [
                None if each is None else f'"{decimal_base64(unscaled(each, scale))}"'
                for each in values.to_pylist()
            ],
            pa.string(),
        )

    def _floats(self, values: Array) -> Texts:
        finite = pc.is_finite(values)
        all_finite = pc.all(finite).as_py() is not False
        if not all_finite and self._form.non_finite_is_null:
            values = pc.if_else(finite, values, pa.scalar(None, values.type))
        texts = values.cast(pa.string())
        whole = pc.match_substring_regex(texts, _WHOLE)
        if pc.any(whole).as_py():
            # without a fraction, readers without a schema would parse an integer
            texts = pc.if_else(whole, _framed("", texts, ".0"), texts)
        if self._form.non_finite_is_null:
            return texts if all_finite else texts.fill_null(_NULL)
        if not all_finite:
            texts = pc.if_else(pc.is_nan(values), '"NaN"', texts)
            infinite = pc.if_else(pc.greater(values, 0), '"Infinity"', '"-Infinity"')
            texts = pc.if_else(pc.is_inf(values), infinite, texts)
        return texts

    def _semantic_texts(self, field: pa.Field, values: Array) -> Texts | None:
        """The JSON of values of a semantic type; None for a field of another type."""
        kind = counted_type(field)
        if kind is not None:
            return self._times(field, as_counted(values, kind))
        numbers = variable_decimals(field, values)
        if numbers is None:
            return None
        return pa.array(
            [None if each is None else value_text(each, self._form) for each in numbers],
            pa.string(),
        )

    def _times(self, field: pa.Field, values: Array) -> Texts:
        if self._form.iso_times:
            texts = iso_texts(values)
            unnamed = pc.starts_with(texts, _OUT_OF_RANGE)
            texts = _framed('"', texts, '"')
            if not pc.any(unnamed).as_py():
                return texts
            number = pa.int32() if values.type.bit_width == 32 else pa.int64()
            return pc.if_else(unnamed, values.cast(number).cast(pa.string()), texts)
        return _counted(field, values).cast(pa.string())


def _schema_of(field: pa.Field) -> Schema:
    schema = schema_of(field)
    assert schema is not None
    return schema


def _decoded(field: pa.Field, values: Array) -> tuple[pa.Field, Array]:
    """The values of a dictionary-encoded column, without the encoding."""
    if not pa.types.is_dictionary(values.type):
        return field, values
    return field.with_type(values.type.value_type), values.dictionary_decode()


def _counted(field: pa.Field, values: Array) -> Array:
    """Days, or milliseconds truncated from finer units."""
    kind = arrow_type(_schema_of(field))
    if values.type != kind:
        if pa.types.is_timestamp(values.type):
            values = in_unit(values, kind.unit)
        values = values.cast(kind, safe=False)
    return values.cast(pa.int64() if pa.types.is_timestamp(kind) else pa.int32())


def _joined(lists: Array, texts: Texts, begin: str, end: str) -> Texts:
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    texts_of_rows = pa.ListArray.from_arrays(offsets_of(lengths), texts)
    framed = _framed(begin, pc.binary_join(texts_of_rows, ","), end)
    return pc.if_else(lists.is_valid(), framed, _NO_TEXT) if lists.null_count else framed


def _joined_parts(parts: list[Texts | str], count: int) -> Texts:
    """The parts of each of ``count`` rows as one text; adjacent texts of all rows are one part."""
    merged: list[Texts | str] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    if len(merged) == 1 and isinstance(merged[0], str):
        return pa.repeat(pa.scalar(merged[0]), count)
    scalars = [pa.scalar(each) if isinstance(each, str) else each for each in merged]
    return pc.binary_join_element_wise(*scalars, pa.scalar(""))


def _framed(begin: str, texts: Texts, end: str) -> Texts:
    return pc.binary_join_element_wise(pa.scalar(begin), texts, pa.scalar(end), pa.scalar(""))


def _as_texts(texts: Texts) -> Texts:
    """The JSON of keys as field names of an object: quotes keys that are not strings."""
    is_quoted = pc.starts_with(texts, '"')
    return pc.if_else(is_quoted, texts, _quoted(texts))


def _quoted(values: Array) -> Texts:
    return _framed('"', _inner_text(values), '"')


def _inner_text(values: Array) -> Texts:
    """The escaped texts, without quotes."""
    texts = values.cast(pa.string())
    special = _special_bytes(texts)
    return _escaped(texts, special) if special else texts


def _special_bytes(texts: Texts) -> bytes:
    """The escaping that the texts need: a null byte if they have control characters, else a quote
    if they have quotes or backslashes, else empty.

    It checks all bytes of the column at once, which is much cheaper than a regular expression.
    """
    data = text_bytes(texts)
    if not ((data < 0x20) | (data == 0x22) | (data == 0x5C)).any():
        return b""
    return b"\0" if (data < 0x20).any() else b'"'


def _escaped(texts: Texts, special: bytes) -> Texts:
    if special == b"\0":
        return pa.array(
            [None if each is None else _json(each)[1:-1] for each in texts.to_pylist()],
            pa.string(),
        )
    texts = pc.replace_substring(texts, "\\", "\\\\")
    return pc.replace_substring(texts, '"', '\\"')


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
