"""What tasks need of the place where topics are: an embedded store, or Kafka.

Rows never pass through here: a plan names ranges, executors read and write them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from drover.dataplane.arrow_rows import ArrowRows
from drover.dataplane.values import ReadPlan
from drover.errors import DataLossError, Reason, UnavailableError
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommittedOffset
from drover.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: A topic's name and the number of one of its partitions.
PartitionKey = tuple[str, int]
#: So many topics of one batch are named, which is for people; records may go into more.
BATCH_TOPICS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where the records of a batch go.

    ``topic`` counts for rows without a column of that name. ``partition_count`` is for topics that
    do not exist yet. With ``spread_keyless`` records without key and partition are spread evenly;
    else they go to partition 0.
    """

    topic: str | None = None
    partition_count: int = 1
    spread_keyless: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class OutgoingBatch:
    """Rows of a source task, the pipeline that makes records of them, and where these go."""

    rows: "DataFrame | ArrowRows"
    pipeline: Pipeline
    destination: Destination


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What a write made durable and visible.

    ``topics`` are those of the records; of more than BATCH_TOPICS_MAX only so many. ``uncommitted``
    are the offsets that the caller has to commit now, as they were not committed with the records:
    a crash before that repeats the batch. Empty where the write was exactly once.
    """

    record_count: int
    topics: Collection[str]
    uncommitted: Sequence[CommittedOffset] = ()


class NotPublishedError(UnavailableError):
    """STORAGE_UNAVAILABLE: a batch is staged, but readers do not see it yet.

    Write the same batch again: its rows are not run a second time.
    """


class AbandonedError(Exception):
    """The task was abandoned during a write: the batch is not visible."""


class TopicWriter(Protocol):
    """Writes the batches of one source task, one after the other, under its claim."""

    def write(self, batch: OutgoingBatch, offsets: Sequence[CommittedOffset]) -> Receipt:
        """Run the rows on executors, through the pipeline, into their topics.

        Raises:
            NotPublishedError: See there.
            AbandonedError: The task was abandoned.
            FailedPreconditionError: STALE_CLAIM, nothing became visible.
            Exception: Anything that the rows or Spark raise. On Kafka some records may have been
                written; the task has to start again from its committed offsets.
        """


class DataPlane(Protocol):
    """Topics, as the driver sees them; thread-safe.

    Every method waits within bounds for a store that is away, and then raises UnavailableError
    STORAGE_UNAVAILABLE.
    """

    def partition_counts(self, topics: Collection[str]) -> Mapping[str, int]:
        """How many partitions each topic has; topics that do not exist are left out. Cheap."""

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

    def rows(self, spark: "SparkSession", plan: ReadPlan) -> ArrowRows:
        """The records of a plan, in its order, as ``payload.READ_DDL`` describes them."""

    def writer(self, task: TaskId, claim: Term, *, abandoned: Callable[[], bool]) -> TopicWriter:
        """How ``task`` writes under ``claim``.

        ``abandoned`` is asked before records become visible: once it is true, none do.
        """

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
