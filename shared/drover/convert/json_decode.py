"""JSON as columns.

Texts of one schema are read by Arrow's JSON reader at once. It takes only what Kafka Connect takes,
so where it fails, or could read something else, the texts are read one by one (``json_values``):
they give the same values or the error.
"""

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from drover.convert.converter import Decoded
from drover.record import schema as schemas
from drover.record.decimals import of_base64
from drover.record.errors import RecordError, RowsError, rows_at
from drover.record.json.encode import has_decimal, offsets_of, text_bytes
from drover.record.json.schema_parser import parse_schema
from drover.record.json.values import (
    Reader,
    bytes_of,
    check_time,
    decimal_of,
    exact_json,
    reader_of,
)  # fmt: skip
from drover.record.schema import Schema, Type, arrow_field, arrow_type

_ENVELOPE = re.compile(r'\s*\{\s*"schema"\s*:\s*')
_PAYLOAD = re.compile(r'\s*,\s*"payload"\s*:')
_PARSER = json.JSONDecoder()
#: What each line begins with. The end of the line before is part of it, so that the column's bytes
#: are what the reader reads; and as each line begins with a brace and ends with one, no two broken
#: lines make a whole one together.
_LINE = '\n{"payload":'
#: A batch with more forms of schemas than this is read row by row.
_MAX_PREFIXES = 32
_LEAST_BLOCK_BYTES = 1 << 20
_MAX_BLOCK_BYTES = (1 << 31) - 1
_SCHEMALESS = arrow_field("value", None)


class NotFastError(Exception):
    """Texts have to be read one by one."""


class NeverFastError(NotFastError):
    """Those of this schema always have to."""


def decode_schemaless(values: Any) -> list[Decoded]:
    """Any JSON, as texts that stay as they are; ``null`` and no bytes at all are null.

    Raises:
        RecordError: a text is no JSON.
    """
    texts = _utf8(values)
    # orjson only checks: Arrow's reader would not be faster, and takes what is no JSON (NaN)
    nulls = _each(lambda text: text == "" or (text is not None and _loads(text) is None), texts)
    if any(nulls):
        texts = pc.if_else(pa.array(nulls), None, texts)
    return [Decoded(None, _SCHEMALESS, texts)]


def decode_payloads(values: Any, schema: Schema, *, replace_null: bool) -> list[Decoded]:
    """JSON without an envelope, whose schema is known; null (no bytes) stays null.

    Raises:
        RecordError: a text is no JSON, or not of the schema.
    """
    tombstones = values.is_null()
    rows = _rows(pc.invert(tombstones)) if values.null_count else None
    with rows_at(rows):
        column = parse_payloads(values.drop_null(), schema, replace_null=replace_null)
    found = [Decoded(rows, arrow_field("value", schema), column)] if len(column) else []
    return [*found, *_tombstones(tombstones)]


def parse_payloads(values: Any, schema: Schema, *, replace_null: bool = True) -> Any:
    """JSON texts (or their bytes), none of them null, as a column of the schema.

    Raises:
        RecordError: a text is no JSON, or not of the schema.
    """
    lines = pc.binary_join_element_wise(
        pa.scalar(_LINE), _utf8(values), pa.scalar("}"), pa.scalar("")
    )
    return _parse_lines(lines, schema, replace_null)


def decode_envelopes(values: Any, *, replace_null: bool) -> list[Decoded]:
    """Objects of schema and payload; no bytes at all are a null without a schema.

    Raises:
        RecordError: a text is no JSON, no such object, or its payload is not of its schema.
    """
    tombstones = values.is_null()
    texts = _utf8(values).drop_null()
    rows = _rows(pc.invert(tombstones)) if values.null_count else None
    found: list[Decoded] = []
    for _ in range(_MAX_PREFIXES):
        prefix = _prefix(texts[0].as_py()) if len(texts) else None
        if prefix is None:
            break
        same = pc.and_(pc.starts_with(texts, prefix), pc.ends_with(texts, "}"))
        if not same[0].as_py():
            break
        all_same = pc.all(same).as_py()
        chosen = texts if all_same else texts.filter(same)
        chosen_rows = _chosen(rows, same, all_same)
        with rows_at(chosen_rows):
            found.append(_decode_prefixed(chosen, prefix, chosen_rows, replace_null))
        if all_same:
            texts = texts.slice(0, 0)
            break
        rest = pc.invert(same)
        texts, rows = texts.filter(rest), _chosen(rows, rest, False)
    if len(texts):
        with rows_at(rows):
            found += _decode_each(texts, rows, replace_null)
    return [*found, *_tombstones(tombstones)]


