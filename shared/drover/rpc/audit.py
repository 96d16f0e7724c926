"""The audit log: one JSON line per call that belongs in it, separate from other logs."""

import asyncio
import json
import logging
import logging.handlers
import os
import re
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import structlog
from google.protobuf.message import Message

from drover.errors import InvalidArgumentError, Reason
from drover.model.secrets import MASK, sounds_secret

#: The place of the log if it is the standard output, not a file.
STDOUT = "stdout"
TEXT_MAX_CHARS = 200
ENTRIES_MAX = 200
#: The maximum number of lines per second about callers without a grant. The others are counted, and
#: a line has their number.
UNKNOWN_LINES_MAX = 10
UNKNOWN_COUNT_EVERY_S = 10.0
#: Connector settings with values that are never secret. Only the plugin knows which other settings
#: are secret, and this process may not have the plugin, so their values are masked.
_SHOWN_SETTINGS = frozenset({"name", "connector.class", "tasks.max", "topic", "topics", "file"})

#: Characters that JSON leaves as they are, but that end lines or change their direction on screens.
_ENDS_OF_LINES = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")

_log = structlog.get_logger("drover.rpc")


class AuditLog:
    """Writes a line for each call that belongs in the log, successful or not.

    If a line cannot be written, the service logs an error.

    Args:
        place: A file, or "stdout". The file is created if missing; log rotation may move it.
        required: Whether a call is rejected if its line cannot be written. Then a line is also
            written before each call.

    Raises:
        InvalidArgumentError: INVALID_CONFIG: the file cannot be written.
    """

    def __init__(self, place: str, *, required: bool = False) -> None:
        self.required = required
        self._handler = _handler(place)
        self._logger = logging.Logger("drover.audit", logging.INFO)
        self._logger.addHandler(self._handler)
        self._unknown_second, self._unknown_lines = 0, 0
        self._left_out_count = 0

    def write(
        self,
        *,
        method: str,
        principal: str,
        peer: str,
        request_id: str,
        request: Message | None,
        outcome: str,
        reason: str,
        known: bool = True,
    ) -> bool:
        """Write a line; False if that failed.

        Args:
            method: gRPC's name of the method.
            principal: The caller's name; empty if unknown.
            peer: The caller's address.
            request_id: The request id, as in the other logs.
            request: The request; None if it was not decoded.
            outcome: The gRPC status code; STARTED before the call, OPENED for a stream.
            reason: The error's reason; empty for OK.
            known: Whether the caller has a grant; lines about others are limited.
        """
        if not known and self._is_above_limit():
            return True
        service, _, rpc = method.removeprefix("/").rpartition("/")
        line = {
            "time": _now(),
            "principal": principal,
            "call": rpc,
            "service": service,
            "request": {} if request is None else summarize(request),
            "outcome": outcome,
            **({"reason": reason} if reason else {}),
            "peer": peer,
            "request_id": request_id,
        }
        return self._append(line)

    def _append(self, line: Mapping[str, Any]) -> bool:
        self._handler.failed = False
        text = json.dumps(line, ensure_ascii=False)
        self._logger.info(_ENDS_OF_LINES.sub(lambda each: f"\\u{ord(each[0]):04x}", text))
        return not self._handler.failed

    def _is_above_limit(self) -> bool:
        second = int(time.monotonic())
        if second != self._unknown_second:
            self._unknown_second, self._unknown_lines = second, 0
        self._unknown_lines += 1
        if self._unknown_lines <= UNKNOWN_LINES_MAX:
            return False
        self._left_out_count += 1
        if self._left_out_count == 1:
            asyncio.get_running_loop().call_later(UNKNOWN_COUNT_EVERY_S, self._write_count)
        return True

    def _write_count(self) -> None:
        count, self._left_out_count = self._left_out_count, 0
        self._append({"time": _now(), "principal": "", "left_out_calls_of_unknown_callers": count})


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def summarize(request: Message) -> dict[str, Any]:
    """The fields of a request, shortened and with secrets masked."""
    fields: dict[str, Any] = {}
    for field, value in request.ListFields():
        if field.name == "request_id":
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            fields[field.name] = _settings(value)
        elif field.is_repeated:
            fields[field.name] = (
                [_text(each) for each in value[:ENTRIES_MAX]]
                if field.type == field.TYPE_STRING
                else f"{len(value)} entries"
            )
        elif isinstance(value, Message):
            fields[field.name] = summarize(value)
        elif sounds_secret(field.name):
            fields[field.name] = MASK
        else:
            fields[field.name] = _text(value)
    return fields


def _settings(values: Mapping[str, Any]) -> dict[str, str]:
    return {
        _text(key): _text(value) if key in _SHOWN_SETTINGS and not sounds_secret(key) else MASK
        for key, value in sorted(values.items())[:ENTRIES_MAX]
    }


def _text(value: object) -> Any:
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, str) and len(value) > TEXT_MAX_CHARS:
        return value[:TEXT_MAX_CHARS] + "…"
    return value


def _handler(place: str) -> "_ErrorLoggingHandler":
    if place == STDOUT:
        return _StdoutHandler(sys.stdout)
    try:
        # readable by the service's user only
        os.close(os.open(place, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
        return _FileHandler(place, encoding="utf-8")
    except OSError as error:
        raise InvalidArgumentError(
            Reason.INVALID_CONFIG,
            f"DROVER_AUDIT_LOG: {place} cannot be written: {error.strerror}",
        ) from None


class _ErrorLoggingHandler(logging.Handler):
    #: Whether the last line could not be written.
    failed = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Write an error to the service's log instead of a traceback to stderr."""
        del record
        self.failed = True
        _log.error("a line of the audit log cannot be written", why=str(sys.exc_info()[1]))


class _StdoutHandler(_ErrorLoggingHandler, logging.StreamHandler[Any]):
    pass


class _FileHandler(_ErrorLoggingHandler, logging.handlers.WatchedFileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Drop the line, which would otherwise stay in the buffer and precede the next one."""
        super().handleError(record)
        stream, self.stream = self.stream, None  # the next line opens the file again
        if stream is not None:
            with suppress(OSError):
                stream.close()
