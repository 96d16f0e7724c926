"""Appends to topics of a real broker, without a task."""

import threading
import time
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from drover.dataplane.kafka.appending import _Append
from drover.dataplane.kafka.plane import KafkaPlane
from drover.dataplane.payload import PAYLOAD_SCHEMA
from drover.errors import DroverError
from drover.log.storage import KafkaStorage
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import create_topic
from tests.support.kafka.data_topic import Topic
from tests.support.waiting import wait_until


@pytest.fixture
def topic(kafka: Kafka, topic_prefix: str) -> Topic:
    topic = Topic.at(kafka.bootstrap, f"{topic_prefix}appended")
    create_topic(kafka.bootstrap, topic.name, partitions=2)
    return topic


def records(*values: bytes) -> Any:
    now_ms = time.time_ns() // 1_000_000  # retention removes old records
    headers = [{"key": "h", "value": None}]
    rows = [
        {"key": b"k", "value": each, "headers": headers, "timestamp_ms": now_ms} for each in values
    ]
    return pa.RecordBatch.from_pylist(rows, schema=PAYLOAD_SCHEMA)


def wait_for_values(topic: Topic, expected: list[bytes]) -> None:
    """Wait for the records: a commit is answered before the brokers have written its markers."""

    def values() -> list[bytes]:
        plan = topic.plan({0: 0, 1: 0})
        return sorted(row["value"] for row in topic.read(plan.ranges))

    wait_until(lambda: values() == expected, describe=values)


def test_records_are_visible_together_and_a_repeated_call_writes_nothing(topic: Topic) -> None:
    parts = {0: records(b"a", b"b"), 1: records(b"c")}
    first = topic.plane.append(topic.name, parts, "first")
    assert (first.record_count, first.repeated) == (3, False)
    for number in range(3):
        topic.plane.append(topic.name, {1: records(b"%d" % number)}, f"other {number}")
    again = topic.plane.append(topic.name, parts, "first")
    assert (again.record_count, again.repeated) == (3, True)
    wait_for_values(topic, [b"0", b"1", b"2", b"a", b"b", b"c"])


def test_a_cluster_with_any_name_appends(topic: Topic) -> None:
    odd = Topic(topic.name, *_named(topic, "näme 😀 %41"))
    for repeated in (False, True):
        found = odd.plane.append(topic.name, {0: records(b"a")}, "first")
        assert (found.record_count, found.repeated) == (1, repeated)


def _named(topic: Topic, group_id: str) -> tuple[KafkaStorage, KafkaPlane]:
    storage = replace(topic.storage, group_id=group_id)
    return storage, KafkaPlane(storage)


def test_a_failed_append_leaves_nothing(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    with monkeypatch.context() as patched:
        patched.setattr(_Append, "_commit", fail)
        with pytest.raises(DroverError):
            topic.plane.append(topic.name, {0: records(b"lost")}, "one")
    assert not topic.plane.append(topic.name, {0: records(b"kept")}, "one").repeated
    wait_for_values(topic, [b"kept"])


def test_a_lost_answer_of_a_commit_is_found_by_the_repeated_call(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = _Append._commit

    def lose(self: _Append, *arguments: Any) -> None:
        commit(self, *arguments)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    with monkeypatch.context() as patched:
        patched.setattr(_Append, "_commit", lose)
        with pytest.raises(DroverError):
            topic.plane.append(topic.name, {0: records(b"a")}, "one")
    assert topic.plane.append(topic.name, {0: records(b"a")}, "one").repeated
    wait_for_values(topic, [b"a"])


def test_an_append_that_another_one_fences_starts_again(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = _Append._write
    fenced = threading.Event()

    def write_after_another(self: _Append, producer: Producer, parts: Any) -> None:
        if not fenced.is_set():
            fenced.set()
            topic.plane.append(topic.name, {0: records(b"other")}, "other")
        write(self, producer, parts)

    monkeypatch.setattr(_Append, "_write", write_after_another)
    assert not topic.plane.append(topic.name, {0: records(b"own")}, "own").repeated
    wait_for_values(topic, [b"other", b"own"])
