"""Pipelines that report to the driver about their records."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from drover.pipeline.failures import Tolerate
from drover.pipeline.layouts import topic_records
from drover.pipeline.report import FailedRecord, KeptLetter, PassReport
from drover.pipeline.stages import Pipeline
from drover.record.batch import OFFSET, PARTITION, TOPIC

#: Up to this size the dead letters of a group go to the driver, which writes them in the order of
#: their records, with the dead letters of rejected records; an executor writes more.
_LETTERS_BYTES_MAX = 512 * 1024


class Reports(Protocol):
    """Sends reports from executors to the driver, by a number: a repeated number counts once."""

    def add(self, term: dict[int, PassReport]) -> None:
        """Send a report."""


@dataclass(frozen=True)
class TrackedPipeline:
    """A pipeline for a source's batch; ``number()`` is the number of the part."""

    pipeline: Pipeline
    reports: Reports
    number: Callable[[], int]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """See Pipeline; the report is sent after the last batch."""
        report = PassReport()
        yield from self.pipeline.run(batches, report)
        self.reports.add({self.number(): report})


@dataclass(frozen=True)
class TrackedRead:
    """Passes the results of ``read(n)`` through a sink's pipeline.

    The dead letters of each n are part of its report. If they are many, ``write_dead_letters``
    writes them at its end, and the report has the rows that it returns.
    """

    read: Callable[[int], Iterable[Any]]
    pipeline: Pipeline
    reports: Reports
    write_dead_letters: Callable[[Iterator[Any]], Iterator[Any]] | None = None
    #: The first report number, if several reads make one pass.
    first_number: int = 0

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        """The records of group ``number``."""
        report = PassReport()
        policy = self.pipeline.policy
        kept = policy.kept if isinstance(policy, Tolerate) else []
        kept.clear()
        yield from self.pipeline.run(iter(self.read(number)), report)
        _write_kept(kept, self.write_dead_letters, report)
        self.reports.add({self.first_number + number: report})


@dataclass(frozen=True)
class RejectedRead:
    """Finds the records that a sink rejected in the results of ``read(n)``, by topic, partition and
    offset; they were counted as written before. Yields no rows.
    """

    read: Callable[[int], Iterable[Any]]
    rejected: Mapping[tuple[str, int], Mapping[int, FailedRecord]]
    policy: Tolerate
    reports: Reports
    write_dead_letters: Callable[[Iterator[Any]], Iterator[Any]]

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        """See TrackedRead."""
        report = PassReport()
        kept = self.policy.kept
        kept.clear()
        for batch in self.read(number):
            for records in topic_records(batch):
                self._take(records, report)
        _write_kept(kept, self.write_dead_letters, report)
        self.reports.add({number: report})
        return iter(())

    def _take(self, records: pa.RecordBatch, report: PassReport) -> None:
        places = zip(
            *(records.column(name).to_pylist() for name in (TOPIC, PARTITION, OFFSET)), strict=True
        )
        for row, (topic, partition, offset) in enumerate(places):
            failure = self.rejected.get((topic, partition), {}).get(offset)
            if failure is not None:
                report.written_count -= 1
                self.policy.leave_out(records.slice(row, 1), failure, report)


def written_letters(
    letters: Iterable[KeptLetter], write: Callable[[Iterator[Any]], Iterator[Any]]
) -> list[Mapping[str, Any]]:
    """Write dead letters in the order of their records; returns the rows of the writer."""
    ordered = sorted(letters, key=lambda each: each.place)
    batches = write(each.letter for each in ordered)
    return [row for batch in batches for row in batch.to_pylist()]


def _write_kept(
    kept: list[KeptLetter],
    write: Callable[[Iterator[Any]], Iterator[Any]] | None,
    report: PassReport,
) -> None:
    if not kept or write is None:
        return
    if sum(each.letter.nbytes for each in kept) <= _LETTERS_BYTES_MAX:
        report.letters = list(kept)
    else:
        report.dead_letter_rows = written_letters(kept, write)
    kept.clear()
