"""Errors of the REST API: Kafka Connect's statuses and texts, and nothing of the inside."""

import json

import pytest

from drover.errors import (
    DeadlineExceededError,
    DroverError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    Reason,
    UnauthenticatedError,
    UnavailableError,
    Violation,
)
from drover_gateway.rest.errors import RestError, error_body, of_drover


def shown(error: DroverError, **texts: str) -> RestError:
    return of_drover(
        error, request_id="id-1", texts={Reason(reason): text for reason, text in texts.items()}
    )


def test_a_config_is_refused_with_the_first_and_last_line_of_kafka_connect() -> None:
    faults = [
        Violation('config["tasks.max"]', "must be a whole number,\n not 'many'"),
        Violation('config["tasks.max"]', "must be a whole number,\n not 'many'"),
        Violation("name", "must not be empty"),
        Violation("", "+37 more"),
    ]
    error = InvalidArgumentError(Reason.INVALID_CONFIG, "39 faults", violations=faults)
    assert shown(error).status == 400
    assert shown(error).message.splitlines() == [
        "Connector configuration is invalid and contains the following 39 error(s):",
        "tasks.max: must be a whole number, not 'many'",
        "name: must not be empty",
        "+37 more",
        "You can also find the above list of errors at the endpoint"
        " `/connector-plugins/{connectorType}/config/validate`",
    ]


def test_reasons_have_the_texts_of_the_operation() -> None:
    error = NotFoundError(Reason.CONNECTOR_NOT_FOUND, "connector 'a' does not exist")
    assert (shown(error).status, shown(error).message) == (404, "connector 'a' does not exist")
    assert shown(error, CONNECTOR_NOT_FOUND="Unknown connector a").message == "Unknown connector a"


def test_unavailable_workers_are_503_with_the_cause_and_a_pause() -> None:
    error = shown(UnavailableError(Reason.SERVICE_UNREACHABLE, "the coordinator does not respond"))
    assert (error.status, error.message) == (503, "the coordinator does not respond")
    assert ("retry-after", "1") in error.headers


def test_an_error_of_the_server_shows_the_request_id_only() -> None:
    error = shown(InternalError("Traceback: secret"))
    assert error.status == 500
    assert "id-1" in error.message
    assert "secret" not in error.message
    late = shown(DeadlineExceededError(Reason.DEADLINE_EXCEEDED, "the worker was writing"))
    assert (late.status, late.message) == (500, "the worker was writing")


def test_callers_without_credentials_get_the_text_of_kafka_connect() -> None:
    error = shown(UnauthenticatedError(Reason.INVALID_CREDENTIALS, "the token is rejected"))
    assert error.status == 401
    assert error_body(error) == b"User cannot access the resource."
    assert "www-authenticate" not in dict(error.headers)


def test_bodies_are_json_whatever_the_names_are() -> None:
    body = error_body(RestError(404, 'Connector a"\n\0\ud800 not found'))
    assert json.loads(body) == {"error_code": 404, "message": 'Connector a"\n\0? not found'}


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_a_status(reason: Reason) -> None:
    assert shown(InvalidArgumentError(reason, "text")).status in (
        *(400, 401, 403, 404, 409, 429),
        *(500, 503),
    )
