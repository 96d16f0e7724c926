"""Telling faults of the store, of Spark, of a record and of the plugin apart.

What a pass raises on an executor is raised again here as it was (ADR 0014). In a frame that a
plugin runs by itself it reaches the driver as text inside Spark's exception.
"""

import re
from enum import Enum

from drover.dataplane.answers import PassLostError, with_causes
from drover.errors import (
    DroverError,
    FailedPreconditionError,
    OutOfRangeError,
    Reason,
    UnavailableError,
)
from drover.pipeline import RecordFailedError
from drover_worker.engine.plugins.threads import error_text

_RECORD_FAILED = re.compile(r"^drover\.pipeline\.failures\.RecordFailedError: (.*)$", re.MULTILINE)
_WORKER_LOST = "org.apache.spark.SparkException: Python worker exited unexpectedly"
_HEAP_USED_UP = "java.lang.OutOfMemoryError"
_RAISED = re.compile(r"^drover\.errors\.(\w+):", re.MULTILINE)


class Fault(Enum):
    """What is not the plugin's."""

    #: A later claim counts.
    STALE_CLAIM = "stale claim"
    #: Busy, full, or read too late: the same work can succeed later.
    UNAVAILABLE = "unavailable"
    #: A process of Spark ended under the call, which can succeed in the next one.
    LOST = "lost"


def fault_of(error: BaseException) -> Fault | None:
    """The fault behind ``error``; None when it is the plugin's, or a record's."""
    for cause in with_causes(error):
        if isinstance(cause, DroverError):
            return _of_drover_error(cause)
        text = error_text(cause)
        # a stale claim is not looked for here: the store is asked who holds the task
        if set(_RAISED.findall(text)) & {UnavailableError.__name__, OutOfRangeError.__name__}:
            return Fault.UNAVAILABLE
        if isinstance(cause, PassLostError) or _WORKER_LOST in text:
            return Fault.LOST
    return None


def failed_record(error: BaseException) -> str | None:
    """What is told of the record that ``error`` is about; None when it is about something else."""
    for cause in with_causes(error):
        if isinstance(cause, RecordFailedError):
            return error_text(cause)
        found = _RECORD_FAILED.search(error_text(cause))
        if found is not None:
            return found[1]
    return None


def memory_advice(error: BaseException) -> str | None:
    """What is told first when ``error`` is that there was no memory for what the task did."""
    for cause in with_causes(error):
        if isinstance(cause, MemoryError) or _HEAP_USED_UP in error_text(cause):
            what = "Spark's JVM" if _HEAP_USED_UP in error_text(cause) else "Python"
            return (
                f"out of memory: {what} had none left for this call; ask for less at a time with "
                "batch.max.bytes or batch.max.records, or give the worker more"
            )
    return None


def _of_drover_error(error: DroverError) -> Fault | None:
    if isinstance(error, FailedPreconditionError) and error.reason is Reason.STALE_CLAIM:
        return Fault.STALE_CLAIM
    if isinstance(error, UnavailableError | OutOfRangeError):
        return Fault.UNAVAILABLE
    return None