def _each(read: Callable[[Any], Any], values: Any) -> list[Any]:
    """What ``read`` makes of every value.

    Raises:
        RowsError: of every value for which it raised a RecordError.
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


def _chosen(rows: Any, mask: Any, everything: bool) -> Any:
    if everything:
        return rows
    return _rows(mask) if rows is None else rows.filter(mask)


def _rows(mask: Any) -> Any:
    return pc.indices_nonzero(mask).cast(pa.int64())


def _tombstones(mask: Any) -> Iterator[Decoded]:
    rows = _rows(mask)
    if len(rows):
        yield Decoded(rows, _SCHEMALESS, pa.nulls(len(rows), pa.string()))


def _prefix(text: str) -> str | None:
    """What stands before the payload, where schema and payload come in this order."""
    begin = _ENVELOPE.match(text)
    if begin is None:
        return None
    try:
        _, end = _PARSER.raw_decode(text, begin.end())
    except (ValueError, RecursionError):
        return None
    payload = _PAYLOAD.match(text, end)
    return None if payload is None else text[: payload.end()]


def _decode_prefixed(texts: Any, prefix: str, rows: Any, replace_null: bool) -> Decoded:
    begin = _ENVELOPE.match(prefix)
    assert begin is not None
    _, end = _PARSER.raw_decode(prefix, begin.end())
    try:
        schema = parse_schema(prefix[begin.end() : end])
    except RecordError as error:
        raise RowsError(dict.fromkeys(range(len(texts)), error)) from None
    # one kernel instead of two: the payload's text with what makes it an object of its own
    lines = pc.binary_replace_slice(
        texts.cast(pa.binary()),
        start=0,
        stop=len(prefix.encode()),
        replacement=_LINE.encode(),
    ).cast(pa.string())
    if schema is None:
        return Decoded(rows, _SCHEMALESS, pa.array(_each(_payload_text, lines), pa.string()))
    return Decoded(rows, arrow_field("value", schema), _parse_lines(lines, schema, replace_null))


def _payload_text(line: str) -> str | None:
    # as it was written: reading and writing it would change numbers
    text = line[len(_LINE) : -1].strip()
    return None if _loads(text) is None else text


def _check_envelope(found: Any, fields: set[str]) -> None:
    if not isinstance(found, dict) or set(found) != fields:
        raise RecordError(
            'with schemas.enable a value must be a JSON object with the fields "schema" and'
            ' "payload" and no others; for plain JSON set schemas.enable=false'
        )


def _decode_each(texts: Any, rows: Any, replace_null: bool) -> Iterator[Decoded]:
    """Row by row: another order of fields, or very many schemas."""
    read = _each(lambda text: _read_envelope(text, replace_null), texts)
    groups: dict[str, list[int]] = {}
    for index, (said, _) in enumerate(read):
        groups.setdefault(said, []).append(index)
    for said, indices in groups.items():
        schema = parse_schema(said)
        kind = pa.string() if schema is None else arrow_type(schema)
        column = _array([read[index][1] for index in indices], kind)
        own = pa.array(indices, pa.int64())
        yield Decoded(own if rows is None else rows.take(own), arrow_field("value", schema), column)


def _read_envelope(text: str, replace_null: bool) -> tuple[str, Any]:
    """The schema's text, and the payload as pyarrow takes it."""
    found = _loads(text)
    _check_envelope(found, {"schema", "payload"})
    said = orjson.dumps(found["schema"]).decode()
    schema = parse_schema(said)
    if schema is None:
        payload = json.loads(text)["payload"]  # unlike orjson it keeps large integers
        return said, None if payload is None else _compact(payload)
    if has_decimal(schema):
        found = _loads_exact(text)
    return said, _reader(said, replace_null)(found["payload"])


