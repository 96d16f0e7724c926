"""A task's producer that sends whole record batches, at a fraction of what single records cost.

Executors have made them by column. aiokafka sends them, on an event loop that all producers of the
process share; of it this uses ``send_batch`` with batches of its own making.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, KafkaException

from drover.dataplane.kafka.aiokafka_client import call, can_reach, reach, shared_loop
from drover.dataplane.kafka.producing import DELIVERY_TIMEOUT_MS, producer_settings
from drover.dataplane.kafka.record_batches import (
    CODECS,
    EncodedBatch,
    Encoding,
    RecordTooLargeError,
    encoded_by_partition,
)
from drover.dataplane.kafka.staging import read_batches
from drover.dataplane.kafka.task_producer import ABORT_S, COMMIT_S, TaskProducer
from drover.dataplane.partitioner import partitions_for_keys
from drover.dataplane.payload import PAYLOAD_SCHEMA
from drover.log.kafka.client import BROKERS_MAX_BYTES, SOCKET_TIMEOUT_MS
from drover.log.kafka.errors import FENCED
from drover.log.storage import KafkaStorage
from drover.model.ids import TaskId
from drover.model.offset_json import METADATA_HEADER

#: Errors that are about the producer, not about the topic.
_OF_PRODUCER = FENCED | {KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
_STOP_S = 5.0
#: Batches that are sent and not acknowledged, at most.
_IN_FLIGHT_MAX = 8


def can_send(storage: KafkaStorage) -> bool:
    """Whether this producer can do what the settings say; else librdkafka's is to be taken."""
    return can_reach(storage) and producer_settings(storage)["compression.type"] in CODECS


