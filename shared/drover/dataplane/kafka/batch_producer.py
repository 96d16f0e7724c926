"""A task's producer that sends whole record batches, which is much cheaper than single records.

Executors encode the batches by column. Tasks share connections, and all clients share an event
loop.
"""

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from drover.dataplane.kafka.producer_session import ProducerSession
from drover.dataplane.kafka.producing import DELIVERY_TIMEOUT_MS, producer_settings
from drover.dataplane.kafka.record_batches import (
    CODECS,
    BatchEncoder,
    EncodedBatch,
    Encoding,
    RecordTooLargeError,
)
from drover.dataplane.kafka.staging import StagedPart, read_batches
from drover.dataplane.kafka.task_producer import ABORT_S, COMMIT_S, TaskProducer
from drover.dataplane.partitioner import partitions_for_keys
from drover.dataplane.values import PublishedRange
from drover.log.kafka.aiokafka_client import can_reach, submit
from drover.log.kafka.brokers import Place, call, outcome_of, shared_brokers
from drover.log.kafka.client import BROKERS_MAX_BYTES, SOCKET_TIMEOUT_MS
from drover.log.kafka.errors import FENCED
from drover.log.storage import KafkaStorage
from drover.model.ids import TaskId
from drover.model.offset_json import METADATA_HEADER

