"""What the core of a task wants done.

An *operation* is executed on the task's thread; its result is the next event of the task. A list of
instructions has at most one operation, as its last element. Everything else returns nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from drover.connector.offsets import SinkOffset
from drover.connector.source import SourceBatch
from drover.connector.task import SnapshotProgress
from drover.dataplane.plane import PartitionKey
from drover.dataplane.values import Placement, ReadPlan
from drover.model.failures import FailureCause
from drover.model.offsets import CommittedOffset, TopicPartition
from drover.pipeline import PassReport
from drover_worker.engine.core.failures import Fault
from drover_worker.engine.core.publishing import PublishingStep
from drover_worker.engine.core.staged import SourceOffsets
from drover_worker.engine.core.steps import Step

# Tasks


@dataclass(frozen=True, slots=True)
class Wake:
    """Run the task soon."""


@dataclass(frozen=True, slots=True)
class EndRun:
    """End the run; the next one is after ``pause_ms``, or when the task is woken (None)."""

    pause_ms: int | None
    step: Step


@dataclass(frozen=True, slots=True)
class EndFailed:
    """The task is over: report that it failed, stop the task object without waiting for it.

    Attributes:
        error: The error; None for a call that is abandoned.
        message: The text for the status, if there is no error.
        loss_count: The number of Spark processes that ended in a row.
        keeps_instance: Whether an abandoned thread still uses the task object.
    """

    error: BaseException | None
    cause: FailureCause
    message: str = ""
    fault: Fault | None = None
    loss_count: int = 0
    keeps_instance: bool = False


@dataclass(frozen=True, slots=True)
class EndFenced:
    """The task is over: report that another worker has its claim, stop the task object without
    waiting for it.
    """


@dataclass(frozen=True, slots=True)
class Examine:
    """Operation: classify an error that the core found."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class RefuseStart:
    """Raise the error to the caller of the first start."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class DeferStart:
    """The first start is retried in the first run: note why."""

    message: str


@dataclass(frozen=True, slots=True)
class NoteRetry:
    """Note that ``operation`` failed and is tried again after ``pause_ms``.

    Attributes:
        operation: The operation, for the status.
        reason: Why it is tried again, for the log.
        error: The text of the error.
        message: The text for the status.
        pause_ms: The pause before.
    """

    operation: str
    reason: str
    error: str
    message: str
    pause_ms: int


@dataclass(frozen=True, slots=True)
class NoteRecovery:
    """Note that no operation is retried now."""


@dataclass(frozen=True, slots=True)
class KeepInFlight:
    """Leave the task marked as at work, because the engine is about to end."""


@dataclass(frozen=True, slots=True)
class Log:
    """Write a log event."""

    text: str
    fields: Mapping[str, Any]
    is_warning: bool = True


@dataclass(frozen=True, slots=True)
class ReadClaim:
    """Operation: read the claim in the data plane."""


@dataclass(frozen=True, slots=True)
class ConfirmClaim:
    """Operation: have the coordinator check the claim."""


@dataclass(frozen=True, slots=True)
class StopInstance:
    """Operation: stop the task object, and read the offsets that the data plane has."""


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    """Operation: fetch the coordinator's offsets; for a sink ``with_positions``."""

    with_positions: bool = False


@dataclass(frozen=True, slots=True)
class SendCommit:
    """Send a commit to the coordinator; its answer is an event, on any thread."""

    number: int
    offsets: Sequence[CommittedOffset]
    refreshes_marks: bool = False
    are_starts: bool = False


@dataclass(frozen=True, slots=True)
class NoteCommitted:
    """Note that a commit became durable ``took_ms`` after it was requested."""

    took_ms: int


@dataclass(frozen=True, slots=True)
class AwaitCommits:
    """Operation of a stop: wait until the commits are answered."""


@dataclass(frozen=True, slots=True)
class EndStop:
    """The stop waits no longer; ``in_time`` if all work has ended."""

    in_time: bool


@dataclass(frozen=True, slots=True)
class CountBatch:
    """Count a batch whose offsets are durable.

    Attributes:
        report: Its records by outcome.
        started_ms: When it began.
        topics: The topics of its records.
        size_bytes: Their approximate size.
    """

    report: PassReport
    started_ms: int
    topics: Collection[str]
    size_bytes: int


