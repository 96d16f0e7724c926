"""Policies for records that a step cannot handle (KIP-298)."""

import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Protocol

import pyarrow as pa

from drover.pipeline.dead_letters import as_bytes, dead_letter
from drover.pipeline.report import FailedRecord, KeptLetter, PassReport
from drover.record import RecordError
from drover.record.batch import KEY, OFFSET, ORIGIN, ORIGINAL_TOPIC, PARTITION, TOPIC, VALUE

_MESSAGE_MAX_LENGTH = 2_000
_TRACE_MAX_LENGTH = 8_000


class StepFailedError(Exception):
    """A step raised ``error`` for a batch or a record; ``rows`` has the errors by row, if the step
    knows them.
    """

    def __init__(
        self,
        stage: str,
        step: str,
        error: BaseException,
        rows: Mapping[int, BaseException] = MappingProxyType({}),
    ) -> None:
        super().__init__(str(error))
        self.stage = stage
        self.step = step
        self.error = error
        self.rows = rows


class RecordFailedError(Exception):
    """A record failed and errors.tolerance is none; the message has the record and the error.

    ``trace`` is the traceback of a plugin's code, if that raised the error; else empty.
    """

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message, trace)
        self.message = message
        self.trace = trace

    def __str__(self) -> str:
        return self.message


class Policy(Protocol):
    """Decides how to handle a failed record. Picklable."""

    def handle(
        self, record: pa.RecordBatch, error: StepFailedError, report: PassReport
    ) -> Iterable[pa.RecordBatch]:
        """Count one failed record; returns the batches to write instead of it.

        Raises:
            RecordFailedError: The task has to fail.
        """


@dataclass(frozen=True, slots=True)
class FailTask:
    """The first failed record ends the task (errors.tolerance=none).

    ``remedy`` is appended to the message.
    """

    remedy: str = ""

    def handle(
        self, record: pa.RecordBatch, error: StepFailedError, report: PassReport
    ) -> Iterable[pa.RecordBatch]:
        """See Policy."""
        del report
        failure = failure_of(record, error)
        is_own = isinstance(error.error, RecordError)
        raise RecordFailedError(
            f"{failure}{self.remedy}", "" if is_own else failure.trace
        ) from error.error


@dataclass(frozen=True, slots=True)
class Tolerate:
    """Failed records are skipped (errors.tolerance=all), and written as dead letters to ``topic``
    if set.

    With ``in_batch`` dead letters are part of the output, with the topic in their column; otherwise
    they are collected in ``kept``.
    """

    connector: str
    task: int
    topic: str | None = None
    context_headers: bool = False
    include_records: bool = False
    in_batch: bool = True
    #: The largest key, value and headers of a dead letter; larger ones are cut.
    letter_bytes_max: int | None = None
    kept: list[KeptLetter] = field(default_factory=list)

    def handle(
        self, record: pa.RecordBatch, error: StepFailedError, report: PassReport
    ) -> Iterable[pa.RecordBatch]:
        """See Policy."""
        return self.leave_out(record, failure_of(record, error), report)

    def leave_out(
        self, record: pa.RecordBatch, failure: FailedRecord, report: PassReport
    ) -> Iterable[pa.RecordBatch]:
        """Count one failed record; returns its dead letter, if that is part of the batch."""
        text = record_text(record) if self.include_records else ""
        report.add_failure(replace(failure, record=text))
        letter = None if self.topic is None else self._letter(record, failure, self.topic)
        if letter is None:
            report.skipped_count += 1
            return ()
        report.dead_lettered_count += 1
        if self.in_batch:
            return (letter,)
        self.kept.append(KeptLetter(_position_of(record), letter))
        return ()

    def _letter(
        self, record: pa.RecordBatch, failure: FailedRecord, topic: str
    ) -> pa.RecordBatch | None:
        return dead_letter(
            record,
            failure,
            topic=topic,
            connector=self.connector,
            task=self.task,
            context_headers=self.context_headers,
            bytes_max=self.letter_bytes_max,
        )


def _position_of(record: pa.RecordBatch) -> tuple[str, int, int]:
    """The topic, partition and offset of a record of a topic."""

    def first(name: str) -> Any:
        index = record.schema.get_field_index(name)
        return record.column(index)[0].as_py() if index >= 0 else None

    return first(ORIGINAL_TOPIC) or first(TOPIC) or "", first(PARTITION) or 0, first(OFFSET) or 0


def place_of(record: pa.RecordBatch) -> str:
    """The position of a record, as text for people."""
    names = record.schema.names

    def first(name: str) -> object:
        return record.column(name)[0].as_py() if name in names else None

    origin, offset = first(ORIGIN), first(OFFSET)
    if origin is not None:
        return str(origin)
    if offset is not None:
        return f"{first(ORIGINAL_TOPIC) or first(TOPIC)}-{first(PARTITION)}@{offset}"
    topic = first(TOPIC)
    return f"for topic {topic}" if topic is not None else "of this batch"


def record_text(record: pa.RecordBatch) -> str:
    """A record's key and value, for the log."""
    key, value = as_bytes(record, KEY), as_bytes(record, VALUE)
    return f"key={key!r:.{_MESSAGE_MAX_LENGTH}} value={value!r:.{_MESSAGE_MAX_LENGTH}}"


def failure_of(record: pa.RecordBatch, error: StepFailedError) -> FailedRecord:
    """The failure of a record, for reports."""
    return failure_at(place_of(record), error.stage, error.step, error.error)


def failure_at(place: str, stage: str, step: str, reason: str | BaseException) -> FailedRecord:
    """The failure of a record because of ``reason``; text is the reason of a rejection."""
    trace = ""
    if isinstance(reason, BaseException):
        trace = "".join(traceback.format_exception(reason))
    return FailedRecord(
        place=place,
        stage=stage,
        step=step,
        error_class="RejectedError" if isinstance(reason, str) else type(reason).__name__,
        message=str(reason)[:_MESSAGE_MAX_LENGTH],
        trace=trace[-_TRACE_MAX_LENGTH:],
    )
