"""The data plane: the interface of tasks to topics, in an embedded store or on Kafka.

Rows never pass through it: a plan has ranges, which executors read and write.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from drover.dataplane.arrow_rows import ArrowFunction, ArrowRows
from drover.dataplane.topic_creation import SINGLE_PARTITION, PlannedUse, TopicCreation
from drover.dataplane.values import Appended, Placement, ReadPlan, SettingOrigin
from drover.errors import DataLossError, DroverError, Reason, UnavailableError, Violation
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommittedOffset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: A topic and the number of one of its partitions.
PartitionKey = tuple[str, int]
#: The columns of a record besides its position.
ALL_COLUMNS = frozenset({"key", "value", "headers", "timestamp"})
#: The most topics of a batch that are listed, for display; records may go to more.
BATCH_TOPICS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The destination of a batch's records.

    ``topic`` is for rows without a topic column. ``creation`` is for topics that do not exist yet.
    With ``spread_keyless`` records without key and partition are spread evenly; otherwise they go
    to partition 0.
    """

    topic: str | None = None
    creation: TopicCreation = SINGLE_PARTITION
    spread_keyless: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class OutgoingBatch:
    """Rows of a source task, the pipeline that converts them to records, and their destination."""

    rows: "DataFrame | ArrowRows"
    pipeline: ArrowFunction
    destination: Destination


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The result of a durable, visible write.

    ``topics`` are the records' topics, at most BATCH_TOPICS_MAX. ``uncommitted`` are the offsets
    that the caller has to commit now, because they were not committed with the records: a crash
    before that repeats the batch. It is empty for exactly-once writes. ``size_bytes`` is the
    approximate size of the records, and ``placement`` their offsets, None if they are not known.
    """

    record_count: int
    topics: Collection[str]
    uncommitted: Sequence[CommittedOffset] = ()
    size_bytes: int = 0
    placement: Placement | None = None


class NotPublishedError(UnavailableError):
    """STORAGE_UNAVAILABLE: a batch is staged, but not visible yet.

    Publish the same batch again: its rows are not computed again.
    """


class OutcomeUnknownError(UnavailableError):
    """STORAGE_UNAVAILABLE: it is unknown whether a batch was published; the committed offsets show
    it. Restart the task from them.
    """


class AbandonedError(Exception):
    """The task was abandoned during a write: the batch is not visible."""


class StageAgainError(UnavailableError):
    """STORAGE_UNAVAILABLE: a staged batch cannot be published. Restart the task from the committed
    offsets, so that its rows are staged again.
    """


class ProducerFencedError(Exception):
    """Another producer was initialised with the transactional id of the task.

    ``meaning`` is the error of a task that is fenced although its claim is current.
    """

    def __init__(self, message: str, meaning: DroverError) -> None:
        super().__init__(message)
        self.meaning = meaning


#: A staged batch, as a writer of one kind has it.
StagedT = TypeVar("StagedT")


class TopicWriter(Protocol[StagedT]):
    """Writes the batches of one source task, one after another, under its claim.

    A staged batch is a value of the writer that staged it.
    """

    @property
    def commits_with_records(self) -> bool:
        """Whether records and offsets share a transaction."""

    def stage(self, batch: OutgoingBatch) -> StagedT:
        """Run the rows through the pipeline on executors, until they can be published.

        Raises:
            FailedPreconditionError: STALE_CLAIM.
            Exception: Any error of the rows or of Spark; the task has to restart from its committed
                offsets.
        """

    def discard(self, staged: Sequence[StagedT]) -> None:
        """Drop staged batches that will not be published."""

    def close(self) -> None:
        """Close; unpublished batches are lost. Idempotent."""


class DirectWriter(TopicWriter[StagedT], Protocol[StagedT]):
    """A writer of which one call publishes."""

    def publish(self, staged: Sequence[StagedT], offsets: Sequence[CommittedOffset]) -> Receipt:
        """Publish staged batches in this order.

        Raises:
            NotPublishedError: See there.
            AbandonedError: The task was abandoned.
            FailedPreconditionError: STALE_CLAIM, nothing became visible.
            Exception: An error of Kafka or Spark. Without transactions some records may have been
                written; the task has to restart from its committed offsets.
        """


@runtime_checkable
class TransactionalWriter(TopicWriter[StagedT], Protocol[StagedT]):
    """A writer with a transactional producer, whose steps the task's core decides.

    A batch may be staged while another thread takes the steps; a staged batch has the attribute
    ``record_count``. Every step raises ProducerFencedError, UnavailableError STORAGE_UNAVAILABLE,
    or another DroverError with its reason.
    """

    def init(self) -> None:
        """Initialise the producer: ends open transactions of earlier ones, and fences them.

        Raises:
            FailedPreconditionError: STORAGE_MISCONFIGURED, the brokers forbid it.
        """

    def check_claim(self) -> None:
        """Make the coordinator record that the task writes under its claim.

        Raises:
            FailedPreconditionError: STALE_CLAIM.
        """

    def starts(self, committed: Sequence[CommittedOffset]) -> "WriterStarts":
        """Where to start the task, given the coordinator's offsets; forgets cached facts."""

    def produce(self, staged: Sequence[StagedT]) -> None:
        """Start a transaction with the records of staged batches, in this order.

        Raises:
            StageAgainError: See there; ``add_offsets`` and ``commit`` may raise it as well.
        """

    def add_offsets(self, offsets: Sequence[CommittedOffset]) -> None:
        """Add source offsets to the transaction."""

    def commit(self) -> None:
        """Commit the transaction. After an error its outcome is unknown."""

    def published(self, staged: Sequence[StagedT]) -> Receipt:
        """Discard batches that were published; returns their receipt."""


