import base64
from typing import Any
from urllib.parse import quote

import grpc
import grpc.aio
import pytest
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from hypothesis import given
from hypothesis import strategies as st

from drover.errors import (
    AbortedError,
    AlreadyExistsError,
    DataLossError,
    DeadlineExceededError,
    DroverError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    PermissionDeniedError,
    Reason,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
    UnsupportedCallError,
    Violation,
)
from drover.rpc.status import DETAILS_KEY, domain_of, from_rpc_error, to_rpc_status

SAFE_TRAILER_BYTES = 8192  # the default limit of a client that reads base64


def as_call_error(status: Status) -> grpc.aio.AioRpcError:
    """The client's error when a server ends a call with ``status``."""
    code = next(code for code in grpc.StatusCode if code.value[0] == status.code)
    trailers = grpc.aio.Metadata((DETAILS_KEY, status.SerializeToString()))
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailers, details=status.message)


def plain_call_error(code: grpc.StatusCode, text: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=text)


def round_trip(error: DroverError) -> DroverError:
    return from_rpc_error(as_call_error(to_rpc_status(error, "test.drover")))


def unpack(status: Status, kind: Any) -> Any:
    """The detail of a kind; None if the status has none."""
    for detail in status.details:
        message = kind()
        if detail.Unpack(message):
            return message
    return None


def wire_bytes(status: Status) -> int:
    """The size of the trailers for a client that reads base64."""
    details = base64.b64encode(status.SerializeToString())
    return len(details) + len(quote(status.message, safe=" !\"#$&'()*+,-./:;<=>?@[]^_`{|}~"))


