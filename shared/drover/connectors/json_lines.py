"""Arrow columns as JSON text, column by column; single values only where they are nested."""

import base64
import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def json_texts(values: Any) -> Any:
    """Each value as JSON, null as ``null``.

    Bytes are base64; timestamps, dates and times texts in ISO 8601; decimals numbers with all their
    digits; numbers that are not finite null.
    """
    kind = values.type
    if pa.types.is_struct(kind):
        texts = object_texts(
            [kind.field(index).name for index in range(kind.num_fields)],
            values.flatten(),
            len(values),
        )
        texts = pc.if_else(values.is_valid(), texts, pa.scalar(None, pa.string()))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        texts = _nested(values, _list_text)
    elif pa.types.is_map(kind):
        texts = _nested(values, _map_text)
    elif pa.types.is_null(kind):
        texts = pa.nulls(len(values), pa.string())
    else:
        texts = _scalars(values)
    return texts.fill_null("null")


def object_texts(names: list[str], columns: list[Any], count: int) -> Any:
    """``count`` objects with these names and the columns' values."""
    parts: list[Any] = []
    for index, (name, column) in enumerate(zip(names, columns, strict=True)):
        label = json.dumps(name, ensure_ascii=False)
        parts += [f"{',' if index else '{'}{label}:", json_texts(column)]
    if not parts:
        return pa.array(["{}"] * count, pa.string())
    return pc.binary_join_element_wise(*parts, "}", "")


def iso_texts(times: Any) -> Any:
    """Dates, times and timestamps in ISO 8601."""
    if pa.types.is_timestamp(times.type) and times.type.tz is not None:
        # as UTC, without asking the machine for time zones
        unit = times.type.unit
        texts = times.cast(pa.int64()).cast(pa.timestamp(unit)).cast(pa.string())
        texts = pc.binary_join_element_wise(texts, "Z", "")
    else:
        texts = times.cast(pa.string())
    return pc.replace_substring(texts, " ", "T", max_replacements=1)


def base64_texts(values: Any) -> Any:
    """Bytes as base64."""
    return pa.array(
        [None if each is None else base64.b64encode(each).decode() for each in values.to_pylist()],
        pa.string(),
    )


def _scalars(values: Any) -> Any:
    kind = values.type
    if pa.types.is_dictionary(kind):
        return _scalars(values.cast(kind.value_type))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return values.cast(pa.string())
    if pa.types.is_floating(kind):
        finite = pc.if_else(pc.is_finite(values), values, pa.scalar(None, kind))
        return pc.replace_substring_regex(finite.cast(pa.string()), r"^(-?\d+)$", r"\1.0")
    if pa.types.is_temporal(kind):
        return pc.binary_join_element_wise('"', iso_texts(values), '"', "")
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _quoted(values.cast(pa.string()))
    return pc.binary_join_element_wise('"', base64_texts(values), '"', "")


def _quoted(texts: Any) -> Any:
    plain = pc.binary_join_element_wise('"', texts, '"', "")
    special = pc.match_substring_regex(texts, r'["\\\x00-\x1f]').fill_null(False)
    if not pc.any(special).as_py():
        return plain
    escaped = [json.dumps(each, ensure_ascii=False) for each in texts.filter(special).to_pylist()]
    return pc.replace_with_mask(plain, special, pa.array(escaped, pa.string()))


def _nested(values: Any, write: Any) -> Any:
    return pa.array([write(each) if each.is_valid else None for each in values], pa.string())


def _list_text(value: Any) -> str:
    return f"[{','.join(json_texts(value.values).to_pylist())}]"


def _map_text(value: Any) -> str:
    entries = value.values
    keys = json_texts(entries.field(0).cast(pa.string())).to_pylist()
    items = json_texts(entries.field(1)).to_pylist()
    return f"{{{','.join(f'{key}:{item}' for key, item in zip(keys, items, strict=True))}}}"
