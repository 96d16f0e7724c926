"""Converts the headers of whole batches between raw bytes and typed values.

A header stays raw (type null) until a step reads it, so most headers are never converted.
"""

from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from drover.convert.converter import Converter
from drover.record.arrow import Array, Binaries, Headers, Rows, Texts, offsets_of
from drover.record.batch import HEADERS_TYPE
from drover.record.errors import RecordError
from drover.record.json.decode import parse_payloads, schemaless_texts
from drover.record.json.encode import json_texts
from drover.record.json.form import CONNECT
from drover.record.json.schema_parser import parse_schema
from drover.record.json.schema_writer import schema_text
from drover.record.schema import arrow_field, is_schemaless, schema_of

_ENTRY_FIELDS = list(HEADERS_TYPE.value_type)
_Made = TypeVar("_Made")


def typed_headers(headers: Headers, converter: Converter) -> Headers:
    """The headers with a type each: raw ones are read by the converter.

    Raises:
        RecordError: a header cannot be read; the message names its key.
    """
    keys, values, types = _entries(headers)
    raw = pc.indices_nonzero(types.is_null())
    if not len(raw):
        return headers
    decoded = _named(keys, raw, lambda: converter.decode(values.take(raw), None))
    parts, said = [], []
    for each in decoded:
        is_text = is_schemaless(each.field)
        texts = each.values if is_text else json_texts(each.field, each.values, CONNECT)
        rows = raw if each.rows is None else raw.take(each.rows)
        parts.append((rows, texts.cast(pa.binary())))
        said.append(pa.repeat(pa.scalar(schema_text(schema_of(each.field))), len(texts)))
    changed = pa.concat_arrays([rows for rows, _ in parts])
    values = _replaced(values, changed, pa.concat_arrays([texts for _, texts in parts]))
    types = _replaced(types, changed, pa.concat_arrays(said))
    return _headers(headers, keys, values, types)


def raw_headers(headers: Headers, converter: Converter) -> Headers:
    """Encode the typed headers with the converter; raw ones are not changed.

    Raises:
        RecordError: A header cannot be encoded; the message names its key.
    """
    keys, values, types = _entries(headers)
    if types.null_count == len(types):
        return headers
    rows, texts = [], []
    for said in pc.unique(types).drop_null().to_pylist():
        chosen = pc.indices_nonzero(pc.fill_null(pc.equal(types, said), False))
        found = values.take(chosen)
        rows.append(chosen)
        texts.append(_named(keys, chosen, lambda: _written(said, found, converter)))  # noqa: B023
    values = _replaced(values, pa.concat_arrays(rows), pa.concat_arrays(texts))
    return _headers(headers, keys, values, pa.nulls(len(keys), pa.string()))


def _written(said: str, values: Binaries, converter: Converter) -> Binaries:
    schema = parse_schema(said)
    field = arrow_field("value", schema)
    if schema is None:
        return converter.encode(field, schemaless_texts(values), None)
    present = parse_payloads(values.drop_null(), schema)
    if values.null_count:
        rows = pc.indices_nonzero(values.is_valid())
        present = present.take(_positions(rows, len(values)))
    return converter.encode(field, present, None)


def _positions(rows: Rows, length: int) -> Rows:
    """For each of ``length`` rows its place among ``rows``; null for the others."""
    places = pa.array(range(len(rows)), pa.int64())
    mask = pc.is_in(pa.array(range(length), pa.int64()), rows.cast(pa.int64()))
    return pc.replace_with_mask(pa.nulls(length, pa.int64()), mask, places)


def _replaced(values: Array, rows: Rows, found: Array) -> Array:
    """Replace the values of ``rows``, which may be in any order."""
    order = pc.sort_indices(rows)
    mask = pc.is_in(pa.array(range(len(values)), rows.type), rows)
    return pc.replace_with_mask(values, mask, found.take(order))


def _entries(headers: Headers) -> tuple[Texts, Binaries, Texts]:
    keys, values, types = headers.flatten().cast(HEADERS_TYPE.value_type).flatten()
    return keys, values, types


def _headers(old: Headers, keys: Texts, values: Binaries, types: Texts) -> Headers:
    entries = pa.StructArray.from_arrays([keys, values, types], fields=_ENTRY_FIELDS)
    lengths = pc.fill_null(pc.list_value_length(old), 0)
    mask = old.is_null() if old.null_count else None
    return pa.ListArray.from_arrays(offsets_of(lengths), entries, type=HEADERS_TYPE, mask=mask)


def _named(keys: Texts, rows: Rows, convert: Callable[[], _Made]) -> _Made:
    """What ``convert`` gives; its error names the keys of the headers."""
    try:
        return convert()
    except RecordError as error:
        names = [repr(each) for each in pc.unique(keys.take(rows)).slice(0, 3).to_pylist()]
        several = "headers" if len(names) > 1 else "header"
        raise RecordError(f"{several} {', '.join(names)}: {error}") from error
