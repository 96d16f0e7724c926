"""Exactly once: records and source offsets of a task in one transaction (ADR 0020)."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import structlog

from drover.dataplane.kafka.batch_producer import BatchProducer, can_send
from drover.dataplane.kafka.one_record_producer import OneRecordProducer
from drover.dataplane.kafka.own_offsets import joined, read_own_offsets
from drover.dataplane.kafka.staging import ArrivingFiles, FileStager, StagedFiles, staged_files
from drover.dataplane.kafka.task_producer import FencedError, TaskProducer
from drover.dataplane.kafka.topics import KNOWN_TOPIC_S
from drover.dataplane.plane import (
    BATCH_TOPICS_MAX,
    OutgoingBatch,
    ProducerFencedError,
    Receipt,
    StageAgainError,
    WriterStarts,
)
from drover.dataplane.spark_jobs import run_pass, run_pass_each
from drover.dataplane.values import Placement
from drover.errors import DroverError, FailedPreconditionError, Reason
from drover.log.kafka.errors import UNKNOWN_TOPIC, kafka_code
from drover.log.storage import KafkaStorage
from drover.model.ids import TaskId
from drover.model.offset_json import canonical_json, compact_json, offset_record_key
from drover.model.offsets import CommittedOffset

log = structlog.get_logger(__name__)


def task_producer(storage: KafkaStorage, task: TaskId, *, offsets_topic: str = "") -> TaskProducer:
    """The faster producer if the client settings support it."""
    kind = BatchProducer if can_send(storage) else OneRecordProducer
    return kind(storage, task, offsets_topic=offsets_topic)


class ExactlyOnceWriter:
    """See TransactionalWriter. Executors stage records; the engine publishes them with the
    offsets in a transaction of the task's own producer.
    """

    commits_with_records = True

    def __init__(
        self,
        storage: KafkaStorage,
        directory: Path,
        task: TaskId,
        *,
        check_claim: Callable[[], None],
        offsets_topic: str = "",
        producer: TaskProducer | None = None,
        executors_share_files: bool = True,
    ) -> None:
        """``directory`` is for staged batches; executors write there if they are on this machine
        (``executors_share_files``).
        """
        self._storage = storage
        self._directory = directory
        self._executors_share_files = executors_share_files
        self._task = task
        self._check_claim = check_claim
        self._offsets_topic = offsets_topic
        self._producer = producer or task_producer(storage, task, offsets_topic=offsets_topic)
        #: Whether the batch in progress was staged with cached partition counts.
        self._believes = False
        #: Whether the transaction in progress has neither records nor offsets.
        self._is_empty = True
        #: The written form of partitions in the offsets topic, by their canonical form.
        self._spellings: dict[str, str] = {}
        #: Partition counts for executors, and the end of their validity.
        self._known_counts: dict[str, int] = {}
        self._known_until_s = 0.0

    def init(self) -> None:
        """See TransactionalWriter."""
        with self._step():
            self._producer.init()

    def check_claim(self) -> None:
        """See TransactionalWriter."""
        self._check_claim()

    def starts(self, committed: Sequence[CommittedOffset]) -> WriterStarts:
        """See TransactionalWriter."""
        self._known_counts = {}
        found: Sequence[CommittedOffset] = committed
        behind: Sequence[CommittedOffset] = ()
        if self._offsets_topic:
            connector = self._task.connector
            own = read_own_offsets(self._storage, self._offsets_topic, connector)
            found = joined(own, committed)
            in_both = set(own).intersection(committed)
            behind = [each for each in found if each not in in_both]
        self._spellings = {
            canonical_json(each.partition_json): each.partition_json for each in found
        }
        return WriterStarts(found, behind)

    def stage(self, batch: OutgoingBatch) -> StagedFiles:
        """See TopicWriter."""
        now_s = time.monotonic()
        if now_s >= self._known_until_s:
            self._known_counts, self._known_until_s = {}, now_s + KNOWN_TOPIC_S
        believes = bool(self._known_counts)
        stager = FileStager(
            self._storage,
            self._directory if self._executors_share_files else None,
            batch.destination,
            self._producer.encoding,
            self._known_counts,
        )
        if self._executors_share_files:
            staged = staged_files(run_pass(batch, stager), believes=believes)
        else:
            staged = self._arrived(batch, stager, believes=believes)
        if len(self._known_counts) < BATCH_TOPICS_MAX:
            self._known_counts |= staged.partition_counts
        return staged

    def _arrived(self, batch: OutgoingBatch, stager: FileStager, *, believes: bool) -> StagedFiles:
        files = ArrivingFiles(self._directory)
        try:
            run_pass_each(batch, stager, files.take)
        except BaseException:
            files.discard()
            raise
        return files.staged(believes=believes)

    def produce(self, staged: Sequence[StagedFiles]) -> None:
        """See TransactionalWriter."""
        self._believes = any(each.believes for each in staged)
        parts = [part for batch in staged for part in batch.parts]
        self._is_empty = not parts  # brokers refuse to commit a transaction of nothing
        if parts:
            with self._step():
                self._producer.produce(parts)

    def add_offsets(self, offsets: Sequence[CommittedOffset]) -> None:
        """See TransactionalWriter."""
        if self._is_empty and not offsets:
            return
        with self._step():
            if self._is_empty:
                self._producer.produce(())
                self._is_empty = False
            self._producer.add_offsets(self._records(offsets))

    def commit(self) -> None:
        """See TransactionalWriter."""
        if not self._is_empty:
            with self._step():
                self._producer.commit()

    def published(self, staged: Sequence[StagedFiles]) -> Receipt:
        """See TransactionalWriter."""
        self.discard(staged)
        return Receipt(
            record_count=sum(each.record_count for each in staged),
            topics=tuple(
                dict.fromkeys(topic for each in staged for topic in each.partition_counts)
            ),
            size_bytes=sum(each.size_bytes for each in staged),
            placement=Placement() if self._is_empty else self._placement(staged),
        )

    def _placement(self, staged: Sequence[StagedFiles]) -> Placement | None:
        ranges = self._producer.ranges
        if ranges is None:
            return None
        counts = (found for each in staged for found in each.partition_counts.items())
        return Placement(ranges, Placement.same_counts(counts))

    def discard(self, staged: Sequence[StagedFiles]) -> None:
        """See TopicWriter."""
        for each in staged:
            each.remove()

    def close(self) -> None:
        """See TopicWriter."""
        self._producer.close()

    @contextmanager
    def _step(self) -> Iterator[None]:
        """Convert the errors of a step of the producer."""
        try:
            yield
        except FencedError as error:
            log.info("the task's producer was fenced", task=str(self._task), error=str(error))
            raise ProducerFencedError(str(error), self._taken(error)) from error
        except FailedPreconditionError as error:
            if not self._believes or kafka_code(error) not in UNKNOWN_TOPIC:
                raise
            # a topic may have been deleted since its count was cached: the batch is staged again
            raise StageAgainError(Reason.STORAGE_UNAVAILABLE, error.message) from error

    def _records(self, offsets: Sequence[CommittedOffset]) -> list[tuple[bytes, bytes | None, str]]:
        """Keys, values and headers; the last offset of each partition."""
        last: dict[str, tuple[bytes, bytes | None, str]] = {}
        for each in offsets:
            canonical = canonical_json(each.partition_json)
            spelling = self._spellings.setdefault(canonical, each.partition_json)
            value = None if each.offset_json is None else compact_json(each.offset_json).encode()
            metadata = "" if value is None else each.metadata
            key = offset_record_key(self._task.connector, spelling)
            last[canonical] = (key, value, metadata)
        return list(last.values())

    def _taken(self, error: FencedError) -> DroverError:
        if error.timed_out:
            return FailedPreconditionError(
                Reason.STORAGE_MISCONFIGURED,
                f"a transaction of task {self._task} exceeds transaction.timeout.ms "
                f"({self._producer.timeout_ms}), so the brokers abort it each time: raise it "
                "in DROVER_KAFKA_CONFIG (the brokers allow transaction.max.timeout.ms), or lower "
                f"batch.max.records, batch.max.bytes or transaction.boundary.interval.ms ({error})",
            )
        return FailedPreconditionError(
            Reason.STALE_WRITER_EPOCH,
            f"another producer keeps using the transactional id {self._producer.id}, "
            f"although the claim of task {self._task} is current: check whether "
            f"another cluster, or Kafka Connect, with the group id "
            f"{self._storage.group_id} runs on these brokers "
            f"({error})",
        )
