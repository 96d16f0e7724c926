"""Converts DroverError to google.rpc.Status and back.

A status is sent in the trailers of a call. Some clients encode trailers in base64 and fail above
8 KiB. So the message is limited to 1 KiB and the whole status to 5 KiB (6.7 KiB in base64). If some
violations do not fit, the last one has their number ("+37 more").
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import grpc
import grpc.aio
from google.rpc.code_pb2 import Code
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

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

MESSAGE_MAX_BYTES = 1024
STATUS_MAX_BYTES = 5 * 1024
METADATA_VALUE_MAX_BYTES = 256
METADATA_MAX_COUNT = 8
VIOLATION_FIELD_MAX_BYTES = 256
VIOLATION_DESCRIPTION_MAX_BYTES = 768
#: The delay in RetryInfo.
RETRY_DELAY_MS = 200

DETAILS_KEY = "grpc-status-details-bin"
_DOMAIN_SUFFIX = ".drover"
_MARK = "…"
_MORE = re.compile(r"\+(\d+) more\Z")

_PLAIN_CLASSES: dict[str, type[DroverError]] = {
    cls.code: cls
    for cls in (
        AbortedError,
        AlreadyExistsError,
        DataLossError,
        DeadlineExceededError,
        FailedPreconditionError,
        NotFoundError,
        OutOfRangeError,
        PermissionDeniedError,
        ResourceExhaustedError,
        UnauthenticatedError,
        UnavailableError,
        UnsupportedCallError,
    )
}

#: The reason of an error without ErrorInfo, which is from the transport, not from Drover.
_TRANSPORT_REASONS = {
    "INVALID_ARGUMENT": Reason.INVALID_REQUEST,
    "UNAVAILABLE": Reason.SERVICE_UNREACHABLE,
    "DEADLINE_EXCEEDED": Reason.DEADLINE_EXCEEDED,
    "RESOURCE_EXHAUSTED": Reason.TOO_LARGE,
    "UNIMPLEMENTED": Reason.NOT_IMPLEMENTED,
    "UNAUTHENTICATED": Reason.INVALID_CREDENTIALS,
    "PERMISSION_DENIED": Reason.MISSING_ROLE,
}
#: grpc.aio's message for calls above ``maximum_concurrent_rpcs``; it has no separate code.
_TOO_MANY_CALLS = "Concurrent RPC limit exceeded"


def domain_of(method: str) -> str:
    """The ErrorInfo domain of a full method name: ``<service>.drover``.

    ``/drover.api.coordinator.v1.CoordinatorService/JoinGroup`` gives ``coordinator.drover``.
    """
    parts = method.removeprefix("/").split(".")
    name = parts[2] if parts[:2] == ["drover", "api"] and len(parts) > 3 else parts[0]
    return name + _DOMAIN_SUFFIX


def to_rpc_status(error: DroverError, domain: str) -> Status:
    """The google.rpc.Status of an error, within the size limits.

    Args:
        error: The error.
        domain: The service that reports it, ``<service>.drover``.
    """
    status = Status(code=Code.Value(error.code), message=_cut_message(error.message))
    info = ErrorInfo(reason=error.reason.value, domain=domain)
    for key, value in list(error.metadata.items())[:METADATA_MAX_COUNT]:
        info.metadata[_cut(key, 64)] = _cut(value, METADATA_VALUE_MAX_BYTES)
    status.details.add().Pack(info)
    if isinstance(error, UnavailableError):
        retry = RetryInfo()
        retry.retry_delay.FromMilliseconds(RETRY_DELAY_MS)
        status.details.add().Pack(retry)
    if isinstance(error, InvalidArgumentError) and error.violations:
        _add_violations(status, error.violations)
    return status


async def abort_with(
    context: "grpc.aio.ServicerContext[Any, Any]",
    error: DroverError,
    domain: str,
    trailers: tuple[tuple[str, str], ...] = (),
) -> NoReturn:
    """End the call of ``context`` with ``error``; always raises, as gRPC's ``abort`` does."""
    status = rpc_status.to_status(to_rpc_status(error, domain))
    await context.abort(status.code, status.details, (*status.trailing_metadata, *trailers))
    raise AssertionError("abort returned")


def from_rpc_error(error: grpc.RpcError) -> DroverError:
    """The error of a failed call; an error of the transport gets the class of its code.

    A refused or broken connection is UnavailableError (SERVICE_UNREACHABLE), a missed deadline is
    DeadlineExceededError. A message above the transport's limit and a call above the server's limit
    of concurrent calls are ResourceExhaustedError (TOO_LARGE, QUEUE_FULL).
    """
    if not isinstance(error, grpc.aio.AioRpcError):
        return InternalError(f"gRPC failed: {error}")
    code, message = error.code().name, error.details() or ""
    status = _details(error.trailing_metadata())
    if status is None:
        return _from_transport(code, message)
    return _from_status(code, status, message)


