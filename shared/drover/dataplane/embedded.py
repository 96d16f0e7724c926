"""The embedded store as the data plane of tasks."""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drover.dataplane import payload
from drover.dataplane.arrow_rows import ArrowRows, balanced_groups
from drover.dataplane.executor_store import open_store
from drover.dataplane.payload import READ_DDL
from drover.dataplane.plane import (
    ALL_COLUMNS,
    BATCH_TOPICS_MAX,
    AbandonedError,
    DeadLetterWriter,
    Destination,
    NotPublishedError,
    OutgoingBatch,
    PartitionKey,
    Receipt,
    require_reached,
)
from drover.dataplane.reading import RangeReader, read_range, read_times
from drover.dataplane.shared_jobs import core_count
from drover.dataplane.spark_jobs import run_pass, warm_up
from drover.dataplane.staging import BLOB_BYTES, Stager, pieces, staged_blobs
from drover.dataplane.store import EmbeddedStore
from drover.dataplane.topic_creation import PlannedUse, TopicCreation
from drover.dataplane.topic_settings import compacts, setting_fault, with_defaults
from drover.dataplane.values import Appended, Placement, ReadPlan, SettingOrigin, StagedBlob
from drover.errors import UnavailableError, Violation
from drover.model.ids import TaskId, Term
from drover.model.names import BROKER_TOPICS
from drover.model.offsets import CommittedOffset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATA_FILE = "data.db"


class EmbeddedWriter:
    """See DirectWriter: executors stage the records, then one transaction checks the claim,
    publishes the records and commits their offsets.
    """

    commits_with_records = True

    def __init__(
        self, store: EmbeddedStore, task: TaskId, claim: Term, abandoned: Callable[[], bool]
    ) -> None:
        self._store = store
        self._task = task
        self._claim = claim
        self._abandoned = abandoned

    def stage(self, batch: OutgoingBatch) -> Sequence[StagedBlob]:
        """See TopicWriter."""
        stager = _stager(self._store, self._task, self._claim, batch.destination)
        return staged_blobs(run_pass(batch, stager))

    def publish(
        self, staged: Sequence[Sequence[StagedBlob]], offsets: Sequence[CommittedOffset]
    ) -> Receipt:
        """See TopicWriter."""
        blobs = [blob for batch in staged for blob in batch]
        if self._abandoned():
            raise AbandonedError(f"task {self._task} was abandoned while it staged a batch")
        try:
            published = self._store.publish(self._task, self._claim, blobs, offsets)
        except UnavailableError as error:
            raise NotPublishedError(error.reason, error.message) from error
        names = dict.fromkeys(blob.topic for blob in blobs)
        return Receipt(
            record_count=published.record_count,
            topics=tuple(itertools.islice(names, BATCH_TOPICS_MAX)),
            size_bytes=sum(blob.size_bytes for blob in blobs),
            placement=Placement(
                published.ranges,
                Placement.same_counts((each.topic, each.partition_count) for each in blobs),
            ),
        )

    def discard(self, staged: Sequence[Sequence[StagedBlob]]) -> None:
        """See TopicWriter: the next batch, or the next claim, removes them."""

    def close(self) -> None:
        """See TopicWriter."""


@dataclass(frozen=True)
class CompactedTopics:
    """Whether a topic keeps the latest record of each key: an existing one by its settings."""

    path: Path
    creation: TopicCreation

    def __call__(self, topic: str) -> bool:
        """The answer for one topic."""
        found = open_store(self.path).topic(topic)
        return compacts(self.creation.rule(topic).config) if found is None else found.compacts


def _stager(store: EmbeddedStore, task: TaskId, claim: Term, destination: Destination) -> Stager:
    return Stager(
        store.path,
        task,
        claim,
        topic=destination.topic,
        creation=destination.creation,
        spread_keyless=destination.spread_keyless,
    )


def _unchecked() -> None:
    """Do nothing: transactions check the claim themselves."""


