"""Reading and writing log records in Kafka Connect's JSON, tolerant where Connect is. Pure."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from drover.model.ids import TaskId

INT32_MAX = 2**31 - 1

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_scan_once: Callable[[str, int], tuple[Any, int]] = vars(json.JSONDecoder())["scan_once"]


class UnreadableRecordError(ValueError):
    """A key or value is not what its kind of record looks like; the message says why."""


class UnknownKindError(UnreadableRecordError):
    """A key is of no kind that this version knows; a newer one may have written it.

    Attributes:
        kind: The key up to its first dash, which is how all kinds begin; may be empty.
    """

    def __init__(self, key: str) -> None:
        super().__init__("the key is of no known kind")
        self.kind = key.partition("-")[0][:200]


def dump(value: Mapping[str, object]) -> bytes:
    """JSON without white space, fields in the order given."""
    return _ENCODER.encode(value).encode()


def parse_object(value: bytes) -> dict[str, Any]:
    """A JSON object's fields.

    Raises:
        UnreadableRecordError: Something else.
    """
    try:
        parsed = _parse(value.decode())
    except (ValueError, RecursionError) as error:
        raise UnreadableRecordError(f"the value is not JSON ({error})") from error
    if not isinstance(parsed, dict):
        raise UnreadableRecordError("the value is not a JSON object")
    return parsed


def _parse(text: str) -> object:
    # a log is read at every start: json.loads takes half as long again to look for white space
    try:
        parsed, end = _scan_once(text, 0)
    except (ValueError, StopIteration):
        end = -1
    return parsed if end == len(text) else json.loads(text)


def parse_key(key: bytes) -> str:
    """A key's text.

    Raises:
        UnreadableRecordError: It is not UTF-8.
    """
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise UnreadableRecordError("the key is not UTF-8") from error


def parse_name(key: str, prefix: str, what: str = "connector") -> str:
    """The name of a connector, or of ``what`` else, after ``prefix``.

    Raises:
        UnreadableRecordError: There is none.
    """
    name = key[len(prefix) :]
    if not name:
        raise UnreadableRecordError(f"the key names no {what}")
    return name


def parse_task_id(key: str, prefix: str) -> TaskId:
    """The task after ``prefix``: the connector's name may hold dashes, even with digits after
    them, so the task's number is what follows the last dash.

    Raises:
        UnreadableRecordError: It is no task.
    """
    connector, _, number = key[len(prefix) :].rpartition("-")
    is_number = number.isascii() and number.isdigit() and len(number) <= 10
    index = int(number) if connector and is_number else -1
    if not 0 <= index <= INT32_MAX:
        raise UnreadableRecordError("the key names no task")
    return TaskId(connector, index)


def is_unicode(text: str) -> bool:
    """Whether ``text`` can be encoded: JSON escapes can spell half a surrogate pair."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)
