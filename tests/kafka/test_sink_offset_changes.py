"""Sink offsets changed by an operator: in their consumer groups on Kafka."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient

from drover.errors import InvalidArgumentError, Reason
from drover.model.claims import TaskSet
from drover.model.ids import TaskId
from drover.model.offsets import (
    CommitOutcome,
    CommittedOffset,
    OffsetsChange,
    TaskOffsets,
    TopicPartition,
)
from drover.model.sink_offsets import parse_partition, sink_offset
from drover.model.sink_outputs import OutputMark, SinkMetadata, SinkOutput, decode_mark
from drover.testing import raises_reason
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import QUIET, create_topic
from tests.support.kafka.coordinator_store import CoordinatorStore, small_storage
from tests.support.offset_store_suite import at, claim, commit, fetched
from tests.support.waiting import wait_until_async


@pytest.fixture
async def store(kafka: Kafka, topic_prefix: str) -> AsyncIterator[CoordinatorStore]:
    async with CoordinatorStore.opened(small_storage(kafka.bootstrap, topic_prefix)) as opened:
        await opened.load(1)
        yield opened


@pytest.fixture
def admin(kafka: Kafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})


@pytest.fixture
def lines(kafka: Kafka, topic_prefix: str) -> str:
    topic = f"{topic_prefix}lines"
    create_topic(kafka.bootstrap, topic, partitions=2)
    return topic


@pytest.fixture
async def sink(store: CoordinatorStore, topic_prefix: str, lines: str) -> TaskId:
    """A sink that has committed 5 and 8."""
    task = TaskId(f"{topic_prefix}sink", 0)
    positions = [sink_offset(TopicPartition(lines, each), 5 + 3 * each, "m") for each in (0, 1)]
    result = await commit(store.offsets, task, await claim(store.offsets, task), *positions)
    assert result.outcome is CommitOutcome.COMMITTED
    return task


async def committed(admin: AdminClient, group_id: str, expected: dict[int, int]) -> None:
    """Wait for committed offsets: those of a transaction are visible shortly after its end."""

    async def found() -> bool:
        return await asyncio.to_thread(positions_of, admin, group_id) == expected

    await wait_until_async(found, describe=lambda: positions_of(admin, group_id))


def positions_of(admin: AdminClient, group_id: str) -> dict[int, int]:
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])
    found = asked[group_id].result(30).topic_partitions
    return {each.partition: each.offset for each in found}


def groups(admin: AdminClient) -> set[str]:
    return {each.group_id for each in admin.list_consumer_groups().result(30).valid}


async def change(
    store: CoordinatorStore,
    connector: str,
    *offsets: CommittedOffset,
    reset: bool = False,
    without_positions: bool = False,
    consumer_group: str = "",
) -> None:
    wanted = None if reset else offsets
    await store.offsets.change(
        OffsetsChange(connector, TaskSet(1, 0), wanted, consumer_group, without_positions)
    )


async def test_positions_are_set_and_one_that_is_removed_beside_others_begins_at_0(
    store: CoordinatorStore, sink: TaskId, lines: str, admin: AdminClient
) -> None:
    group_id = f"connect-{sink.connector}"
    await change(store, sink.connector, sink_offset(TopicPartition(lines, 1), 2))
    await committed(admin, group_id, {0: 5, 1: 2})
    await change(store, sink.connector, sink_offset(TopicPartition(lines, 0), None))
    await committed(admin, group_id, {0: 0, 1: 2})


@pytest.mark.parametrize("reset", [True, False], ids=["reset", "each by name"])
async def test_without_any_position_the_group_is_gone(
    store: CoordinatorStore, sink: TaskId, lines: str, admin: AdminClient, reset: bool
) -> None:
    removals = [sink_offset(TopicPartition(lines, each), None) for each in (0, 1)]
    for _ in range(2):
        await change(store, sink.connector, *removals, reset=reset)
    assert await fetched(store.offsets, sink.connector) == {}
    assert f"connect-{sink.connector}" not in await asyncio.to_thread(groups, admin)
    renewed = await claim(store.offsets, sink)
    again = sink_offset(TopicPartition(lines, 0), 1)
    assert (await commit(store.offsets, sink, renewed, again)).outcome is CommitOutcome.COMMITTED


async def test_a_sinks_own_group_is_the_one_that_changes(
    store: CoordinatorStore, sink: TaskId, lines: str, admin: AdminClient
) -> None:
    group_id = f"{lines}-readers"
    wanted = sink_offset(TopicPartition(lines, 0), 3)
    await change(store, sink.connector, wanted, consumer_group=group_id)
    await committed(admin, group_id, {0: 3})
    await change(store, sink.connector, reset=True, consumer_group=group_id)
    left = await asyncio.to_thread(groups, admin)
    assert group_id not in left
    assert f"connect-{sink.connector}" in left


async def test_positions_of_a_group_that_the_client_cannot_commit_to_are_refused(
    store: CoordinatorStore, sink: TaskId, lines: str
) -> None:
    wanted = sink_offset(TopicPartition(lines, 0), 3)
    with pytest.raises(InvalidArgumentError, match="groups with printable ASCII characters"):
        await change(store, sink.connector, wanted, consumer_group="bücher")
    await change(store, sink.connector, reset=True, consumer_group="bücher")


async def test_a_reset_of_a_source_leaves_the_group_of_its_name_alone(
    store: CoordinatorStore, sink: TaskId, admin: AdminClient
) -> None:
    source = TaskId(sink.connector, 1)
    await commit(store.offsets, source, await claim(store.offsets, source), at(1))
    await change(store, sink.connector, reset=True, without_positions=True)
    assert await store.offsets.fetch(sink.connector, "", without_positions=True) == ([], "")
    assert f"connect-{sink.connector}" in await asyncio.to_thread(groups, admin)


def stored(lines: str, partition: int, offset: int, output: SinkOutput) -> CommittedOffset:
    """An offset as a sink task commits it."""
    metadata = SinkMetadata("m", output).text
    return sink_offset(TopicPartition(lines, partition), offset, metadata)


async def marks(store: CoordinatorStore, connector: str) -> dict[int, OutputMark]:
    """The marks of missing offsets, by partition."""
    page, _ = await store.offsets.fetch(connector, "", with_marks=True)
    return {
        parse_partition(each.partition_json).partition: decode_mark(each.metadata)
        for each in page
        if each.offset_json is None
    }


async def test_offsets_of_a_group_that_was_deleted_are_reported_as_lost(
    store: CoordinatorStore, lines: str, topic_prefix: str, admin: AdminClient
) -> None:
    task, output = TaskId(f"{topic_prefix}kept", 0), SinkOutput("topic-id")
    term = await claim(store.offsets, task)
    for offset in (0, 5):
        await commit(store.offsets, task, term, stored(lines, 0, offset, output))
    await commit(store.offsets, task, term, stored(lines, 1, 7, output))
    assert await marks(store, task.connector) == {}
    group_id = f"connect-{task.connector}"
    await asyncio.to_thread(admin.delete_consumer_groups([group_id])[group_id].result, 30)
    lost = {0: OutputMark(output, 0), 1: OutputMark(output, 7)}
    assert await marks(store, task.connector) == lost
    assert await fetched(store.offsets, task.connector) == {}, "only with_marks shows them"
    await store.unload()
    await store.load(2)
    assert await marks(store, task.connector) == lost, "they are durable"
    again = TaskOffsets(task, term, [stored(lines, 0, 5, output)], refreshes_marks=True)
    (result,) = await store.offsets.commit([again])
    assert result.outcome is CommitOutcome.COMMITTED
    assert await marks(store, task.connector) == {1: OutputMark(output, 7)}
    await asyncio.to_thread(admin.delete_consumer_groups([group_id])[group_id].result, 30)
    assert (await marks(store, task.connector))[0] == OutputMark(output, 5), "refreshed"


async def test_a_reset_begins_another_output_and_is_not_a_loss(
    store: CoordinatorStore, sink: TaskId, lines: str
) -> None:
    for _ in range(2):  # the second one changes nothing
        await change(store, sink.connector, reset=True)
        found = await marks(store, sink.connector)
        assert [each.is_reset for each in found.values()] == [True, True]
        assert {each.output.output_id for each in found.values()} == {
            SinkOutput().after_reset().output_id
        }
    term = await claim(store.offsets, sink)
    output = replace(found[0].output, topic_id="topic-id")
    await commit(store.offsets, sink, term, stored(lines, 0, 0, output))
    assert {*await marks(store, sink.connector)} == {1}


async def test_altered_positions_belong_to_the_present_topic_and_output(
    store: CoordinatorStore, lines: str, topic_prefix: str
) -> None:
    task, output = TaskId(f"{topic_prefix}kept", 0), SinkOutput("", "0a1b2c3d")
    term = await claim(store.offsets, task)
    await commit(store.offsets, task, term, stored(lines, 0, 5, output))
    await commit(store.offsets, task, term, stored(lines, 1, 5, SinkOutput("deleted")))
    state = await store.control.client.describe_topic(lines)
    assert state is not None
    moved = [sink_offset(TopicPartition(lines, each), 2) for each in (0, 1)]
    await change(store, task.connector, *moved)
    found = await fetched(store.offsets, task.connector)
    outputs = [SinkMetadata.parsed(metadata).output for _, (_, metadata) in sorted(found.items())]
    assert outputs == [
        SinkOutput(state.topic_id, "0a1b2c3d"),
        SinkOutput("deleted").after_recreation(state.topic_id),
    ]


async def test_a_position_in_a_partition_that_is_not_there_changes_nothing(
    store: CoordinatorStore, sink: TaskId, lines: str, admin: AdminClient
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        await change(
            store,
            sink.connector,
            sink_offset(TopicPartition(lines, 0), 1),
            sink_offset(TopicPartition(lines, 7), 1),
            sink_offset(TopicPartition(f"{lines}-not-there", 0), 1),
        )
    assert len(caught.value.violations) == 2
    await committed(admin, f"connect-{sink.connector}", {0: 5, 1: 8})


async def test_a_group_with_live_consumers_keeps_its_positions(
    kafka: Kafka, store: CoordinatorStore, sink: TaskId, lines: str, admin: AdminClient
) -> None:
    group_id = f"connect-{sink.connector}"
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group_id, **QUIET})
    with closing(consumer):
        consumer.subscribe([lines])

        def is_member() -> bool:
            consumer.poll(0.1)
            return bool(consumer.assignment())

        await wait_until_async(lambda: asyncio.to_thread(is_member))
        for reset in (True, False):
            with raises_reason(Reason.NON_EMPTY_GROUP, group_id):
                wanted = sink_offset(TopicPartition(lines, 0), 1)
                await change(store, sink.connector, wanted, reset=reset)
        held = await asyncio.to_thread(consumer.committed, [Position(lines, 0)], 30)
        assert held[0].offset == 5
