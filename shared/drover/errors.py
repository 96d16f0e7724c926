"""All errors that Drover returns to callers.

    DroverError
    ├── InvalidArgumentError      invalid input; lists all violations
    ├── NotFoundError
    ├── AlreadyExistsError
    ├── FailedPreconditionError   a stale token: generation, claim, epoch, ownership
    ├── AbortedError              decide again on fresh state
    ├── UnavailableError          retry the same call
    ├── ResourceExhaustedError    back off
    ├── OutOfRangeError           read a snapshot and watch from there
    ├── DeadlineExceededError
    ├── DataLossError             a corrupt log
    ├── UnauthenticatedError      missing or invalid credentials
    ├── PermissionDeniedError     missing role, or a signature that is not a worker's
    ├── UnsupportedCallError      the server does not have the RPC
    └── InternalError             a bug

The class determines the gRPC code, the reason names the violated rule, and the message states what
failed, where, and the remedy. ``drover.rpc.status`` converts errors to google.rpc.Status and back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

#: In the metadata of NOT_COORDINATOR: the address of the coordinator that owns the group.
OWNER_KEY = "coordinator"
#: In the metadata of DEADLINE_EXCEEDED: the cluster could not execute the call in its time, because
#: there was no leader, or another service was unavailable.
UNAVAILABLE_KEY = "unavailable"


class Reason(StrEnum):
    """Why a call failed; equal to the proto enum ErrorReason (a test compares them)."""

    INVALID_REQUEST = "INVALID_REQUEST"
    MISSING_DEADLINE = "MISSING_DEADLINE"
    INVALID_GROUP_ID = "INVALID_GROUP_ID"
    INVALID_SESSION_TIMEOUT = "INVALID_SESSION_TIMEOUT"
    INCONSISTENT_GROUP_PROTOCOL = "INCONSISTENT_GROUP_PROTOCOL"
    INVALID_CONFIG = "INVALID_CONFIG"
    TOO_LARGE = "TOO_LARGE"
    UNKNOWN_MEMBER_ID = "UNKNOWN_MEMBER_ID"
    GROUP_ID_NOT_FOUND = "GROUP_ID_NOT_FOUND"
    CONNECTOR_NOT_FOUND = "CONNECTOR_NOT_FOUND"
    TASK_NOT_FOUND = "TASK_NOT_FOUND"
    PLUGIN_NOT_FOUND = "PLUGIN_NOT_FOUND"
    TOPIC_NOT_FOUND = "TOPIC_NOT_FOUND"
    REVISION_NOT_FOUND = "REVISION_NOT_FOUND"
    WORKER_NOT_FOUND = "WORKER_NOT_FOUND"
    CONNECTOR_ALREADY_EXISTS = "CONNECTOR_ALREADY_EXISTS"
    ILLEGAL_GENERATION = "ILLEGAL_GENERATION"
    FENCED_INSTANCE_ID = "FENCED_INSTANCE_ID"
    NOT_COORDINATOR = "NOT_COORDINATOR"
    STALE_CLAIM = "STALE_CLAIM"
    STALE_WRITER_EPOCH = "STALE_WRITER_EPOCH"
    STALE_TERM = "STALE_TERM"
    NOT_LEADER = "NOT_LEADER"
    NOT_OWNER = "NOT_OWNER"
    NON_EMPTY_GROUP = "NON_EMPTY_GROUP"
    STORAGE_OWNED = "STORAGE_OWNED"
    STORAGE_MISCONFIGURED = "STORAGE_MISCONFIGURED"
    PREVIEW_FAILED = "PREVIEW_FAILED"
    CONNECTOR_NOT_STOPPED = "CONNECTOR_NOT_STOPPED"
    OFFSETS_REFUSED = "OFFSETS_REFUSED"
    OFFSETS_LOST = "OFFSETS_LOST"
    NO_OTHER_WORKER = "NO_OTHER_WORKER"
    REPLAY_IN_PROGRESS = "REPLAY_IN_PROGRESS"
    PLAN_CHANGED = "PLAN_CHANGED"
    REVISION_MISMATCH = "REVISION_MISMATCH"
    PART_MISSING = "PART_MISSING"
    COORDINATOR_NOT_AVAILABLE = "COORDINATOR_NOT_AVAILABLE"
    COORDINATOR_LOAD_IN_PROGRESS = "COORDINATOR_LOAD_IN_PROGRESS"
    LOADING = "LOADING"
    DRAINING = "DRAINING"
    STORAGE_UNAVAILABLE = "STORAGE_UNAVAILABLE"
    LEADER_UNKNOWN = "LEADER_UNKNOWN"
    ENGINE_UNAVAILABLE = "ENGINE_UNAVAILABLE"
    SERVICE_UNREACHABLE = "SERVICE_UNREACHABLE"
    SESSION_KEY_UNKNOWN = "SESSION_KEY_UNKNOWN"
    GROUP_MAX_SIZE_REACHED = "GROUP_MAX_SIZE_REACHED"
    QUEUE_FULL = "QUEUE_FULL"
    REVISION_COMPACTED = "REVISION_COMPACTED"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    LOG_CORRUPT = "LOG_CORRUPT"
    NOT_IMPLEMENTED = "NOT_IMPLEMENTED"
    INTERNAL = "INTERNAL"
    MISSING_CREDENTIALS = "MISSING_CREDENTIALS"
    INVALID_CREDENTIALS = "INVALID_CREDENTIALS"
    MISSING_ROLE = "MISSING_ROLE"
    INVALID_SIGNATURE = "INVALID_SIGNATURE"
    SECRETS_MASKED = "SECRETS_MASKED"


@dataclass(frozen=True, slots=True)
class Violation:
    """One error in the caller's input: the field, and what is valid."""

    field: str
    description: str


