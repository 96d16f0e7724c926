"""Validates writes to the config log; a rejection lists every violation."""

import re

from drover.errors import InvalidArgumentError, Reason, Violation
from drover.model.letter_states import decode_states
from drover.model.names import connector_name_violations, existing_name_violations
from drover_config_store.core.events import (
    ConfigRequest,
    PutConnectorConfig,
    PutDeadLetterStates,
    PutLoggerLevel,
    PutSessionKey,
    PutTaskConfigs,
    PutTaskCount,
)
from drover_config_store.core.records import VALUE_MAX_BYTES

REQUEST_ID_MAX_CHARS = 200
AUTHOR_MAX_CHARS = 300
REASON_MAX_CHARS = 1_000
LOGGER_MAX_CHARS = 250
SESSION_KEY_MAX_BYTES = 1_000
TASKS_MAX = 100_000

_LEVEL = re.compile(r"[A-Z]{1,20}")
_ALGORITHM = re.compile(r"[A-Za-z0-9/_.-]{1,100}")


def check_request(request: ConfigRequest) -> None:
    """Reject a request with invalid fields.

    Raises:
        InvalidArgumentError: INVALID_REQUEST with every violation.
    """
    violations = _request_id_violations(request.request_id)
    if len(request.author) > AUTHOR_MAX_CHARS:
        violations.append(Violation("author", f"must have at most {AUTHOR_MAX_CHARS} characters"))
    match request:
        case PutTaskConfigs():
            violations += existing_name_violations(request.connector, "connector")
            violations += _task_violations(request)
        case PutSessionKey():
            violations += _session_key_violations(request)
        case PutLoggerLevel():
            violations += _logger_violations(request)
        case PutDeadLetterStates():
            violations += existing_name_violations(request.name)
            violations += _dead_letter_violations(request)
        case PutConnectorConfig():
            violations += connector_name_violations(request.name)
        case _:
            violations += existing_name_violations(request.name)
    if isinstance(request, PutConnectorConfig):
        if "" in request.config:
            violations.append(Violation("config", "must not have an empty key"))
        if request.expected_revision is not None and request.expected_revision < 0:
            violations.append(Violation("expected_revision", "must not be negative"))
    if isinstance(request, PutTaskCount) and not 0 <= request.task_count <= TASKS_MAX:
        violations.append(Violation("task_count", f"must be from 0 to {TASKS_MAX}"))
    if violations:
        raise InvalidArgumentError.listing(violations)


def check_size(field: str, value: bytes | None) -> None:
    """Reject a config if its encoded ``value`` is too large.

    Raises:
        InvalidArgumentError: TOO_LARGE.
    """
    size_bytes = len(value or b"")
    if size_bytes > VALUE_MAX_BYTES:
        fault = f"takes {size_bytes} bytes as JSON; the maximum is {VALUE_MAX_BYTES}"
        raise InvalidArgumentError(
            Reason.TOO_LARGE, f"{field} {fault}", violations=[Violation(field, fault)]
        )


def _request_id_violations(request_id: str) -> list[Violation]:
    if not request_id:
        return [Violation("request_id", "must be set; a retry must send the same id")]
    if len(request_id) > REQUEST_ID_MAX_CHARS:
        return [Violation("request_id", f"must have at most {REQUEST_ID_MAX_CHARS} characters")]
    return []


def _task_violations(request: PutTaskConfigs) -> list[Violation]:
    count = len(request.task_configs)
    if count > TASKS_MAX:
        return [Violation("task_configs", f"has {count} tasks; the maximum is {TASKS_MAX}")]
    violations = []
    for index, (task, _) in enumerate(request.task_configs):
        field = f"task_configs[{index}].task"
        if task.connector != request.connector:
            violations.append(
                Violation(
                    field, f"belongs to connector {task.connector!r}, not {request.connector!r}"
                )
            )
        if task.task != index:
            violations.append(
                Violation(field, f"must be task {index}, not {task.task}: tasks count from 0")
            )
    return violations


def _session_key_violations(request: PutSessionKey) -> list[Violation]:
    violations = []
    if not 1 <= len(request.key) <= SESSION_KEY_MAX_BYTES:
        violations.append(Violation("key", f"must have 1 to {SESSION_KEY_MAX_BYTES} bytes"))
    if not _ALGORITHM.fullmatch(request.algorithm):
        violations.append(Violation("algorithm", "must be a name such as HmacSHA256"))
    return violations


def _dead_letter_violations(request: PutDeadLetterStates) -> list[Violation]:
    violations = []
    if request.expected_revision < 0:
        violations.append(Violation("expected_revision", "must not be negative"))
    if len(request.change.reason) > REASON_MAX_CHARS:
        text = f"must have at most {REASON_MAX_CHARS} characters"
        violations.append(Violation("change.reason", text))
    try:
        decode_states(request.states_json)
    except ValueError as error:
        violations.append(Violation("states_json", str(error)))
    return violations


def _logger_violations(request: PutLoggerLevel) -> list[Violation]:
    violations = []
    if not 1 <= len(request.logger) <= LOGGER_MAX_CHARS or not request.logger.isprintable():
        violations.append(
            Violation("logger", f"must have 1 to {LOGGER_MAX_CHARS} printable characters")
        )
    if not _LEVEL.fullmatch(request.level):
        violations.append(Violation("level", "must be a level in capitals, such as DEBUG"))
    return violations
