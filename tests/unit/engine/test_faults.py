"""Errors of the store are distinguished from errors of the plugin."""

import pytest

from drover.dataplane.answers import ExecutorFilesError, PassLostError
from drover.errors import (
    DataLossError,
    FailedPreconditionError,
    OutOfRangeError,
    Reason,
    UnavailableError,
)
from drover.pipeline import RecordFailedError
from drover_worker.engine.core.failures import Fault
from drover_worker.engine.tasks.faults import failed_record, fault_of, memory_advice

WORKER_TRACE = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "staging.py", line 12, in _flush
    with self._database.write() as connection:
{}: data.db stayed locked by another process for 30 s
"""


FRAME_TRACE = """An error occurred while calling o103.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 4.0 failed 1 \
times, most recent failure: Lost task 0.0 in stage 4.0 (TID 8) (host executor driver): \
org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting
"""


def _caused(cause: BaseException) -> Exception:
    error = RuntimeError("write failed")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (UnavailableError(Reason.STORAGE_UNAVAILABLE, "busy"), Fault.UNAVAILABLE),
        (OutOfRangeError(Reason.REVISION_COMPACTED, "gone"), Fault.UNAVAILABLE),
        (FailedPreconditionError(Reason.STALE_CLAIM, "old"), Fault.STALE_CLAIM),
        (FailedPreconditionError(Reason.NOT_OWNER, "no"), None),
        (DataLossError(Reason.LOG_CORRUPT, "corrupt"), None),
        (
            RuntimeError(WORKER_TRACE.format("drover.errors.UnavailableError")),
            Fault.UNAVAILABLE,
        ),
        (
            RuntimeError(WORKER_TRACE.format("drover.errors.OutOfRangeError")),
            Fault.UNAVAILABLE,
        ),
        (RuntimeError(WORKER_TRACE.format("ValueError")), None),
        (RuntimeError("the words drover.errors.UnavailableError: in a text"), None),
        (_caused(UnavailableError(Reason.STORAGE_UNAVAILABLE, "busy")), Fault.UNAVAILABLE),
        (PassLostError("a call on an executor was lost"), Fault.LOST),
        (_caused(PassLostError("lost")), Fault.LOST),
        (_caused(ExecutorFilesError("an executor cannot use its files")), Fault.EXECUTOR),
        (RuntimeError(FRAME_TRACE), Fault.LOST),
        (RuntimeError("Python worker exited unexpectedly"), None),
        (_caused(KeyError("x")), None),
        (SystemExit(1), None),
    ],
)
def test_fault_of(error: BaseException, fault: Fault | None) -> None:
    assert fault_of(error) is fault


@pytest.mark.parametrize(
    ("error", "whose"),
    [
        (MemoryError(), "Python"),
        (_caused(MemoryError("16 GiB")), "Python"),
        (RuntimeError("o1.collect: java.lang.OutOfMemoryError: Java heap space"), "Spark's JVM"),
        (_caused(RuntimeError("java.lang.OutOfMemoryError: Java heap space")), "Spark's JVM"),
    ],
)
def test_want_of_memory_in_a_tasks_own_call_is_told_with_what_to_do(
    error: BaseException, whose: str
) -> None:
    advice = memory_advice(error)
    assert advice is not None
    assert advice.startswith(f"out of memory in {whose}: ")
    assert "batch.max.bytes" in advice
    assert fault_of(error) is None, "the fault is the plugin's"


def test_other_errors_have_no_advice_about_memory() -> None:
    assert memory_advice(RuntimeError("boom")) is None


def test_a_failed_record_is_described_once_with_a_plugins_calls_behind_it() -> None:
    own = RecordFailedError("record t-0@1 failed in decode: it is not JSON")
    assert failed_record(_caused(own)) == "record t-0@1 failed in decode: it is not JSON"
    plugin = RecordFailedError("record t-0@1 failed in mask: KeyError: 'x'", "Traceback ...")
    assert failed_record(plugin) == "record t-0@1 failed in mask: KeyError: 'x'\n\nTraceback ..."
