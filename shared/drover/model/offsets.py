"""Committed offsets, in the form of Kafka Connect's offsets API (KIP-875)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from drover.model.claims import TaskSet
from drover.model.ids import TaskId, Term

#: A JSON object; for a sink ``{"kafka_topic": T, "kafka_partition": P}``.
SourcePartition = Mapping[str, object]
#: A JSON object; for a sink ``{"kafka_offset": N}``.
SourceOffset = Mapping[str, object]

METADATA_MAX_BYTES = 4096


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """One offset of a connector, as JSON texts; ``offset_json`` None removes the offset."""

    partition_json: str
    offset_json: str | None
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class TaskOffsets:
    """Offsets of one task, committed together under its claim.

    Attributes:
        task: The task.
        claim: Its claim.
        offsets: The offsets.
        number: The commit's sequence number under the claim, by which delayed copies are detected;
            0 for a commit without a number.
        consumer_group: The consumer group that stores a sink's positions on Kafka; empty for the
            default group with the connector's name.
        own_producer: Whether the task commits source offsets itself, in the transactions of
            its producer.
        refreshes_marks: Whether the offsets are also stored in the marks, see ``OutputMark``.
    """

    task: TaskId
    claim: Term
    offsets: Sequence[CommittedOffset]
    number: int = 0
    consumer_group: str = ""
    own_producer: bool = False
    refreshes_marks: bool = False


@dataclass(frozen=True, slots=True)
class OffsetsChange:
    """A change of the offsets of a connector without tasks.

    Attributes:
        connector: The connector.
        task_set: The group's generation, and the set of task configs in which there are no tasks.
            Claims of earlier sets are rejected from then on.
        offsets: The offsets to write or remove; None to remove all.
        consumer_group: See ``TaskOffsets``.
        without_positions: Do not change the consumer group: the connector is a source.
        offsets_topic: A second topic on Kafka that also stores the source's offsets; empty for
            none.
        adopts: Commit, for each topic partition of a sink without an offset, the offset behind its
            output; ``offsets`` is None.
        written: Partitions of a sink with output, whose next output begins after a reset.
    """

    connector: str
    task_set: TaskSet
    offsets: Sequence[CommittedOffset] | None
    consumer_group: str = ""
    without_positions: bool = False
    offsets_topic: str = ""
    adopts: bool = False
    written: Sequence[TopicPartition] = ()


class CommitOutcome(StrEnum):
    """The result of one task's commit."""

    COMMITTED = "COMMITTED"
    STALE_CLAIM = "STALE_CLAIM"
    INVALID = "INVALID"


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The result for one task; ``message`` is the cause of a rejection, empty when committed."""

    task: TaskId
    outcome: CommitOutcome
    message: str = ""


#: In a response: the partition has no committed offset.
NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """A group's position in a topic partition: ``offset`` is the offset of the next record to read.

    ``commit_time_ms`` is set by the coordinator. ``expire_time_ms`` is when the position expires,
    if the consumer set it; with None the coordinator's retention applies.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int | None = None
    metadata: str = ""
    commit_time_ms: int = 0
    expire_time_ms: int | None = None


class GroupCommitOutcome(StrEnum):
    """The result of one partition's commit."""

    COMMITTED = "COMMITTED"
    METADATA_TOO_LARGE = "METADATA_TOO_LARGE"


@dataclass(frozen=True, slots=True)
class GroupCommit:
    """The result for each partition, in the order of the call.

    ``rebalance_in_progress``: nothing was committed; the member has to rejoin.
    """

    outcomes: Sequence[tuple[TopicPartition, GroupCommitOutcome]] = ()
    rebalance_in_progress: bool = False


@dataclass(frozen=True, slots=True)
class GroupOffsetPage:
    """A page of positions; ``next_page_token`` is empty on the last one."""

    offsets: Sequence[GroupOffset]
    next_page_token: str = ""


class GroupOffsetDeletion(StrEnum):
    """The result of one partition's removal."""

    DELETED = "DELETED"
    GROUP_SUBSCRIBED_TO_TOPIC = "GROUP_SUBSCRIBED_TO_TOPIC"


@dataclass(frozen=True, slots=True)
class GroupOffsetDeleted:
    """The result for one partition."""

    partition: TopicPartition
    outcome: GroupOffsetDeletion