class EmbeddedPlane:
    """See DataPlane."""

    def __init__(self, store: EmbeddedStore) -> None:
        self.store = store

    @classmethod
    def open(cls, directory: Path) -> "EmbeddedPlane":
        """Open the store of a storage directory.

        Raises:
            DroverError: It cannot be opened.
        """
        return cls(EmbeddedStore(directory / DATA_FILE))

    def partition_counts(self, topics: Collection[str]) -> Mapping[str, int]:
        """See DataPlane."""
        bounds = self.store.bounds()
        counts = {}
        for topic in topics:
            counts[topic] = next(n for n in itertools.count() if (topic, n) not in bounds)
        return {topic: count for topic, count in counts.items() if count}

    def topic_ids(self, topics: Collection[str], *, fresh: bool = False) -> Mapping[str, str]:
        """See DataPlane: always fresh."""
        del fresh
        ids = self.store.topic_ids()
        return {topic: ids[topic] for topic in topics if topic in ids}

    def topics(self) -> Collection[str]:
        """See DataPlane."""
        return {topic for topic, _ in self.store.bounds()}

    takes_frames = False

    @property
    def record_bytes_max(self) -> None:
        """See DataPlane."""

    def record_bytes_max_of(self, topic: str) -> None:
        """See DataPlane."""

    def compacted_topics(
        self, known: Collection[str], creation: TopicCreation
    ) -> Callable[[str], bool] | None:
        """See DataPlane."""
        del known
        found = CompactedTopics(self.store.path, creation)
        any_new = any(compacts(rule.config) for rule in creation.rules)
        return found if any_new or self.store.has_compacted_topics() else None

    def reserved_topics(self) -> Mapping[str, str]:
        """See DataPlane: the cluster's logs are not topics here, and configs may move to Kafka."""
        what = "the brokers' own records on Kafka; the name is reserved in embedded storage too"
        return dict.fromkeys(BROKER_TOPICS, what)

    def end_offsets(self, partitions: Collection[PartitionKey]) -> Mapping[PartitionKey, int]:
        """See DataPlane."""
        bounds = self.store.bounds()
        return {key: bounds[key][1] for key in partitions if key in bounds}

    def plan_read(
        self, starts: Mapping[PartitionKey, int], *, max_records: int, max_bytes: int
    ) -> ReadPlan:
        """See DataPlane."""
        require_reached(starts, self.end_offsets(starts))
        return self.store.plan_read(starts, max_records=max_records, max_bytes=max_bytes)

    def rows(
        self,
        spark: "SparkSession",
        plan: ReadPlan,
        *,
        columns: frozenset[str] = ALL_COLUMNS,
    ) -> ArrowRows:
        """See DataPlane: at most as many Spark partitions as cores. Reading all columns costs
        nothing.
        """
        del columns
        groups = balanced_groups(
            plan.ranges,
            lambda each: each.size_bytes,
            group_count=core_count(spark.sparkContext),
        )
        return ArrowRows(spark, RangeReader(self.store.path, groups), len(groups), READ_DDL)

    def read_here(self, plan: ReadPlan) -> Iterator[Any]:
        """See DataPlane."""
        for each in plan.ranges:
            yield from read_range(self.store, each)

    def read_times(self, plan: ReadPlan) -> Iterator[Any]:
        """See DataPlane."""
        for each in plan.ranges:
            yield from read_times(self.store, each)

    def offsets_for_time(
        self, starts: Mapping[PartitionKey, int], time_ms: int
    ) -> Mapping[PartitionKey, int | None]:
        """See DataPlane: the store has no index by time."""
        del time_ms
        return starts

    def topic_bounds(self, topic: str) -> Mapping[int, tuple[int, int]]:
        """See DataPlane."""
        bounds = self.store.bounds()
        return {partition: each for (name, partition), each in bounds.items() if name == topic}

    def use_faults(self, use: PlannedUse) -> Sequence[Violation]:
        """See DataPlane: the store has no users, and one replica of each topic."""
        del use
        return ()

    def topic_settings(self, topic: str) -> Mapping[str, str]:
        """See DataPlane: the topic's own, else the coordinator's, else Kafka's default."""
        return with_defaults(self.store.topic_settings(topic), self.store.default_settings())

    def setting_origins(self, topic: str) -> Mapping[str, SettingOrigin]:
        """See DataPlane."""
        own, cluster = self.store.topic_settings(topic), self.store.default_settings()
        origins = dict.fromkeys(with_defaults(own, cluster), SettingOrigin.DEFAULT)
        origins |= dict.fromkeys(cluster, SettingOrigin.COORDINATOR)
        return origins | dict.fromkeys(own, SettingOrigin.TOPIC)

    @property
    def one_copy(self) -> bool:
        """See DataPlane."""
        return True

    def setting_fault(self, name: str, value: str) -> str:
        """See DataPlane."""
        return setting_fault(name, value.strip())

    def writer(
        self,
        task: TaskId,
        claim: Term,
        *,
        abandoned: Callable[[], bool],
        check_claim: Callable[[], None] = _unchecked,
        offsets_topic: str = "",
    ) -> EmbeddedWriter:
        """See DataPlane."""
        del check_claim, offsets_topic
        return EmbeddedWriter(self.store, task, claim, abandoned)

    def append(self, topic: str, parts: Mapping[int, Any], request_id: str) -> Appended:
        """See DataPlane."""
        blobs = {
            partition: [
                (piece.num_rows, payload.encode([piece])) for piece in pieces(records, BLOB_BYTES)
            ]
            for partition, records in parts.items()
        }
        return self.store.append(topic, blobs, request_id)

    def dead_letters(self, task: TaskId, claim: Term, destination: Destination) -> DeadLetterWriter:
        """See DataPlane: staged on executors, published by the driver."""

        def publish(rows: Sequence[Mapping[str, Any]]) -> None:
            self.store.publish(task, claim, staged_blobs(rows))

        return DeadLetterWriter(_stager(self.store, task, claim, destination), publish)

    def current_claim(self, task: TaskId) -> Term | None:
        """See DataPlane."""
        return self.store.current_claim(task)

    def fetch_offsets(self, connector: str) -> Sequence[CommittedOffset]:
        """See DataPlane."""
        return self.store.fetch_offsets(connector, with_marks=True)

    def offsets_retention_ms(self) -> None:
        """See DataPlane: offsets do not expire."""

    def warm_up(self, spark: "SparkSession") -> None:
        """See DataPlane."""
        cores = core_count(spark.sparkContext)
        warm_up(spark, RangeReader(self.store.path, ((),) * cores))
