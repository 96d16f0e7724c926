"""Telling faults of the store, of a record and of the plugin apart.

What a pass raises on an executor is raised again here as it was (ADR 0014). In a frame that a
plugin runs by itself it reaches the driver as text inside Spark's exception.
"""

import re
from enum import Enum

from drover.errors import (
    DroverError,
    FailedPreconditionError,
    OutOfRangeError,
    Reason,
    UnavailableError,
)
from drover.pipeline import RecordFailedError
from drover_worker.engine.threads import error_text

_CAUSES_MAX = 10
_RECORD_FAILED = re.compile(r"^drover\.pipeline\.failures\.RecordFailedError: (.*)$", re.MULTILINE)
_RAISED = re.compile(r"^drover\.errors\.(\w+):", re.MULTILINE)


class StorageFault(Enum):
    """What the store refused."""

    #: A later claim counts.
    STALE_CLAIM = "stale claim"
    #: Busy, full, or read too late: the same work can succeed later.
    UNAVAILABLE = "unavailable"


def storage_fault(error: BaseException) -> StorageFault | None:
    """The fault of the store behind ``error``; None when it is somebody else's."""
    cause: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if cause is None:
            break
        if isinstance(cause, DroverError):
            return _of_drover_error(cause)
        # a stale claim is not looked for here: the store is asked who holds the task
        names = set(_RAISED.findall(error_text(cause)))
        if names & {UnavailableError.__name__, OutOfRangeError.__name__}:
            return StorageFault.UNAVAILABLE
        cause = cause.__cause__ or cause.__context__
    return None


def failed_record(error: BaseException) -> str | None:
    """What is told of the record that ``error`` is about; None when it is about something else."""
    cause: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if cause is None:
            break
        if isinstance(cause, RecordFailedError):
            return error_text(cause)
        found = _RECORD_FAILED.search(error_text(cause))
        if found is not None:
            return found[1]
        cause = cause.__cause__ or cause.__context__
    return None


def _of_drover_error(error: DroverError) -> StorageFault | None:
    if isinstance(error, FailedPreconditionError) and error.reason is Reason.STALE_CLAIM:
        return StorageFault.STALE_CLAIM
    if isinstance(error, UnavailableError | OutOfRangeError):
        return StorageFault.UNAVAILABLE
    return None
