"""What a status write may look like; every fault is told at once."""

from collections.abc import Sequence
from dataclasses import replace

from drover.errors import InvalidArgumentError, Violation
from drover.model.ids import TaskId
from drover.model.status import RunState, Status, StatusWrite

TRACE_MAX_BYTES = 64 * 1024
#: The end of a trace names the exception, so most of what is kept is taken from there.
_TRACE_HEAD_BYTES = 16 * 1024


def check_writes(writes: Sequence[StatusWrite]) -> None:
    """Refuse writes with faults.

    Raises:
        InvalidArgumentError: INVALID_REQUEST with every violation.
    """
    violations = [] if writes else [Violation("writes", "must hold at least one status")]
    for index, write in enumerate(writes):
        violations += _violations(write.status, f"writes[{index}].status")
    if violations:
        raise InvalidArgumentError.listing(violations)


def with_capped_trace(status: Status) -> Status:
    """``status`` with a trace of at most 64 KiB; the middle goes first, and a mark says so."""
    trace = status.trace.encode()
    if len(trace) <= TRACE_MAX_BYTES:
        return status
    mark = f"\n… {len(trace)} bytes in all, cut here …\n"
    tail_bytes = TRACE_MAX_BYTES - _TRACE_HEAD_BYTES - len(mark.encode())
    head = trace[:_TRACE_HEAD_BYTES].decode(errors="ignore")
    tail = trace[-tail_bytes:].decode(errors="ignore")
    return replace(status, trace=f"{head}{mark}{tail}")


def _violations(status: Status, field: str) -> list[Violation]:
    violations = []
    key = status.key
    if not (key.connector if isinstance(key, TaskId) else key):
        violations.append(Violation(f"{field}.key", "must name a connector"))
    if isinstance(key, TaskId) and key.task < 0:
        violations.append(Violation(f"{field}.key", f"task {key.task} is negative"))
    if isinstance(key, TaskId) and status.state is RunState.STOPPED:
        violations.append(Violation(f"{field}.state", "a task is never STOPPED, only a connector"))
    if not status.worker_id and status.state is not RunState.DESTROYED:
        violations.append(Violation(f"{field}.worker_id", "must be set"))
    return violations