def from_rpc_status(data: bytes) -> DroverError:
    """The error of a serialized google.rpc.Status that ``to_rpc_status`` created."""
    status = Status.FromString(data)
    return _from_status(Code.Name(status.code), status, status.message)


def _from_status(code: str, status: Status, message: str) -> DroverError:
    reason, metadata, violations = None, {}, []
    for detail in status.details:
        if detail.Is(ErrorInfo.DESCRIPTOR):
            info = ErrorInfo()
            detail.Unpack(info)
            reason, metadata = _reason(info.reason), dict(info.metadata)
        elif detail.Is(BadRequest.DESCRIPTOR):
            faults = BadRequest()
            detail.Unpack(faults)
            violations = [Violation(v.field, v.description) for v in faults.field_violations]
    if reason is None:
        return _from_transport(code, status.message or message)
    return _build(code, reason, status.message or message, metadata, violations)


def _from_transport(code: str, message: str) -> DroverError:
    if code == "CANCELLED":  # by the server or transport: a local cancel raises CancelledError
        code = "UNAVAILABLE"
    reason = _TRANSPORT_REASONS.get(code, Reason.INTERNAL)
    if code == "RESOURCE_EXHAUSTED" and message.startswith(_TOO_MANY_CALLS):
        reason = Reason.QUEUE_FULL
    text = {
        "UNAVAILABLE": f"the server cannot be reached: {message}",
        "DEADLINE_EXCEEDED": f"no response before the deadline: {message}",
    }.get(code, message)
    return _build(code, reason, text, {}, [])


def _build(
    code: str,
    reason: Reason,
    message: str,
    metadata: Mapping[str, str],
    violations: Iterable[Violation],
) -> DroverError:
    error: DroverError
    if code == InvalidArgumentError.code:
        error = InvalidArgumentError(reason, message, violations=tuple(violations))
    elif code in _PLAIN_CLASSES:
        error = _PLAIN_CLASSES[code](reason, message)
    else:
        error = InternalError(message or f"the call failed with {code}", reason=reason)
    error.metadata = dict(metadata)
    return error


def _reason(name: str) -> Reason:
    try:
        return Reason(name)
    except ValueError:  # from a newer server
        return Reason.INTERNAL


def _details(trailers: object) -> Status | None:
    if not isinstance(trailers, Iterable):
        return None
    for key, value in trailers:
        if key == DETAILS_KEY:
            try:
                return Status.FromString(value)
            except Exception:  # noqa: BLE001 - bytes of a foreign server; its code is still used
                return None
    return None


def _add_violations(status: Status, violations: Iterable[Violation]) -> None:
    """Pack as many violations as fit; the last entry has the number of the omitted ones."""
    remaining = list(violations)
    earlier = _MORE.match(remaining[-1].description) if not remaining[-1].field else None
    if earlier:  # another server has already cut the list of a forwarded error
        remaining.pop()
    omitted_count = int(earlier.group(1)) if earlier else 0
    faults = BadRequest()
    # minus the Any's type URL, its lengths and the "+N more" entry
    left = STATUS_MAX_BYTES - status.ByteSize() - 96
    for index, violation in enumerate(remaining):
        entry = BadRequest.FieldViolation(
            field=_cut(violation.field, VIOLATION_FIELD_MAX_BYTES),
            description=_cut(violation.description, VIOLATION_DESCRIPTION_MAX_BYTES),
        )
        left -= entry.ByteSize() + 4
        if left < 0:
            omitted_count += len(remaining) - index
            break
        faults.field_violations.append(entry)
    if omitted_count:
        faults.field_violations.add(description=f"+{omitted_count} more")
    status.details.add().Pack(faults)


def _cut_message(text: str) -> str:
    """Limit the size of the message, percent-encoded as in the grpc-message trailer."""
    cost = 0
    for index, char in enumerate(text):
        cost += 1 if " " <= char <= "~" and char != "%" else 3 * len(char.encode(errors="replace"))
        if cost > MESSAGE_MAX_BYTES - 9:
            return _clean(text[:index]) + _MARK
    return _clean(text)


def _cut(text: str, max_bytes: int) -> str:
    encoded = _clean(text).encode()
    if len(encoded) <= max_bytes:
        return _clean(text)
    return encoded[: max_bytes - len(_MARK.encode())].decode(errors="ignore") + _MARK


def _clean(text: str) -> str:
    """Replace lone surrogates, which protobuf rejects."""
    return text.encode(errors="replace").decode()
