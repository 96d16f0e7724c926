"""Every error that Drover tells a caller about.

    DroverError
    ├── InvalidArgumentError      the caller's input; carries every violation
    ├── NotFoundError
    ├── AlreadyExistsError
    ├── FailedPreconditionError   a stale token: generation, claim, epoch, ownership
    ├── AbortedError              decide again on fresh state
    ├── UnavailableError          retry the same call
    ├── ResourceExhaustedError    back off
    ├── OutOfRangeError           read a snapshot and watch from there
    ├── DeadlineExceededError
    ├── DataLossError             a log that cannot be read
    ├── UnauthenticatedError      who calls is not known
    ├── PermissionDeniedError     who calls may not do that, or is not who it says
    ├── UnsupportedCallError      the server does not have the call
    └── InternalError             a defect

The class gives the gRPC code, the reason says which rule; a message says what was wrong, where, and
what to do next. ``drover.rpc.status`` turns them into google.rpc.Status and back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar


class Reason(StrEnum):
    """Why a call failed; equal to the proto enum ErrorReason (a test keeps them so)."""

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
    NO_OTHER_WORKER = "NO_OTHER_WORKER"
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


@dataclass(frozen=True, slots=True)
class Violation:
    """One fault of the caller's input: where it is and what would be right."""

    field: str
    description: str


class DroverError(Exception):
    """The root. Never raised itself.

    ``metadata`` holds the facts a caller needs to act, under lowerCamel keys
    (``currentGeneration``).
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
        """So that executors can send it: its constructor takes other arguments than Exception's."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(
    kind: type[DroverError], args: tuple[object, ...], state: Mapping[str, object]
) -> DroverError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class InvalidArgumentError(DroverError):
    """The caller's input is wrong; ``violations`` lists every fault at once."""

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
        """The error whose message is its violations, the first five of them."""
        message = "; ".join(f"{each.field}: {each.description}" for each in violations[:5])
        if len(violations) > 5:
            message += f"; and {len(violations) - 5} more"
        return cls(reason, message, violations=violations)


class NotFoundError(DroverError):
    """The thing the caller names is not there."""

    code = "NOT_FOUND"


class AlreadyExistsError(DroverError):
    """The thing the caller wants to make is there."""

    code = "ALREADY_EXISTS"


class FailedPreconditionError(DroverError):
    """The caller holds a token that is no longer good, or asks the wrong server."""

    code = "FAILED_PRECONDITION"


class AbortedError(DroverError):
    """The state changed since the caller read it."""

    code = "ABORTED"


class UnavailableError(DroverError):
    """The same call can succeed later; nothing was done."""

    code = "UNAVAILABLE"


class ResourceExhaustedError(DroverError):
    """A bound was hit."""

    code = "RESOURCE_EXHAUSTED"


class OutOfRangeError(DroverError):
    """The history does not reach back that far."""

    code = "OUT_OF_RANGE"


class DeadlineExceededError(DroverError):
    """The work did not finish in time; it may still finish."""

    code = "DEADLINE_EXCEEDED"


class DataLossError(DroverError):
    """A log holds what cannot be read."""

    code = "DATA_LOSS"


class UnauthenticatedError(DroverError):
    """It is not known who calls: credentials are missing or not accepted."""

    code = "UNAUTHENTICATED"


class PermissionDeniedError(DroverError):
    """The caller lacks the role that the call needs, or its signature is not a worker's."""

    code = "PERMISSION_DENIED"


class UnsupportedCallError(DroverError):
    """The server does not have the call: it is older than the client, or something else."""

    code = "UNIMPLEMENTED"


class InternalError(DroverError):
    """A defect of Drover."""

    code = "INTERNAL"

    def __init__(self, message: str, *, reason: Reason = Reason.INTERNAL) -> None:
        super().__init__(reason, message)
