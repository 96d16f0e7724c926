"""Encodes and decodes log records in Kafka Connect's JSON, as tolerant as Connect. Pure."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from drover.model.ids import TaskId

INT32_MAX = 2**31 - 1

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_scan_once: Callable[[str, int], tuple[Any, int]] = vars(json.JSONDecoder())["scan_once"]


class UnreadableRecordError(ValueError):
    """A key or value is malformed for its kind of record; the message has the cause."""


class UnknownKindError(UnreadableRecordError):
    """A key is of an unknown kind; a newer version may have written it.

    Attributes:
        kind: The key up to its first dash, which is the prefix of all kinds; may be empty.
    """

    def __init__(self, key: str) -> None:
        super().__init__("the key is of an unknown kind")
        self.kind = key.partition("-")[0][:200]


def dump(value: Mapping[str, object]) -> bytes:
    """Encode as JSON without white space, in the given order of fields."""
    return _ENCODER.encode(value).encode()


def parse_object(value: bytes) -> dict[str, Any]:
    """Parse a JSON object.

    Raises:
        UnreadableRecordError: The value is not a JSON object.
    """
    try:
        parsed = _parse(value.decode())
    except (ValueError, RecursionError) as error:
        raise UnreadableRecordError(f"the value is not JSON ({error})") from error
    if not isinstance(parsed, dict):
        raise UnreadableRecordError("the value is not a JSON object")
    return parsed


def _parse(text: str) -> object:
    # faster than json.loads, which checks for white space; matters when a log is loaded
    try:
        parsed, end = _scan_once(text, 0)
    except (ValueError, StopIteration):
        end = -1
    return parsed if end == len(text) else json.loads(text)


def parse_key(key: bytes) -> str:
    """Decode a key.

    Raises:
        UnreadableRecordError: It is not UTF-8.
    """
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise UnreadableRecordError("the key is not UTF-8") from error


def parse_name(key: str, prefix: str, what: str = "connector") -> str:
    """The name after ``prefix``; ``what`` describes it in the error.

    Raises:
        UnreadableRecordError: The name is empty.
    """
    name = key[len(prefix) :]
    if not name:
        raise UnreadableRecordError(f"the key has no {what} name")
    return name


def parse_task_id(key: str, prefix: str) -> TaskId:
    """The task after ``prefix``; its number follows the last dash.

    The connector's name may contain dashes, even before digits.

    Raises:
        UnreadableRecordError: It is not a task id.
    """
    connector, _, number = key[len(prefix) :].rpartition("-")
    is_number = number.isascii() and number.isdigit() and len(number) <= 10
    index = int(number) if connector and is_number else -1
    if not 0 <= index <= INT32_MAX:
        raise UnreadableRecordError("the key has no valid task id")
    return TaskId(connector, index)


def is_unicode(text: str) -> bool:
    """Whether ``text`` can be encoded as UTF-8; JSON escapes can contain lone surrogates."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)