@lru_cache(maxsize=100)
def _reader(text: str, replace_null: bool) -> Reader:
    schema = parse_schema(text)
    assert schema is not None
    return reader_of(schema, replace_null=replace_null)


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _parse_lines(lines: Any, schema: Schema, replace_null: bool) -> Any:
    """The payloads of lines of the form {"payload":…}, as a column of the schema."""
    if not len(lines):
        return pa.array([], arrow_type(schema))
    try:
        return parse_fast(lines, schema, replace_null)
    except NeverFastError:
        return parse_each(lines, schema, replace_null)
    except (NotFastError, RecordError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        # without lines that are no JSON at all the others may be read at once
        _each(_loader(schema), lines)
        return parse_each(lines, schema, replace_null)


def parse_each(lines: Any, schema: Schema, replace_null: bool) -> Any:
    """The payloads, line by line.

    Raises:
        RecordError: a line is no JSON, or its payload is not of the schema.
    """
    read = reader_of(schema, replace_null=replace_null)
    loads = _loader(schema)

    def payload_of(line: str) -> Any:
        found = loads(line)
        _check_envelope(found, {"payload"})
        return read(found["payload"])

    return _array(_each(payload_of, lines), arrow_type(schema))


def _array(values: list[Any], kind: pa.DataType) -> Any:
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise RecordError(f"a value does not fit into {kind}: {error}") from None


def parse_fast(lines: Any, schema: Schema, replace_null: bool) -> Any:
    """The payloads of all lines at once; equal to ``parse_each``, or an error.

    Raises:
        NotFastError, pa.ArrowInvalid, pa.ArrowNotImplementedError: they have to be read one by one.
        RecordError: bytes or a decimal are none.
    """
    table = _read_lines(lines, pa.schema([("payload", _wire_type(schema))]))
    column = table.column("payload").combine_chunks()
    return _from_wire(column, schema, replace_null, None)


def _read_lines(lines: Any, explicit: pa.Schema) -> Any:
    """The lines, one row for each.

    Raises:
        pa.ArrowInvalid: they are not of this schema.
        NotFastError: a line is not one row.
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
    """What the reader is asked for: numbers, texts, booleans, structs and lists of them."""
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


def _from_wire(column: Any, schema: Schema, replace_null: bool, parent: Any) -> Any:
    """``parent``: where the value that this is part of is not null; None for everywhere."""
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
                raise NotFastError  # the reader takes NaN without quotes, which is no JSON
    if schema.name == schemas.TIME and len(column) > column.null_count:
        bounds = pc.min_max(column)
        check_time(bounds["min"].as_py())
        check_time(bounds["max"].as_py())
    return column if column.type == kind else column.cast(kind)


def _struct_from_wire(column: Any, schema: Schema, kind: pa.DataType, replace_null: bool) -> Any:
    parent = column.is_valid() if column.null_count else None
    children = [
        _from_wire(child, each.schema, replace_null, parent)
        for each, child in zip(schema.fields, column.flatten(), strict=True)
    ]
    if not children:
        raise NeverFastError  # from_arrays and cast lose which of them are null
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=_null_mask(column))


def _null_mask(column: Any) -> Any:
    return column.is_null() if column.null_count else None


def _replaced(column: Any, schema: Schema, replace_null: bool, parent: Any) -> Any:
    if replace_null and schema.default is not None:
        if pa.types.is_nested(column.type):
            raise NotFastError
        default = json.loads(schema.default)
        if pa.types.is_floating(column.type):
            default = float(default)  # "NaN" is text
        return pc.fill_null(column, pa.scalar(default, column.type))
    if not schema.optional:
        absent = column.is_null() if parent is None else pc.and_(column.is_null(), parent)
        if pc.any(absent).as_py():
            raise NotFastError  # row by row gives the message
    return column


def _utf8(values: Any) -> Any:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(_each(_text_of, values), pa.string())


def _text_of(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        raise RecordError("the bytes are no UTF-8, as JSON must be") from None


def _loader(schema: Schema) -> Callable[[str], Any]:
    return _loads_exact if has_decimal(schema) else _loads


def _loads(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise _no_json(text, error) from None


def _loads_exact(text: str) -> Any:
    try:
        return exact_json(text)
    except ValueError as error:
        raise _no_json(text, error) from None


def _no_json(text: str, error: ValueError) -> RecordError:
    shown = text.removeprefix(_LINE)
    shown = shown if len(shown) <= 80 else f"{shown[:80]}…"
    return RecordError(f"it cannot be read as JSON ({error}): {shown!r}")
