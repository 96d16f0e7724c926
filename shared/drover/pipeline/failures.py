"""What happens to records that a step cannot handle (KIP-298)."""

import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

import pyarrow as pa

from drover.pipeline.dead_letters import as_bytes, dead_letter
from drover.pipeline.report import Failure, PassReport
from drover.record.batch import KEY, OFFSET, ORIGIN, ORIGINAL_TOPIC, PARTITION, TOPIC, VALUE

_MESSAGE_MAX_LENGTH = 2_000
_TRACE_MAX_LENGTH = 8_000


class StepFailedError(Exception):
    """A step raised ``error`` for a batch, or for a record; ``rows`` says which it was for, where
    the step knows that.
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
    """A record cannot be handled, and that is not tolerated; the message names both."""


class Policy(Protocol):
    """Decides what a record's failure means. It is pickled."""

    def handle(
        self, record: pa.RecordBatch, error: StepFailedError, report: PassReport
    ) -> Iterable[pa.RecordBatch]:
        """Count one record that failed; the batches to be written instead of it.

        Raises:
            RecordFailedError: the task has to fail.
        """


@dataclass(frozen=True, slots=True)
class FailTask:
    """The first record that fails ends the task (errors.tolerance=none).

    With ``remedy`` the message says what the user can do.
    """

    remedy: str = ""

    def handle(
        self, record: pa.RecordBatch, error: StepFailedError, report: PassReport
    ) -> Iterable[pa.RecordBatch]:
        """See Policy."""
        del report
        raise RecordFailedError(f"{failure_of(record, error)}{self.remedy}") from error.error


@dataclass(frozen=True, slots=True)
class Tolerate:
    """Records that fail are left out (errors.tolerance=all), and written as dead letters to
    ``topic`` if there is one.

    With ``in_batch`` they come out of the pipeline, with the topic's name in their column, else
    they are kept in ``kept`` for whoever runs the pass.
    """

    connector: str
    task: int
    topic: str | None = None
    context_headers: bool = False
    include_records: bool = False
    in_batch: bool = True
    kept: list[pa.RecordBatch] = field(default_factory=list)

    def handle(
        self, record: pa.RecordBatch, error: StepFailedError, report: PassReport
    ) -> Iterable[pa.RecordBatch]:
        """See Policy."""
        return self.leave_out(record, failure_of(record, error), report)

    def leave_out(
        self, record: pa.RecordBatch, failure: Failure, report: PassReport
    ) -> Iterable[pa.RecordBatch]:
        """Count one record that failed; its dead letter, if that is part of the batch."""
        text = record_text(record) if self.include_records else ""
        report.add_failure(replace(failure, record=text))
        if self.topic is None:
            report.skipped_count += 1
            return ()
        report.dead_lettered_count += 1
        letter = dead_letter(
            record,
            failure,
            topic=self.topic,
            connector=self.connector,
            task=self.task,
            context_headers=self.context_headers,
        )
        if self.in_batch:
            return (letter,)
        self.kept.append(letter)
        return ()


def place_of(record: pa.RecordBatch) -> str:
    """Where a record is from, for people."""
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


def failure_of(record: pa.RecordBatch, error: StepFailedError) -> Failure:
    """What is told of it."""
    return failure_at(place_of(record), error.stage, error.step, error.error)


def failure_at(place: str, stage: str, step: str, reason: str | BaseException) -> Failure:
    """What is told of a record that ``reason`` keeps from being handled; text is a rejection's."""
    trace = ""
    if isinstance(reason, BaseException):
        trace = "".join(traceback.format_exception(reason))
    return Failure(
        place=place,
        stage=stage,
        step=step,
        error_class="RejectedError" if isinstance(reason, str) else type(reason).__name__,
        message=str(reason)[:_MESSAGE_MAX_LENGTH],
        trace=trace[-_TRACE_MAX_LENGTH:],
    )
