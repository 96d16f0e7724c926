"""Writes Arrow batches as records of topics, on an executor: durable when the call returns.

At least once: records delivered before a failure stay, and are delivered again with the next
attempt of the batch. The producer is idempotent, so its own retries neither duplicate nor reorder.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Producer

from drover.dataplane import payload, routing
from drover.dataplane.kafka.clients import Pool, shared_client
from drover.dataplane.kafka.topics import ensure_topic
from drover.dataplane.plane import BATCH_TOPICS_MAX, Destination
from drover.dataplane.topic_creation import SINGLE_PARTITION, TopicCreation
from drover.errors import DroverError, Reason, UnavailableError
from drover.log.storage import KafkaStorage

#: How long a record may wait for its acknowledgement, including retries.
DELIVERY_TIMEOUT_MS = 60_000
_FLUSH_MARGIN_S = 15.0
_ROOM_POLL_S = 0.1
_SERVE_EVERY = 10_000
#: The client chooses the partition by the key.
_BY_KEY = pa.scalar(-1, pa.int32())

_PRODUCED_SCHEMA = pa.schema(
    [
        ("record_count", pa.int64()),
        ("size_bytes", pa.int64()),
        ("topics", pa.list_(pa.string())),
    ]
)

_SETTINGS = {
    "acks": "all",
    "enable.idempotence": True,
    "partitioner": "murmur2_random",
    "delivery.report.only.error": True,
    "message.timeout.ms": DELIVERY_TIMEOUT_MS,
    "linger.ms": 5,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 256 * 1024,
}
#: JSON with schemas is repetitive: sending and storing it uncompressed takes longer than lz4.
_COMPRESSION = "lz4"


@dataclass
class _Sender:
    """A producer, and its delivery failures."""

    producer: Producer | None = None
    failures: list[KafkaError] = field(default_factory=list)

    def close(self) -> None:
        """Drop unsent records."""
        assert self.producer is not None
        self.producer.purge()
        self.producer.flush(0)


def producer_settings(storage: KafkaStorage) -> dict[str, object]:
    """The producer's settings; of the user's settings, the compression is used."""
    own = storage.client_config
    compression = own.get("compression.type") or own.get("compression.codec") or _COMPRESSION
    return {**_SETTINGS, "compression.type": compression}


def _make_sender(storage: KafkaStorage) -> _Sender:
    sender = _Sender()

    def on_delivery(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            sender.failures.append(error)

    settings = {**producer_settings(storage), "on_delivery": on_delivery}
    sender.producer = shared_client(storage).producer(settings)
    return sender


_senders = Pool(_make_sender, _Sender.close)


@dataclass(frozen=True)
class RecordProducer:
    """Produces record batches; a function for executors. See Destination for the fields.

    Raises FrameError for columns that are not records, and Kafka's errors as DroverErrors.
    """

    storage: KafkaStorage
    topic: str | None = None
    creation: TopicCreation = SINGLE_PARTITION
    spread_keyless: bool = False

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Produce everything; yields one row with topics and counts of records and bytes."""
        destination = Destination(
            topic=self.topic, creation=self.creation, spread_keyless=self.spread_keyless
        )
        router = Router(self.storage, destination)
        record_count = size_bytes = 0
        with _senders.borrow(self.storage) as sender:
            assert sender.producer is not None
            sending = Sending(self.storage, sender.producer, sender.failures)
            for batch in batches:
                for topic, records, places in router.routed(batch):
                    sending.send(topic, records, places)
                    record_count += records.num_rows
                    size_bytes += records.nbytes
            sending.finish()
        yield pa.RecordBatch.from_pydict(
            {
                "record_count": [record_count],
                "size_bytes": [size_bytes],
                "topics": [router.topics],
            },
            schema=_PRODUCED_SCHEMA,
        )


