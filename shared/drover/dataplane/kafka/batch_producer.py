"""A task's producer that sends whole record batches, at a fraction of what single records cost.

Batches are encoded by column on the caller's thread. aiokafka sends them, on an event loop that all
producers of the process share; of it this uses ``send_batch`` with batches of its own making.
"""

import asyncio
import contextlib
import logging
import ssl
import threading
import time
from collections import deque
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    AuthenticationFailedError,
    BrokerResponseError,
    KafkaConnectionError,
    ProducerFenced,
)
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import KafkaError, KafkaException

from drover.dataplane.kafka.producing import DELIVERY_TIMEOUT_MS, producer_settings
from drover.dataplane.kafka.record_batches import (
    CODECS,
    EncodedBatch,
    RecordTooLargeError,
    encoded,
)
from drover.dataplane.kafka.staging import read_staged
from drover.dataplane.kafka.task_producer import ABORT_S, COMMIT_S, TaskProducer
from drover.dataplane.partitioner import partitions_for_keys
from drover.dataplane.payload import PAYLOAD_SCHEMA
from drover.log.kafka.client import BROKERS_MAX_BYTES, SOCKET_TIMEOUT_MS
from drover.log.kafka.errors import FENCED
from drover.log.storage import KafkaStorage
from drover.model.ids import TaskId
from drover.model.offset_json import METADATA_HEADER

T = TypeVar("T")

#: Errors that are about the producer, not about the topic.
_OF_PRODUCER = FENCED | {KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
_STOP_S = 5.0
#: Batches that are sent and not acknowledged, at most.
_IN_FLIGHT_MAX = 8
#: Settings of librdkafka that say how to reach brokers, as far as aiokafka has the like.
_REACH = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.password",
        "sasl.username",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
    }
)
#: And those that matter to readers only, or that this producer goes by.
_OTHERS = frozenset(
    {
        "compression.codec",
        "compression.type",
        "fetch.message.max.bytes",
        "message.max.bytes",
        "socket.timeout.ms",
        "transaction.timeout.ms",
    }
)
_SASL = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"})

logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # errors are told by who called


def can_reach(storage: KafkaStorage) -> bool:
    """Whether this producer knows how to reach the brokers; else librdkafka's is to be taken."""
    config = storage.client_config
    mechanism = config.get("sasl.mechanism") or config.get("sasl.mechanisms") or "PLAIN"
    compression = producer_settings(storage)["compression.type"]
    return config.keys() <= _REACH | _OTHERS and mechanism in _SASL and compression in CODECS


