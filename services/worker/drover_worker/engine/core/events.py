"""What the shell reports to the core of a task."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from drover.connector.task import SnapshotProgress
from drover.dataplane.plane import PartitionKey, Receipt
from drover.dataplane.values import ReadPlan
from drover.model.ids import Term
from drover.model.offsets import CommitOutcome, CommittedOffset, TopicPartition
from drover.model.sink_outputs import SinkOutput
from drover.pipeline import PassReport
from drover_worker.engine.core.failures import Failure

# In any phase, from any thread


@dataclass(frozen=True, slots=True)
class PauseSet:
    """An operator paused or resumed the connector."""

    paused: bool


@dataclass(frozen=True, slots=True)
class CommitAnswered:
    """The coordinator answered the commit ``number``."""

    number: int
    outcome: CommitOutcome
    message: str = ""


@dataclass(frozen=True, slots=True)
class TransactionStepEnded:
    """A step of the transaction ``number`` ended on its thread; a commit has a ``receipt``."""

    number: int
    receipt: Receipt | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class TransactionGivenUp:
    """The thread of the transaction ``number`` exceeded its time limit, and may still run."""

    number: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The task begins no further batch."""


@dataclass(frozen=True, slots=True)
class Overdue:
    """A call of the plugin exceeded its time limit, and was abandoned with its thread."""

    message: str


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The task is over: it was stopped, or its batch was abandoned."""


@dataclass(frozen=True, slots=True)
class InstanceReleased:
    """After the end: nothing uses the task object."""


# Between runs


@dataclass(frozen=True, slots=True)
class StartRequested:
    """The first start of the task, from its committed offsets."""

    committed: Sequence[CommittedOffset]


@dataclass(frozen=True, slots=True)
class RunBegan:
    """The scheduler has a thread for the task."""


@dataclass(frozen=True, slots=True)
class SettleRequested:
    """A stop: the last run has ended."""


# Results of operations


@dataclass(frozen=True, slots=True)
class OperationFailed:
    """The operation of the present phase raised an error."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class ClaimRead:
    """The claim in the data plane; None if only the coordinator has it."""

    claim: Term | None


@dataclass(frozen=True, slots=True)
class ClaimConfirmed:
    """The coordinator confirmed the claim."""


@dataclass(frozen=True, slots=True)
class InstanceStopped:
    """The task object was stopped. ``committed`` are the offsets in the data plane; None if only
    the coordinator has them.
    """

    committed: Sequence[CommittedOffset] | None


@dataclass(frozen=True, slots=True)
class InstanceStarted:
    """A new task object runs.

    Attributes:
        positions: What ``SinkTask.positions`` returned; sinks only.
        has_letters: Whether there are dead letters to replay; sources only.
    """

    positions: object = field(default_factory=dict)
    has_letters: bool = False


@dataclass(frozen=True, slots=True)
class OffsetsFetched:
    """The coordinator's offsets of the connector."""

    offsets: Sequence[CommittedOffset]


@dataclass(frozen=True, slots=True)
class CommitsAwaited:
    """The commits are answered, or, if not ``in_time``, the time limit is over."""

    in_time: bool


@dataclass(frozen=True, slots=True)
class TransactionAwaited:
    """No transaction is in progress, or, if not ``in_time``, the time limit is over."""

    in_time: bool


# Sinks


@dataclass(frozen=True, slots=True)
class TopicsFound:
    """The names that the core asked for: all topics, or the reserved ones."""

    names: Collection[str]


@dataclass(frozen=True, slots=True)
class PartitionsCounted:
    """The partition counts of existing topics."""

    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TopicsIdentified:
    """The ids of existing topics."""

    ids: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class EndsFound:
    """The end offsets of partitions."""

    ends: Mapping[PartitionKey, int]


@dataclass(frozen=True, slots=True)
class RetentionRead:
    """How long the brokers keep committed offsets, in milliseconds; None for ever."""

    retention_ms: int | None


