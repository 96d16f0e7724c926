"""Schemaless values: their encoding in batches, and their output as JSON.

A batch holds JSON texts. A value for which JSON has no type (a transform may add dates or bytes) is
an object with the single key TAG, whose value is [kind, text]; ``loads`` restores the value from
it. Writers replace it by a form of JSON (see ``form``).
"""

import base64
import datetime
import decimal
import json
import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from drover.record.arrow import Texts
from drover.record.decimals import decimal_base64
from drover.record.errors import RecordError
from drover.record.json.form import PLAIN, Decimals, JsonForm
from drover.record.json.numbers import Fraction, fraction_of

#: The null character keeps it distinct from users' field names.
TAG = "\u0000drover"

#: Each text with a tagged object has it, whether or not its null character is escaped.
TAG_START = "drover"

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)
_ESCAPED_TAG = json.dumps(TAG)[1:-1]


def dumps(value: object) -> str:
    """Encodes a value of dicts with text keys, lists, text, numbers, booleans, None, bytes,
    decimals, dates and times for a batch. Non-finite numbers are NaN and Infinity.

    Raises:
        TypeError: the value contains another type.
    """
    return _ENCODER.encode(value)


def loads(text: str) -> Any:
    """Parses a text of ``dumps``, or any other JSON. A number that a float would change is a
    ``Fraction``.

    Raises:
        ValueError: the text is not JSON.
    """
    if TAG in text or _ESCAPED_TAG in text:
        return json.loads(text, object_hook=_untagged, parse_float=fraction_of)
    return json.loads(text, parse_float=fraction_of)


def plain_texts(texts: Texts, form: JsonForm) -> Texts:
    """Replaces tagged objects in texts of ``dumps``. Texts without tags remain unchanged.

    Raises:
        RecordError: a text with a tag is not JSON.
    """
    tagged = pc.fill_null(pc.match_substring(texts, _ESCAPED_TAG), False)
    if not pc.any(tagged).as_py():
        return texts
    plain = [
        _without_tags(text, form) if is_tagged else text
        for text, is_tagged in zip(texts.to_pylist(), tagged.to_pylist(), strict=True)
    ]
    return pa.array(plain, pa.string())


def value_text(value: Any, form: JsonForm = PLAIN) -> str:
    """A value that ``dumps`` accepts, in a form of JSON; other types become their ``str``."""
    match value:
        case dict():
            fields = (f"{_name(key, form)}:{value_text(each, form)}" for key, each in value.items())
            return "{" + ",".join(fields) + "}"
        case list() | tuple():
            return "[" + ",".join(value_text(each, form) for each in value) + "]"
        case float() if not math.isfinite(value):
            return "null" if form.non_finite_is_null else f'"{_JAVA_NAMES[str(value)]}"'
        case None | bool() | int() | float() | str():
            return json.dumps(value, ensure_ascii=False)
        case bytes():
            text = f'"{base64.b64encode(value).decode()}"'
            return f'{{"bytes":{text}}}' if form.bytes_are_labelled else text
        case Fraction():
            return value.text
        case decimal.Decimal():
            return _decimal_text(value, form)
        case datetime.datetime() | datetime.date() | datetime.time():
            return f'"{_iso_text(value)}"' if form.iso_times else str(_counted(value))
    return json.dumps(str(value), ensure_ascii=False)


def _without_tags(text: str, form: JsonForm) -> str:
    try:
        return value_text(loads(text), form)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"a value without a schema is no JSON: {error}") from None


def _name(key: object, form: JsonForm) -> str:
    text = value_text(key, form)
    return text if text.startswith('"') else json.dumps(text, ensure_ascii=False)


def _decimal_text(value: decimal.Decimal, form: JsonForm) -> str:
    if form.decimals is Decimals.NUMBER:
        return str(value)
    if form.decimals is Decimals.TEXT:
        return f'"{value}"'
    # not scaleb(): it has bounds of digits and exponents, and a literal's decimal has none
    sign, digits, _ = value.as_tuple()
    return f'"{decimal_base64(int(decimal.Decimal((sign, digits, 0))))}"'


def _iso_text(value: datetime.date | datetime.time) -> str:
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).replace(tzinfo=None).isoformat() + "Z"
    return value.isoformat()


def _counted(value: datetime.date | datetime.time) -> int:
    """Days since 1970 of a date, milliseconds of a time or since 1970 of a timestamp."""
    if isinstance(value, datetime.time):
        value = datetime.datetime.combine(_EPOCH.date(), value, datetime.UTC)
    if isinstance(value, datetime.datetime):
        return (value - _EPOCH) // _MILLISECOND
    return (value - _EPOCH.date()).days


_JAVA_NAMES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _tagged(value: object) -> dict[str, list[str]]:
    if isinstance(value, bytes):
        return {TAG: ["bytes", base64.b64encode(value).decode()]}
    if isinstance(value, Fraction):
        return {TAG: ["number", value.text]}
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


#: One encoder for all values: json.dumps would create one for each.
_ENCODER = json.JSONEncoder(default=_tagged, ensure_ascii=False, separators=(",", ":"))


def _untagged(found: dict[str, Any]) -> Any:
    match found:
        case {"\u0000drover": ["bytes", str(text)]}:
            return base64.b64decode(text)
        case {"\u0000drover": ["decimal", str(text)]}:
            return decimal.Decimal(text)
        case {"\u0000drover": ["number", str(text)]}:
            return Fraction(text)
        case {"\u0000drover": ["timestamp", str(text)]}:
            return _EPOCH + datetime.timedelta(milliseconds=int(text))
        case {"\u0000drover": ["date", str(text)]}:
            return datetime.date.fromisoformat(text)
        case {"\u0000drover": ["time", str(text)]}:
            return datetime.time.fromisoformat(text)
    return found