@dataclass(frozen=True, slots=True)
class WriterStarts:
    """The offsets to start from; those ``behind`` are not in every offsets topic yet."""

    committed: Sequence[CommittedOffset]
    behind: Sequence[CommittedOffset] = ()


@dataclass(frozen=True, slots=True)
class DeadLetterWriter:
    """Writes a sink's failed records to the dead letter topic.

    ``write`` runs on executors, with batches that have a column ``topic``; ``publish`` makes the
    records of the returned rows visible. Both may run again for the same records: at least once.
    """

    write: ArrowFunction
    publish: Callable[[Sequence[Mapping[str, Any]]], None]


class TopicChecks(Protocol):
    """What validations check of the cluster's topics; raises as DataPlane."""

    def partition_counts(self, topics: Collection[str]) -> Mapping[str, int]:
        """The partition count of each existing topic. Cheap."""

    def topics(self) -> Collection[str]:
        """Every topic that connectors may use. Cheap."""

    def reserved_topics(self) -> Mapping[str, str]:
        """The cluster's internal topics, which connectors and operators may not use, each with what
        it contains.
        """

    def use_faults(self, use: PlannedUse) -> Sequence[Violation]:
        """What the storage would reject of a connector's topics; changes nothing.

        Returns:
            Violations, with ``Caution`` for a risk, and ``SkippedCheck`` for a check that the
            storage does not answer.
        """

    def topic_settings(self, topic: str) -> Mapping[str, str]:
        """The settings of a topic, with defaults."""

    @property
    def one_copy(self) -> bool:
        """Whether a topic has one copy, whatever its replication factor."""

    def setting_fault(self, name: str, value: str) -> str:
        """Why a new topic cannot have this setting; empty if it can, as far as it is known."""


