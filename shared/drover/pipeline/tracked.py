"""Pipelines that tell the driver what became of their records."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from drover.pipeline.failures import Tolerate
from drover.pipeline.report import PassReport
from drover.pipeline.stages import Pipeline


class Reports(Protocol):
    """Brings reports from executors to the driver, by a number of what was run: what runs again
    under its number counts once.
    """

    def add(self, term: dict[int, PassReport]) -> None:
        """Send it."""


@dataclass(frozen=True)
class TrackedPipeline:
    """A pipeline for a source's batch; ``number()`` says which part of the batch this is."""

    pipeline: Pipeline
    reports: Reports
    number: Callable[[], int]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """See Pipeline; the report is sent when all batches are through."""
        report = PassReport()
        yield from self.pipeline.run(batches, report)
        self.reports.add({self.number(): report})


@dataclass(frozen=True)
class TrackedRead:
    """What ``read(n)`` gives, through a sink's pipeline.

    ``write_dead_letters`` gets the dead letters of each n at its end, and its rows are part of the
    report: they are durable before the pass ends.
    """

    read: Callable[[int], Iterable[Any]]
    pipeline: Pipeline
    reports: Reports
    write_dead_letters: Callable[[Iterator[Any]], Iterator[Any]] | None = None
    #: Of the reports, where several reads make one pass.
    first_number: int = 0

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        """The records of group ``number``."""
        report = PassReport()
        policy = self.pipeline.policy
        kept = policy.kept if isinstance(policy, Tolerate) else []
        kept.clear()
        yield from self.pipeline.run(iter(self.read(number)), report)
        if kept and self.write_dead_letters is not None:
            rows = self.write_dead_letters(iter(kept))
            report.dead_letter_rows = [row for batch in rows for row in batch.to_pylist()]
            kept.clear()
        self.reports.add({self.first_number + number: report})
