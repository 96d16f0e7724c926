"""Kafka as the data plane of tasks: the driver's queries, plans and passes on executors."""

import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigSource, OffsetSpec

from drover.dataplane.arrow_rows import ArrowRows, balanced_groups
from drover.dataplane.kafka.appending import append
from drover.dataplane.kafka.batch_producer import can_send
from drover.dataplane.kafka.clients import shared_client
from drover.dataplane.kafka.planning import Bounds, plan
from drover.dataplane.kafka.producing import RecordProducer
from drover.dataplane.kafka.reading import KafkaRangeReader
from drover.dataplane.kafka.sampling import RecordSizes
from drover.dataplane.kafka.staging import StagedFiles
from drover.dataplane.kafka.times import offsets_for_time
from drover.dataplane.kafka.topics import KNOWN_TOPIC_S, partition_counts, topic_states
from drover.dataplane.kafka.transactional import ExactlyOnceWriter
from drover.dataplane.kafka.use_checks import use_faults
from drover.dataplane.payload import READ_DDL
from drover.dataplane.plane import (
    ALL_COLUMNS,
    AbandonedError,
    DeadLetterWriter,
    Destination,
    DirectWriter,
    OutgoingBatch,
    PartitionKey,
    Receipt,
    TransactionalWriter,
    require_reached,
)
from drover.dataplane.shared_jobs import core_count
from drover.dataplane.spark_jobs import run_pass, warm_up
from drover.dataplane.topic_creation import PlannedUse, TopicCreation
from drover.dataplane.topic_settings import compacts
from drover.dataplane.values import Appended, ReadPlan, SettingOrigin
from drover.errors import DroverError, Violation
from drover.log.kafka.client import TopicState
from drover.log.storage import KafkaStorage
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommittedOffset
from drover.model.times import DAY_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: How long a topic is assumed to be missing.
_MISSING_TOPIC_S = 1.0
#: How old a topic's id may be while nothing depends on it.
_TOPIC_ID_S = 2.0
#: The client's default, and the approximate overhead of a record's batch.
_MESSAGE_MAX_BYTES = 1_000_000
_RECORD_OVERHEAD_BYTES = 512
_TOPIC_BYTES_MAX = "max.message.bytes"
_ORIGINS = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: SettingOrigin.TOPIC,
    ConfigSource.DEFAULT_CONFIG: SettingOrigin.DEFAULT,
}
_OFFSETS_RETENTION = "offsets.retention.minutes"
_DEFAULT_OFFSETS_RETENTION_MS = 7 * DAY_MS
_OFFSETS_RETENTION_KNOWN_S = 3_600.0
#: How long the list of all topics is cached.
_TOPIC_NAMES_S = 5.0


log = structlog.get_logger(__name__)


class KafkaWriter:
    """See DirectWriter: at least once. Executors produce the records, and the caller commits the
    offsets when all records are acknowledged.

    A batch is written by one Spark partition, which keeps the order of its rows; a source scales by
    its number of tasks.
    """

    commits_with_records = False

    def __init__(self, storage: KafkaStorage, task: TaskId, abandoned: Callable[[], bool]) -> None:
        self._storage = storage
        self._task = task
        self._abandoned = abandoned

    def stage(self, batch: OutgoingBatch) -> OutgoingBatch:
        """See TopicWriter: the batch runs when it is published."""
        return batch

    def publish(
        self, staged: Sequence[OutgoingBatch], offsets: Sequence[CommittedOffset]
    ) -> Receipt:
        """See TopicWriter."""
        if self._abandoned():
            raise AbandonedError(f"task {self._task} was abandoned before it wrote a batch")
        rows = [
            row
            for batch in staged
            for row in run_pass(batch, _producer(self._storage, batch.destination), at_once=True)
        ]
        return Receipt(
            record_count=sum(row["record_count"] for row in rows),
            topics=tuple(dict.fromkeys(topic for row in rows for topic in row["topics"])),
            uncommitted=offsets,
            size_bytes=sum(row["size_bytes"] for row in rows),
        )

    def discard(self, staged: Sequence[OutgoingBatch]) -> None:
        """See TopicWriter."""

    def close(self) -> None:
        """See TopicWriter."""