class BatchProducer(TaskProducer):
    """See TaskProducer."""

    def __init__(self, storage: KafkaStorage, task: TaskId, *, offsets_topic: str = "") -> None:
        super().__init__(storage, task, offsets_topic=offsets_topic)
        config = storage.client_config
        self._max_bytes = int(config.get("message.max.bytes", BROKERS_MAX_BYTES))
        self._compression = str(producer_settings(storage)["compression.type"])
        self._delivery_s = min(DELIVERY_TIMEOUT_MS, self.timeout_ms) / 1000
        self._sender: AIOKafkaProducer | None = None
        self._sent: deque[asyncio.Future[Any]] = deque()

    def init(self) -> None:
        """See TaskProducer."""
        self._drop()
        with self._telling(f"{self.id} cannot begin to write"):
            try:
                # the first one ever has the brokers make a topic of their own
                self._sender = _call(self._start(), 2 * self._client.timeout_s)
            except KafkaException:
                # aiokafka does not tell brokers that are away from those that let nobody in
                with contextlib.suppress(KafkaException, TimeoutError):
                    self._client.topics_now(self._offset_topics)
                raise

    def produce(self, paths: Sequence[Path]) -> None:
        """See TaskProducer."""
        sender = self._started()
        with self._telling(f"{self.id} cannot begin a transaction"):
            _call(sender.begin_transaction(), self._client.timeout_s)
        self._begin()
        topics: set[str] = set()
        for path in paths:
            for topic, records, places in read_staged(path):
                topics.add(topic)
                with self._writing(topic):
                    self._send(topic, records.select(PAYLOAD_SCHEMA.names), places)
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
        batch = pa.RecordBatch.from_pylist(rows, PAYLOAD_SCHEMA)
        for topic in self._offset_topics:
            with self._writing(topic):
                self._send(topic, batch, pa.repeat(pa.scalar(-1, pa.int32()), len(rows)))
        with self._writing(" and ".join(self._offset_topics)):
            self._finish()

    def commit(self) -> None:
        """See TaskProducer."""
        with self._telling(f"whether {self.id} has written is not known"):
            _call(self._started().commit_transaction(), COMMIT_S)
        self._in_transaction = False

    def close(self) -> None:
        """See TaskProducer."""
        if self._sender is not None and self._in_transaction:
            with contextlib.suppress(KafkaException):
                _call(self._sender.abort_transaction(), ABORT_S)
        self._drop()

    def _drop(self) -> None:
        sender, self._sender = self._sender, None
        self._in_transaction = False
        sent, self._sent = self._sent, deque()
        if sender is not None:
            asyncio.run_coroutine_threadsafe(_stopped(sender, sent), _loop())

    def _started(self) -> AIOKafkaProducer:
        assert self._sender is not None, "init was not called"
        return self._sender

    async def _start(self) -> AIOKafkaProducer:
        sender = AIOKafkaProducer(
            **_reach(self._storage),
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

    def _send(self, topic: str, records: Any, places: Any) -> None:
        """Have records sent to where they go; -1 leaves that to their keys."""
        sender = self._started()
        count = len(_call(sender.partitions_for(topic), self._client.timeout_s))
        by_key = pc.less(places, 0)
        if pc.any(by_key).as_py():
            places = pc.if_else(by_key, partitions_for_keys(records.column("key"), count), places)
        numbers = places.unique().to_pylist()
        for number in numbers:
            part = records if len(numbers) == 1 else records.filter(pc.equal(places, number))
            for batch in encoded(part, max_bytes=self._max_bytes, compression=self._compression):
                _call(self._submit(topic, number, batch), self._delivery_s)

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

        _call(finish(), self._delivery_s)

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


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """The event loop of all producers of this process."""
    loop = asyncio.new_event_loop()
    # such as of a producer that is dropped with its connections
    loop.set_exception_handler(lambda _loop, _context: None)
    threading.Thread(target=loop.run_forever, name="kafka batches", daemon=True).start()
    return loop


def _call(work: Coroutine[Any, Any, T], limit_s: float) -> T:
    """Have it done on the loop.

    Raises:
        KafkaException: What aiokafka raised, or that it took too long. It asserts that it is in the
            state for what it is told to do.
    """
    try:
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, limit_s), _loop()).result()
    except (AioKafkaError, AssertionError, TimeoutError, OSError) as error:
        raise KafkaException(_as_kafka_error(error)) from error


def _as_kafka_error(error: Exception) -> KafkaError:
    if isinstance(error, ProducerFenced):
        return KafkaError(KafkaError.PRODUCER_FENCED)
    if isinstance(error, BrokerResponseError):
        return KafkaError(error.errno)
    if isinstance(error, AuthenticationFailedError):
        return KafkaError(KafkaError._AUTHENTICATION, str(error))
    if isinstance(error, AssertionError):
        return KafkaError(KafkaError._STATE, str(error))
    if isinstance(error, TimeoutError):
        return KafkaError(KafkaError._TIMED_OUT)
    if isinstance(error, KafkaConnectionError | OSError):
        return KafkaError(KafkaError._TRANSPORT, str(error))
    return KafkaError(KafkaError._FAIL, str(error))


async def _stopped(sender: AIOKafkaProducer, sent: Iterable[asyncio.Future[Any]]) -> None:
    """Close its connections, soon; what is on its way counts only if it is committed."""
    for each in sent:
        each.add_done_callback(lambda done: done.cancelled() or done.exception())
    with contextlib.suppress(Exception):
        await asyncio.wait_for(sender.stop(), _STOP_S)
    with contextlib.suppress(Exception):
        await sender.client.close()


def _reach(storage: KafkaStorage) -> Mapping[str, Any]:
    """How aiokafka reaches the brokers that librdkafka's settings name."""
    config = storage.client_config
    protocol = config.get("security.protocol", "plaintext").upper()
    found: dict[str, Any] = {
        "bootstrap_servers": storage.bootstrap_servers,
        "security_protocol": protocol,
    }
    if protocol.endswith("SSL"):
        found["ssl_context"] = _tls(config)
    if protocol.startswith("SASL"):
        found["sasl_mechanism"] = config.get("sasl.mechanism") or config.get("sasl.mechanisms")
        found["sasl_plain_username"] = config.get("sasl.username")
        found["sasl_plain_password"] = config.get("sasl.password")
    return found


def _tls(config: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=config.get("ssl.ca.location"))
    if config.get("ssl.endpoint.identification.algorithm", "https") == "none":
        context.check_hostname = False
    if "ssl.certificate.location" in config:
        context.load_cert_chain(
            config["ssl.certificate.location"],
            config.get("ssl.key.location"),
            config.get("ssl.key.password"),
        )
    return context
