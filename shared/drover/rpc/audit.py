"""The audit log: one JSON line per call that changes something, separate from other logs."""

import json
import logging
import logging.handlers
import os
import sys
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
#: Connector settings with values that are never secret. Only the plugin knows which other settings
#: are secret, and this process may not have the plugin, so their values are masked.
_SHOWN_SETTINGS = frozenset({"name", "connector.class", "tasks.max", "topic", "topics", "file"})

_log = structlog.get_logger("drover.rpc")


class AuditLog:
    """Writes one line for each call that changes something, successful or not.

    If a line cannot be written, the service logs an error and the call continues.

    Args:
        place: A file, or "stdout". The file is created if missing; log rotation may move it.

    Raises:
        InvalidArgumentError: INVALID_CONFIG: the file cannot be written.
    """

    def __init__(self, place: str) -> None:
        self._logger = logging.Logger("drover.audit", logging.INFO)
        self._logger.addHandler(_handler(place))

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
    ) -> None:
        """Write a line.

        Args:
            method: gRPC's name of the method.
            principal: The caller's name; empty if unknown.
            peer: The caller's address.
            request_id: The request id, as in the other logs.
            request: The request; None if it was not decoded.
            outcome: The gRPC status code.
            reason: The error's reason; empty for OK.
        """
        service, _, rpc = method.removeprefix("/").rpartition("/")
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "principal": principal,
            "call": rpc,
            "service": service,
            "request": {} if request is None else summarize(request),
            "outcome": outcome,
            **({"reason": reason} if reason else {}),
            "peer": peer,
            "request_id": request_id,
        }
        self._logger.info(json.dumps(line, ensure_ascii=False))


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


def _handler(place: str) -> logging.Handler:
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
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Write an error to the service's log instead of a traceback to stderr."""
        del record
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
