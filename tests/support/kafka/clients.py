"""Common client operations of tests: create topics, write records, read a whole topic."""

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.addresses import HOST
from tests.support.waiting import wait_until

ANSWER_TIMEOUT_S = 5
CALL_TIMEOUT_S = 30
#: librdkafka logs every lost connection to stderr; tests kill brokers.
QUIET: Mapping[str, str | int] = {"log_level": 0}


@dataclass(frozen=True, slots=True)
class Record:
    """A stored record; gaps in ``offset`` are control records."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, str | bytes | None], ...] = ()


def answers(bootstrap: str) -> bool:
    """Whether a broker serves at this moment, without waiting."""
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    if host == HOST and not is_listening(int(port)):
        return False
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    try:
        return bool(admin.list_topics(timeout=ANSWER_TIMEOUT_S).brokers)
    except KafkaException:
        return False


def wait_until_groups_answer(bootstrap: str) -> None:
    """A new broker creates the __consumer_offsets topic at the first group request."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "the first", **QUIET})

    def answer() -> bool:
        try:
            consumer.committed([TopicPartition("any", 0)], timeout=ANSWER_TIMEOUT_S)
        except KafkaException:
            return False
        return True

    try:
        wait_until(answer, describe="the offsets of a group")
    finally:
        consumer.close()


def is_listening(port: int) -> bool:
    """Whether the port accepts connections."""
    try:
        with socket.create_connection((HOST, port), timeout=1):
            return True
    except OSError:
        return False


def create_topic(
    bootstrap: str, topic: str, *, partitions: int = 1, config: Mapping[str, str] | None = None
) -> None:
    """Create a topic; returns once the broker reports the leaders of its partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    made = admin.create_topics(
        [NewTopic(topic, partitions, 1, config=dict(config or {}))],
        operation_timeout=CALL_TIMEOUT_S,
    )
    made[topic].result(CALL_TIMEOUT_S)

    def is_known() -> bool:
        found = admin.list_topics(topic, timeout=CALL_TIMEOUT_S).topics[topic].partitions
        return len(found) == partitions and all(each.leader != -1 for each in found.values())

    wait_until(is_known, describe=f"the broker knows {topic}")


def produce(
    bootstrap: str,
    topic: str,
    records: Iterable[tuple[bytes | None, bytes | None]],
    *,
    settings: Mapping[str, str | int] | None = None,
) -> None:
    """Write keys and values; returns once all are acknowledged. Keys choose partitions as in Java.

    Not idempotent, because librdkafka needs a second to initialize idempotence: a broker that dies
    during the write may store a record twice.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "partitioner": "murmur2_random",
            **QUIET,
            **(settings or {}),
        }
    )
    failed: list[object] = []

    def delivered(error: object, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    for key, value in records:
        producer.produce(topic, key=key, value=value, on_delivery=delivered)
    left = producer.flush(CALL_TIMEOUT_S)
    assert not failed, f"{topic} did not take a record: {failed[0]}"
    assert left == 0, f"{left} records for {topic} are not acknowledged"


def read_all(
    bootstrap: str,
    topic: str,
    *,
    committed_only: bool = True,
    settings: Mapping[str, str | int] | None = None,
) -> list[Record]:
    """All records up to the topic's current end, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "tests-that-read",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed" if committed_only else "read_uncommitted",
            **QUIET,
            **(settings or {}),
        }
    )
    try:
        found: list[Record] = []
        metadata = consumer.list_topics(topic, timeout=CALL_TIMEOUT_S).topics[topic]
        if metadata.error is not None:
            raise KafkaException(metadata.error)
        for partition in sorted(metadata.partitions):
            found += _read_partition(consumer, topic, partition)
        return found
    finally:
        consumer.close()


def _read_partition(consumer: Consumer, topic: str, partition: int) -> list[Record]:
    place = TopicPartition(topic, partition)
    low, high = consumer.get_watermark_offsets(place, timeout=CALL_TIMEOUT_S)
    consumer.assign([TopicPartition(topic, partition, low)])
    found: list[Record] = []

    def at_the_end() -> bool:
        message = consumer.poll(0.1)
        if message is not None:
            if message.error() is not None:
                raise KafkaException(message.error())
            record = _record(message)
            if record.offset < high:
                found.append(record)
        # a control record or a compacted one advances the position without a message
        return bool(consumer.position([place])[0].offset >= high) or low == high

    wait_until(
        at_the_end, describe=lambda: f"the end {high} of {topic}-{partition}, at {found[-1:]}"
    )
    consumer.unassign()
    return found


def _record(message: Message) -> Record:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Record(partition, offset, message.key(), message.value(), _headers(message))


def _headers(message: Message) -> tuple[tuple[str, str | bytes | None], ...]:
    given: Any = message.headers() or ()
    return tuple((name, value) for name, value in given)