@dataclass(frozen=True, slots=True)
class OutputTraced:
    """The offsets behind the last records that the output of the sink shows."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class FirstMetadataReturned:
    """What ``SinkTask.first_metadata`` returned."""

    metadata: object


@dataclass(frozen=True, slots=True)
class LetterReplay:
    """Dead letters that a task replays before all other records.

    Attributes:
        topic: Their topic.
        positions: The next dead letter of each partition.
        begun: The partitions with a committed offset of this replay.
        output: Their output.
    """

    topic: str
    positions: Mapping[PartitionKey, int]
    begun: Collection[PartitionKey]
    output: SinkOutput


@dataclass(frozen=True, slots=True)
class ReplayBegun:
    """The replay that the config asks for; None if it asks for none."""

    replay: LetterReplay | None


@dataclass(frozen=True, slots=True)
class RequestsRead:
    """The requests of the task object since the last time.

    Attributes:
        rewinds: Where it asks to read again, by partition.
        paused: The partitions of which it wants no records.
        idle_in_ms: In how long it asks for a call without records; None for never.
    """

    rewinds: Mapping[TopicPartition, int]
    paused: Collection[TopicPartition]
    idle_in_ms: int | None


@dataclass(frozen=True, slots=True)
class ReadPlanned:
    """The next read; None if all dead letters have been replayed."""

    plan: ReadPlan | None


@dataclass(frozen=True, slots=True)
class LagMeasured:
    """The lag is measured, if it was due."""


@dataclass(frozen=True, slots=True)
class BatchWritten:
    """``write`` returned.

    Attributes:
        returned: Its result.
        report: The records of the batch by outcome.
        rewinds: The rewinds that the task object requested during it.
    """

    returned: object
    report: PassReport
    rewinds: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LettersPublished:
    """The dead letters of the batch are visible."""


@dataclass(frozen=True, slots=True)
class IdleReturned:
    """What ``SinkTask.idle`` returned, and the rewinds that were requested before it did."""

    returned: object
    rewinds: Mapping[TopicPartition, int] = field(default_factory=dict)


# Sources


@dataclass(frozen=True, slots=True)
class StepTaken:
    """The step of the writer succeeded."""


@dataclass(frozen=True, slots=True)
class StartsFound:
    """The offsets to start from; those ``behind`` have to be committed before the first batch."""

    committed: Sequence[CommittedOffset]
    behind: Sequence[CommittedOffset] = ()


@dataclass(frozen=True, slots=True)
class Notified:
    """``committed`` returned."""


@dataclass(frozen=True, slots=True)
class LettersPlanned:
    """The next dead letters; None if all have been replayed."""

    plan: ReadPlan | None


@dataclass(frozen=True, slots=True)
class LettersChecked:
    """It is decided which dead letters of the plan are written."""


@dataclass(frozen=True, slots=True)
class Polled:
    """What ``poll`` returned."""

    batch: object


@dataclass(frozen=True, slots=True)
class Staged:
    """A batch can be published.

    Attributes:
        staged: What the writer returned.
        record_count: The number of records; 0 if it is not known before the publish.
        report: The records by outcome; None if they are known after the publish.
        offsets: The offsets of dead letters; None for a polled batch.
        snapshot: The table that was being read completely.
    """

    staged: Any
    record_count: int = 0
    report: PassReport | None = None
    offsets: Sequence[CommittedOffset] | None = None
    snapshot: SnapshotProgress | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """The batch is visible."""

    receipt: Receipt
    report: PassReport


TaskEvent = (
    PauseSet | CommitAnswered | TransactionStepEnded | TransactionGivenUp | StopRequested | Overdue
    | Abandoned | InstanceReleased | StartRequested | RunBegan | SettleRequested | OperationFailed
    | ClaimRead | ClaimConfirmed | InstanceStopped | InstanceStarted | OffsetsFetched
    | CommitsAwaited | TransactionAwaited | TopicsFound | PartitionsCounted | TopicsIdentified
    | EndsFound | RetentionRead | OutputTraced | FirstMetadataReturned | ReplayBegun | RequestsRead
    | ReadPlanned | LagMeasured | BatchWritten | LettersPublished | IdleReturned | StepTaken
    | StartsFound | Notified | LettersPlanned | LettersChecked | Polled | Staged | Published
)  # fmt: skip
