"""Claims, offsets and leases in topics of a real broker."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient

from drover.errors import Reason, UnavailableError
from drover.log.kafka.client import KafkaClient
from drover.log.kafka.writer import TransactionalWriter
from drover.log.storage import KafkaStorage
from drover.model.ids import TaskId
from drover.model.offsets import CommitOutcome, CommittedOffset, TaskOffsets, TopicPartition
from drover.model.sink_offsets import sink_offset
from drover.testing import raises_reason
from drover_coordinator.backends.kafka.sink_groups import SinkGroups
from drover_coordinator.offset_store import OffsetStore
from tests.support.kafka.broker import KafkaBroker
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import QUIET, create_topic, produce, read_all
from tests.support.kafka.coordinator_store import CoordinatorStore, small_storage
from tests.support.offset_store_suite import (
    OffsetStoreSuite,
    at,
    can_commit,
    claim,
    commit,
    fetched,
    own_connector,
)
from tests.support.waiting import wait_until_async

_epochs = itertools.count(1)


@pytest.fixture(scope="module")
def suite_storage(kafka: Kafka) -> KafkaStorage:
    return small_storage(kafka.bootstrap, f"offsets-suite-{uuid4().hex[:8]}-")


class TestKafkaOffsets(OffsetStoreSuite):
    """All tests share the topics: each takes them over from the previous one."""

    @pytest.fixture
    async def offsets(self, suite_storage: KafkaStorage) -> AsyncIterator[OffsetStore]:
        async with CoordinatorStore.opened(suite_storage) as store:
            await store.load(next(_epochs))
            yield store.offsets


@pytest.fixture
def storage(kafka: Kafka, topic_prefix: str) -> KafkaStorage:
    return small_storage(kafka.bootstrap, topic_prefix)


@pytest.fixture
async def store(storage: KafkaStorage) -> AsyncIterator[CoordinatorStore]:
    async with CoordinatorStore.opened(storage) as opened:
        await opened.load(1)
        yield opened


# --- owners ------------------------------------------------------------------------------------


async def test_what_was_granted_and_committed_is_there_for_the_next_owner(
    storage: KafkaStorage, store: CoordinatorStore
) -> None:
    task = TaskId("c", 0)
    first = await claim(store.offsets, task, 3, "r")
    await commit(store.offsets, task, first, at(5), number=5)
    async with CoordinatorStore.opened(storage) as heir:
        await heir.load(2, "b:1/run")
        assert await fetched(heir.offsets, "c") == {'{"file":"f"}': ('{"at":5}', "")}
        assert await claim(heir.offsets, task, 3, "r") == first
        await commit(heir.offsets, task, first, at(4), number=4)  # a late duplicate
        assert await fetched(heir.offsets, "c") == {'{"file":"f"}': ('{"at":5}', "")}
        assert await claim(heir.offsets, task, 3) > first


async def test_an_owner_that_was_taken_over_can_neither_grant_nor_commit(
    storage: KafkaStorage, store: CoordinatorStore
) -> None:
    task = TaskId("c", 0)
    term = await claim(store.offsets, task)
    await commit(store.offsets, task, term, at(1))
    async with CoordinatorStore.opened(storage) as heir:
        await heir.load(2, "b:1/run")
        for call in (
            lambda: commit(store.offsets, task, term, at(9)),
            lambda: claim(store.offsets, task, 7),
        ):
            with raises_reason(Reason.NOT_COORDINATOR):
                await call()
        assert set(store.lost) == {1}
        assert await fetched(heir.offsets, "c") == {'{"file":"f"}': ('{"at":1}', "")}
        assert await can_commit(heir.offsets, task, term)
        assert heir.lost == []


@pytest.mark.parametrize(("outcome", "lost"), [("unknown", [1]), ("", [])])
async def test_a_shard_whose_commit_has_an_unknown_outcome_is_given_up(
    store: CoordinatorStore, monkeypatch: pytest.MonkeyPatch, outcome: str, lost: list[int]
) -> None:
    """The record may be in the log or not; later decisions must not depend on it."""
    task = TaskId("c", 0)
    term = await claim(store.offsets, task)

    async def silent(*arguments: object) -> list[object]:
        metadata = {"outcome": outcome} if outcome else {}
        raise UnavailableError(Reason.STORAGE_UNAVAILABLE, "no answer", metadata=metadata)

    with monkeypatch.context() as patched:
        patched.setattr(TransactionalWriter, "write", silent)
        with raises_reason(Reason.STORAGE_UNAVAILABLE):
            await commit(store.offsets, task, term, at(1), number=1)
    assert store.lost == lost
    result = await commit(store.offsets, task, term, at(1), number=1)
    assert result.outcome is CommitOutcome.COMMITTED
    assert len(await fetched(store.offsets, "c")) == 1, "its number was not taken for used"


@pytest.mark.parametrize(("epoch", "owner"), [(4, "b:1/run"), (5, "b:1/run")])
async def test_claims_are_not_taken_with_an_epoch_that_is_not_later(
    storage: KafkaStorage, epoch: int, owner: str
) -> None:
    async with CoordinatorStore.opened(storage) as first, CoordinatorStore.opened(storage) as late:
        await first.load(5)
        with raises_reason(Reason.STALE_TERM) as caught:
            await late.load(epoch, owner)
        assert caught.error.metadata["currentTerm"] == "5.0"
        await first.load(6)


async def test_a_shard_that_is_not_loaded_serves_nobody(store: CoordinatorStore) -> None:
    await store.unload()
    await store.unload()
    for call in (
        lambda: claim(store.offsets, TaskId("c", 0)),
        lambda: store.offsets.commit([]),
        lambda: store.offsets.fetch("c", ""),
    ):
        with raises_reason(Reason.NOT_COORDINATOR):
            await call()
    await store.load(2)
    await claim(store.offsets, TaskId("c", 0))


# --- source offsets ----------------------------------------------------------------------------

#: The record that Kafka Connect 4.4.0 writes for its FileStreamSource.
CONNECT_KEY, CONNECT_VALUE = b'["src",{"filename":"/data/in.txt"}]', b'{"position":8}'
CONNECT_PARTITION = '{"filename":"/data/in.txt"}'


async def produced(storage: KafkaStorage, *records: tuple[bytes | None, bytes | None]) -> None:
    await asyncio.to_thread(produce, storage.bootstrap_servers, storage.topics.offset, records)


async def stored(storage: KafkaStorage) -> dict[bytes | None, list[tuple[int, bytes | None]]]:
    """Partition and value of every record of the offsets topic, by key, in order."""
    found: dict[bytes | None, list[tuple[int, bytes | None]]] = {}
    everything = await asyncio.to_thread(read_all, storage.bootstrap_servers, storage.topics.offset)
    for each in everything:
        found.setdefault(each.key, []).append((each.partition, each.value))
    return found


async def test_offsets_of_kafka_connect_are_read_and_go_on_under_the_same_key_and_partition(
    storage: KafkaStorage, store: CoordinatorStore
) -> None:
    odd_key = b'["src", {"b": 1, "a": "\\u00e9"}]'
    await produced(storage, (CONNECT_KEY, CONNECT_VALUE), (odd_key, b'{"n": 1}'))
    assert await fetched(store.offsets, "src") == {
        CONNECT_PARTITION: ('{"position":8}', ""),
        '{"a":"é","b":1}': ('{"n":1}', ""),
    }
    task = TaskId("src", 0)
    term = await claim(store.offsets, task)
    await commit(
        store.offsets,
        task,
        term,
        CommittedOffset('{ "filename": "/data/in.txt" }', '{ "position": 12 }', "ours"),
        CommittedOffset('{"a":"é","b":1}', '{"n":2}'),
        CommittedOffset('{"new": true}', "{}"),
    )
    records = await stored(storage)
    assert set(records) == {CONNECT_KEY, odd_key, b'["src",{"new":true}]'}
    for key, values in ((CONNECT_KEY, [CONNECT_VALUE, b'{"position":12}']), (odd_key, None)):
        partitions = {partition for partition, _ in records[key]}
        assert len(partitions) == 1, "all writers put a key in the same partition"
        assert values is None or [value for _, value in records[key]] == values
    found = await fetched(store.offsets, "src")
    assert found[CONNECT_PARTITION] == ('{"position":12}', "ours")
    assert found['{"a":"é","b":1}'] == ('{"n":2}', "")


async def test_a_new_key_is_where_kafka_connect_would_put_it(
    storage: KafkaStorage, store: CoordinatorStore
) -> None:
    """Java's producer and ``murmur2_random`` choose the same partition, as the other test's record
    shows.
    """
    task = TaskId("src", 0)
    term = await claim(store.offsets, task)
    await commit(store.offsets, task, term, CommittedOffset(CONNECT_PARTITION, '{"position":8}'))
    await produced(storage, (CONNECT_KEY, b'{"position":9}'))
    [(first, _), (second, _)] = (await stored(storage))[CONNECT_KEY]
    assert first == second


async def test_what_others_commit_meanwhile_is_seen_at_once(
    storage: KafkaStorage, store: CoordinatorStore
) -> None:
    for position in range(5):
        await produced(storage, (CONNECT_KEY, b'{"position":%d}' % position))
        found = await fetched(store.offsets, "src")
        assert found == {CONNECT_PARTITION: (f'{{"position":{position}}}', "")}
    await produced(storage, (CONNECT_KEY, None))
    assert await fetched(store.offsets, "src") == {}


async def test_records_that_cannot_be_read_are_told_once_and_skipped(
    storage: KafkaStorage, store: CoordinatorStore, capfd: pytest.CaptureFixture[str]
) -> None:
    bad: list[tuple[bytes | None, bytes | None]] = [
        (b"not json", b"{}"),
        (b'["src",{"bad":1}]', b"not json"),
        (b'["src",{"bad":2}]', b"[]"),
    ]
    await produced(storage, *bad, (CONNECT_KEY, CONNECT_VALUE))
    for _ in range(2):
        assert await fetched(store.offsets, "src") == {CONNECT_PARTITION: ('{"position":8}', "")}
    said = [line for line in capfd.readouterr().out.splitlines() if "cannot be read" in line]
    assert len(said) == len(bad)
    assert all(storage.topics.offset in line and "offset=" in line for line in said)
    assert {value for _, value in bad} <= {
        value for values in (await stored(storage)).values() for _, value in values
    }, "they stay where they are"


async def test_the_keys_of_other_connectors_are_left_alone(
    storage: KafkaStorage, store: CoordinatorStore
) -> None:
    other = b'["src-2",{"filename":"/data/in.txt"}]'
    await produced(storage, (other, CONNECT_VALUE), (CONNECT_KEY, CONNECT_VALUE))
    task = TaskId("src", 0)
    term = await claim(store.offsets, task)
    await commit(store.offsets, task, term, CommittedOffset(CONNECT_PARTITION, None))
    assert await fetched(store.offsets, "src") == {}
    assert await fetched(store.offsets, "src-2") == {CONNECT_PARTITION: ('{"position":8}', "")}
    assert len((await stored(storage))[other]) == 1


async def test_an_offset_that_the_brokers_refuse_harms_no_other_task(
    storage: KafkaStorage,
) -> None:
    settings = {"cleanup.policy": "compact", "max.message.bytes": "2000"}
    brokers, topic = storage.bootstrap_servers, storage.topics.offset
    await asyncio.to_thread(create_topic, brokers, topic, partitions=3, config=settings)
    tasks = [TaskId(f"c{number}", 0) for number in range(3)]
    async with CoordinatorStore.opened(storage) as store:
        await store.load(1)
        terms = [await claim(store.offsets, task) for task in tasks]
        offsets = [at(1), CommittedOffset("{}", json.dumps({"n": "x" * 5_000})), at(3)]
        results = await store.offsets.commit(
            [
                TaskOffsets(task, term, [offset], 1)
                for task, term, offset in zip(tasks, terms, offsets, strict=True)
            ]
        )
        outcomes = [each.outcome for each in results]
        assert outcomes == [CommitOutcome.COMMITTED, CommitOutcome.INVALID, CommitOutcome.COMMITTED]
        assert "max.message.bytes" in results[1].message
        found = [len(await fetched(store.offsets, task.connector)) for task in tasks]
        assert found == [1, 0, 1]
        assert store.lost == []


# --- sink offsets ------------------------------------------------------------------------------


def sink_at(topic: str, offset: int, metadata: str = "", partition: int = 0) -> CommittedOffset:
    return CommittedOffset(
        json.dumps({"kafka_topic": topic, "kafka_partition": partition}),
        json.dumps({"kafka_offset": offset}),
        metadata,
    )


@pytest.fixture
def admin(kafka: Kafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})


@pytest.fixture
def lines(kafka: Kafka, topic_prefix: str) -> str:
    topic = f"{topic_prefix}lines"
    create_topic(kafka.bootstrap, topic, partitions=2)
    return topic


@pytest.fixture
def sink(topic_prefix: str) -> TaskId:
    return TaskId(f"{topic_prefix}sink", 0)


def group_positions(admin: AdminClient, group_id: str) -> dict[tuple[str, int], tuple[int, str]]:
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])
    found = asked[group_id].result(30).topic_partitions
    return {(each.topic, each.partition): (each.offset, each.metadata or "") for each in found}


async def test_a_sinks_positions_are_those_of_its_consumer_group(
    store: CoordinatorStore, sink: TaskId, lines: str, admin: AdminClient
) -> None:
    term = await claim(store.offsets, sink)
    offsets = [sink_at(lines, 5, "length=7"), sink_at(lines, 8, partition=1)]
    assert (await commit(store.offsets, sink, term, *offsets)).outcome is CommitOutcome.COMMITTED
    assert await fetched(store.offsets, sink.connector) == {
        f'{{"kafka_partition":0,"kafka_topic":"{lines}"}}': ('{"kafka_offset":5}', "length=7"),
        f'{{"kafka_partition":1,"kafka_topic":"{lines}"}}': ('{"kafka_offset":8}', ""),
    }
    found = await asyncio.to_thread(group_positions, admin, f"connect-{sink.connector}")
    assert found == {(lines, 0): (5, "length=7"), (lines, 1): (8, "")}
    assert await store.offsets.fetch(sink.connector, "", without_positions=True) == ([], "")


async def test_a_sink_may_name_its_consumer_group(
    store: CoordinatorStore, sink: TaskId, lines: str, admin: AdminClient
) -> None:
    group_id = f"{lines}-readers"
    term = await claim(store.offsets, sink)
    commit = TaskOffsets(sink, term, [sink_at(lines, 5)], consumer_group=group_id)
    [result] = await store.offsets.commit([commit])
    assert result.outcome is CommitOutcome.COMMITTED
    assert await asyncio.to_thread(group_positions, admin, group_id) == {(lines, 0): (5, "")}
    [found], _ = await store.offsets.fetch(sink.connector, "", consumer_group=group_id)
    assert found.offset_json == '{"kafka_offset":5}'
    assert await fetched(store.offsets, sink.connector) == {}


@pytest.mark.parametrize("consumer_group", ["", "bücher", "a\x7fb"])
async def test_a_group_that_the_client_cannot_commit_to_harms_no_other_task(
    consumer_group: str, store: CoordinatorStore, sink: TaskId, lines: str
) -> None:
    odd = TaskId(sink.connector if consumer_group else f"{sink.connector}-näme", 1)
    terms = [await claim(store.offsets, each) for each in (odd, sink)]
    commits = [
        TaskOffsets(odd, terms[0], [sink_at(lines, 5)], consumer_group=consumer_group),
        TaskOffsets(sink, terms[1], [sink_at(lines, 7, partition=1)]),
    ]
    refused, committed = await store.offsets.commit(commits)
    assert (refused.outcome, committed.outcome) == (CommitOutcome.INVALID, CommitOutcome.COMMITTED)
    assert "only of groups with printable ASCII characters" in refused.message
    assert "set consumer.override.group.id" in refused.message.replace("Set", "set")


async def test_each_commit_of_a_sink_is_seen_right_after_it(
    store: CoordinatorStore, sink: TaskId, lines: str
) -> None:
    term = await claim(store.offsets, sink)
    for offset in range(20):
        await commit(store.offsets, sink, term, sink_at(lines, offset), number=offset + 1)
        [(found, _)] = (await fetched(store.offsets, sink.connector)).values()
        assert found == f'{{"kafka_offset":{offset}}}'


@pytest.mark.faults("coordinator")
@pytest.mark.parametrize("lose", ["stop", "kill"])
async def test_positions_are_read_again_once_brokers_are_back(
    mortal_broker: KafkaBroker, topic_prefix: str, lose: str
) -> None:
    """Any number of reads during the outage does not delay the recovery: stopped tasks wait
    for it.
    """
    sink, lines = f"{topic_prefix}sink", f"{topic_prefix}lines"
    await asyncio.to_thread(create_topic, mortal_broker.bootstrap, lines)
    client = KafkaClient(small_storage(mortal_broker.bootstrap, topic_prefix), timeout_s=1)
    groups = SinkGroups(client)

    async def has_no_members() -> bool:
        with suppress(UnavailableError):
            return (await groups.check([f"connect-{sink}"], [lines])).live == set()
        return False

    async def position_is_found() -> bool:
        with suppress(UnavailableError):
            [position] = await groups.positions(f"connect-{sink}")
            return position.offset_json == '{"kafka_offset":5}'
        return False

    with closing(client.consumer({"group.id": f"connect-{sink}"})) as consumer:
        position = [Position(lines, 0, 5)]
        await asyncio.to_thread(consumer.commit, offsets=position, asynchronous=False)
    await wait_until_async(position_is_found, timeout_s=90)
    await asyncio.to_thread(getattr(mortal_broker, lose))
    for _ in range(3):
        with raises_reason(Reason.STORAGE_UNAVAILABLE, f"connect-{sink}"):
            await groups.positions(f"connect-{sink}")
        with suppress(UnavailableError):  # or its last cached result
            await groups.check([f"connect-{sink}"], [lines])
    await asyncio.to_thread(mortal_broker.start)
    await wait_until_async(position_is_found, timeout_s=90)
    await wait_until_async(has_no_members, timeout_s=90)
    await client.close()


@pytest.mark.parametrize("config", [{}, {"statistics.interval.ms": "0"}], ids=["asked", "consumer"])
async def test_positions_wait_for_the_transaction_that_commits_some(
    kafka: Kafka, topic_prefix: str, lines: str, config: dict[str, str]
) -> None:
    """With both clients: some settings are valid for only one of them."""
    group_id = f"{topic_prefix}group"
    storage = replace(small_storage(kafka.bootstrap, topic_prefix), client_config=config)
    client = KafkaClient(storage)
    groups = SinkGroups(client)
    assert await groups.positions(group_id) == []
    producer = client.producer({"transactional.id": f"{topic_prefix}producer"})
    member = client.consumer({"group.id": group_id})
    with closing(member):
        await asyncio.to_thread(producer.init_transactions, 30)
        producer.begin_transaction()
        moved = [Position(lines, 1, 8, metadata="length=7")]
        group = member.consumer_group_metadata()
        await asyncio.to_thread(producer.send_offsets_to_transaction, moved, group, 30)
        asked = asyncio.create_task(groups.positions(group_id))
        assert not (await asyncio.wait([asked], timeout=0.5))[0]
        await asyncio.to_thread(producer.commit_transaction, 30)
        place = TopicPartition(lines, 1)
        assert await asked == [sink_offset(place, 8, "length=7")]
    await client.close()


async def test_positions_that_were_altered_with_kafkas_own_tools_are_what_counts(
    store: CoordinatorStore, sink: TaskId, lines: str, admin: AdminClient
) -> None:
    term = await claim(store.offsets, sink)
    await commit(store.offsets, sink, term, sink_at(lines, 5, "length=7"))
    group_id = f"connect-{sink.connector}"
    altered = admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group_id, [Position(lines, 0, 2)])]
    )
    await asyncio.to_thread(altered[group_id].result, 30)
    [found] = (await fetched(store.offsets, sink.connector)).values()
    assert found == ('{"kafka_offset":2}', "")


async def test_a_group_with_live_consumers_refuses_the_commits_of_its_sink(
    kafka: Kafka, storage: KafkaStorage, sink: TaskId, lines: str
) -> None:
    """As when Kafka Connect still runs the connector."""
    group_id = f"connect-{sink.connector}"
    settings: dict[str, Any] = {
        "bootstrap.servers": kafka.bootstrap,
        "group.id": group_id,
        "session.timeout.ms": 6_000,
        **QUIET,
    }
    other = TaskId("src", 0)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(CoordinatorStore.opened(storage))
        await store.load(1)
        terms = [await claim(store.offsets, task) for task in (sink, other)]
        consumer = Consumer(settings)
        with closing(consumer):
            consumer.subscribe([lines])

            def is_member() -> bool:
                consumer.poll(0.1)
                return bool(consumer.assignment())

            await wait_until_async(lambda: asyncio.to_thread(is_member))
            results = await store.offsets.commit(
                [
                    TaskOffsets(sink, terms[0], [sink_at(lines, 5)]),
                    TaskOffsets(other, terms[1], [at(1)]),
                ]
            )
            assert [each.outcome for each in results] == [
                CommitOutcome.INVALID,
                CommitOutcome.COMMITTED,
            ]
            assert f"consumer group {group_id} has live members" in results[0].message

        async def is_committed() -> bool:
            """The group coordinator may process a member's leave after a delay."""
            result = await commit(store.offsets, sink, terms[0], sink_at(lines, 5))
            return result.outcome is CommitOutcome.COMMITTED

        await wait_until_async(is_committed)


