"""Exactly once: records and source offsets of a task in one transaction (ADR 0020)."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import structlog
from confluent_kafka import KafkaError, KafkaException, Producer

from drover.dataplane.kafka.clients import shared_client
from drover.dataplane.kafka.own_offsets import joined, read_own_offsets
from drover.dataplane.kafka.producing import DELIVERY_TIMEOUT_MS, Sending, producer_settings
from drover.dataplane.kafka.protocol import Ended, Step, TaskProtocol
from drover.dataplane.kafka.staging import FileStager, StagedFiles, read_staged, staged_files
from drover.dataplane.plane import (
    AbandonedError,
    NotPublishedError,
    OutcomeUnknownError,
    OutgoingBatch,
    Receipt,
)
from drover.dataplane.spark_jobs import run_pass
from drover.errors import DroverError, FailedPreconditionError, Reason, UnavailableError
from drover.log.kafka.calls import as_raised, connect, insist, why_given_up
from drover.log.kafka.client import SOCKET_TIMEOUT_MS
from drover.log.kafka.errors import FENCED, FORBIDDEN
from drover.log.storage import KafkaStorage
from drover.model.ids import TaskId, producer_id
from drover.model.offset_json import (
    METADATA_HEADER,
    canonical_json,
    compact_json,
    offset_record_key,
)
from drover.model.offsets import CommittedOffset

#: Kafka Connect's default. A transaction of an owner that is gone holds readers up for so long at
#: most; the next owner ends it before.
TRANSACTION_TIMEOUT_MS = 60_000
_ABORT_S = 2.0
_COMMIT_S = 30.0
#: Records whose delivery was given up because of something that has to be asked for.
_GIVEN_UP = frozenset(
    {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._FATAL, KafkaError._STATE}
)

log = structlog.get_logger(__name__)


class FencedError(Exception):
    """Another producer has begun under the transactional id.

    ``timed_out``: the brokers have done so, it seems, as the transaction took longer than it may.
    """

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class TaskProducer:
    """The producer of one task, step by step; for one thread at a time.

    Each step raises FencedError, or the DroverError that tells why it was not done. After an error
    only ``init`` is of use.
    """

    def __init__(self, storage: KafkaStorage, task: TaskId, *, offsets_topic: str = "") -> None:
        self.id = producer_id(storage.group_id, task)
        self._storage = storage
        shared = storage.topics.offset
        #: Where source offsets go: the workers' topic, and the connector's own one.
        self._offset_topics = tuple(dict.fromkeys([shared, offsets_topic or shared]))
        self._client = shared_client(storage)
        self._producer: Producer | None = None
        self._failures: list[KafkaError] = []
        self._in_transaction = False
        self._began_s = 0.0
        self.timeout_ms = int(
            storage.client_config.get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)
        )

    def init(self) -> None:
        """Begin: end what earlier producers of the id have open, and fence them."""
        self._drop()
        failures: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _message: object) -> None:
            if error is not None:
                failures.append(error)

        settings: Mapping[str, object] = {
            **producer_settings(self._storage),
            "transactional.id": self.id,
            "transaction.timeout.ms": self.timeout_ms,
            "message.timeout.ms": min(DELIVERY_TIMEOUT_MS, self.timeout_ms),
            # no request may outlive the transaction that it is about
            "socket.timeout.ms": min(SOCKET_TIMEOUT_MS, self.timeout_ms),
            "queue.buffering.max.kbytes": 64 * 1024,
            "on_delivery": on_delivery,
        }
        self._failures = failures
        producer = self._client.producer(settings)
        with self._telling(f"{self.id} cannot begin to write"):
            connect(producer, self._client.timeout_s)
            # the first one ever has the brokers make a topic of their own
            insist(producer.init_transactions, 2 * self._client.timeout_s)
        self._producer = producer

    def produce(self, paths: Sequence[Path]) -> None:
        """Begin a transaction with the records of files; the brokers have them then."""
        producer = self._begun()
        with self._telling(f"{self.id} cannot begin a transaction"), as_raised():
            producer.begin_transaction()
        self._in_transaction = True
        self._began_s = time.monotonic()
        with self._given_up():
            sending = Sending(self._storage, producer, self._failures)
            with as_raised():
                for path in paths:
                    for topic, records, places in read_staged(path):
                        sending.send(topic, records, places)
                # so that readers of the offsets, whose topic all tasks share, hardly ever wait
                sending.finish()

    def add_offsets(self, records: Sequence[tuple[bytes, bytes | None, str]]) -> None:
        """Add keys, values and notes to each topic of offsets."""
        producer = self._begun()
        with self._given_up(), as_raised():
            for key, value, metadata in records:
                headers: list[tuple[str, str | bytes | None]] = []
                if metadata:
                    headers.append((METADATA_HEADER, metadata.encode()))
                for topic in self._offset_topics:
                    producer.produce(topic, value=value, key=key, headers=headers)
            Sending(self._storage, producer, self._failures).finish()

    def commit(self) -> None:
        """Have all of it count. After an error that is not known."""
        producer = self._begun()
        with self._telling(f"whether {self.id} has written is not known"):
            insist(producer.commit_transaction, _COMMIT_S)
        self._in_transaction = False

    def close(self) -> None:
        """Write no more; what is open is ended if the brokers answer soon."""
        producer = self._producer
        if producer is not None and self._in_transaction:
            with contextlib.suppress(KafkaException, RuntimeError), as_raised():
                producer.purge()
                insist(producer.abort_transaction, _ABORT_S)
        self._drop()

    def _drop(self) -> None:
        """Be no producer any more: what is open is ended by whoever begins next."""
        producer, self._producer = self._producer, None
        self._in_transaction = False
        if producer is not None:
            with contextlib.suppress(KafkaException, RuntimeError), as_raised():
                producer.purge()
                producer.poll(0)

    def _begun(self) -> Producer:
        assert self._producer is not None, "init was not called"
        return self._producer

    @contextlib.contextmanager
    def _telling(self, doing: str) -> Iterator[None]:
        """What Kafka raises as what it means to the task."""
        try:
            yield
        except KafkaException as error:
            raise self._meaning(error.args[0], doing) from error

    @contextlib.contextmanager
    def _given_up(self) -> Iterator[None]:
        """As ``_telling``, where what failed are records, which do not say why."""
        try:
            yield
        except KafkaException as error:
            raise self._meaning(self._why(error.args[0]), f"{self.id} cannot write") from error
        except DroverError as error:
            cause = error.__cause__
            raised = [cause.args[0]] if isinstance(cause, KafkaException) else self._failures
            if not raised or raised[0].code() not in _GIVEN_UP | FENCED:
                raise
            raise self._meaning(self._why(raised[0]), f"{self.id} cannot write") from error

    def _why(self, error: KafkaError) -> KafkaError:
        return why_given_up(self._begun()) if error.code() in _GIVEN_UP else error

    def _meaning(self, error: KafkaError, doing: str) -> Exception:
        if error.code() in FENCED:
            took_s = time.monotonic() - self._began_s if self._in_transaction else 0.0
            timed_out = took_s >= self.timeout_ms / 1000
            return FencedError(f"{doing}: {error.str()}", timed_out=timed_out)
        meant = self._client.translated(error, doing=doing)
        if error.code() not in FORBIDDEN:
            return meant
        return FailedPreconditionError(
            meant.reason,
            f"{meant.message}: for exactly once that is Write and Describe of the transactional id "
            f"{self.id}, and Write of {' and '.join(self._offset_topics)}. Without, set "
            "DROVER_EXACTLY_ONCE_SOURCE_SUPPORT=disabled",
            metadata=meant.metadata,
        )


class ExactlyOnceWriter:
    """See TopicWriter. Executors stage records in files; the engine publishes them with the
    offsets in a transaction of the task's own producer.
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
        self._producer = producer or TaskProducer(storage, task, offsets_topic=offsets_topic)
        self._protocol = TaskProtocol()
        #: How partitions are spelled in the offsets topic, by their canonical spelling.
        self._spellings: dict[str, str] = {}

    def open(self) -> bool:
        """See TopicWriter."""
        self._protocol.start_over()
        try:
            self._run_until(Step.FETCH, Step.READY, paths=(), records=())
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
        if self._protocol.step is Step.FETCH:
            self._protocol.ended(Ended.DONE)
        if behind:
            self.publish([], behind)
        return starts

    def stage(self, batch: OutgoingBatch) -> StagedFiles:
        """See TopicWriter."""
        self._directory.mkdir(parents=True, exist_ok=True)
        stager = FileStager(self._storage, self._directory, batch.destination)
        return staged_files(run_pass(batch, stager))

    def publish(self, staged: Sequence[StagedFiles], offsets: Sequence[CommittedOffset]) -> Receipt:
        """See TopicWriter."""
        paths = [path for batch in staged for path in batch.paths]
        if paths or offsets:
            self._protocol.begin_batch()
            try:
                self._run_until(Step.READY, paths=paths, records=self._records(offsets))
            except FencedError as error:
                raise self._taken(error) from error
            except UnavailableError as error:
                if self._protocol.has_batch:
                    raise NotPublishedError(error.reason, error.message) from error
                raise OutcomeUnknownError(error.reason, error.message) from error
        self.discard(staged)
        return Receipt(
            record_count=sum(each.record_count for each in staged),
            topics=tuple(dict.fromkeys(topic for each in staged for topic in each.topics)),
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
        *wanted: Step,
        paths: Sequence[Path],
        records: Sequence[tuple[bytes, bytes | None, str]],
    ) -> None:
        """Do the steps until one of these is next."""
        protocol, producer = self._protocol, self._producer
        do: Mapping[Step, Callable[[], None]] = {
            Step.INIT: producer.init,
            Step.CHECK_CLAIM: self._check_claim,
            Step.PRODUCE: lambda: producer.produce(paths),
            Step.ADD_OFFSETS: lambda: producer.add_offsets(records),
            Step.COMMIT: self._commit,
        }
        while protocol.step not in wanted:
            if protocol.step is Step.FETCH:
                raise UnavailableError(
                    Reason.STORAGE_UNAVAILABLE,
                    f"whether {producer.id} has written is not known: only its offsets tell",
                )
            step = protocol.step
            try:
                do[step]()
            except FencedError:
                protocol.ended(Ended.FENCED)
                log.info("another producer has begun", task=str(self._task), step=str(step))
                if protocol.step is Step.GIVE_UP:
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
        """Keys, values and notes; of one partition the last counts."""
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
                f"a transaction of task {self._task} takes longer than transaction.timeout.ms "
                f"({self._producer.timeout_ms}), and the brokers end it again and again: raise it "
                "in DROVER_KAFKA_CONFIG (the brokers allow transaction.max.timeout.ms), or lower "
                f"batch.max.records, batch.max.bytes or transaction.boundary.interval.ms ({error})",
            )
        return FailedPreconditionError(
            Reason.STALE_WRITER_EPOCH,
            f"another producer takes the transactional id {self._producer.id} again and again, "
            f"though the claim of task {self._task} counts: does another cluster, or Kafka "
            f"Connect, with the group id {self._storage.group_id} run on these brokers? "
            f"({error})",
        )
