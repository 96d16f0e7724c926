"""Exactly once: records and source offsets of a task in one transaction (ADR 0020)."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import structlog

from drover.dataplane.kafka.batch_producer import BatchProducer, can_send
from drover.dataplane.kafka.one_record_producer import OneRecordProducer
from drover.dataplane.kafka.own_offsets import joined, read_own_offsets
from drover.dataplane.kafka.protocol import Ended, PublishingStep, TaskProtocol
from drover.dataplane.kafka.staging import FileStager, StagedFiles, StagedPart, staged_files
from drover.dataplane.kafka.task_producer import FencedError, TaskProducer
from drover.dataplane.kafka.topics import KNOWN_TOPIC_S
from drover.dataplane.plane import (
    BATCH_TOPICS_MAX,
    AbandonedError,
    NotPublishedError,
    OutcomeUnknownError,
    OutgoingBatch,
    Receipt,
)
from drover.dataplane.spark_jobs import run_pass
from drover.errors import DroverError, FailedPreconditionError, Reason, UnavailableError
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
    """See TopicWriter. Executors stage records in files; the engine publishes them with the offsets
    in a transaction of the task's own producer.
    """

    commits_with_records = True
    publishes_apart = True

    def __init__(
        self,
        storage: KafkaStorage,
        directory: Path,
        task: TaskId,
        *,
        abandoned: Callable[[], bool],
        check_claim: Callable[[], None],
        offsets_topic: str = "",
        producer: TaskProducer | None = None,
    ) -> None:
        self._storage = storage
        self._directory = directory
        self._task = task
        self._abandoned = abandoned
        self._check_claim = check_claim
        self._offsets_topic = offsets_topic
        self._producer = producer or task_producer(storage, task, offsets_topic=offsets_topic)
        self._protocol = TaskProtocol()
        #: The written form of partitions in the offsets topic, by their canonical form.
        self._spellings: dict[str, str] = {}
        #: Partition counts for executors, and the end of their validity.
        self._known_counts: dict[str, int] = {}
        self._known_until_s = 0.0

    def open(self) -> bool:
        """See TopicWriter."""
        self._protocol.start_over()
        self._known_counts = {}
        try:
            self._run_until(PublishingStep.FETCH, PublishingStep.READY, parts=(), records=())
        except FencedError as error:
            raise self._taken(error) from error
        return True

    def opened(self, committed: Sequence[CommittedOffset]) -> Sequence[CommittedOffset]:
        """See TopicWriter. Both topics have the same offsets afterwards."""
        starts: Sequence[CommittedOffset] = committed
        behind: Sequence[CommittedOffset] = ()
        if self._offsets_topic:
            connector = self._task.connector
            own = read_own_offsets(self._storage, self._offsets_topic, connector)
            starts = joined(own, committed)
            in_both = set(own).intersection(committed)
            behind = [each for each in starts if each not in in_both]
        self._spellings = {
            canonical_json(each.partition_json): each.partition_json for each in starts
        }
        if self._protocol.step is PublishingStep.FETCH:
            self._protocol.ended(Ended.DONE)
        if behind:
            self.publish([], behind)
        return starts

    def stage(self, batch: OutgoingBatch) -> StagedFiles:
        """See TopicWriter."""
        now_s = time.monotonic()
        if now_s >= self._known_until_s:
            self._known_counts, self._known_until_s = {}, now_s + KNOWN_TOPIC_S
        believes = bool(self._known_counts)
        stager = FileStager(
            self._storage,
            self._directory,
            batch.destination,
            self._producer.encoding,
            self._known_counts,
        )
        staged = staged_files(run_pass(batch, stager), believes=believes)
        if len(self._known_counts) < BATCH_TOPICS_MAX:
            self._known_counts |= staged.partition_counts
        return staged

    def publish(self, staged: Sequence[StagedFiles], offsets: Sequence[CommittedOffset]) -> Receipt:
        """See TopicWriter."""
        parts = [part for batch in staged for part in batch.parts]
        if parts or offsets:
            self._protocol.begin_batch()
            try:
                self._run_until(PublishingStep.READY, parts=parts, records=self._records(offsets))
            except FencedError as error:
                raise self._taken(error) from error
            except FailedPreconditionError as error:
                believed = any(each.believes for each in staged)
                if not believed or kafka_code(error) not in UNKNOWN_TOPIC:
                    raise
                # a topic may have been deleted since its count was cached: the batch is staged
                # again
                raise UnavailableError(Reason.STORAGE_UNAVAILABLE, error.message) from error
            except UnavailableError as error:
                if self._protocol.has_batch:
                    raise NotPublishedError(error.reason, error.message) from error
                raise OutcomeUnknownError(error.reason, error.message) from error
        self.discard(staged)
        return Receipt(
            record_count=sum(each.record_count for each in staged),
            topics=tuple(
                dict.fromkeys(topic for each in staged for topic in each.partition_counts)
            ),
            size_bytes=sum(each.size_bytes for each in staged),
        )

    def discard(self, staged: Sequence[StagedFiles]) -> None:
        """See TopicWriter."""
        for each in staged:
            each.remove()

    def close(self) -> None:
        """See TopicWriter."""
        self._producer.close()
        self._protocol.start_over()

    def _run_until(
        self,
        *wanted: PublishingStep,
        parts: Sequence[StagedPart],
        records: Sequence[tuple[bytes, bytes | None, str]],
    ) -> None:
        """Run steps until one of ``wanted`` is next."""
        protocol, producer = self._protocol, self._producer
        do: Mapping[PublishingStep, Callable[[], None]] = {
            PublishingStep.INIT: producer.init,
            PublishingStep.CHECK_CLAIM: self._check_claim,
            PublishingStep.PRODUCE: lambda: producer.produce(parts),
            PublishingStep.ADD_OFFSETS: lambda: producer.add_offsets(records),
            PublishingStep.COMMIT: self._commit,
        }
        while protocol.step not in wanted:
            if protocol.step is PublishingStep.FETCH:
                raise UnavailableError(
                    Reason.STORAGE_UNAVAILABLE,
                    f"the outcome of the transaction of {producer.id} is unknown: "
                    "the committed offsets show it",
                )
            step = protocol.step
            try:
                do[step]()
            except FencedError:
                protocol.ended(Ended.FENCED)
                log.info("the task's producer was fenced", task=str(self._task), step=str(step))
                if protocol.step is PublishingStep.GIVE_UP:
                    raise
            except BaseException:
                protocol.ended(Ended.FAILED)
                raise
            else:
                protocol.ended(Ended.DONE)

    def _commit(self) -> None:
        if self._abandoned():
            raise AbandonedError(f"task {self._task} was abandoned before it published a batch")
        self._producer.commit()

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
