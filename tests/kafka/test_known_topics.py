"""A source writer's cache of topics, and topics that change between batches; without Spark."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from drover.dataplane.arrow_rows import ArrowRows
from drover.dataplane.kafka import producer_session
from drover.dataplane.kafka.staging import StagedFiles
from drover.dataplane.plane import Destination, OutgoingBatch
from drover.errors import FailedPreconditionError, UnavailableError
from drover.log.kafka.client import KafkaClient
from tests.kafka.test_exactly_once import MortalBatchProducer, Owner, make_world, offset
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import CALL_TIMEOUT_S, create_topic, read_all
from tests.support.waiting import wait_until


class _Here(ArrowRows):
    """Rows that this process reads itself."""

    def run(
        self, function: Callable[[Iterator[Any]], Iterator[Any]], *, at_once: bool = False
    ) -> list[dict[str, Any]]:
        del at_once
        return [row for each in function(iter(self.read(0))) for row in each.to_pylist()]


@pytest.fixture
def owner(kafka: Kafka, topic_prefix: str, tmp_path: Path) -> Iterator[Owner]:
    world = make_world(kafka.bootstrap, topic_prefix, tmp_path, MortalBatchProducer)
    owner = world.take_over()
    owner.start()
    yield owner
    owner.writer.close()


def staged(owner: Owner, value: bytes, **columns: Any) -> StagedFiles:
    batch = pa.RecordBatch.from_pydict({"value": [value], **columns})
    rows = _Here(cast("Any", None), lambda _number: iter([batch]), 1, None)
    destination = Destination(topic=owner.world.topic)
    return owner.writer.writer.stage(OutgoingBatch(rows, iter, destination))


@pytest.fixture
def admin(kafka: Kafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap})


def delete(admin: AdminClient, topic: str) -> None:
    """Delete a topic; the controller responds before the broker has applied it."""
    admin.delete_topics([topic])[topic].result(CALL_TIMEOUT_S)
    wait_until(lambda: topic not in admin.list_topics(timeout=CALL_TIMEOUT_S).topics)


def test_brokers_are_not_asked_again_for_each_batch(
    owner: Owner, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    ask = KafkaClient.topics_now

    def noted(self: KafkaClient, topics: list[str]) -> Any:
        if any(each.startswith(topic_prefix) for each in topics):  # not topics of other tests
            asked.append(topics)
        return ask(self, topics)

    monkeypatch.setattr(KafkaClient, "topics_now", noted)
    for number in range(5):
        owner.writer.publish([staged(owner, b"%d" % number)], [])
    assert owner.world.values() == [b"%d" % number for number in range(5)]
    assert asked == [[owner.world.topic]]


def test_a_topic_that_was_deleted_is_made_again(
    owner: Owner, admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = owner.world
    owner.writer.publish([staged(owner, b"before")], [])
    delete(admin, world.topic)
    monkeypatch.setattr(producer_session, "_UNKNOWN_TOPIC_S", 0.5)
    with pytest.raises(UnavailableError, match=r"Check that the topic .* exists"):
        owner.writer.publish([staged(owner, b"lost")], [])
    owner.start()  # as a runner does
    owner.writer.publish([staged(owner, b"after")], [])
    assert world.values() == [b"after"]


def test_an_offsets_topic_that_is_gone_is_told_in_the_end(
    owner: Owner, admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = owner.world.storage.topics.offset
    owner.writer.publish([staged(owner, b"before")], [offset(1)])
    delete(admin, topic)
    monkeypatch.setattr(producer_session, "_UNKNOWN_TOPIC_S", 0.5)
    with pytest.raises(UnavailableError):
        owner.writer.publish([staged(owner, b"again")], [offset(2)])
    owner.writer.open()
    owner.writer.opened([])
    with pytest.raises(FailedPreconditionError, match=rf"Check that the topic .*{topic}"):
        owner.writer.publish([staged(owner, b"again")], [offset(2)])


def test_a_partition_that_was_added_is_seen(owner: Owner, admin: AdminClient) -> None:
    world = owner.world
    world.topic += "-grown"
    create_topic(world.storage.bootstrap_servers, world.topic)
    owner.writer.publish([staged(owner, b"first")], [])
    grown = admin.create_partitions([NewPartitions(world.topic, 3)])
    grown[world.topic].result(CALL_TIMEOUT_S)
    wait_until(lambda: len(admin.list_topics(world.topic).topics[world.topic].partitions) == 3)
    owner.writer.publish([staged(owner, b"said", partition=[2])], [])
    found = read_all(world.storage.bootstrap_servers, world.topic)
    assert [(each.partition, each.value) for each in found] == [(0, b"first"), (2, b"said")]