class DataPlane(TopicChecks, Protocol):
    """Topics from the driver's view; thread-safe.

    Every method waits, within bounds, for an unavailable store, and then raises UnavailableError
    STORAGE_UNAVAILABLE.
    """

    def topic_ids(self, topics: Collection[str], *, fresh: bool = False) -> Mapping[str, str]:
        """The id of each existing topic; empty if the storage has none. A topic that was deleted
        and created again has another id. Cheap unless ``fresh``: ids may be some seconds old.
        """

    @property
    def takes_frames(self) -> bool:
        """Whether keys and values of outgoing batches should have frames (see Framed): the writer
        stores them once, until it builds record batches.
        """

    @property
    def record_bytes_max(self) -> int | None:
        """The limit for a record's key and value; None for no limit."""

    def record_bytes_max_of(self, topic: str) -> int | None:
        """As ``record_bytes_max``, with the limit of a topic, which may not exist yet. Cheap."""

    def compacted_topics(
        self, known: Collection[str], creation: TopicCreation
    ) -> Callable[[str], bool] | None:
        """A function for executors: whether a topic, which may have to be created, needs records
        with keys. None if no topic of a source does. On Kafka it covers the topics that are
        ``known`` before the records; the brokers check the others.
        """

    def end_offsets(self, partitions: Collection[PartitionKey]) -> Mapping[PartitionKey, int]:
        """The end offset of each existing partition, for readers. One cheap request for all."""

    def plan_read(
        self, starts: Mapping[PartitionKey, int], *, max_records: int, max_bytes: int
    ) -> ReadPlan:
        """Plan the next read from the start offset of each partition; cheap if there are no new
        records.

        Raises:
            DataLossError: LOG_CORRUPT, a partition ends before its start offset.
        """

    def rows(
        self,
        spark: "SparkSession",
        plan: ReadPlan,
        *,
        columns: frozenset[str] = ALL_COLUMNS,
    ) -> ArrowRows:
        """The records of a plan, in its order, as described by ``payload.READ_DDL``.

        Columns of ALL_COLUMNS that are not in ``columns`` may be null.
        """

    def read_here(self, plan: ReadPlan) -> Iterator[Any]:
        """As ``rows``, in this process and thread: for small reads by operators.

        Raises:
            OutOfRangeError: REVISION_COMPACTED, retention removed records during the read.
        """

    def read_times(self, plan: ReadPlan) -> Iterator[Any]:
        """As ``read_here``, with the columns ``offset`` and ``timestamp`` only."""

    def offsets_for_time(
        self, starts: Mapping[PartitionKey, int], time_ms: int
    ) -> Mapping[PartitionKey, int | None]:
        """Where to search for the first record of each existing partition, from its start offset
        on, whose timestamp is at or after a time in milliseconds since 1970: no record before has
        such a timestamp. None if no record has. Cheap.
        """

    def topic_bounds(self, topic: str) -> Mapping[int, tuple[int, int]]:
        """The current first and end offset of each partition, without a cache; empty if the topic
        does not exist.
        """

    def setting_origins(self, topic: str) -> Mapping[str, SettingOrigin]:
        """Where the values of ``topic_settings`` come from."""

    def writer(
        self,
        task: TaskId,
        claim: Term,
        *,
        abandoned: Callable[[], bool],
        check_claim: Callable[[], None],
        offsets_topic: str = "",
    ) -> DirectWriter[Any] | TransactionalWriter[Any]:
        """The writer of ``task`` under ``claim``.

        ``abandoned`` is called before records become visible: once it returns True, none do.
        ``check_claim`` makes the coordinator record that the task writes under its claim; it raises
        FailedPreconditionError STALE_CLAIM for a stale claim, and UnavailableError
        STORAGE_UNAVAILABLE. ``offsets_topic`` is a connector's own offsets topic on Kafka.
        """

    def append(self, topic: str, parts: Mapping[int, Any], request_id: str) -> Appended:
        """Write records to a topic without a task, all or none, and return when they are visible.
        A repeated call with the same request id writes nothing.

        Args:
            topic: The topic, which must exist.
            parts: The records of each partition, as one batch of ``payload.PAYLOAD_SCHEMA``.
            request_id: The id of the call.

        Raises:
            NotFoundError: TOPIC_NOT_FOUND.
            InvalidArgumentError: TOO_LARGE, a record is over the limit of the topic.
            UnavailableError: STORAGE_UNAVAILABLE, the outcome is unknown: call again with the same
                request id.
            DroverError: Other errors of the storage; nothing was written.
        """

    def dead_letters(self, task: TaskId, claim: Term, destination: Destination) -> DeadLetterWriter:
        """The writer for the dead letters of a sink's ``task``."""

    def current_claim(self, task: TaskId) -> Term | None:
        """The current claim; None if there is none, or only the coordinator has it."""

    def fetch_offsets(self, connector: str) -> Sequence[CommittedOffset] | None:
        """The connector's committed offsets; None if only the coordinator has them."""

    def offsets_retention_ms(self) -> int | None:
        """How long a sink's offsets are kept after their last commit; None for ever. Cheap."""

    def warm_up(self, spark: "SparkSession") -> None:
        """Run every kind of job once on every core, without records."""


def reserved_fault(plane: TopicChecks, topic: str) -> str:
    """Why connectors and operators may not use a topic of this name; empty if they may."""
    contents = plane.reserved_topics().get(topic)
    if contents is None:
        return ""
    return f"must not be {topic}, an internal topic of the cluster, which contains {contents}"


def require_reached(starts: Mapping[PartitionKey, int], ends: Mapping[PartitionKey, int]) -> None:
    """Check that no partition ends before its start offset: records after that would be others.

    Raises:
        DataLossError: LOG_CORRUPT, a partition ends before its start offset.
    """
    for (topic, partition), start in sorted(starts.items()):
        end = ends.get((topic, partition), start)
        if end < start:
            raise DataLossError(
                Reason.LOG_CORRUPT,
                f"{topic}-{partition} ends at offset {end}, but was read up to {start}: it "
                "lost records or is another topic of that name; reset the connector's offsets to "
                "read it from its start",
            )