async def test_a_position_in_a_topic_that_is_not_there_harms_no_other_task(
    store: CoordinatorStore, sink: TaskId, lines: str
) -> None:
    other = TaskId(own_connector(), 0)
    terms = [await claim(store.offsets, task) for task in (sink, other)]
    results = await store.offsets.commit(
        [
            TaskOffsets(other, terms[1], [at(1)], 1),
            TaskOffsets(sink, terms[0], [sink_at(f"{lines}-not-there", 5)], 1),
        ]
    )
    assert [each.outcome for each in results] == [CommitOutcome.COMMITTED, CommitOutcome.INVALID]
    assert "not-there" in results[1].message
    result = await commit(store.offsets, sink, terms[0], sink_at(lines, 5), number=1)
    assert result.outcome is CommitOutcome.COMMITTED, "its number was not used up"
    assert len(await fetched(store.offsets, sink.connector)) == 1
    assert len(await fetched(store.offsets, other.connector)) == 1


async def test_a_sinks_position_cannot_be_removed_by_a_commit(
    store: CoordinatorStore, sink: TaskId, lines: str
) -> None:
    term = await claim(store.offsets, sink)
    removal = CommittedOffset(sink_at(lines, 0).partition_json, None)
    result = await commit(store.offsets, sink, term, removal)
    assert result.outcome is CommitOutcome.INVALID
    assert "offsets[0]" in result.message