@pytest.mark.parametrize(
    "error",
    [
        InvalidArgumentError(
            Reason.INVALID_CONFIG,
            "two faults",
            violations=(Violation("a", "one"), Violation("b", "two")),
            metadata={"connector": "flights"},
        ),
        NotFoundError(Reason.UNKNOWN_MEMBER_ID, "no member m"),
        AlreadyExistsError(Reason.CONNECTOR_ALREADY_EXISTS, "flights exists"),
        FailedPreconditionError(
            Reason.ILLEGAL_GENERATION, "not 3", metadata={"currentGeneration": "4"}
        ),
        AbortedError(Reason.REVISION_MISMATCH, "not 7"),
        UnavailableError(Reason.LOADING, "loading"),
        ResourceExhaustedError(Reason.QUEUE_FULL, "full"),
        OutOfRangeError(Reason.REVISION_COMPACTED, "too old"),
        DeadlineExceededError(Reason.DEADLINE_EXCEEDED, "stage: reading the config log"),
        DataLossError(Reason.LOG_CORRUPT, "record 5"),
        UnsupportedCallError(Reason.NOT_IMPLEMENTED, "DeleteGroup"),
        InternalError("a defect"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_every_error_comes_back_as_it_was(error: DroverError) -> None:
    back = round_trip(error)
    assert type(back) is type(error)
    assert (back.reason, back.message, back.metadata) == (
        error.reason,
        error.message,
        error.metadata,
    )
    assert getattr(back, "violations", ()) == getattr(error, "violations", ())


def test_every_class_of_the_tree_has_its_own_code() -> None:
    classes = DroverError.__subclasses__()
    assert len({cls.code for cls in classes}) == len(classes) == 14


def test_error_info_names_reason_and_domain() -> None:
    status = to_rpc_status(NotFoundError(Reason.TASK_NOT_FOUND, "no task 9"), "connect.drover")
    info = unpack(status, ErrorInfo)
    assert (info.reason, info.domain) == ("TASK_NOT_FOUND", "connect.drover")


def test_200_long_violations_fit_the_cap_and_the_rest_is_counted() -> None:
    violations = [Violation(f'config["{i}"]', "must be " + "long " * 300) for i in range(200)]
    error = InvalidArgumentError(Reason.INVALID_CONFIG, "200 faults " * 1000, violations=violations)
    status = to_rpc_status(error, "connect.drover")
    assert wire_bytes(status) < SAFE_TRAILER_BYTES - 500
    back = round_trip(error)
    assert isinstance(back, InvalidArgumentError)
    *told, last = back.violations
    assert told
    assert last == Violation("", f"+{200 - len(told)} more")
    assert [v.field for v in told] == [v.field for v in violations[: len(told)]]


def test_short_violations_are_all_told() -> None:
    violations = tuple(Violation(f"f{i}", "must not be empty") for i in range(40))
    error = InvalidArgumentError(Reason.INVALID_CONFIG, "40 faults", violations=violations)
    back = round_trip(error)
    assert isinstance(back, InvalidArgumentError)
    assert back.violations == violations


def test_an_error_that_is_passed_on_keeps_its_count() -> None:
    violations = [Violation(f"f{i}", "x" * 700) for i in range(200)]
    first = round_trip(InvalidArgumentError(Reason.INVALID_CONFIG, "m", violations=violations))
    second = round_trip(first)
    assert isinstance(first, InvalidArgumentError)
    assert isinstance(second, InvalidArgumentError)
    assert second.violations == first.violations


@given(
    message=st.text(max_size=3000),
    metadata=st.dictionaries(st.text(max_size=100), st.text(max_size=1000), max_size=20),
    violations=st.lists(
        st.builds(Violation, st.text(max_size=500), st.text(max_size=2000)), max_size=60
    ),
)
def test_no_error_breaks_the_cap(
    message: str, metadata: dict[str, str], violations: list[Violation]
) -> None:
    error = InvalidArgumentError(
        Reason.INVALID_CONFIG, message, violations=violations, metadata=metadata
    )
    status = to_rpc_status(error, "connect.drover")
    assert wire_bytes(status) < SAFE_TRAILER_BYTES - 200
    back = from_rpc_error(as_call_error(status))
    assert isinstance(back, InvalidArgumentError)
    assert bool(back.violations) == bool(violations)


def test_a_lone_surrogate_does_not_break_the_answer() -> None:
    error = NotFoundError(Reason.CONNECTOR_NOT_FOUND, "no \udc80", metadata={"name": "\udc80"})
    assert round_trip(error).message == "no ?"


def test_retry_info_comes_with_unavailable_only() -> None:
    unavailable = UnavailableError(Reason.LOADING, "wait")
    info = unpack(to_rpc_status(unavailable, "x.drover"), RetryInfo)
    assert info.retry_delay.ToMilliseconds() == 200
    other = NotFoundError(Reason.TASK_NOT_FOUND, "no")
    assert unpack(to_rpc_status(other, "x.drover"), RetryInfo) is None


@pytest.mark.parametrize(
    ("code", "kind", "reason"),
    [
        (grpc.StatusCode.UNAVAILABLE, UnavailableError, Reason.SERVICE_UNREACHABLE),
        (grpc.StatusCode.CANCELLED, UnavailableError, Reason.SERVICE_UNREACHABLE),
        (grpc.StatusCode.DEADLINE_EXCEEDED, DeadlineExceededError, Reason.DEADLINE_EXCEEDED),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, ResourceExhaustedError, Reason.TOO_LARGE),
        (grpc.StatusCode.UNIMPLEMENTED, UnsupportedCallError, Reason.NOT_IMPLEMENTED),
        (grpc.StatusCode.UNKNOWN, InternalError, Reason.INTERNAL),
        (grpc.StatusCode.DATA_LOSS, DataLossError, Reason.INTERNAL),
        (grpc.StatusCode.PERMISSION_DENIED, PermissionDeniedError, Reason.MISSING_ROLE),
        (grpc.StatusCode.UNAUTHENTICATED, UnauthenticatedError, Reason.INVALID_CREDENTIALS),
        (grpc.StatusCode.INVALID_ARGUMENT, InvalidArgumentError, Reason.INVALID_REQUEST),
    ],
)
def test_errors_of_the_transport(
    code: grpc.StatusCode, kind: type[DroverError], reason: Reason
) -> None:
    error = from_rpc_error(plain_call_error(code, "as the transport says"))
    assert type(error) is kind
    assert error.reason is reason
    assert "as the transport says" in error.message


def test_a_reason_of_a_newer_server_keeps_the_class() -> None:
    status = to_rpc_status(NotFoundError(Reason.TASK_NOT_FOUND, "gone"), "x.drover")
    info = ErrorInfo(reason="FROM_THE_FUTURE", domain="x.drover")
    status.details[0].Pack(info)
    error = from_rpc_error(as_call_error(status))
    assert type(error) is NotFoundError
    assert error.reason is Reason.INTERNAL


def test_details_that_cannot_be_read_leave_the_code() -> None:
    call_error = grpc.aio.AioRpcError(
        grpc.StatusCode.UNAVAILABLE,
        grpc.aio.Metadata(),
        grpc.aio.Metadata((DETAILS_KEY, b"\xff\xff not a status")),
        details="away",
    )
    assert isinstance(from_rpc_error(call_error), UnavailableError)


@pytest.mark.parametrize(
    ("method", "domain"),
    [
        ("/drover.api.coordinator.v1.CoordinatorService/JoinGroup", "coordinator.drover"),
        ("/drover.api.config_store.v1.ConfigStoreService/GetSnapshot", "config_store.drover"),
        ("/echo.Echo/Say", "echo.drover"),
    ],
)
def test_domain(method: str, domain: str) -> None:
    assert domain_of(method) == domain
