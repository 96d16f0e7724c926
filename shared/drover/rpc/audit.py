"""The audit log: who changed what, as lines of JSON, apart from the other logs."""

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

#: Where lines go that belong into no file.
STDOUT = "stdout"
TEXT_MAX_CHARS = 200
ENTRIES_MAX = 200
#: Settings of connectors whose values are shown; plugins say of the others which are secret, and
#: plugins are not known here.
_SHOWN_SETTINGS = frozenset({"name", "connector.class", "tasks.max", "topic", "topics", "file"})

_log = structlog.get_logger("drover.rpc")


class AuditLog:
    """Writes one line for each call that changes something, whether it succeeds or not.

    A line that cannot be written is told of in the service's log; the call goes on.

    Args:
        place: A file, which is made if need be and may be moved away by log rotation, or "stdout".

    Raises:
        InvalidArgumentError: INVALID_CONFIG: the file cannot be written.
    """

    def __init__(self, place: str) -> None:
        self._logger = logging.Logger("drover.audit", logging.INFO)
        self._logger.addHandler(_handler(place))

    def tell(
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
            method: gRPC's name of the call.
            principal: Who calls; empty if that is not known.
            peer: Where from.
            request_id: As in the other logs.
            request: What was asked for; None when it was not looked at.
            outcome: gRPC's code.
            reason: Why it failed; empty for OK.
        """
        service, _, rpc = method.removeprefix("/").rpartition("/")
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "principal": principal,
            "call": rpc,
            "service": service,
            "request": {} if request is None else shown(request),
            "outcome": outcome,
            **({"reason": reason} if reason else {}),
            "peer": peer,
            "request_id": request_id,
        }
        self._logger.info(json.dumps(line, ensure_ascii=False))


def shown(request: Message) -> dict[str, Any]:
    """What a request asks for, in short and without secrets."""
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
            fields[field.name] = shown(value)
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
        # what is made here is for the service's own user
        os.close(os.open(place, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
        return _FileHandler(place, encoding="utf-8")
    except OSError as error:
        raise InvalidArgumentError(
            Reason.INVALID_CONFIG,
            f"DROVER_AUDIT_LOG: {place} cannot be written: {error.strerror}",
        ) from None


class _TellsFailures(logging.Handler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Tell where operators look, instead of a trace on stderr."""
        del record
        _log.error("a line of the audit log cannot be written", why=str(sys.exc_info()[1]))


class _StdoutHandler(_TellsFailures, logging.StreamHandler[Any]):
    pass


class _FileHandler(_TellsFailures, logging.handlers.WatchedFileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Drop the line, which else would come again before the next one."""
        super().handleError(record)
        stream, self.stream = self.stream, None  # the next line opens the file again
        if stream is not None:
            with suppress(OSError):
                stream.close()
