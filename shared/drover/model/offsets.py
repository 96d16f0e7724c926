"""Committed offsets, in the shape of Kafka Connect's offsets API (KIP-875)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from drover.model.claims import TaskSet
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
    """Offsets of one task, committed together under its claim.

    ``number`` counts the commits under a claim upwards, so that a copy of one that comes late sets
    nothing back; 0 is not counted. ``consumer_group`` keeps a sink's positions on Kafka; empty for
    the one that is named after the connector. ``own_producer``: the task commits source offsets
    itself, in transactions of its own producer.
    """

    task: TaskId
    claim: Term
    offsets: Sequence[CommittedOffset]
    number: int = 0
    consumer_group: str = ""
    own_producer: bool = False


@dataclass(frozen=True, slots=True)
class OffsetsChange:
    """Offsets of a connector without tasks that are to be written, or all to be removed.

    Attributes:
        connector: Whose.
        task_set: The group's generation and the set of task configs in which there are no tasks:
            claims of an earlier one are refused from then on.
        offsets: What changes; None to remove all.
        consumer_group: As in ``TaskOffsets``.
        without_positions: Leave the consumer group alone: the connector is a source.
        offsets_topic: A topic of the source's own on Kafka in which its offsets are as well; empty
            for none.
    """

    connector: str
    task_set: TaskSet
    offsets: Sequence[CommittedOffset] | None
    consumer_group: str = ""
    without_positions: bool = False
    offsets_topic: str = ""


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


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A topic's partition."""

    topic: str
    partition: int


#: In an answer: nothing is committed for the partition.
NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """A group's position in a topic partition: ``offset`` is the next record to read.

    ``commit_time_ms`` is set by the coordinator. ``expire_time_ms`` is when it may be removed, if
    the consumer said so; None leaves that to the coordinator's retention.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int | None = None
    metadata: str = ""
    commit_time_ms: int = 0
    expire_time_ms: int | None = None


class GroupCommitOutcome(StrEnum):
    """What became of one partition's commit."""

    COMMITTED = "COMMITTED"
    METADATA_TOO_LARGE = "METADATA_TOO_LARGE"


@dataclass(frozen=True, slots=True)
class GroupCommit:
    """The outcome for each partition, in the order of the call.

    ``rebalance_in_progress``: nothing was committed, the member has to join again.
    """

    outcomes: Sequence[tuple[TopicPartition, GroupCommitOutcome]] = ()
    rebalance_in_progress: bool = False


@dataclass(frozen=True, slots=True)
class GroupOffsetPage:
    """A page of positions; ``next_page_token`` is empty on the last one."""

    offsets: Sequence[GroupOffset]
    next_page_token: str = ""


class GroupOffsetDeletion(StrEnum):
    """What became of the removal of one partition's position."""

    DELETED = "DELETED"
    GROUP_SUBSCRIBED_TO_TOPIC = "GROUP_SUBSCRIBED_TO_TOPIC"


@dataclass(frozen=True, slots=True)
class GroupOffsetDeleted:
    """The outcome for one partition."""

    partition: TopicPartition
    outcome: GroupOffsetDeletion
