"""Clients that a process keeps, because connecting for each batch would cost more than the batch.

Used in Python workers of Spark and in the driver.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from confluent_kafka import KafkaException, TopicPartition

from drover.dataplane.plane import PartitionKey
from drover.log.kafka.client import KafkaClient, StorageKey, storage_key
from drover.log.storage import KafkaStorage

#: The most idle clients to keep; only the driver uses several at once.
_IDLE_MAX = 8
_CLIENTS_MAX = 4

#: How long a consumer's knowledge of a topic's leaders is trusted.
_TOPIC_KNOWN_S = 60.0

T = TypeVar("T")

_clients: dict[StorageKey, KafkaClient] = {}
_lock = threading.Lock()


def shared_client(storage: KafkaStorage) -> KafkaClient:
    """The process's client for a cluster."""
    key = storage_key(storage)
    with _lock:
        client = _clients.get(key)
        if client is None:
            if len(_clients) >= _CLIENTS_MAX:
                _clients.pop(next(iter(_clients)))
            client = _clients[key] = KafkaClient(storage)
        return client


class Pool(Generic[T]):
    """Lends objects to one user at a time; creates one when none is idle."""

    def __init__(self, make: Callable[[KafkaStorage], T], close: Callable[[T], object]) -> None:
        self._make = make
        self._close = close
        self._idle: dict[StorageKey, list[T]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def borrow(self, storage: KafkaStorage) -> Iterator[T]:
        """An idle object, or a new one; it is closed rather than kept after an error."""
        key = storage_key(storage)
        with self._lock:
            idle = self._idle.setdefault(key, [])
            item = idle.pop() if idle else None
        if item is None:
            item = self._make(storage)
        try:
            yield item
        except BaseException:
            self._close(item)
            raise
        with self._lock:
            keep = len(idle) < _IDLE_MAX
            if keep:
                idle.append(item)
        if not keep:
            self._close(item)


class RangeConsumer:
    """A consumer that is moved between ranges; for one user at a time."""

    def __init__(self, storage: KafkaStorage, settings: Mapping[str, object]) -> None:
        self._client = shared_client(storage)
        self._consumer = self._client.consumer(settings)
        self._known_until_s: dict[str, float] = {}

    def go_to(self, positions: Mapping[PartitionKey, int]) -> None:
        """Read these partitions from these offsets, and no others.

        Raises:
            DroverError: As KafkaClient.translated.
        """
        now_s = time.monotonic()
        for topic in sorted({topic for topic, _ in positions}):
            if self._known_until_s.get(topic, 0.0) <= now_s:
                # by default the client looks up the leaders of a new topic once a second
                try:
                    self._consumer.list_topics(topic, timeout=self._client.timeout_s)
                except KafkaException as error:
                    raise self._client.translated(
                        error,
                        doing=f"the leaders of the topic {topic} cannot be found",
                        topic=topic,
                        operation="Read",
                    ) from error
                self._known_until_s[topic] = now_s + _TOPIC_KNOWN_S
        self._consumer.assign([TopicPartition(*key, at) for key, at in positions.items()])

    def take(self, count: int, timeout_s: float) -> list[Any]:
        """The next available messages, at most ``count``; empty if none arrives in time.

        Some may be events: their ``error()`` is not None.
        """
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        return [first, *(self._consumer.consume(count - 1, 0) if count > 1 else ())]

    def leave(self) -> None:
        """Stop reading."""
        self._consumer.unassign()

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()
