"""Batches of a source between their staging and the end of their commit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from drover.connector.task import SnapshotProgress
from drover.dataplane.plane import StagedT
from drover.model.offsets import CommittedOffset
from drover.pipeline import PassReport

#: Partitions and offsets as the task object returned them.
SourceOffsets = Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedBatch(Generic[StagedT]):
    """A staged batch that waits to be published, with its source offsets.

    Attributes:
        staged: What the writer returned.
        record_count: The number of records; 0 if it is not known before the publish.
        report: The records by outcome; None if they are known after the publish.
        offsets: The offsets to commit with it.
        task_offsets: The offsets in the task's form, for ``committed()``; None for dead letters.
        started_ms: When its poll began.
        write_started_ms: When its staging began.
        made_ms: How long poll and staging took.
        follows: Whether it came right after another batch.
        snapshot: The table that was being read completely.
    """

    staged: StagedT
    record_count: int
    report: PassReport | None
    offsets: Sequence[CommittedOffset]
    task_offsets: SourceOffsets | None
    started_ms: int
    write_started_ms: int
    made_ms: int
    follows: bool
    snapshot: SnapshotProgress | None = None
