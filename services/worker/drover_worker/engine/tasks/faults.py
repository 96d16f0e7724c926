"""Classifies errors: faults of the store, of Spark, of a record, or of the plugin.

An error that a pass raises on an executor is raised unchanged on the driver (ADR 0014). An error in
a plugin's own data frame reaches the driver as text in Spark's exception.
"""

import re
from collections.abc import Sequence

from drover.config.plugin_errors import error_text
from drover.connector import RetriableError
from drover.dataplane.answers import ExecutorFilesError, PassLostError, with_causes
from drover.dataplane.arrow_rows import MixedSchemasError
from drover.dataplane.plane import NotPublishedError, ProducerFencedError, StageAgainError
from drover.errors import (
    DataLossError,
    DroverError,
    FailedPreconditionError,
    OutOfRangeError,
    Reason,
    UnavailableError,
)
from drover.pipeline import RecordFailedError
from drover_worker.engine.core.failures import Failure, FailureKind, Fault
from drover_worker.engine.plugins.failure_causes import cause_of_failure
from drover_worker.engine.plugins.memory_relief import relieve_memory
from drover_worker.engine.plugins.threads import cap_text, format_trace

_RECORD_FAILED = re.compile(r"^drover\.pipeline\.failures\.RecordFailedError: (.*)$", re.MULTILINE)
_WORKER_LOST = "org.apache.spark.SparkException: Python worker exited unexpectedly"
_HEAP_USED_UP = "java.lang.OutOfMemoryError"
_RAISED = re.compile(r"^drover\.errors\.(\w+):", re.MULTILINE)

#: The errors that cores handle in their own way.
_KINDS: Sequence[tuple[type[BaseException], FailureKind]] = (
    (RetriableError, FailureKind.RETRIABLE),
    (NotPublishedError, FailureKind.NOT_PUBLISHED),
    (MixedSchemasError, FailureKind.MIXED_SCHEMAS),
    (DataLossError, FailureKind.DATA_LOSS),
    (ProducerFencedError, FailureKind.FENCED),
    (StageAgainError, FailureKind.STAGE_AGAIN),
)


def failure_of(error: BaseException, *, spark_is_running: bool) -> Failure:
    """What is known about an error of an operation; frees memory if there was none left."""
    relieve_memory(error)
    kinds = (kind for error_class, kind in _KINDS if isinstance(error, error_class))
    kind = next(kinds, FailureKind.OTHER)
    if isinstance(error, ProducerFencedError):
        error = error.meaning
    return Failure(
        error=error,
        text=error_text(error),
        kind=kind,
        fault=fault_of(error),
        cause=cause_of_failure(error),
        spark_is_running=spark_is_running,
    )


def fault_of(error: BaseException) -> Fault | None:
    """The fault behind ``error``; None if it is the plugin's or a record's."""
    for cause in with_causes(error):
        if isinstance(cause, DroverError):
            return _of_drover_error(cause)
        text = error_text(cause)
        # a stale claim is not detected from text: the caller checks the claim with the store
        if set(_RAISED.findall(text)) & {UnavailableError.__name__, OutOfRangeError.__name__}:
            return Fault.UNAVAILABLE
        if isinstance(cause, ExecutorFilesError):
            return Fault.EXECUTOR
        if isinstance(cause, PassLostError) or _WORKER_LOST in text:
            return Fault.LOST
    return None


def failed_record(error: BaseException) -> str | None:
    """The description of the record that ``error`` is about, then the traceback of a plugin's code
    that raised it; None if it is not about a record.
    """
    for cause in with_causes(error):
        if isinstance(cause, RecordFailedError):
            return f"{cause}\n\n{cause.trace}" if cause.trace else str(cause)
        found = _RECORD_FAILED.search(error_text(cause))
        if found is not None:
            return found[1]
    return None


def memory_advice(error: BaseException) -> str | None:
    """Advice for the status if ``error`` means that memory ran out; else None."""
    for cause in with_causes(error):
        if isinstance(cause, MemoryError) or _HEAP_USED_UP in error_text(cause):
            what = "Spark's JVM" if _HEAP_USED_UP in error_text(cause) else "Python"
            return (
                f"out of memory in {what}: lower batch.max.bytes or batch.max.records, or give the "
                "worker more memory"
            )
    return None


def failure_text(error: BaseException, fault: Fault | None, loss_count: int) -> str:
    """The text for the status of a task that failed.

    A failed record is described without the calls of the engine. ``loss_count`` is the number of
    Spark processes that ended in a row.
    """
    record = failed_record(error) if fault is None else None
    if record is not None:
        return cap_text(record)
    summary, trace = _summary(error, fault, loss_count), format_trace(error)
    return trace if summary is None else f"{summary}\n\n{trace}"


def _summary(error: BaseException, fault: Fault | None, loss_count: int) -> str | None:
    if isinstance(error, DroverError) and error.reason is Reason.OFFSETS_LOST:
        return error.message
    if fault is Fault.LOST:
        return (
            f"a Spark process ended during {loss_count} batches in a row: check whether the "
            "connector's code on executors crashes them or exceeds the memory"
        )
    return memory_advice(error)


def _of_drover_error(error: DroverError) -> Fault | None:
    if isinstance(error, FailedPreconditionError) and error.reason is Reason.STALE_CLAIM:
        return Fault.STALE_CLAIM
    if isinstance(error, UnavailableError | OutOfRangeError):
        return Fault.UNAVAILABLE
    return None
