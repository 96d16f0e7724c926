"""Values without a schema that hold what JSON has no form for, as converters write it."""

import base64
import datetime
import decimal
import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from drover.record.errors import RecordError
from drover.record.json.schemaless import TAG, loads
from drover.record.json.values import decimal_text

_ESCAPED_TAG = json.dumps(TAG)[1:-1]
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)


def plain_texts(texts: Any, *, numeric_decimals: bool) -> Any:
    """JSON texts of schemaless values as plain JSON: bytes and decimals as base64, dates as days,
    times and timestamps as milliseconds. Texts without such values stay as they are.

    Raises:
        RecordError: a text that has such a value is no JSON.
    """
    tagged = pc.fill_null(pc.match_substring(texts, _ESCAPED_TAG), False)
    if not pc.any(tagged).as_py():
        return texts
    plain = [
        _plain_text(text, numeric_decimals) if is_tagged else text
        for text, is_tagged in zip(texts.to_pylist(), tagged.to_pylist(), strict=True)
    ]
    return pa.array(plain, pa.string())


def _plain_text(text: str, numeric: bool) -> str:
    try:
        return _text(loads(text), numeric)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"a value without a schema is no JSON: {error}") from None


def _text(value: Any, numeric: bool) -> str:
    match value:
        case dict():
            fields = (
                f"{json.dumps(key, ensure_ascii=False)}:{_text(each, numeric)}"
                for key, each in value.items()
            )
            return "{" + ",".join(fields) + "}"
        case list():
            return "[" + ",".join(_text(each, numeric) for each in value) + "]"
        case bytes():
            return f'"{base64.b64encode(value).decode()}"'
        case decimal.Decimal() if numeric:
            return str(value)
        case decimal.Decimal():
            return f'"{decimal_text(unscaled(value))}"'
        case datetime.datetime():
            return str((value - _EPOCH) // _MILLISECOND)
        case datetime.date():
            return str((value - _EPOCH.date()).days)
        case datetime.time():
            return str((_at(value) - _EPOCH) // _MILLISECOND)
    return json.dumps(value, ensure_ascii=False)


def unscaled(value: decimal.Decimal) -> int:
    """The digits of a decimal as a whole number."""
    sign, digits, _ = value.as_tuple()
    magnitude = int("".join(map(str, digits)))
    return -magnitude if sign else magnitude


def _at(time: datetime.time) -> datetime.datetime:
    return datetime.datetime.combine(_EPOCH.date(), time, datetime.UTC)
