"""Composes steps to stages, and stages to pipelines."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from drover.pipeline.failures import FailTask, Policy, RecordFailedError, StepFailedError
from drover.pipeline.report import PassReport
from drover.pipeline.schema_change import KeepSchema
from drover.pipeline.step import Step
from drover.record.batch import ERROR
from drover.record.errors import PassError, RowsError, StageError

TRANSFORMATION = "TRANSFORMATION"
CONVERTER = "VALUE_CONVERTER"
#: The stage of a record that the source could not read.
TASK_POLL = "TASK_POLL"
#: The approximate output size of a slice of a source's batch: the next slice reuses its memory,
#: because allocating fresh memory would take most of the time. The first rows give the ratio.
_MADE_BYTES = 8 * 1024 * 1024
_FIRST_ROWS = 2_000


@dataclass(frozen=True, slots=True)
class Stage:
    """Steps in order; ``name`` is Kafka Connect's name of the stage, for dead letters."""

    name: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class _FailedRow:
    """A failed record, and its number in its batch."""

    row: int
    record: pa.RecordBatch
    error: StepFailedError


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Stages in order, with one error policy; a function for executors.

    ``prepare`` converts input batches to records, for example from a table's rows. A batch passes
    all stages at once, or slice by slice if ``in_slices`` is set. A failing step reports the rows
    (RowsError), or the batch is halved until they are found: good batches pay nothing, and failed
    rows are available in their original form. They are handled in their order, after the good rows
    of their batch or slice.
    """

    stages: tuple[Stage, ...] = ()
    prepare: Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]] | None = None
    policy: Policy = field(default_factory=FailTask)
    in_slices: bool = False

    @property
    def is_identity(self) -> bool:
        """Whether batches pass unchanged."""
        return self.prepare is None and not any(stage.steps for stage in self.stages)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run every batch through the stages; lazy, in order."""
        return batches if self.is_identity else self.run(batches, PassReport())

    def run(
        self, batches: Iterator[pa.RecordBatch], report: PassReport
    ) -> Iterator[pa.RecordBatch]:
        """As the call, with counts in ``report``.

        Raises:
            RecordFailedError: A record failed, and the policy does not tolerate it.
        """
        for batch in batches:
            for records in self.prepare(batch) if self.prepare is not None else (batch,):
                report.read_count += records.num_rows
                run = self._run_sliced if self.in_slices else self._run_records
                yield from run(records, report)
        for stage in self.stages:
            for step in stage.steps:
                if isinstance(step, KeepSchema):
                    report.schema_changes |= step.changes

    def _run_sliced(self, records: pa.RecordBatch, report: PassReport) -> Iterator[pa.RecordBatch]:
        start, rows = 0, _FIRST_ROWS
        while start < records.num_rows:
            made_bytes = 0
            for made in self._run_records(records.slice(start, rows), report):
                made_bytes += made.nbytes
                yield made
            start += rows
            rows = max(1, rows * _MADE_BYTES // max(made_bytes, 1))

    def _run_records(self, records: pa.RecordBatch, report: PassReport) -> Iterator[pa.RecordBatch]:
        for part, fault in _unreadable_apart(records):
            if fault is None:
                yield from self._run_good(part, report)
            else:
                error = StepFailedError(TASK_POLL, "poll", ValueError(fault))
                yield from self.policy.handle(part, error, report)

    def _run_good(self, records: pa.RecordBatch, report: PassReport) -> Iterator[pa.RecordBatch]:
        """Run records; failed records follow in their order, whatever step each failed in."""
        failed: list[_FailedRow] = []
        yield from self._run_rows(records, np.arange(records.num_rows), failed, report)
        for each in sorted(failed, key=lambda each: each.row):
            yield from self.policy.handle(each.record, each.error, report)

    def _run_rows(
        self,
        records: pa.RecordBatch,
        rows: np.ndarray,
        failed: list["_FailedRow"],
        report: PassReport,
    ) -> Iterator[pa.RecordBatch]:
        """Run records, whose numbers in the batch are ``rows``; adds failed ones to ``failed``."""
        try:
            made = self._apply(records)
        except StepFailedError as error:
            yield from self._run_apart(records, rows, error, failed, report)
            return
        count = sum(each.num_rows for each in made)
        report.filtered_count += max(0, records.num_rows - count)
        report.written_count += count
        yield from made

    def _run_apart(
        self,
        records: pa.RecordBatch,
        rows: np.ndarray,
        error: StepFailedError,
        failed: list["_FailedRow"],
        report: PassReport,
    ) -> Iterator[pa.RecordBatch]:
        if error.rows:
            ends_task = isinstance(self.policy, FailTask)
            causes = {min(error.rows): error.rows[min(error.rows)]} if ends_task else error.rows
            for row, cause in causes.items():
                found = StepFailedError(error.stage, error.step, cause)
                failed.append(_FailedRow(int(rows[row]), records.slice(row, 1), found))
            good = np.ones(records.num_rows, bool)
            good[list(error.rows)] = False
            if ends_task:  # an earlier record may fail in a later step
                good[min(error.rows) :] = False
            if good.any():
                part = records.filter(pa.array(good))
                yield from self._run_rows(part, rows[good], failed, report)
            return
        if records.num_rows <= 1:
            failed.append(_FailedRow(int(rows[0]), records, error))
            return
        half = records.num_rows // 2
        yield from self._run_rows(records.slice(0, half), rows[:half], failed, report)
        if isinstance(self.policy, FailTask) and any(each.row < rows[half] for each in failed):
            return
        yield from self._run_rows(records.slice(half), rows[half:], failed, report)

    def _apply(self, records: pa.RecordBatch) -> list[pa.RecordBatch]:
        batches = [records]
        for stage in self.stages:
            for step in stage.steps:
                made: list[pa.RecordBatch] = []
                for batch in batches:
                    try:
                        made += step(batch)
                    except PassError:
                        raise
                    except Exception as error:  # any of a plugin's code
                        # row numbers refer to the input only until a step has created new batches
                        raise _failed(stage, step, error, batch is records) from error
                batches = [each for each in made if each.num_rows]
        return batches


def _failed(stage: Stage, step: Step, error: Exception, whole: bool) -> StepFailedError:
    name, step_name = stage.name, step.name
    cause: BaseException = error
    if isinstance(error, StageError):
        name, cause = str(error.stage), error.__cause__ or error
        step_name = error.class_name or step_name
    if not isinstance(cause, RowsError):
        return StepFailedError(name, step_name, cause)
    return StepFailedError(name, step_name, cause.first, cause.rows if whole else {})


def source_pipeline(
    *,
    prepare: Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]] | None = None,
    transforms: tuple[Step, ...] = (),
    converters: tuple[Step, ...] = (),
    policy: Policy | None = None,
) -> Pipeline:
    """The pipeline from a source task's rows to records of topics; the policy is FailTask by
    default.
    """
    stages = (Stage(TRANSFORMATION, transforms), Stage(CONVERTER, converters))
    return Pipeline(stages, prepare, policy or FailTask(), in_slices=True)