class Router:
    """Assigns the records of one batch to topics and partitions; creates missing topics."""

    def __init__(
        self,
        storage: KafkaStorage,
        destination: Destination,
        known_counts: Mapping[str, int] | None = None,
        *,
        framed: bool = False,
    ) -> None:
        """``known_counts`` are partition counts of topics that need no query; for ``framed`` see
        ``payload.normalise``.
        """
        self._framed = framed
        self._storage = storage
        self._known_counts = known_counts or {}
        self._topic = destination.topic
        self._creation = destination.creation
        self._spread_keyless = destination.spread_keyless
        self._client = shared_client(storage)
        self._partition_counts: dict[str, int] = {}
        self._now_ms = time.time_ns() // 1_000_000

    @property
    def topics(self) -> list[str]:
        """The topics of the records so far, at most BATCH_TOPICS_MAX."""
        return list(islice(self._partition_counts, BATCH_TOPICS_MAX))

    @property
    def partition_counts(self) -> list[int]:
        """The partition counts of ``topics``."""
        return list(islice(self._partition_counts.values(), BATCH_TOPICS_MAX))

    def routed(self, batch: Any) -> Iterator[tuple[str, Any, Any]]:
        """Topics, their records in ``payload.PAYLOAD_SCHEMA``, and the partition of each record as
        int32; BY_KEY lets the client choose.

        Raises:
            FrameError: The columns are not those of records.
            DroverError: A topic cannot be created.
        """
        if batch.num_rows == 0:
            return
        records = payload.normalise(batch, self._now_ms, framed=self._framed)
        for topic, rows in routing.rows_by_topic(batch, self._topic):
            chosen = records if rows is None else records.take(rows)
            explicit = routing.explicit_partitions(batch, rows)
            yield topic, chosen, self._places(topic, chosen.column("key"), explicit)

    def _places(self, topic: str, keys: Any, explicit: Any | None) -> Any:
        highest = None if explicit is None else pc.max(explicit).as_py()
        count = self.partition_count(topic, at_least=0 if highest is None else highest + 1)
        rows = len(keys)
        if explicit is None and keys.null_count == rows and not self._spread_keyless:
            return pa.repeat(pa.scalar(0, pa.int32()), rows)
        if explicit is None and keys.null_count == 0:
            return pa.repeat(_BY_KEY, rows)
        keyless = pa.scalar(0, pa.int32())
        if self._spread_keyless:
            keyless = routing.spread_places(rows, count)
        places = pc.if_else(keys.is_valid(), _BY_KEY, keyless)
        if explicit is not None:
            for number in explicit.unique().drop_null().to_pylist():
                routing.check_partition(number, topic, count)
            places = pc.coalesce(explicit, places)
        return places

    def partition_count(self, topic: str, *, at_least: int = 0) -> int:
        """The partition count of a topic, which is created if it is missing. A cached count below
        ``at_least`` is refreshed.

        Raises:
            FrameError: Connectors may not write to it.
            DroverError: It cannot be created.
        """
        enough = max(1, at_least)
        count = self._partition_counts.get(topic, 0)
        if count >= enough:
            return count
        if topic in self._storage.topics.contents:
            raise payload.FrameError(
                f"the topic {topic} is internal to the cluster: connectors may not write to it"
            )
        count = self._known_counts.get(topic, 0)
        if count < enough:
            least = enough if self._creation.grows else 0
            rule = self._creation.rule(topic)
            count = ensure_topic(self._client, topic, rule, at_least=least)
        self._partition_counts[topic] = count
        return count


class Sending:
    """Passes records to a producer, and checks for delivery failures.

    ``failures`` is filled by the producer's ``on_delivery``.
    """

    def __init__(
        self, storage: KafkaStorage, producer: Producer, failures: list[KafkaError]
    ) -> None:
        self._client = shared_client(storage)
        self._producer = producer
        self._failures = failures
        self._topics: dict[str, None] = {}

    def finish(self, timeout_s: float = DELIVERY_TIMEOUT_MS / 1000 + _FLUSH_MARGIN_S) -> None:
        """Wait until everything is acknowledged.

        Raises:
            DroverError: A delivery failed or timed out.
        """
        left = self._producer.flush(timeout_s)
        self._check_failures()
        if left:
            raise UnavailableError(
                Reason.STORAGE_UNAVAILABLE,
                f"the brokers have not acknowledged {left} records in time",
            )

    def send(self, topic: str, records: Any, places: Any) -> None:
        """Send records in ``payload.PAYLOAD_SCHEMA`` to their partitions.

        Raises:
            DroverError: A delivery failed, of these or of earlier records.
        """
        if topic not in self._topics:
            # by default the client looks up the leaders of a new topic once a second
            try:
                self._producer.list_topics(topic, timeout=self._client.timeout_s)
            except KafkaException as error:
                raise self._translated(error, topic) from error
            self._topics[topic] = None
        produce = self._producer.produce
        rows = zip(
            records.column("value").to_pylist(),
            records.column("key").to_pylist(),
            places.to_pylist(),
            records.column("timestamp_ms").to_pylist(),
            _headers(records.column("headers")),
            strict=True,
        )
        unserved = 0
        for value, key, place, timestamp_ms, headers in rows:
            unserved += 1
            if unserved >= _SERVE_EVERY:
                unserved = 0
                self._producer.poll(0)
                self._check_failures()
            while True:
                try:
                    # positional, because keyword arguments would take half of the call's time
                    produce(topic, value, key, place, None, None, timestamp_ms, headers)
                    break
                except BufferError:
                    self._producer.poll(_ROOM_POLL_S)
                    self._check_failures()
                except KafkaException as error:
                    raise self._translated(error, topic) from error

    def _check_failures(self) -> None:
        if self._failures:
            raise self._translated(self._failures[0], "")

    def _translated(self, error: KafkaException | KafkaError, topic: str) -> DroverError:
        names = topic or ", ".join(sorted(self._topics))
        return self._client.translated(
            error,
            doing=f"records for the topic {names} cannot be written",
            topic=names,
            operation="Write",
        )


def _headers(column: Any) -> Iterable[Any]:
    """The headers of each row, in the client's form."""
    if column.null_count == len(column):
        return repeat(None, len(column))
    return [
        None if each is None else [(header["key"], header["value"]) for header in each]
        for each in column.to_pylist()
    ]