class BatchProducer(TaskProducer):
    """See TaskProducer."""

    def __init__(self, storage: KafkaStorage, task: TaskId, *, offsets_topic: str = "") -> None:
        super().__init__(storage, task, offsets_topic=offsets_topic)
        config = storage.client_config
        self._encoding = Encoding(
            int(config.get("message.max.bytes", BROKERS_MAX_BYTES)),
            str(producer_settings(storage)["compression.type"]),
        )
        self._delivery_s = min(DELIVERY_TIMEOUT_MS, self.timeout_ms) / 1000
        self._sender: AIOKafkaProducer | None = None
        self._sent: deque[asyncio.Future[Any]] = deque()

    @property
    def encoding(self) -> Encoding:
        """See TaskProducer."""
        return self._encoding

    def init(self) -> None:
        """See TaskProducer."""
        self._drop()
        with self._telling(f"{self.id} cannot begin to write"):
            try:
                # the first one ever has the brokers make a topic of their own
                self._sender = call(self._start(), 2 * self._client.timeout_s)
            except KafkaException:
                # aiokafka does not tell brokers that are away from those that let nobody in
                with contextlib.suppress(KafkaException, TimeoutError):
                    self._client.topics_now(self._offset_topics)
                raise

    def produce(self, paths: Sequence[Path]) -> None:
        """See TaskProducer."""
        sender = self._started()
        with self._telling(f"{self.id} cannot begin a transaction"):
            call(sender.begin_transaction(), self._client.timeout_s)
        self._begin()
        topics: set[str] = set()
        for path in paths:
            for topic, partition, batch in read_batches(path):
                topics.add(topic)
                with self._writing(topic):
                    self._send(topic, partition, batch)
        # so that readers of the offsets, whose topic all tasks share, hardly ever wait
        with self._writing(", ".join(sorted(topics))):
            self._finish()

    def add_offsets(self, records: Sequence[tuple[bytes, bytes | None, str]]) -> None:
        """See TaskProducer."""
        if not records:
            return
        now_ms = time.time_ns() // 1_000_000
        rows = [
            {
                "key": key,
                "value": value,
                "headers": [{"key": METADATA_HEADER, "value": note.encode()}] if note else None,
                "timestamp_ms": now_ms,
            }
            for key, value, note in records
        ]
        found = pa.RecordBatch.from_pylist(rows, PAYLOAD_SCHEMA)
        for topic in self._offset_topics:
            with self._writing(topic):
                wait_s = self._client.timeout_s
                count = len(call(self._started().partitions_for(topic), wait_s))
                places = partitions_for_keys(found.column("key"), count)
                for partition, batch in encoded_by_partition(found, places, self._encoding):
                    self._send(topic, partition, batch)
        with self._writing(" and ".join(self._offset_topics)):
            self._finish()

    def commit(self) -> None:
        """See TaskProducer."""
        with self._telling(f"whether {self.id} has written is not known"):
            call(self._started().commit_transaction(), COMMIT_S)
        self._in_transaction = False

    def close(self) -> None:
        """See TaskProducer."""
        if self._sender is not None and self._in_transaction:
            with contextlib.suppress(KafkaException):
                call(self._sender.abort_transaction(), ABORT_S)
        self._drop()

    def _drop(self) -> None:
        sender, self._sender = self._sender, None
        self._in_transaction = False
        sent, self._sent = self._sent, deque()
        if sender is not None:
            asyncio.run_coroutine_threadsafe(_stopped(sender, sent), shared_loop())

    def _started(self) -> AIOKafkaProducer:
        assert self._sender is not None, "init was not called"
        return self._sender

    async def _start(self) -> AIOKafkaProducer:
        sender = AIOKafkaProducer(
            **reach(self._storage),
            client_id=f"drover-{self._storage.group_id}",
            transactional_id=self.id,
            transaction_timeout_ms=self.timeout_ms,
            # no request may outlive the transaction that it is about
            request_timeout_ms=min(SOCKET_TIMEOUT_MS, self.timeout_ms),
        )
        try:
            await sender.start()
        except BaseException:
            await _stopped(sender, ())
            raise
        return sender

    def _send(self, topic: str, partition: int, batch: EncodedBatch) -> None:
        call(self._submit(topic, partition, batch), self._delivery_s)

    async def _submit(self, topic: str, partition: int, batch: EncodedBatch) -> None:
        prepared = _PreparedBatch(batch)
        self._sent.append(await self._started().send_batch(prepared, topic, partition=partition))
        while len(self._sent) > _IN_FLIGHT_MAX:
            await self._sent.popleft()

    def _finish(self) -> None:
        """Wait until everything is acknowledged."""

        async def finish() -> None:
            while self._sent:
                await self._sent.popleft()

        call(finish(), self._delivery_s)

    @contextlib.contextmanager
    def _writing(self, topic: str) -> Iterator[None]:
        """What Kafka raises of records for a topic as what it means to the task."""
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
        return self._client.translated(error, doing=doing, topic=topic)


class _PreparedBatch:
    """As much of aiokafka's BatchBuilder as it asks of one that is full."""

    def __init__(self, batch: EncodedBatch) -> None:
        self._batch = batch
        self._producer_state: tuple[int, int, int] | None = None
        self._built: bytes | None = None

    def close(self) -> None: ...

    def closed(self) -> bool:
        return True

    def record_count(self) -> int:
        return self._batch.record_count

    def _set_producer_state(
        self, producer_id: int, producer_epoch: int, base_sequence: int
    ) -> None:
        self._producer_state = (producer_id, producer_epoch, base_sequence)

    def _build(self) -> bytes:
        if self._built is None:  # sent again it has to be the same
            # brokers take a batch of nobody, which is in no transaction
            assert self._producer_state is not None
            self._built = self._batch.build(*self._producer_state)
        return self._built


async def _stopped(sender: AIOKafkaProducer, sent: Iterable[asyncio.Future[Any]]) -> None:
    """Close its connections, soon; what is on its way counts only if it is committed."""
    for each in sent:
        each.add_done_callback(lambda done: done.cancelled() or done.exception())
    with contextlib.suppress(Exception):
        await asyncio.wait_for(sender.stop(), _STOP_S)
    with contextlib.suppress(Exception):
        await sender.client.close()
