"""What the store refused is told apart from what the plugin did."""

import pytest

from drover.errors import (
    DataLossError,
    FailedPreconditionError,
    OutOfRangeError,
    Reason,
    UnavailableError,
)
from drover_worker.engine.storage_faults import StorageFault, storage_fault

WORKER_TRACE = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "staging.py", line 12, in _flush
    with self._database.write() as connection:
{}: data.db stayed locked by another process for 30 s
"""


def _caused(cause: BaseException) -> Exception:
    error = RuntimeError("write failed")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (UnavailableError(Reason.STORAGE_UNAVAILABLE, "busy"), StorageFault.UNAVAILABLE),
        (OutOfRangeError(Reason.REVISION_COMPACTED, "gone"), StorageFault.UNAVAILABLE),
        (FailedPreconditionError(Reason.STALE_CLAIM, "old"), StorageFault.STALE_CLAIM),
        (FailedPreconditionError(Reason.NOT_OWNER, "no"), None),
        (DataLossError(Reason.LOG_CORRUPT, "corrupt"), None),
        (
            RuntimeError(WORKER_TRACE.format("drover.errors.UnavailableError")),
            StorageFault.UNAVAILABLE,
        ),
        (
            RuntimeError(WORKER_TRACE.format("drover.errors.OutOfRangeError")),
            StorageFault.UNAVAILABLE,
        ),
        (RuntimeError(WORKER_TRACE.format("ValueError")), None),
        (RuntimeError("the words drover.errors.UnavailableError: in a text"), None),
        (_caused(UnavailableError(Reason.STORAGE_UNAVAILABLE, "busy")), StorageFault.UNAVAILABLE),
        (_caused(KeyError("x")), None),
        (SystemExit(1), None),
    ],
)
def test_storage_fault(error: BaseException, fault: StorageFault | None) -> None:
    assert storage_fault(error) is fault
