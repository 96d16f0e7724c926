"""Values that a source could not send: a change of PostgreSQL lacks large values that it does not
modify.

As in Debezium, such a column has a placeholder instead. A header of the record names the columns,
so that a text that equals the placeholder remains a text. Records without that header, as of
Debezium itself, are recognized by the placeholder alone.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drover.connector import ConfigKey, ConfigType, Importance
from drover.connector.records import (
    HEADERS,
    VALUE,
    is_binary,
    is_list,
    is_schemaless,
    is_text,
    loads,
)

#: The header with the columns' names, as a JSON array; empty if a text equals the placeholder.
HEADER = "drover.unavailable.fields"
SETTING = "unavailable.value.placeholder"
PLACEHOLDER = "__debezium_unavailable_value"
PLACEHOLDER_KEY = ConfigKey(
    SETTING,
    ConfigType.STRING,
    default=PLACEHOLDER,
    importance=Importance.LOW,
    group="Writing",
    documentation="Marks values that the source could not send, as the setting of the same name at "
    "the source: a row that is upserted or updated keeps its value of the column. Empty to take "
    "such texts as data, unless a header of the record names the column.",
)
_HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

Names = frozenset[str]


def placeholder_of(kind: pa.DataType, placeholder: str) -> Any:
    """The placeholder as a value of this type; None if the type cannot hold it.

    Debezium writes lists of one text, and lists of numbers with the bytes of the text.
    """
    if is_text(kind):
        return placeholder
    if is_binary(kind):
        found_bytes = placeholder.encode()
        is_fixed = pa.types.is_fixed_size_binary(kind)
        return None if is_fixed and kind.byte_width != len(found_bytes) else found_bytes
    if is_list(kind):
        inner = kind.value_type
        if pa.types.is_integer(inner) and inner.bit_width >= 16:
            return list(placeholder.encode())
        found = placeholder_of(inner, placeholder)
        return None if found is None else [found]
    return None


def text_forms(placeholder: str) -> set[str]:
    """The texts that are taken for the placeholder: bytes are base64 in JSON without a schema."""
    return {placeholder, base64.b64encode(placeholder.encode()).decode()}


def header_column(names: Mapping[int, Names], count: int) -> pa.Array:
    """The headers of ``count`` records; null for records without ``names``."""
    if not names:
        return pa.nulls(count, _HEADERS_TYPE)
    headers = {
        row: [{"key": HEADER, "value": json.dumps(sorted(each)).encode()}]
        for row, each in names.items()
    }
    return pa.array([headers.get(row) for row in range(count)], _HEADERS_TYPE)


def unavailable_names(batch: pa.RecordBatch, placeholder: str) -> list[Names] | None:
    """For each record the fields of its value that the source could not send; None if there are
    none.

    Args:
        batch: Records with their headers.
        placeholder: The placeholder; empty to consider headers only.
    """
    told = _told(batch)
    if is_schemaless(batch.schema.field(VALUE)):
        return _schemaless_names(batch, told, placeholder)
    values = batch.column(VALUE)
    if not pa.types.is_struct(values.type):
        return None
    fields = {each.name for each in values.type}
    equal = {
        name: rows
        for name, array in zip([each.name for each in values.type], values.flatten(), strict=True)
        if placeholder and (rows := _equal_rows(array, placeholder))
    }
    if not equal and not any(told.values()):
        return None
    names = [frozenset[str]()] * batch.num_rows
    for row in sorted({*told, *(row for found in equal.values() for row in found)}):
        if values[row].is_valid:
            equal_names = {name for name, found in equal.items() if row in found}
            names[row] = _names(told.get(row), fields, equal_names)
    return names if any(names) else None


def names_in(value: Any, told: Names | None, placeholder: str) -> Names:
    """The fields of a schemaless value that the source could not send."""
    if not isinstance(value, dict):
        return frozenset()
    forms = (*text_forms(placeholder), [placeholder], list(placeholder.encode()))
    equal = {name for name, each in value.items() if placeholder and each in forms}
    return _names(told, value.keys(), equal)


def _names(told: Names | None, fields: Any, equal: set[str]) -> Names:
    if told is None:
        return frozenset(equal)
    found = told & set(fields)
    # a transform renamed the others
    return found if found == told else frozenset(found | equal)


def _told(batch: pa.RecordBatch) -> dict[int, Names]:
    """The names in the headers of records, by row."""
    headers = batch.column(HEADERS)
    if headers.null_count == len(headers):
        return {}
    keys = pc.struct_field(pc.list_flatten(headers), "key")
    chosen = np.flatnonzero(pc.equal(keys, HEADER).fill_null(False))
    if not len(chosen):
        return {}
    rows = pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)
    values = pc.struct_field(pc.list_flatten(headers), "value").take(pa.array(chosen)).to_pylist()
    found = {}
    for row, value in zip(rows[chosen].tolist(), values, strict=True):
        names = _parsed(value)
        if names is not None:
            found[row] = names
    return found


def _parsed(value: bytes | None) -> Names | None:
    try:
        names = json.loads(value or b"null")
        if isinstance(names, str):  # a converter that writes texts in quotes
            names = json.loads(names)
    except ValueError:
        return None
    return frozenset(map(str, names)) if isinstance(names, list) else None


def _equal_rows(array: pa.Array, placeholder: str) -> set[int]:
    kind = array.type
    if pa.types.is_dictionary(kind):
        array, kind = array.dictionary_decode(), kind.value_type
    wanted = placeholder_of(kind, placeholder)
    if wanted is None or array.null_count == len(array):
        return set()
    if is_text(kind):
        forms = pa.array(sorted(text_forms(placeholder)), kind)
        return set(np.flatnonzero(pc.is_in(array, value_set=forms)).tolist())
    if is_binary(kind):
        return set(
            np.flatnonzero(pc.equal(array, pa.scalar(wanted, kind)).fill_null(False)).tolist()
        )
    near = np.flatnonzero(pc.equal(pc.list_value_length(array), len(wanted)).fill_null(False))
    return {row for row in near.tolist() if array[row].as_py() == wanted}


def _schemaless_names(
    batch: pa.RecordBatch, told: Mapping[int, Names], placeholder: str
) -> list[Names] | None:
    texts = batch.column(VALUE)
    rows = {*told}
    if placeholder:
        numbers = ",".join(map(str, placeholder.encode()))
        for each in (*(json.dumps(text)[1:-1] for text in text_forms(placeholder)), numbers):
            found = pc.match_substring(texts, each).fill_null(False)
            rows |= set(np.flatnonzero(found).tolist())
    names = [frozenset[str]()] * batch.num_rows
    for row in rows:
        text = texts[row].as_py()
        names[row] = names_in(text and loads(text), told.get(row), placeholder)
    return names if any(names) else None
