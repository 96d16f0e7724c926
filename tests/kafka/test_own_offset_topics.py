"""Source offsets in the connector's own topic, in addition to the workers' topic (KIP-618)."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from drover.config.resolution import Resolution
from drover.connector.catalogue import PluginRegistry
from drover.dataplane.kafka.plane import KafkaPlane
from drover.dataplane.kafka.transactional import ExactlyOnceWriter
from drover.errors import FailedPreconditionError, Reason
from drover.log.storage import KafkaStorage
from drover.model.claims import TaskSet
from drover.model.ids import TaskId
from drover.model.offsets import CommittedOffset, OffsetsChange
from drover_worker.engine.plugins.validation import validate
from tests.support.asked import asked
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import create_topic, produce, read_all
from tests.support.kafka.coordinator_store import CoordinatorStore, small_storage
from tests.support.kafka.publisher import Publisher

TASK = TaskId("lines", 0)
KEY = b'["lines",{"filename":"/in.txt"}]'
PARTITION = '{"filename":"/in.txt"}'


def at(position: int) -> CommittedOffset:
    return CommittedOffset(PARTITION, f'{{"position":{position}}}')


class OwnTopic:
    """A connector with its own offsets topic."""

    def __init__(self, storage: KafkaStorage, prefix: str, directory: Path) -> None:
        self.storage = storage
        self.name = f"{prefix}own"
        self.directory = directory
        create_topic(
            storage.bootstrap_servers,
            storage.topics.offset,
            config={"cleanup.policy": "compact"},
        )

    def writer(self, stack: ExitStack) -> Publisher:
        plane = KafkaPlane(self.storage, staging_directory=self.directory)
        writer = plane.writer(
            TASK,
            None,  # type: ignore[arg-type]  # the brokers know nothing of claims
            abandoned=lambda: False,
            check_claim=lambda: None,
            offsets_topic=self.name,
        )
        assert isinstance(writer, ExactlyOnceWriter)
        stack.callback(writer.close)
        publisher = Publisher(writer)
        publisher.open()
        return publisher

    def values(self, topic: str) -> list[bytes | None]:
        found = read_all(self.storage.bootstrap_servers, topic)
        return [each.value for each in found if each.key == KEY]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def own(kafka: Kafka, topic_prefix: str, tmp_path: Path) -> OwnTopic:
    return OwnTopic(small_storage(kafka.bootstrap, topic_prefix), topic_prefix, tmp_path)


def test_both_topics_have_each_offset(own: OwnTopic, stack: ExitStack) -> None:
    writer = own.writer(stack)
    assert writer.opened([]) == []
    writer.publish([], [at(1)])
    writer.publish([], [at(2)])
    for topic in (own.name, own.storage.topics.offset):
        assert own.values(topic) == [b'{"position":1}', b'{"position":2}']


def test_a_task_starts_from_its_own_topic_and_has_the_other_one_catch_up(
    own: OwnTopic, stack: ExitStack
) -> None:
    first = own.writer(stack)
    first.opened([])
    first.publish([], [at(1)])
    # as left by a Kafka Connect that was killed between the writes to its two topics
    produce(own.storage.bootstrap_servers, own.name, [(KEY, b'{"position":7}')])
    second = own.writer(stack)
    assert list(second.opened([at(1)])) == [at(7)]
    assert own.values(own.storage.topics.offset)[-1] == b'{"position":7}'
    third = own.writer(stack)
    assert list(third.opened([at(7)])) == [at(7)], "nothing is written where both are equal"
    assert len(own.values(own.storage.topics.offset)) == 2


def test_what_only_the_workers_topic_has_is_kept(own: OwnTopic, stack: ExitStack) -> None:
    assert list(own.writer(stack).opened([at(3)])) == [at(3)]
    assert own.values(own.name) == [b'{"position":3}']


async def test_offsets_that_are_changed_by_hand_are_changed_in_both(own: OwnTopic) -> None:
    async with CoordinatorStore.opened(own.storage) as store:
        await store.load(1)
        for number, offsets in enumerate([[at(5)], None], 1):
            change = OffsetsChange(TASK.connector, TaskSet(number, 1), offsets, "", True, own.name)
            await store.offsets.change(change)
    for topic in (own.name, own.storage.topics.offset):
        assert own.values(topic) == [b'{"position":5}', None]


def faults_of(own: OwnTopic, topic: str) -> list[str]:
    config = {
        "connector.class": "FileStreamSource",
        "name": "lines",
        "topic": "t",
        "file": "/f",
        "offsets.storage.topic": topic,
    }
    opened = partial(KafkaPlane, own.storage, staging_directory=own.directory)
    answer = validate(PluginRegistry(), Resolution(config, config), open_plane=asked(opened))
    return [error for value in answer.values for error in value.errors]


def test_a_topic_that_loses_offsets_is_refused(own: OwnTopic, stack: ExitStack) -> None:
    assert faults_of(own, own.name) == [], "it will be made"
    create_topic(own.storage.bootstrap_servers, own.name, config={"cleanup.policy": "delete"})
    (fault,) = faults_of(own, own.name)
    assert "cleanup.policy=delete, which loses offsets: set it to compact" in fault
    writer = own.writer(stack)
    with pytest.raises(FailedPreconditionError, match=r"cleanup\.policy=delete") as caught:
        writer.opened([])
    assert caught.value.reason is Reason.STORAGE_MISCONFIGURED


def test_the_clusters_own_topics_are_refused(own: OwnTopic) -> None:
    (fault,) = faults_of(own, own.storage.topics.config)
    assert "an internal topic of the cluster" in fault
