"""Parses JSON in Kafka Connect's form into columns.

Arrow's JSON reader parses all texts of a schema at once. Where it fails, or might differ from Kafka
Connect, the texts are parsed one by one (``values``), with the same values or the error as result.
"""

import json
from collections.abc import Callable
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from drover.record import schema as schemas
from drover.record.arrow import (
    WHOLE_MAX,
    Array,
    Binaries,
    Mask,
    Texts,
    has_decimal,
    has_float,
    offsets_of,
    text_bytes,
)
from drover.record.decimals import of_base64
from drover.record.errors import RecordError, RowsError
from drover.record.json.values import (
    bytes_of,
    check_time,
    decimal_of,
    exact_json,
    reader_of,
)
from drover.record.schema import Schema, Type, arrow_type

#: Prefix of each line. It contains the newline that ends the previous line, so the column's bytes
#: are the reader's input without a copy. Each line starts with a brace and ends with one, so two
#: invalid lines cannot form a valid one.
LINE_START = '\n{"payload":'
_LEAST_BLOCK_BYTES = 1 << 20
_MAX_BLOCK_BYTES = (1 << 31) - 1


class NotFastError(Exception):
    """These texts must be parsed one by one."""


class NeverFastError(NotFastError):
    """All texts of this schema must be parsed one by one."""


def schemaless_texts(values: Binaries) -> Texts:
    """The texts of any JSON, unchanged; the text ``null`` and empty bytes become null.

    Raises:
        RecordError: a text is not JSON.
    """
    texts = utf8_texts(values)
    # orjson only validates: Arrow's reader is no faster, and accepts NaN, which is not JSON
    nulls = each_value(
        lambda text: text == "" or (text is not None and parsed_json(text) is None), texts
    )
    return pc.if_else(pa.array(nulls), None, texts) if any(nulls) else texts


def parse_payloads(values: Texts | Binaries, schema: Schema, *, replace_null: bool = True) -> Array:
    """JSON texts (or their bytes), none of them null, as a column of the schema.

    Raises:
        RecordError: a text is not JSON, or does not match the schema.
    """
    lines = pc.binary_join_element_wise(
        pa.scalar(LINE_START), utf8_texts(values), pa.scalar("}"), pa.scalar("")
    )
    return parse_lines(lines, schema, replace_null)


def each_value(read: Callable[[Any], Any], values: Array) -> list[Any]:
    """The results of ``read`` for every value.

    Raises:
        RowsError: ``read`` raised a RecordError; it has the errors of all such rows.
    """
    found: list[Any] = []
    errors: dict[int, RecordError] = {}
    for row, value in enumerate(values.to_pylist()):
        try:
            found.append(read(value))
        except RecordError as error:
            errors[row] = error
    if errors:
        raise RowsError(errors)
    return found


