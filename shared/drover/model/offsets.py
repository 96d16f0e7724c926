"""Committed offsets, in the shape of Kafka Connect's offsets API (KIP-875)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from drover.model.ids import TaskId, Term

#: A JSON object; for a sink ``{"kafka_topic": T, "kafka_partition": P}``.
SourcePartition = Mapping[str, object]
#: A JSON object; for a sink ``{"kafka_offset": N}``.
SourceOffset = Mapping[str, object]

METADATA_MAX_BYTES = 4096


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """One offset of a connector; both sides are JSON text, ``offset_json`` None removes it."""

    partition_json: str
    offset_json: str | None
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class TaskOffsets:
    """Offsets of one task, committed together under its claim."""

    task: TaskId
    claim: Term
    offsets: Sequence[CommittedOffset]


class CommitOutcome(StrEnum):
    """What became of one task's commit."""

    COMMITTED = "COMMITTED"
    STALE_CLAIM = "STALE_CLAIM"
    INVALID = "INVALID"


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The outcome for one task; ``message`` says what was wrong, empty when committed."""

    task: TaskId
    outcome: CommitOutcome
    message: str = ""
