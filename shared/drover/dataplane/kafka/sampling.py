"""Estimates the size of partitions' records from samples.

Brokers do not report sizes, but batches are limited in bytes. A sample costs one small fetch and is
valid for the next offsets of the partition.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError

from drover.dataplane.kafka.clients import Pool, RangeConsumer
from drover.dataplane.plane import PartitionKey
from drover.log.storage import KafkaStorage

#: For how many offsets a sample is valid.
REACH = 10_000
_MESSAGES = 1_000
_PATIENCE_S = 0.5
_POLL_S = 0.1
#: The approximate size of a record without key and value.
_OVERHEAD_BYTES = 24

_SETTINGS = {
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "fetch.message.max.bytes": 64 * 1024,
    "queued.max.messages.kbytes": 1024,
    "fetch.wait.max.ms": 10,
    # a compressed batch may exceed the queue, after which the client would pause for a second
    "fetch.queue.backoff.ms": 10,
}


def _make_consumer(storage: KafkaStorage) -> RangeConsumer:
    return RangeConsumer(storage, _SETTINGS)


_consumers = Pool(_make_consumer, RangeConsumer.close)


@dataclass(frozen=True, slots=True)
class _Sample:
    offset: int
    record_bytes: float

    def stands_for(self, offset: int) -> bool:
        return self.offset <= offset < self.offset + REACH


class RecordSizes:
    """Estimates by partition; thread-safe."""

    def __init__(self, storage: KafkaStorage) -> None:
        self._storage = storage
        self._lock = threading.Lock()
        self._samples: dict[PartitionKey, _Sample] = {}

    def of(self, positions: Mapping[PartitionKey, int]) -> Mapping[PartitionKey, float]:
        """The approximate size of records at these offsets; partitions without a sample are left
        out.
        """
        with self._lock:
            known = {key: self._samples.get(key) for key in positions}
        unknown = {
            key: positions[key]
            for key, sample in known.items()
            if sample is None or not sample.stands_for(positions[key])
        }
        if unknown:
            sizes = _look(self._storage, unknown)
            fresh = {key: _Sample(unknown[key], size) for key, size in sizes.items()}
            with self._lock:
                self._samples.update(fresh)
            known.update(fresh)
        return {key: sample.record_bytes for key, sample in known.items() if sample is not None}


def _look(
    storage: KafkaStorage, positions: Mapping[PartitionKey, int]
) -> dict[PartitionKey, float]:
    """The mean size of the first few records of each partition after its position."""
    counts: dict[PartitionKey, int] = {}
    sizes: dict[PartitionKey, int] = {}
    missing = set(positions)
    with _consumers.borrow(storage) as consumer:
        consumer.go_to(positions)
        deadline_s = time.monotonic() + _PATIENCE_S
        while missing and time.monotonic() < deadline_s:
            for message in consumer.take(_MESSAGES, _POLL_S):
                key = (message.topic(), message.partition())
                missing.discard(key)
                if message.error() is None:
                    counts[key] = counts.get(key, 0) + 1
                    sizes[key] = sizes.get(key, 0) + _record_bytes(message)
                elif message.error().code() != KafkaError._PARTITION_EOF:
                    break  # reading the range raises the error
        consumer.leave()
    return {key: sizes[key] / count for key, count in counts.items()}


def _record_bytes(message: Any) -> int:
    return len(message.value() or b"") + len(message.key() or b"") + _OVERHEAD_BYTES
