"""The failure history of a connector or task, as a JSON field of its status record."""

import dataclasses
from typing import Any

from drover.log.connect_json import is_unicode
from drover.model.failures import Failure, FailureCause, FailureHistory

_CAUSES = {cause.value: cause for cause in FailureCause}
_WHOLE_MAX = 2**53 - 1


def failure_fields(history: FailureHistory) -> dict[str, object]:
    """The JSON fields of a history."""
    return dataclasses.asdict(history)


def parse_failures(fields: object) -> FailureHistory | None:
    """Parse a history; None if it is malformed.

    A malformed field does not make the status unreadable: Kafka Connect ignores unknown fields.
    """
    if not isinstance(fields, dict):
        return None
    try:
        return FailureHistory(
            config_offset=_whole(fields, "config_offset", minimum=-1),
            failures=tuple(
                Failure(
                    failed_ms=_whole(each, "failed_ms"),
                    cause=_CAUSES[_text(each, "cause")],
                    worker_id=_text(each, "worker_id"),
                    message=_text(each, "message"),
                )
                for each in fields["failures"]
            ),
            count=_whole(fields, "count"),
            restart_ms=_whole(fields, "restart_ms"),
            no_restart_reason=_text(fields, "no_restart_reason"),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _whole(fields: dict[str, Any], name: str, minimum: int = 0) -> int:
    number = fields[name]
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"{name} is not an integer")
    if not minimum <= number <= _WHOLE_MAX:
        raise ValueError(f"{name} is out of range")
    return number


def _text(fields: dict[str, Any], name: str) -> str:
    text = fields[name]
    if not isinstance(text, str) or not is_unicode(text):
        raise TypeError(f"{name} is not valid Unicode text")
    return text