#: Errors about the producer rather than the topic.
_OF_PRODUCER = FENCED | {KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
#: The approximate size of a produce request; brokers accept much larger ones.
_REQUEST_BYTES = 4 * 1024 * 1024


def can_send(storage: KafkaStorage) -> bool:
    """Whether this producer supports the settings; otherwise librdkafka's is used."""
    return can_reach(storage) and producer_settings(storage)["compression.type"] in CODECS


class BatchProducer(TaskProducer):
    """See TaskProducer.

    A small transaction is sent when its offsets are known, because brokers take little more time
    for all its partitions than for one. Records of a larger one are written earlier: consumers of
    the offsets topic, which all tasks share, wait for open transactions.
    """

    #: The most bytes of records that are sent together with the offsets.
    held_bytes_max: ClassVar[int] = 64 * 1024

    def __init__(self, storage: KafkaStorage, task: TaskId, *, offsets_topic: str = "") -> None:
        super().__init__(storage, task, offsets_topic=offsets_topic)
        config = storage.client_config
        self._encoding = Encoding(
            int(config.get("message.max.bytes", BROKERS_MAX_BYTES)),
            str(producer_settings(storage)["compression.type"]),
        )
        #: What the brokers refused, see ProducerSession; kept for the next sessions.
        self._refused_bytes: dict[str, int] = {}
        self._delivery_s = min(DELIVERY_TIMEOUT_MS, self.timeout_ms) / 1000
        # no request may outlive its transaction
        request_timeout_ms = min(SOCKET_TIMEOUT_MS, self.timeout_ms)
        self._brokers = shared_brokers(storage, self.id, request_timeout_ms=request_timeout_ms)
        self._session: ProducerSession | None = None
        #: Unsent batches, at most one per partition, and the size of their records.
        self._held: dict[Place, EncodedBatch] = {}
        self._held_bytes = 0
        #: The last request that is not acknowledged yet.
        self._sending: Future[list[PublishedRange]] | None = None
        self._ranges: list[PublishedRange] = []

    @property
    def encoding(self) -> Encoding:
        """See TaskProducer."""
        return replace(self._encoding, refused_bytes=dict(self._refused_bytes))

    @property
    def ranges(self) -> Sequence[PublishedRange]:
        """See TaskProducer."""
        return [each for each in self._ranges if each.topic not in self._offset_topics]

    def init(self) -> None:
        """See TaskProducer."""
        self._drop()
        session = ProducerSession(
            self._brokers,
            self.id,
            timeout_ms=self.timeout_ms,
            refused_bytes=self._refused_bytes,
        )
        with self._telling(f"{self.id} cannot start to write"):
            try:
                # the very first producer makes the brokers create their transaction log
                call(session.begin(), 2 * self._client.timeout_s)
            except KafkaException:
                # aiokafka does not distinguish unavailable brokers from refused logins
                with contextlib.suppress(KafkaException, TimeoutError):
                    self._client.topics_now(self._offset_topics)
                raise
        self._session = session

    def produce(self, parts: Sequence[StagedPart]) -> None:
        """See TaskProducer."""
        self._begin()
        self._ranges = []
        topics: set[str] = set()
        for part in parts:
            for place, batch in read_batches(part):
                topics.add(place[0])
                with self._writing(place[0]):
                    self._hold(place, batch)
        if self._sending is not None or self._held_bytes > self.held_bytes_max:
            with self._writing(", ".join(sorted(topics))):
                self._send()
                self._finish()

    def add_offsets(self, records: Sequence[tuple[bytes, bytes | None, str]]) -> None:
        """See TaskProducer."""
        for topic in self._offset_topics if records else ():
            with self._writing(topic):
                for place, batch in self._encoded(topic, records):
                    self._hold(place, batch)
        with self._writing(", ".join(sorted({topic for topic, _ in self._held}))):
            self._send()
            self._finish()

    def commit(self) -> None:
        """See TaskProducer."""
        with self._telling(f"the outcome of the transaction of {self.id} is unknown"):
            call(self._begun().end(commit=True), COMMIT_S)
        self._in_transaction = False

    def close(self) -> None:
        """See TaskProducer."""
        if self._session is not None and self._in_transaction:
            with contextlib.suppress(KafkaException):
                call(self._session.end(commit=False), ABORT_S)
        self._drop()

    def _drop(self) -> None:
        """Drop the session; the next producer ends its open transaction."""
        self._session = None
        self._in_transaction = False
        self._held, self._held_bytes = {}, 0
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.cancel()

    def _begun(self) -> ProducerSession:
        assert self._session is not None, "init was not called"
        return self._session

    def _encoded(
        self, topic: str, records: Sequence[tuple[bytes, bytes | None, str]]
    ) -> Iterator[tuple[Place, EncodedBatch]]:
        count = self._brokers.known_partition_count(topic)
        if count is None:
            count = call(self._brokers.partition_count(topic), self._client.timeout_s)
        now_ms = time.time_ns() // 1_000_000
        rows: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for key, value, note in records:
            headers = [{"key": METADATA_HEADER, "value": note.encode()}] if note else None
            row = {"key": key, "value": value, "headers": headers, "timestamp_ms": now_ms}
            rows[_partition_for(key, count)].append(row)
        encoder = BatchEncoder(self.encoding)
        for partition, found in rows.items():
            yield from encoder.add_rows((topic, partition), found)
        yield from encoder.finish()

    def _hold(self, place: Place, batch: EncodedBatch) -> None:
        """Hold a batch to send it with others; first sends the held ones if they are enough."""
        if place in self._held or self._held_bytes > _REQUEST_BYTES:
            self._send()
        self._held[place] = batch
        self._held_bytes += len(batch.records)

    def _send(self) -> None:
        """Start to send the held batches, after the previous request is acknowledged."""
        self._finish()
        held, self._held, self._held_bytes = self._held, {}, 0
        if held:
            self._sending = submit(self._begun().write(held), self._delivery_s)

    def _finish(self) -> None:
        """Wait for the acknowledgement of the last request."""
        sending, self._sending = self._sending, None
        if sending is not None:
            found = outcome_of(sending)
            self._ranges += found

    @contextlib.contextmanager
    def _writing(self, topic: str) -> Iterator[None]:
        """Convert Kafka's errors about records of a topic."""
        try:
            yield
        except RecordTooLargeError as error:
            what = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, str(error))
            raise self._of_records(what, topic) from error
        except KafkaException as error:
            raise self._of_records(error.args[0], topic) from error

    def _of_records(self, error: KafkaError, topic: str) -> Exception:
        if error.code() in _OF_PRODUCER:
            return self._meaning(error, f"{self.id} cannot write")
        doing = f"records for the topic {topic} cannot be written"
        return self._client.translated(error, doing=doing, topic=topic, operation="Write")


@lru_cache(maxsize=10_000)
def _partition_for(key: bytes, count: int) -> int:
    """The partition for a key; a task has few keys, which repeat."""
    (place,) = partitions_for_keys(pa.array([key], pa.binary()), count).to_pylist()
    return int(place)
