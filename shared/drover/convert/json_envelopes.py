"""Objects of a schema and a payload as columns, one column for each schema."""

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from drover.convert.converter import Decoded
from drover.record.arrow import Binaries, Mask, Rows, Texts, has_decimal
from drover.record.errors import RecordError, RowsError, rows_at
from drover.record.json.decode import (
    LINE_START,
    array_of,
    check_envelope,
    each_value,
    parse_lines,
    parse_payloads,
    parsed_exactly,
    parsed_json,
    utf8_texts,
)
from drover.record.json.schema_parser import parse_schema
from drover.record.json.schemaless import loads, value_text
from drover.record.json.values import Reader, reader_of
from drover.record.schema import Schema, arrow_field, arrow_type

_ENVELOPE = re.compile(r'\s*\{\s*"schema"\s*:\s*')
_PAYLOAD = re.compile(r'\s*,\s*"payload"\s*:')
_PARSER = json.JSONDecoder()
#: A batch with more forms of schemas than this is read row by row.
_MAX_PREFIXES = 32
_SCHEMALESS = arrow_field("value", None)


def decode_payloads(values: Binaries, schema: Schema, *, replace_null: bool) -> list[Decoded]:
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


def decode_envelopes(values: Binaries, *, replace_null: bool) -> list[Decoded]:
    """Objects of schema and payload; no bytes at all are a null without a schema.

    Raises:
        RecordError: a text is no JSON, no such object, or its payload is not of its schema.
    """
    tombstones = values.is_null()
    texts = utf8_texts(values).drop_null()
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


def _chosen(rows: Rows | None, mask: Mask, everything: bool) -> Rows | None:
    if everything:
        return rows
    return _rows(mask) if rows is None else rows.filter(mask)


def _rows(mask: Mask) -> Rows:
    return pc.indices_nonzero(mask).cast(pa.int64())


def _tombstones(mask: Mask) -> Iterator[Decoded]:
    rows = _rows(mask)
    if len(rows):
        yield Decoded(rows, _SCHEMALESS, pa.nulls(len(rows), pa.string()))


def _prefix(text: str) -> str | None:
    """The text before the payload; None where the payload does not follow the schema."""
    begin = _ENVELOPE.match(text)
    if begin is None:
        return None
    try:
        _, end = _PARSER.raw_decode(text, begin.end())
    except (ValueError, RecursionError):
        return None
    payload = _PAYLOAD.match(text, end)
    return None if payload is None else text[: payload.end()]


def _decode_prefixed(texts: Texts, prefix: str, rows: Rows | None, replace_null: bool) -> Decoded:
    begin = _ENVELOPE.match(prefix)
    assert begin is not None
    _, end = _PARSER.raw_decode(prefix, begin.end())
    try:
        schema = parse_schema(prefix[begin.end() : end])
    except RecordError as error:
        raise RowsError(dict.fromkeys(range(len(texts)), error)) from None
    # one kernel instead of two: LINE_START in place of the prefix
    lines = pc.binary_replace_slice(
        texts.cast(pa.binary()),
        start=0,
        stop=len(prefix.encode()),
        replacement=LINE_START.encode(),
    ).cast(pa.string())
    if schema is None:
        return Decoded(rows, _SCHEMALESS, pa.array(each_value(_payload_text, lines), pa.string()))
    return Decoded(rows, arrow_field("value", schema), parse_lines(lines, schema, replace_null))


def _payload_text(line: str) -> str | None:
    # as it was written: reading and writing it would change numbers
    text = line[len(LINE_START) : -1].strip()
    return None if parsed_json(text) is None else text


def _decode_each(texts: Texts, rows: Rows | None, replace_null: bool) -> Iterator[Decoded]:
    """Row by row: another order of fields, or very many schemas."""
    read = each_value(lambda text: _read_envelope(text, replace_null), texts)
    groups: dict[str, list[int]] = {}
    for index, (said, _) in enumerate(read):
        groups.setdefault(said, []).append(index)
    for said, indices in groups.items():
        schema = parse_schema(said)
        kind = pa.string() if schema is None else arrow_type(schema)
        column = array_of([read[index][1] for index in indices], kind)
        own = pa.array(indices, pa.int64())
        yield Decoded(own if rows is None else rows.take(own), arrow_field("value", schema), column)


def _read_envelope(text: str, replace_null: bool) -> tuple[str, Any]:
    """The schema's text, and the payload as pyarrow takes it."""
    found = parsed_json(text)
    check_envelope(found, {"schema", "payload"})
    said = orjson.dumps(found["schema"]).decode()
    schema = parse_schema(said)
    if schema is None:
        payload = loads(text)["payload"]  # unlike orjson it keeps all digits of numbers
        return said, None if payload is None else value_text(payload)
    read, is_exact = _reader(said, replace_null)
    if is_exact:
        found = parsed_exactly(text)
    return said, read(found["payload"])


@lru_cache(maxsize=100)
def _reader(text: str, replace_null: bool) -> tuple[Reader, bool]:
    """What reads payloads of the schema, and whether they have to be parsed exactly."""
    schema = parse_schema(text)
    assert schema is not None
    return reader_of(schema, replace_null=replace_null), has_decimal(arrow_type(schema))
