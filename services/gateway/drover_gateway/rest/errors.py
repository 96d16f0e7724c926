"""Errors of the REST API: Kafka Connect's body, and its statuses and texts for Drover's reasons."""

import json
from collections.abc import Mapping, Sequence

from drover.errors import DroverError, InvalidArgumentError, Reason, Violation

_MORE_PREFIX, _MORE_SUFFIX = "+", " more"
_SETTING_PREFIX, _SETTING_SUFFIX = 'config["', '"]'

#: The status of each reason. Reasons that are not listed are errors of the server: 500.
STATUSES: Mapping[Reason, int] = {
    Reason.INVALID_REQUEST: 400,
    Reason.INVALID_CONFIG: 400,
    Reason.TOO_LARGE: 400,
    Reason.OFFSETS_REFUSED: 400,
    Reason.CONNECTOR_NOT_STOPPED: 400,
    Reason.PLAN_CHANGED: 400,
    Reason.MISSING_CREDENTIALS: 401,
    Reason.INVALID_CREDENTIALS: 401,
    Reason.MISSING_ROLE: 403,
    Reason.SECRETS_MASKED: 403,
    Reason.CONNECTOR_NOT_FOUND: 404,
    Reason.TASK_NOT_FOUND: 404,
    Reason.PLUGIN_NOT_FOUND: 404,
    Reason.TOPIC_NOT_FOUND: 404,
    Reason.CONNECTOR_ALREADY_EXISTS: 409,
    Reason.REVISION_MISMATCH: 409,
    Reason.NON_EMPTY_GROUP: 409,
    Reason.OFFSETS_LOST: 409,
    Reason.QUEUE_FULL: 429,
    Reason.NOT_LEADER: 503,
    Reason.COORDINATOR_NOT_AVAILABLE: 503,
    Reason.COORDINATOR_LOAD_IN_PROGRESS: 503,
    Reason.LOADING: 503,
    Reason.DRAINING: 503,
    Reason.STORAGE_UNAVAILABLE: 503,
    Reason.LEADER_UNKNOWN: 503,
    Reason.ENGINE_UNAVAILABLE: 503,
    Reason.SERVICE_UNREACHABLE: 503,
    Reason.SESSION_KEY_UNKNOWN: 503,
}
#: Statuses after which the same request can succeed, and the pause before it in seconds.
_RETRY_AFTER_S: Mapping[int, int] = {429: 1, 503: 1}
#: Errors of the server whose messages are written for callers.
_READABLE = frozenset({Reason.DEADLINE_EXCEEDED})
#: Kafka Connect's body for a caller without valid credentials, which is no JSON.
UNAUTHENTICATED_TEXT = "User cannot access the resource."

_CONFIG_FIRST_LINE = (
    "Connector configuration is invalid and contains the following {count} error(s):"
)
_CONFIG_LAST_LINE = (
    "You can also find the above list of errors at the endpoint"
    " `/connector-plugins/{connectorType}/config/validate`"
)
#: The line of Kafka Connect for each setting that is null.
NULL_SETTING = "Null value can not be supplied as the configuration value."


class RestError(Exception):
    """A response that is not a success.

    Attributes:
        status: The HTTP status.
        message: The text for the caller.
        headers: Headers of the response in addition to the usual ones.
    """

    def __init__(
        self, status: int, message: str, *, headers: Sequence[tuple[str, str]] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = tuple(headers)


def not_found() -> RestError:
    """The error of a path that does not exist."""
    return RestError(404, "HTTP 404 Not Found")


def method_not_allowed() -> RestError:
    """The error of a method that a path does not have; it has no header Allow in Kafka Connect."""
    return RestError(405, "HTTP 405 Method Not Allowed")


def unauthenticated() -> RestError:
    """The error of a caller without valid credentials. It names no scheme in ``WWW-Authenticate``,
    as in Kafka Connect: browsers would ask for a password.
    """
    return RestError(401, UNAUTHENTICATED_TEXT)


def error_body(error: RestError) -> bytes:
    """The body of an error's response."""
    if error.status == 401:
        return error.message.encode()
    body = {"error_code": error.status, "message": error.message}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def invalid_config(faults: Sequence[str]) -> RestError:
    """The error of a config, with one fault on each line."""
    count = len(faults) + sum(_more(each) - 1 for each in faults if _more(each))
    lines = [_CONFIG_FIRST_LINE.format(count=count), *faults, _CONFIG_LAST_LINE]
    return RestError(400, "\n".join(lines))


def config_faults(error: InvalidArgumentError) -> list[str]:
    """The violations of a config, each in one line, without repetitions."""
    lines = [_fault_line(each) for each in error.violations] or [_one_line(error.message)]
    return list(dict.fromkeys(lines))


def of_drover(error: DroverError, *, request_id: str, texts: Mapping[Reason, str]) -> RestError:
    """The response to an error of a worker.

    Args:
        error: The error.
        request_id: The request id, for errors whose cause is in the logs only.
        texts: Kafka Connect's texts of this operation for some reasons.
    """
    status = STATUSES.get(error.reason, 500)
    if status == 401:
        return unauthenticated()
    if error.reason is Reason.INVALID_CONFIG and isinstance(error, InvalidArgumentError):
        return invalid_config(config_faults(error))
    if error.reason in texts:
        message = texts[error.reason]
    elif status != 500 or error.reason in _READABLE:
        message = error.message
    else:
        message = f"the request failed; the logs have the cause under the request id {request_id}"
    retry_after_s = _RETRY_AFTER_S.get(status)
    headers = [("retry-after", str(retry_after_s))] if retry_after_s else []
    return RestError(status, message, headers=headers)


def _fault_line(violation: Violation) -> str:
    setting = violation.field.removeprefix(_SETTING_PREFIX).removesuffix(_SETTING_SUFFIX)
    text = _one_line(violation.description)
    return f"{setting}: {text}" if setting else text


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _more(line: str) -> int:
    """The number in ``+37 more``, the last entry of a list of violations that was cut; else 0."""
    count = line.removeprefix(_MORE_PREFIX).removesuffix(_MORE_SUFFIX)
    is_count = line == f"{_MORE_PREFIX}{count}{_MORE_SUFFIX}" and count.isdecimal()
    return int(count) if is_count else 0
