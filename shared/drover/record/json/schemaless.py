"""Values without a schema, as JSON text.

What JSON has no form for (a schemaless map may hold dates or bytes after a transform) is an object
with the one key TAG, whose value is [kind, text]; converters write it as Kafka Connect does.
"""

import base64
import datetime
import decimal
import json
from typing import Any

#: No field of a user's is called so.
TAG = "\u0000drover"

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def dumps(value: object) -> str:
    """A value of dicts with text keys, lists, text, numbers, booleans, None, bytes, decimals, dates
    and times, as text.

    Raises:
        TypeError: something else is in it.
        ValueError: a number is not finite.
    """
    return _ENCODER.encode(value)


def loads(text: str) -> Any:
    """The value of a text of ``dumps``, or of any other JSON.

    Raises:
        ValueError: it is no JSON.
    """
    if TAG in text or "\\u0000drover" in text:
        return json.loads(text, object_hook=_untagged)
    return json.loads(text)


def _tagged(value: object) -> dict[str, list[str]]:
    if isinstance(value, bytes):
        return {TAG: ["bytes", base64.b64encode(value).decode()]}
    if isinstance(value, decimal.Decimal):
        return {TAG: ["decimal", str(value)]}
    if isinstance(value, datetime.datetime):
        micros = (value - _EPOCH) // datetime.timedelta(microseconds=1)
        return {TAG: ["timestamp", str(micros // 1000)]}
    if isinstance(value, datetime.date):
        return {TAG: ["date", value.isoformat()]}
    if isinstance(value, datetime.time):
        return {TAG: ["time", value.isoformat()]}
    raise TypeError(f"a {type(value).__name__} cannot be part of a value without a schema")


#: json.dumps would make one for each value.
_ENCODER = json.JSONEncoder(default=_tagged, ensure_ascii=False, separators=(",", ":"))


def _untagged(found: dict[str, Any]) -> Any:
    match found:
        case {"\u0000drover": ["bytes", str(text)]}:
            return base64.b64decode(text)
        case {"\u0000drover": ["decimal", str(text)]}:
            return decimal.Decimal(text)
        case {"\u0000drover": ["timestamp", str(text)]}:
            return _EPOCH + datetime.timedelta(milliseconds=int(text))
        case {"\u0000drover": ["date", str(text)]}:
            return datetime.date.fromisoformat(text)
        case {"\u0000drover": ["time", str(text)]}:
            return datetime.time.fromisoformat(text)
    return found
