"""What tasks need of the place where topics are: an embedded store, or Kafka.

Rows never pass through here: a plan names ranges, executors read and write them.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from drover.dataplane.arrow_rows import ArrowFunction, ArrowRows
from drover.dataplane.topic_creation import SINGLE_PARTITION, TopicCreation
from drover.dataplane.values import ReadPlan
from drover.errors import DataLossError, Reason, UnavailableError
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommittedOffset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: A topic's name and the number of one of its partitions.
PartitionKey = tuple[str, int]
#: What a record has beside its place.
ALL_COLUMNS = frozenset({"key", "value", "headers", "timestamp"})
#: So many topics of one batch are named, which is for people; records may go into more.
BATCH_TOPICS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where the records of a batch go.

    ``topic`` counts for rows without a column of that name. ``creation`` is for topics that do not
    exist yet. With ``spread_keyless`` records without key and partition are spread evenly; else
    they go to partition 0.
    """

    topic: str | None = None
    creation: TopicCreation = SINGLE_PARTITION
    spread_keyless: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class OutgoingBatch:
    """Rows of a source task, the pipeline that makes records of them, and where these go."""

    rows: "DataFrame | ArrowRows"
    pipeline: ArrowFunction
    destination: Destination


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What a write made durable and visible.

    ``topics`` are those of the records; of more than BATCH_TOPICS_MAX only so many. ``uncommitted``
    are the offsets that the caller has to commit now, as they were not committed with the records:
    a crash before that repeats the batch. Empty where the write was exactly once. ``size_bytes`` is
    about what the records take.
    """

    record_count: int
    topics: Collection[str]
    uncommitted: Sequence[CommittedOffset] = ()
    size_bytes: int = 0


class NotPublishedError(UnavailableError):
    """STORAGE_UNAVAILABLE: a batch is staged, but readers do not see it yet.

    Publish the same batch again: its rows are not run a second time.
    """


class OutcomeUnknownError(UnavailableError):
    """STORAGE_UNAVAILABLE: whether a batch was published is not known, and only the committed
    offsets tell. Open the writer again, and start the task from them.
    """


class AbandonedError(Exception):
    """The task was abandoned during a write: the batch is not visible."""


class TopicWriter(Protocol):
    """Writes the batches of one source task, one after the other, under its claim."""

    @property
    def commits_with_records(self) -> bool:
        """Whether records and offsets are one transaction."""

    @property
    def publishes_apart(self) -> bool:
        """Whether a batch may be staged while the one before is published, on another thread, and
        several be published as one.
        """

    def open(self) -> bool:
        """Become the task's only writer; before the first batch, and before each that follows a
        batch which failed or whose outcome is unknown.

        Returns:
            Whether the offsets that the task starts from have to be fetched behind this call.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE.
            FailedPreconditionError: STALE_CLAIM; STORAGE_MISCONFIGURED, the brokers forbid it;
                STALE_WRITER_EPOCH, somebody else writes as this task, and goes on to.
        """

    def opened(self, committed: Sequence[CommittedOffset]) -> Sequence[CommittedOffset]:
        """Tell the offsets that the coordinator has; the task can write from now on.

        Returns:
            The offsets that the task starts from.

        Raises:
            DroverError: As ``open`` and ``publish``.
        """

    def stage(self, batch: OutgoingBatch) -> Any:
        """Run the rows on executors, through the pipeline, up to where they can be published.

        Raises:
            FailedPreconditionError: STALE_CLAIM.
            Exception: Anything that the rows or Spark raise; the task has to start again from its
                committed offsets.
        """

    def publish(self, staged: Sequence[Any], offsets: Sequence[CommittedOffset]) -> Receipt:
        """Have staged batches, in this order, in their topics.

        Raises:
            NotPublishedError, OutcomeUnknownError: See there.
            AbandonedError: The task was abandoned.
            FailedPreconditionError: STALE_CLAIM, nothing became visible; else as ``open``.
            Exception: Of Kafka or of Spark. Without transactions some records may have been
                written; the task has to start again from its committed offsets.
        """

    def discard(self, staged: Sequence[Any]) -> None:
        """Give up what was staged and shall not be published."""

    def close(self) -> None:
        """Write no more; what is not published never will be. Idempotent."""


@dataclass(frozen=True, slots=True)
class DeadLetterWriter:
    """How a sink's records that nobody could handle get into their topic.

    ``write`` runs on executors, with batches that have a column ``topic``; ``publish`` makes the
    records visible that the rows stand for which ``write`` returned. Both may run again for the
    same records: at least once.
    """

    write: ArrowFunction
    publish: Callable[[Sequence[Mapping[str, Any]]], None]


class DataPlane(Protocol):
    """Topics, as the driver sees them; thread-safe.

    Every method waits within bounds for a store that is away, and then raises UnavailableError
    STORAGE_UNAVAILABLE.
    """

    def partition_counts(self, topics: Collection[str]) -> Mapping[str, int]:
        """How many partitions each topic has; topics that do not exist are left out. Cheap."""

    def topics(self) -> Collection[str]:
        """Every topic that connectors may use. Cheap."""

    @property
    def record_bytes_max(self) -> int | None:
        """A record with a larger key and value is refused; None for no limit."""

    def reserved_topics(self) -> Collection[str]:
        """The topics that the cluster keeps itself in."""

    def end_offsets(self, partitions: Collection[PartitionKey]) -> Mapping[PartitionKey, int]:
        """Where each partition ends for readers; what does not exist is left out. One cheap
        question for all of them.
        """

    def plan_read(
        self, starts: Mapping[PartitionKey, int], *, max_records: int, max_bytes: int
    ) -> ReadPlan:
        """What to read next, from where to go on in each partition; cheap when that is nothing.

        Raises:
            DataLossError: LOG_CORRUPT, a partition ends before the start that is asked for.
        """

    def rows(
        self,
        spark: "SparkSession",
        plan: ReadPlan,
        *,
        columns: frozenset[str] = ALL_COLUMNS,
    ) -> ArrowRows:
        """The records of a plan, in its order, as ``payload.READ_DDL`` describes them.

        Of ALL_COLUMNS those that are not in ``columns`` may be null whatever the records have.
        """

    def read_here(self, plan: ReadPlan) -> Iterator[Any]:
        """As ``rows``, in this process and on this thread: for a few records that people look at.

        Raises:
            OutOfRangeError: REVISION_COMPACTED, retention removed some of them meanwhile.
        """

    def topic_bounds(self, topic: str) -> Mapping[int, tuple[int, int]]:
        """The first and the end offset of each partition as of now, where ``partition_counts`` may
        be late; empty when there is no such topic.
        """

    def topic_settings(self, topic: str) -> Mapping[str, str]:
        """What the place where topics are has set for this one; empty where it sets nothing."""

    def writer(
        self,
        task: TaskId,
        claim: Term,
        *,
        abandoned: Callable[[], bool],
        check_claim: Callable[[], None],
        offsets_topic: str = "",
    ) -> TopicWriter:
        """How ``task`` writes under ``claim``.

        ``abandoned`` is asked before records become visible: once it is true, none do.
        ``check_claim`` has the coordinator write down that the task writes under its claim; it
        raises FailedPreconditionError STALE_CLAIM if that does not count any more, and
        UnavailableError STORAGE_UNAVAILABLE. ``offsets_topic`` is one of the connector's own on
        Kafka, in which its source offsets are as well.
        """

    def dead_letters(self, task: TaskId, claim: Term, destination: Destination) -> DeadLetterWriter:
        """How the dead letters of a sink's ``task`` are written."""

    def current_claim(self, task: TaskId) -> Term | None:
        """The claim that counts; None when there is none, or only the coordinator knows it."""

    def fetch_offsets(self, connector: str) -> Sequence[CommittedOffset] | None:
        """The connector's committed offsets; None when only the coordinator knows them."""

    def warm_up(self, spark: "SparkSession") -> None:
        """Run every kind of job once on every core, without a record."""


def require_reached(starts: Mapping[PartitionKey, int], ends: Mapping[PartitionKey, int]) -> None:
    """Refuse to go on behind the end of a partition, for what comes there is not what came before.

    Raises:
        DataLossError: LOG_CORRUPT, a partition ends before its start.
    """
    for (topic, partition), start in sorted(starts.items()):
        end = ends.get((topic, partition), start)
        if end < start:
            raise DataLossError(
                Reason.LOG_CORRUPT,
                f"{topic}-{partition} ends at offset {end}, but is read up to {start} already: it "
                "lost records or is another topic of that name; reset the connector's offsets to "
                "read it from its start",
            )