def _producer(storage: KafkaStorage, destination: Destination) -> RecordProducer:
    return RecordProducer(
        storage,
        topic=destination.topic,
        creation=destination.creation,
        spread_keyless=destination.spread_keyless,
    )


class KafkaPlane:
    """See DataPlane. The coordinator has the claims and offsets."""

    def __init__(
        self,
        storage: KafkaStorage,
        *,
        staging_directory: Path | None = None,
        executors_share_files: bool = True,
    ) -> None:
        """Connect to nothing yet.

        Args:
            storage: The cluster with the topics.
            staging_directory: A local directory for batches that wait to be published in
                transactions. None for sources that write at least once.
            executors_share_files: Executors can write to that directory; otherwise they send
                staged batches to the driver.

        Raises:
            InvalidArgumentError: INVALID_CONFIG, the client settings are invalid.
        """
        self._storage = storage
        self._staging_directory = staging_directory
        self._executors_share_files = executors_share_files
        self._client = shared_client(storage)
        self._sizes = RecordSizes(storage)
        self._lock = threading.Lock()
        #: The size limits of topics for records, and the end of their validity.
        #: Whether topics are compacted, and until when that is assumed.
        self._compacted: dict[str, tuple[bool, float]] = {}
        self._record_limits: dict[str, tuple[int, float]] = {}
        #: Topics (None: no such topic), and when the brokers described them.
        self._topics: dict[str, tuple[TopicState | None, float]] = {}
        #: How long brokers keep offsets, and the end of its validity.
        self._offsets_retention = (_DEFAULT_OFFSETS_RETENTION_MS, 0.0)
        #: The names of all topics, and the end of their validity.
        self._names: tuple[frozenset[str], float] = (frozenset(), 0.0)

    def partition_counts(self, topics: Collection[str]) -> Mapping[str, int]:
        """See DataPlane."""
        states = self._states(topics, KNOWN_TOPIC_S)
        return {topic: state.partition_count for topic, state in states.items()}

    def topic_ids(self, topics: Collection[str], *, fresh: bool = False) -> Mapping[str, str]:
        """See DataPlane."""
        states = self._states(topics, 0.0 if fresh else _TOPIC_ID_S)
        return {topic: state.topic_id for topic, state in states.items()}

    def _states(self, topics: Collection[str], age_max_s: float) -> dict[str, TopicState]:
        """The existing ones of ``topics``, as described at most ``age_max_s`` ago."""
        now_s = time.monotonic()

        def is_stale(topic: str) -> bool:
            state, described_s = self._topics.get(topic, (None, -math.inf))
            valid_s = age_max_s if state is not None else min(age_max_s, _MISSING_TOPIC_S)
            return described_s + valid_s <= now_s

        with self._lock:
            stale = [topic for topic in topics if is_stale(topic)]
        if stale:
            found = topic_states(self._client, stale)
            with self._lock:
                self._topics.update({topic: (found.get(topic), now_s) for topic in stale})
        with self._lock:
            states = {topic: self._topics[topic][0] for topic in topics}
        return {topic: state for topic, state in states.items() if state is not None}

    def topics(self) -> Collection[str]:
        """See DataPlane; new topics appear after _TOPIC_NAMES_S."""
        now_s = time.monotonic()
        with self._lock:
            names, until_s = self._names
        if until_s <= now_s:
            try:
                found = self._client.topic_names_now()
            except KafkaException as error:
                raise self._client.translated(error, doing="topics cannot be listed") from error
            names = frozenset(found) - self._storage.topics.names
            with self._lock:
                self._names = names, now_s + _TOPIC_NAMES_S
        return names

    @property
    def takes_frames(self) -> bool:
        """See DataPlane."""
        return self._staging_directory is not None and can_send(self._storage)

    @property
    def record_bytes_max(self) -> int:
        """See DataPlane: the client's limit; a topic's own limit may be lower."""
        limit = int(self._storage.client_config.get("message.max.bytes", _MESSAGE_MAX_BYTES))
        return limit - _RECORD_OVERHEAD_BYTES

    def record_bytes_max_of(self, topic: str) -> int:
        """See DataPlane: the lower limit of the client and of the topic. A topic whose settings
        cannot be read has the client's limit.
        """
        now_s = time.monotonic()
        with self._lock:
            limit, until_s = self._record_limits.get(topic, (0, 0.0))
        if until_s > now_s:
            return limit
        limit = self.record_bytes_max
        try:
            settings = self.topic_settings(topic)
            limit = min(limit, int(settings[_TOPIC_BYTES_MAX]) - _RECORD_OVERHEAD_BYTES)
        except (DroverError, KeyError, ValueError):
            pass  # a missing topic, or a user who may not see settings
        with self._lock:
            self._record_limits[topic] = (limit, now_s + KNOWN_TOPIC_S)
        return limit

    def compacted_topics(
        self, known: Collection[str], creation: TopicCreation
    ) -> Callable[[str], bool] | None:
        """See DataPlane. A topic whose settings cannot be read is left to the brokers."""
        found = frozenset(topic for topic in known if self._is_compacted(topic, creation))
        return found.__contains__ if found else None

    def _is_compacted(self, topic: str, creation: TopicCreation) -> bool:
        now_s = time.monotonic()
        with self._lock:
            is_compacted, until_s = self._compacted.get(topic, (False, 0.0))
        if until_s > now_s:
            return is_compacted
        try:
            exists = bool(self.partition_counts([topic]))
            settings = self.topic_settings(topic) if exists else creation.rule(topic).config
        except DroverError:
            return False
        with self._lock:
            self._compacted[topic] = (compacts(settings), now_s + KNOWN_TOPIC_S)
        return compacts(settings)

    def reserved_topics(self) -> Mapping[str, str]:
        """See DataPlane."""
        return self._storage.topics.contents

    def use_faults(self, use: PlannedUse) -> Sequence[Violation]:
        """See DataPlane."""
        return use_faults(self._storage, use, is_exactly_once=self._staging_directory is not None)

    def end_offsets(self, partitions: Collection[PartitionKey]) -> Mapping[PartitionKey, int]:
        """See DataPlane: the last stable offsets."""
        return self._list_offsets(partitions, OffsetSpec.latest())

    def plan_read(
        self, starts: Mapping[PartitionKey, int], *, max_records: int, max_bytes: int
    ) -> ReadPlan:
        """See DataPlane."""
        ends = self.end_offsets(starts)
        require_reached(starts, ends)
        active = [key for key, end in ends.items() if end > starts[key]]
        if not active:
            return ReadPlan((), dict(starts))
        firsts = self._list_offsets(active, OffsetSpec.earliest())
        bounds = {key: Bounds(firsts.get(key, starts[key]), ends[key]) for key in active}
        at = {key: max(starts[key], each.first) for key, each in bounds.items()}
        return plan(
            starts,
            bounds,
            self._sizes.of(at),
            max_records=max_records,
            max_bytes=max_bytes,
        )

    def rows(
        self,
        spark: "SparkSession",
        plan: ReadPlan,
        *,
        columns: frozenset[str] = ALL_COLUMNS,
    ) -> ArrowRows:
        """See DataPlane."""
        groups = balanced_groups(
            plan.ranges,
            lambda each: each.size_bytes,
            group_count=core_count(spark.sparkContext),
        )
        read = KafkaRangeReader(self._storage, groups, columns)
        return ArrowRows(spark, read, len(groups), READ_DDL)

    def read_here(self, plan: ReadPlan) -> Iterator[Any]:
        """See DataPlane."""
        return KafkaRangeReader(self._storage, (tuple(plan.ranges),))(0)

    def read_times(self, plan: ReadPlan) -> Iterator[Any]:
        """See DataPlane."""
        wanted = (tuple(plan.ranges),)
        for records in KafkaRangeReader(self._storage, wanted, frozenset({"timestamp"}))(0):
            yield records.select(["offset", "timestamp"])

    def offsets_for_time(
        self, starts: Mapping[PartitionKey, int], time_ms: int
    ) -> Mapping[PartitionKey, int | None]:
        """See DataPlane: the brokers' index. The offset may be of a record that readers do not get:
        a marker of a transaction, or a record of an aborted one.
        """
        found = offsets_for_time(self._storage, starts, time_ms)
        return {
            key: None if offset is None else max(offset, starts[key])
            for key, offset in found.items()
        }

    def topic_bounds(self, topic: str) -> Mapping[int, tuple[int, int]]:
        """See DataPlane."""
        count = partition_counts(self._client, [topic]).get(topic, 0)
        keys = [(topic, partition) for partition in range(count)]
        firsts = self._list_offsets(keys, OffsetSpec.earliest())
        ends = self._list_offsets(keys, OffsetSpec.latest())
        return {key[1]: (firsts[key], ends[key]) for key in keys if key in firsts and key in ends}

    def topic_settings(self, topic: str) -> Mapping[str, str]:
        """See DataPlane."""
        try:
            return self._client.topic_settings_now(topic)
        except (KafkaException, TimeoutError) as error:
            raise self._client.translated(
                error,
                doing=f"the settings of the topic {topic} cannot be read",
                topic=topic,
                operation="DescribeConfigs",
            ) from error

    def setting_origins(self, topic: str) -> Mapping[str, SettingOrigin]:
        """See DataPlane."""
        try:
            sources = self._client.topic_setting_sources_now(topic)
        except (KafkaException, TimeoutError) as error:
            raise self._client.translated(
                error, doing=f"the settings of the topic {topic} cannot be read", topic=topic
            ) from error
        return {name: _ORIGINS.get(each, SettingOrigin.BROKERS) for name, each in sources.items()}

    @property
    def one_copy(self) -> bool:
        """See DataPlane."""
        return False

    def setting_fault(self, name: str, value: str) -> str:
        """See DataPlane: the brokers check settings when they create a topic."""
        del name, value
        return ""

    def writer(
        self,
        task: TaskId,
        claim: Term,
        *,
        abandoned: Callable[[], bool],
        check_claim: Callable[[], None],
        offsets_topic: str = "",
    ) -> TransactionalWriter[StagedFiles] | DirectWriter[OutgoingBatch]:
        """See DataPlane."""
        del claim
        if self._staging_directory is None:
            return KafkaWriter(self._storage, task, abandoned)
        return ExactlyOnceWriter(
            self._storage,
            self._staging_directory,
            task,
            check_claim=check_claim,
            offsets_topic=offsets_topic,
            executors_share_files=self._executors_share_files,
        )

    def append(self, topic: str, parts: Mapping[int, Any], request_id: str) -> Appended:
        """See DataPlane: in a transaction, whose offsets have the request id."""
        return append(self._storage, topic, parts, request_id)

    def dead_letters(self, task: TaskId, claim: Term, destination: Destination) -> DeadLetterWriter:
        """See DataPlane: records are visible as soon as executors have written them."""
        del task, claim
        return DeadLetterWriter(_producer(self._storage, destination), lambda _rows: None)

    def current_claim(self, task: TaskId) -> None:
        """See DataPlane: the coordinator checks it with each commit."""

    def fetch_offsets(self, connector: str) -> None:
        """See DataPlane: a task tracks its offsets since its start."""

    def offsets_retention_ms(self) -> int:
        """See DataPlane: brokers expire the offsets of groups without members (KIP-211)."""
        now_s = time.monotonic()
        with self._lock:
            retention_ms, until_s = self._offsets_retention
        if until_s > now_s:
            return retention_ms
        try:
            minutes = self._client.broker_setting_now(_OFFSETS_RETENTION)
            retention_ms = int(minutes or "") * 60_000
        except (KafkaException, TimeoutError, ValueError) as error:
            log.warning(
                "the brokers' retention of offsets cannot be read; Kafka's default is assumed",
                setting=_OFFSETS_RETENTION,
                why=str(error),
            )
            retention_ms = _DEFAULT_OFFSETS_RETENTION_MS
        with self._lock:
            self._offsets_retention = retention_ms, now_s + _OFFSETS_RETENTION_KNOWN_S
        return retention_ms

    def warm_up(self, spark: "SparkSession") -> None:
        """See DataPlane."""
        cores = core_count(spark.sparkContext)
        warm_up(spark, KafkaRangeReader(self._storage, ((),) * cores))

    def _list_offsets(
        self, partitions: Collection[PartitionKey], spec: OffsetSpec
    ) -> dict[PartitionKey, int]:
        if not partitions:
            return {}
        topics = ", ".join(sorted({topic for topic, _ in partitions}))
        try:
            return self._client.offsets_now(partitions, spec)
        except (KafkaException, TimeoutError) as error:
            raise self._client.translated(
                error,
                doing=f"the bounds of {topics} cannot be read",
                topic=topics,
                operation="Describe",
            ) from error