class Caution(Violation):
    """A risk of a valid setting: shown by validation as a warning."""


@dataclass(frozen=True, slots=True)
class SkippedCheck(Violation):
    """A check that is not possible at the moment, such as one of a system that rejects requests
    for the time being: no error. ``description`` has the check and the reason.
    """


class DroverError(Exception):
    """The base class; never raised itself.

    Attributes:
        reason: The violated rule.
        message: The message.
        metadata: Facts for the caller's reaction, under lowerCamel keys (``currentGeneration``).
    """

    code: ClassVar[str] = "UNKNOWN"

    def __init__(
        self, reason: Reason, message: str, *, metadata: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.metadata: dict[str, str] = dict(metadata or {})

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling: the constructor's parameters differ from Exception's."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(
    kind: type[DroverError], args: tuple[object, ...], state: Mapping[str, object]
) -> DroverError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


def listed_message(violations: Sequence[Violation]) -> str:
    """A message with the first five violations."""
    message = "; ".join(f"{each.field}: {each.description}" for each in violations[:5])
    return f"{message}; and {len(violations) - 5} more" if len(violations) > 5 else message


class InvalidArgumentError(DroverError):
    """The caller's input is invalid; ``violations`` lists all errors at once."""

    code = "INVALID_ARGUMENT"

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        violations: Sequence[Violation] = (),
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(reason, message, metadata=metadata)
        self.violations = tuple(violations)

    @classmethod
    def listing(
        cls, violations: Sequence[Violation], *, reason: Reason = Reason.INVALID_REQUEST
    ) -> "InvalidArgumentError":
        """An error whose message lists its first five violations."""
        return cls(reason, listed_message(violations), violations=violations)


class NotFoundError(DroverError):
    """The named object does not exist."""

    code = "NOT_FOUND"


class AlreadyExistsError(DroverError):
    """The object to create exists already."""

    code = "ALREADY_EXISTS"


class FailedPreconditionError(DroverError):
    """The caller's token is stale, or the caller called the wrong server."""

    code = "FAILED_PRECONDITION"


class AbortedError(DroverError):
    """The state changed since the caller read it."""

    code = "ABORTED"


class UnavailableError(DroverError):
    """Nothing was done; the same call can succeed later."""

    code = "UNAVAILABLE"


class ResourceExhaustedError(DroverError):
    """A limit was reached."""

    code = "RESOURCE_EXHAUSTED"


class OutOfRangeError(DroverError):
    """The kept history starts after the requested offset."""

    code = "OUT_OF_RANGE"


class DeadlineExceededError(DroverError):
    """The work did not finish in time; it may still finish."""

    code = "DEADLINE_EXCEEDED"


class DataLossError(DroverError):
    """A log contains an unreadable record."""

    code = "DATA_LOSS"


class UnauthenticatedError(DroverError):
    """The caller is unknown: credentials are missing or were rejected."""

    code = "UNAUTHENTICATED"


class PermissionDeniedError(DroverError):
    """The caller does not have the required role, or its signature is not a worker's."""

    code = "PERMISSION_DENIED"


class UnsupportedCallError(DroverError):
    """The server does not have the RPC: it is older than the client, or another program."""

    code = "UNIMPLEMENTED"


class InternalError(DroverError):
    """A bug in Drover."""

    code = "INTERNAL"

    def __init__(self, message: str, *, reason: Reason = Reason.INTERNAL) -> None:
        super().__init__(reason, message)
