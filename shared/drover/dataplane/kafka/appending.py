"""Appends to a topic without a task: one transaction, which a repeated call finds.

The transaction commits an offset of a separate consumer group, whose metadata has the ids of the
last calls: the records and the id become visible together. All calls for a topic have the same
transactional id, so a second one at the same time fences the first, and reads the ids only when
the outcome of the first is known.
"""

import contextlib
import json
import string
import threading
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from drover.backoff import Backoff
from drover.dataplane.appends import REMEMBERED_MAX, digest_of
from drover.dataplane.kafka.clients import shared_client
from drover.dataplane.kafka.producing import DELIVERY_TIMEOUT_MS, Sending, producer_settings
from drover.dataplane.kafka.task_producer import ABORT_S, COMMIT_S, TRANSACTION_TIMEOUT_MS
from drover.dataplane.values import Appended
from drover.errors import DroverError, Reason, UnavailableError
from drover.log.kafka.calls import as_raised, connect, insist, why_given_up
from drover.log.kafka.errors import FENCED
from drover.log.storage import KafkaStorage

#: How often an append starts again after another one for the topic has fenced it.
_ATTEMPTS_MAX = 8
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.2, 3.0
_PRINTABLE = f"{string.ascii_letters}{string.digits}{string.punctuation} "
#: Delivery errors that hide their cause.
_GIVEN_UP = frozenset(
    {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._FATAL, KafkaError._STATE}
)


def append(
    storage: KafkaStorage, topic: str, parts: Mapping[int, Any], request_id: str
) -> Appended:
    """See DataPlane.append."""
    backoff = Backoff(_FIRST_PAUSE_S, _LAST_PAUSE_S, jitter=True)
    for _ in range(_ATTEMPTS_MAX):
        try:
            return _Append(storage, topic).run(parts, digest_of(request_id))
        except _FencedError:
            threading.Event().wait(backoff.next_pause_s())
    raise UnavailableError(
        Reason.STORAGE_UNAVAILABLE,
        f"other calls keep writing to the topic {topic} at the same time: retry with the same "
        "request id",
    )


class _FencedError(Exception):
    """Another append to the topic started later."""


class _Append:
    """One attempt."""

    def __init__(self, storage: KafkaStorage, topic: str) -> None:
        self._storage = storage
        self._topic = topic
        self._client = shared_client(storage)
        # the client commits offsets only of groups with printable ASCII characters
        self._group = f"{quote(storage.group_id, safe=_PRINTABLE)}-produce"
        self._failures: list[KafkaError] = []
        self._in_transaction = False

    def run(self, parts: Mapping[int, Any], call_id: str) -> Appended:
        record_count = sum(each.num_rows for each in parts.values())
        with contextlib.closing(self._client.consumer({"group.id": self._group})) as consumer:
            producer = self._producer()
            try:
                with self._translating(producer):
                    connect(producer, self._client.timeout_s)
                    insist(producer.init_transactions, 2 * self._client.timeout_s)
                    known = self._known(consumer)
                    if call_id in known:
                        return Appended(known[call_id], repeated=True)
                    self._write(producer, parts)
                    known[call_id] = record_count
                    self._commit(producer, consumer, known)
            finally:
                self._abort(producer)
        return Appended(record_count)

    def _producer(self) -> Producer:
        def on_delivery(error: KafkaError | None, _message: object) -> None:
            if error is not None:
                self._failures.append(error)

        timeout_ms = int(
            self._storage.client_config.get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)
        )
        return self._client.producer(
            {
                **producer_settings(self._storage),
                "transactional.id": f"{self._group}-{self._topic}",
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": min(DELIVERY_TIMEOUT_MS, timeout_ms),
                "on_delivery": on_delivery,
            }
        )

    def _known(self, consumer: Consumer) -> dict[str, int]:
        """The record counts of the last calls, by id, the last one last."""
        (found,) = consumer.committed(
            [TopicPartition(self._topic, 0)], timeout=self._client.timeout_s
        )
        if found.error is not None:
            raise KafkaException(found.error)
        try:
            known = json.loads(found.metadata or "{}")
        except ValueError:
            return {}
        return {str(each): int(count) for each, count in known.items()}

    def _write(self, producer: Producer, parts: Mapping[int, Any]) -> None:
        producer.begin_transaction()
        self._in_transaction = True
        sending = Sending(self._storage, producer, self._failures)
        for partition, records in parts.items():
            places = pa.repeat(pa.scalar(partition, pa.int32()), records.num_rows)
            sending.send(self._topic, records, places)
        sending.finish()

    def _commit(self, producer: Producer, consumer: Consumer, known: dict[str, int]) -> None:
        last = dict(list(known.items())[-REMEMBERED_MAX:])
        metadata = json.dumps(last, separators=(",", ":"))
        place = TopicPartition(self._topic, 0, sum(last.values()), metadata)
        group = consumer.consumer_group_metadata()
        insist(
            lambda left_s: producer.send_offsets_to_transaction([place], group, left_s), COMMIT_S
        )
        insist(producer.commit_transaction, COMMIT_S)
        self._in_transaction = False

    def _abort(self, producer: Producer) -> None:
        if not self._in_transaction:
            return
        with contextlib.suppress(KafkaException, RuntimeError), as_raised():
            producer.purge()
            insist(producer.abort_transaction, ABORT_S)

    @contextlib.contextmanager
    def _translating(self, producer: Producer) -> Iterator[None]:
        try:
            with as_raised():
                yield
        except KafkaException as error:
            cause = self._cause(producer, error.args[0])
            doing = f"records for the topic {self._topic} cannot be written"
            raise self._client.translated(cause, doing=doing, topic=self._topic) from error
        except DroverError:
            if self._failures:
                self._cause(producer, self._failures[0])
            raise

    def _cause(self, producer: Producer, error: KafkaError) -> KafkaError:
        if error.code() in _GIVEN_UP and self._in_transaction:
            error = why_given_up(producer)
        if error.code() in FENCED:
            raise _FencedError(error.str())
        return error