# Sinks


@dataclass(frozen=True, slots=True)
class StartSink:
    """Operation: create and start a task object.

    Attributes:
        committed: The committed offsets that it may see.
        output_ids: The ids of outputs that are not a partition's first.
        is_restart: Whether it happens in a run.
    """

    committed: Mapping[TopicPartition, SinkOffset]
    output_ids: Mapping[TopicPartition, str]
    is_restart: bool


@dataclass(frozen=True, slots=True)
class ShowOffsets:
    """Add to the offsets and ids that the task object sees."""

    committed: Mapping[TopicPartition, SinkOffset]
    output_ids: Mapping[TopicPartition, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BeginReplay:
    """Operation: find the dead letters to replay, behind their committed progress."""

    committed: Sequence[CommittedOffset]


@dataclass(frozen=True, slots=True)
class FindTopics:
    """Operation: read the names of all topics, or only of the reserved ones."""

    all_names: bool


@dataclass(frozen=True, slots=True)
class CountPartitions:
    """Operation: read the partition counts of topics."""

    topics: Collection[str]


@dataclass(frozen=True, slots=True)
class IdentifyTopics:
    """Operation: read the ids of topics; not ``fresh`` if they may be some seconds old."""

    topics: Collection[str]
    fresh: bool = True


@dataclass(frozen=True, slots=True)
class FindEnds:
    """Operation: read the end offsets of partitions."""

    partitions: Collection[PartitionKey]


@dataclass(frozen=True, slots=True)
class ReadRetention:
    """Operation: read how long the brokers keep committed offsets."""


@dataclass(frozen=True, slots=True)
class TraceOutput:
    """Operation: ask the connector up to which offsets these outputs go."""

    outputs: Mapping[TopicPartition, str]


@dataclass(frozen=True, slots=True)
class GetFirstMetadata:
    """Operation: call ``first_metadata`` of the task object."""


@dataclass(frozen=True, slots=True)
class ReadRequests:
    """Operation: take the rewinds that the task object requested, and read its other requests."""


@dataclass(frozen=True, slots=True)
class PlanReplay:
    """Operation: plan the next read of dead letters."""

    max_records: int


@dataclass(frozen=True, slots=True)
class PlanRead:
    """Operation: plan the next read."""

    starts: Mapping[PartitionKey, int]
    max_records: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class NotePassed:
    """There are no records from ``positions`` up to ``next_offsets``: measure the lag."""

    positions: Mapping[PartitionKey, int]
    next_offsets: Mapping[PartitionKey, int]
    committed: Mapping[PartitionKey, int]


@dataclass(frozen=True, slots=True)
class MeasureLag:
    """Operation: measure the lag if it is due."""


@dataclass(frozen=True, slots=True)
class WatchTopics:
    """Wake the task when there are records behind ``next_offsets``, or more partitions."""

    next_offsets: Mapping[PartitionKey, int]
    partition_counts: Mapping[str, int]
    topic_ids: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StopWatching:
    """From now on records do not wake the task."""


@dataclass(frozen=True, slots=True)
class WriteBatch:
    """Operation: give the records of a plan to ``write``; dead letters are staged."""

    plan: ReadPlan
    is_replay: bool


@dataclass(frozen=True, slots=True)
class PublishLetters:
    """Operation: make the dead letters of the last batch visible."""

    rows: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class AdvanceReplay:
    """The dead letters of the plan are written."""

    plan: ReadPlan


@dataclass(frozen=True, slots=True)
class CallIdle:
    """Operation: call ``idle``; it clears the request for a call without records."""


@dataclass(frozen=True, slots=True)
class RequestIdle:
    """Request a call without records on behalf of the task object."""


@dataclass(frozen=True, slots=True)
class NoteRestored:
    """Note how many committed offsets were lost and committed again."""

    total_count: int


# Sources


@dataclass(frozen=True, slots=True)
class TakeStep:
    """Operation of a start: take a step of the writer; only offsets are published at a start."""

    step: PublishingStep
    offsets: Sequence[CommittedOffset] = ()


@dataclass(frozen=True, slots=True)
class FindStarts:
    """Operation: find the offsets to start from, given the coordinator's."""

    committed: Sequence[CommittedOffset]


@dataclass(frozen=True, slots=True)
class StartSource:
    """Operation: create and start a task object at these offsets."""

    committed: Sequence[CommittedOffset]
    is_restart: bool


@dataclass(frozen=True, slots=True)
class Notify:
    """Operation: call ``committed`` with the offsets of a batch; before it ``placed``, if this is
    the first of ``batch_count`` batches with a placement.
    """

    offsets: SourceOffsets
    placement: Placement | None = None
    batch_count: int = 1


@dataclass(frozen=True, slots=True)
class PlanLetters:
    """Operation: plan the next read of dead letters."""


@dataclass(frozen=True, slots=True)
class CheckLetters:
    """Operation: decide which dead letters of the plan are written."""

    plan: ReadPlan


@dataclass(frozen=True, slots=True)
class StageLetters:
    """Operation: stage the dead letters of the plan, and advance past them."""

    plan: ReadPlan
    is_counted: bool


@dataclass(frozen=True, slots=True)
class Poll:
    """Operation: call ``poll``, with these limits in the task's config."""

    max_bytes: int
    max_records: int


@dataclass(frozen=True, slots=True)
class Stage:
    """Operation: run a batch through the pipeline until it can be published.

    ``is_counted`` if its records have to be counted now.
    """

    batch: SourceBatch
    is_counted: bool


@dataclass(frozen=True, slots=True)
class Publish:
    """Operation: publish staged batches with their offsets."""

    staged: Sequence[Any]
    offsets: Sequence[CommittedOffset]


@dataclass(frozen=True, slots=True)
class BeginTransaction:
    """Publish staged batches with their offsets: take this step on a separate thread; the end of
    each step is an event.
    """

    number: int
    step: PublishingStep
    staged: Sequence[Any]
    offsets: Sequence[CommittedOffset]


@dataclass(frozen=True, slots=True)
class ContinueTransaction:
    """Take this step on the thread of the transaction."""

    number: int
    step: PublishingStep


@dataclass(frozen=True, slots=True)
class AwaitTransaction:
    """Operation: wait for the transaction in progress; ``limit_ms`` is None in a stop, which has
    its own limit.
    """

    limit_ms: int | None


@dataclass(frozen=True, slots=True)
class Discard:
    """Drop staged batches that will not be published."""

    staged: Sequence[Any]


@dataclass(frozen=True, slots=True)
class CloseWriter:
    """Close the writer."""


@dataclass(frozen=True, slots=True)
class NoteWritten:
    """Note that a batch became visible; its staging began at ``began_ms``."""

    began_ms: int


@dataclass(frozen=True, slots=True)
class WakeReaders:
    """There are new records in topics."""


@dataclass(frozen=True, slots=True)
class NoteSnapshot:
    """Count the records of a table that is being read completely."""

    snapshot: SnapshotProgress | None
    record_count: int


Operation = (
    Examine | ReadClaim | ConfirmClaim | StopInstance | FetchOffsets | AwaitCommits | StartSink
    | BeginReplay | FindTopics | CountPartitions | IdentifyTopics | FindEnds | ReadRetention
    | TraceOutput | GetFirstMetadata | ReadRequests | PlanReplay | PlanRead | MeasureLag
    | WriteBatch | PublishLetters | CallIdle | TakeStep | FindStarts | StartSource | Notify
    | PlanLetters | CheckLetters | StageLetters | Poll | Stage | Publish | AwaitTransaction
)  # fmt: skip
TaskInstruction = (
    Operation | Wake | EndRun | EndFailed | EndFenced | RefuseStart | DeferStart | NoteRetry
    | NoteRecovery | KeepInFlight | Log | SendCommit | NoteCommitted | EndStop
    | CountBatch | ShowOffsets | NotePassed | WatchTopics | StopWatching | AdvanceReplay
    | RequestIdle | NoteRestored | BeginTransaction | ContinueTransaction | Discard | CloseWriter
    | NoteWritten | WakeReaders | NoteSnapshot
)  # fmt: skip
