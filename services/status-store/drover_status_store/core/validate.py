"""Validates requests; a rejection lists every violation."""

import re
from collections.abc import Sequence
from dataclasses import astuple, replace

from drover.errors import InvalidArgumentError, Violation
from drover.model.failures import FAILURES_KEPT, FailureHistory
from drover.model.ids import TaskId
from drover.model.status import FIGURES_MAX, RunState, Status, figure_fault
from drover.model.times import TIME_MAX_MS
from drover_status_store.core.events import DeleteTopicStatuses, PutStatuses, PutTopicStatuses

TRACE_MAX_BYTES = 64 * 1024
_CHARACTER_MAX_BYTES = 4
#: The end of a trace names the exception, so most of the kept bytes are taken from the end.
_TRACE_HEAD_BYTES = 16 * 1024
#: The largest integer that every JSON reader holds exactly; a thousand of them fit in 64 bits.
COUNT_MAX = 2**53 - 1
_FAILURE_TEXT_MAX_CHARS = 1_000
_WRITER = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def check_statuses(event: PutStatuses) -> None:
    """Reject an invalid request.

    Raises:
        InvalidArgumentError: INVALID_REQUEST with every violation.
    """
    violations = [] if event.writes else [Violation("writes", "must hold at least one status")]
    for index, write in enumerate(event.writes):
        violations += _violations(write.status, f"writes[{index}].status")
    if event.writer and not _WRITER.fullmatch(event.writer):
        violations.append(
            Violation("writer", "must be 1 to 64 letters, digits and dashes, not starting with -")
        )
    if event.writer and event.number < 1:
        violations.append(Violation("number", "must be at least 1 when writer is set"))
    if event.number and not event.writer:
        violations.append(Violation("number", "must be 0 when writer is empty"))
    _refuse(violations)


def check_topics(event: PutTopicStatuses) -> None:
    """Reject an invalid request.

    Raises:
        InvalidArgumentError: INVALID_REQUEST with every violation.
    """
    violations = [] if event.topics else [Violation("topics", "must hold at least one name")]
    violations += _connector_violations(event.connector)
    violations += [
        Violation(f"topics[{index}]", f"{topic[:80]!r} is not a valid topic name")
        for index, topic in enumerate(event.topics)
        if not _TOPIC.fullmatch(topic) or topic in (".", "..")
    ]
    if event.task < 0:
        violations.append(Violation("task", f"task {event.task} is negative"))
    if not 0 <= event.discovered_ms <= TIME_MAX_MS:
        violations.append(Violation("discover_time", "must be from 1970 to 9999"))
    _refuse(violations)


def check_topic_deletion(event: DeleteTopicStatuses) -> None:
    """Reject an invalid request.

    Raises:
        InvalidArgumentError: INVALID_REQUEST.
    """
    _refuse(_connector_violations(event.connector))


def with_capped_trace(status: Status) -> Status:
    """``status`` with a trace of at most 64 KiB; a note replaces the middle of a longer one."""
    if len(status.trace) <= TRACE_MAX_BYTES // _CHARACTER_MAX_BYTES:
        return status
    trace = status.trace.encode()
    if len(trace) <= TRACE_MAX_BYTES:
        return status
    note = f"\n… truncated here, {len(trace)} bytes in total …\n"
    tail_bytes = TRACE_MAX_BYTES - _TRACE_HEAD_BYTES - len(note.encode())
    head = trace[:_TRACE_HEAD_BYTES].decode(errors="ignore")
    tail = trace[-tail_bytes:].decode(errors="ignore")
    return replace(status, trace=f"{head}{note}{tail}")


def _connector_violations(connector: str) -> list[Violation]:
    return [] if connector else [Violation("connector", "must name a connector")]


def _violations(status: Status, field: str) -> Sequence[Violation]:
    violations = []
    key = status.key
    if not (key.connector if isinstance(key, TaskId) else key):
        violations.append(Violation(f"{field}.key", "must name a connector"))
    if isinstance(key, TaskId) and key.task < 0:
        violations.append(Violation(f"{field}.key", f"task {key.task} is negative"))
    if isinstance(key, TaskId) and status.state is RunState.STOPPED:
        violations.append(Violation(f"{field}.state", "must not be STOPPED for a task"))
    if status.counts and not all(0 <= count <= COUNT_MAX for count in astuple(status.counts)):
        violations.append(Violation(f"{field}.counts", f"each must be from 0 to {COUNT_MAX}"))
    faults = filter(None, (figure_fault(*each) for each in status.figures.items()))
    violations += [Violation(f"{field}.figures", fault) for fault in faults]
    if len(status.figures) > FIGURES_MAX:
        violations.append(Violation(f"{field}.figures", f"must hold at most {FIGURES_MAX}"))
    violations += _failure_violations(status.failures, f"{field}.failures")
    if not status.worker_id and status.state is not RunState.DESTROYED:
        violations.append(Violation(f"{field}.worker_id", "must be set"))
    return violations


def _failure_violations(history: FailureHistory | None, field: str) -> list[Violation]:
    if history is None:
        return []
    violations = []
    if len(history.failures) > FAILURES_KEPT:
        violations.append(Violation(f"{field}.failures", f"must hold at most {FAILURES_KEPT}"))
    if not -1 <= history.config_offset <= COUNT_MAX:
        violations.append(Violation(f"{field}.config_offset", f"must be from -1 to {COUNT_MAX}"))
    if not 0 <= history.count <= COUNT_MAX:
        violations.append(Violation(f"{field}.failure_count", f"must be from 0 to {COUNT_MAX}"))
    times_ms = [history.restart_ms, *(failure.failed_ms for failure in history.failures)]
    if not all(0 <= time_ms <= TIME_MAX_MS for time_ms in times_ms):
        violations.append(Violation(field, "every time must be from 1970 to 9999"))
    texts = [history.no_restart_reason, *(failure.message for failure in history.failures)]
    if any(len(text) > _FAILURE_TEXT_MAX_CHARS for text in texts):
        violations.append(
            Violation(field, f"no text may have more than {_FAILURE_TEXT_MAX_CHARS} characters")
        )
    return violations


def _refuse(violations: Sequence[Violation]) -> None:
    if violations:
        raise InvalidArgumentError.listing(violations)