def sink_pipeline(
    *,
    prepare: Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]] | None = None,
    converters: tuple[Step, ...] = (),
    transforms: tuple[Step, ...] = (),
    last: tuple[Step, ...] = (),
    policy: Policy | None = None,
) -> Pipeline:
    """The pipeline from records of topics to a sink task's rows; ``last`` converts them to the
    sink's form. The policy is FailTask by default.
    """
    stages = (
        Stage(CONVERTER, converters),
        Stage(TRANSFORMATION, transforms),
        Stage(CONVERTER, last),
    )
    return Pipeline(stages, prepare, policy or FailTask())


def _unreadable_apart(
    records: pa.RecordBatch,
) -> Iterator[tuple[pa.RecordBatch, str | None]]:
    """Runs of good rows, and each row that its source could not read, with the reason."""
    index = records.schema.get_field_index(ERROR)
    if index < 0 or records.column(index).null_count == records.num_rows:
        yield records, None
        return
    start = 0
    for row, fault in enumerate(records.column(index).to_pylist()):
        if fault is None:
            continue
        if row > start:
            yield records.slice(start, row - start), None
        yield records.slice(row, 1), fault
        start = row + 1
    if start < records.num_rows:
        yield records.slice(start), None


__all__ = ["Pipeline", "RecordFailedError", "Stage", "sink_pipeline", "source_pipeline"]