def parse_lines(lines: Texts, schema: Schema, replace_null: bool) -> Array:
    """The payloads of lines {"payload":…} that start with LINE_START, as a column of the schema.

    Raises:
        RecordError: a line is not JSON, or its payload does not match the schema.
    """
    if not len(lines):
        return pa.array([], arrow_type(schema))
    try:
        return parse_fast(lines, schema, replace_null)
    except NeverFastError:
        return parse_each(lines, schema, replace_null)
    except (NotFastError, RecordError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        # report lines that are not JSON first: the caller may parse the other lines at once
        each_value(_loader(schema), lines)
        return parse_each(lines, schema, replace_null)


def parse_each(lines: Texts, schema: Schema, replace_null: bool) -> Array:
    """The payloads, parsed line by line.

    Raises:
        RecordError: a line is not JSON, or its payload does not match the schema.
    """
    read = reader_of(schema, replace_null=replace_null)
    loads = _loader(schema)

    def payload_of(line: str) -> Any:
        found = loads(line)
        check_envelope(found, {"payload"})
        return read(found["payload"])

    return array_of(each_value(payload_of, lines), arrow_type(schema))


def check_envelope(found: Any, fields: set[str]) -> None:
    """Check that a parsed value is an object of exactly these fields.

    Raises:
        RecordError: it has other fields, or is not an object.
    """
    if not isinstance(found, dict) or set(found) != fields:
        raise RecordError(
            'with schemas.enable a value must be a JSON object with the fields "schema" and'
            ' "payload" and no others; for plain JSON set schemas.enable=false'
        )


def array_of(values: list[Any], kind: pa.DataType) -> Array:
    """The values of a reader, as a column.

    Raises:
        RecordError: a value does not fit into the type.
    """
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise RecordError(f"a value does not fit into {kind}: {error}") from None


def parse_fast(lines: Texts, schema: Schema, replace_null: bool) -> Array:
    """The payloads of all lines, parsed at once; the same values as ``parse_each``, or an error.

    Raises:
        NotFastError, pa.ArrowInvalid, pa.ArrowNotImplementedError: use ``parse_each`` instead.
        RecordError: bytes, a decimal or a time are invalid.
    """
    table = _read_lines(lines, pa.schema([("payload", _wire_type(schema))]))
    column = table.column("payload").combine_chunks()
    return _from_wire(column, schema, replace_null, None)


def _read_lines(lines: Texts, explicit: pa.Schema) -> pa.Table:
    """Parses the lines into one row each.

    Raises:
        pa.ArrowInvalid: the lines do not match this schema.
        NotFastError: the reader found more or fewer rows than lines.
    """
    longest = pc.max(pc.binary_length(lines)).as_py()
    table = pj.read_json(
        pa.BufferReader(pa.py_buffer(text_bytes(lines))),
        read_options=pj.ReadOptions(
            use_threads=False,
            block_size=min(max(_LEAST_BLOCK_BYTES, longest + 2), _MAX_BLOCK_BYTES),
        ),
        parse_options=pj.ParseOptions(explicit_schema=explicit, unexpected_field_behavior="error"),
    )
    if table.num_rows != len(lines):
        raise NotFastError
    return table


def _wire_type(schema: Schema) -> pa.DataType:
    """The type for Arrow's reader: numbers, texts, booleans, structs and lists of them."""
    match schema.type:
        case Type.STRUCT:
            return pa.struct([(each.name, _wire_type(each.schema)) for each in schema.fields])
        case Type.ARRAY:
            assert schema.value_schema is not None
            return pa.list_(_wire_type(schema.value_schema))
        case Type.MAP:
            raise NeverFastError
        case Type.BYTES:
            return pa.string()
    if schema.name in (schemas.DATE, schemas.TIME, schemas.TIMESTAMP):
        return pa.int64() if schema.type is Type.INT64 else pa.int32()
    return arrow_type(schema)


def _from_wire(column: Array, schema: Schema, replace_null: bool, parent: Mask | None) -> Array:
    """Converts from ``_wire_type``. ``parent``: rows with a non-null parent, None for all."""
    if column.null_count:
        column = _replaced(column, schema, replace_null, parent)
    kind = arrow_type(schema)
    match schema.type:
        case Type.STRUCT:
            return _struct_from_wire(column, schema, kind, replace_null)
        case Type.ARRAY:
            assert schema.value_schema is not None
            items = _from_wire(column.flatten(), schema.value_schema, replace_null, None)
            lengths = pc.fill_null(pc.list_value_length(column), 0)
            return pa.ListArray.from_arrays(
                offsets_of(lengths), items, type=kind, mask=_null_mask(column)
            )
        case Type.BYTES if schema.name == schemas.DECIMAL:
            decimals = of_base64(column, kind)
            if decimals is not None:
                return decimals
            return pa.array(
                [None if each is None else decimal_of(schema, each) for each in column.to_pylist()],
                kind,
            )
        case Type.BYTES:
            return pa.array(
                [None if each is None else bytes_of(each) for each in column.to_pylist()], kind
            )
        case Type.FLOAT32 | Type.FLOAT64:
            if not pc.all(pc.is_finite(column)).as_py() and len(column) > column.null_count:
                raise NotFastError  # the reader accepts unquoted NaN, which is not JSON
            is_double = schema.type is Type.FLOAT64
            if is_double and (pc.max(pc.abs(column)).as_py() or 0.0) >= WHOLE_MAX[column.type]:
                raise NotFastError  # the reader rounds whole numbers
    if schema.name == schemas.TIME and len(column) > column.null_count:
        bounds = pc.min_max(column)
        check_time(bounds["min"].as_py())
        check_time(bounds["max"].as_py())
    return column if column.type == kind else column.cast(kind)


def _struct_from_wire(
    column: Array, schema: Schema, kind: pa.DataType, replace_null: bool
) -> Array:
    parent = column.is_valid() if column.null_count else None
    children = [
        _from_wire(child, each.schema, replace_null, parent)
        for each, child in zip(schema.fields, column.flatten(), strict=True)
    ]
    if not children:
        raise NeverFastError  # from_arrays and cast lose the null mask
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=_null_mask(column))


def _null_mask(column: Array) -> Mask | None:
    return column.is_null() if column.null_count else None


def _replaced(column: Array, schema: Schema, replace_null: bool, parent: Mask | None) -> Array:
    if replace_null and schema.default is not None:
        if pa.types.is_nested(column.type):
            raise NotFastError
        default = json.loads(schema.default)
        if pa.types.is_floating(column.type):
            default = float(default)  # non-finite defaults are JSON strings
        return pc.fill_null(column, pa.scalar(default, column.type))
    if not schema.optional:
        absent = column.is_null() if parent is None else pc.and_(column.is_null(), parent)
        if pc.any(absent).as_py():
            raise NotFastError  # parsing row by row yields the message
    return column


def utf8_texts(values: Texts | Binaries) -> Texts:
    """Decodes bytes as UTF-8.

    Raises:
        RecordError: the bytes are not UTF-8.
    """
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(each_value(_text_of, values), pa.string())


def _text_of(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        raise RecordError("the bytes are no UTF-8, as JSON must be") from None


def _loader(schema: Schema) -> Callable[[str], Any]:
    kind = arrow_type(schema)  # the other parser rounds whole numbers of more than 64 bits
    return parsed_exactly if has_decimal(kind) or has_float(kind) else parsed_json


def parsed_json(text: str) -> Any:
    """Parsed JSON.

    Raises:
        RecordError: the text is not JSON.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise _no_json(text, error) from None


def parsed_exactly(text: str) -> Any:
    """Parsed JSON, with fractions as decimals.

    Raises:
        RecordError: the text is not JSON.
    """
    try:
        return exact_json(text)
    except ValueError as error:
        raise _no_json(text, error) from None


def _no_json(text: str, error: ValueError) -> RecordError:
    shown = text.removeprefix(LINE_START)
    shown = shown if len(shown) <= 80 else f"{shown[:80]}…"
    return RecordError(f"it cannot be read as JSON ({error}): {shown!r}")
