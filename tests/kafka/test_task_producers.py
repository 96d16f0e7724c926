"""The coordinator's part for tasks that commit their offsets through their own producers."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from confluent_kafka import KafkaException, Producer

from drover.log.storage import KafkaStorage
from drover.model.claims import ClaimRequest, TaskSet
from drover.model.ids import TaskId, Term, producer_id
from drover.model.offset_json import offset_record_key
from drover.model.offsets import CommitOutcome, CommittedOffset, OffsetsChange, TaskOffsets
from drover_coordinator.offset_store import OffsetStore
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import CALL_TIMEOUT_S, QUIET, create_topic, read_all
from tests.support.kafka.coordinator_store import CoordinatorStore, small_storage
from tests.support.offset_store_suite import fetched

PARTITION = '{"file":"f"}'
TASK, OTHER = TaskId("c", 0), TaskId("c", 1)


@pytest.fixture
def storage(kafka: Kafka, topic_prefix: str) -> KafkaStorage:
    create_topic(kafka.bootstrap, f"{topic_prefix}lines")
    return small_storage(kafka.bootstrap, topic_prefix)


@pytest.fixture
async def store(storage: KafkaStorage) -> AsyncIterator[CoordinatorStore]:
    async with CoordinatorStore.opened(storage) as opened:
        await opened.load(1)
        yield opened


@pytest.fixture
def topic(topic_prefix: str) -> str:
    return f"{topic_prefix}lines"


async def _claim(offsets: OffsetStore, task: TaskId, configs: int) -> Term:
    return await offsets.claim(ClaimRequest(task, 1, "w", "", configs))


async def _write_down(offsets: OffsetStore, task: TaskId, claim: Term) -> CommitOutcome:
    (result,) = await offsets.commit([TaskOffsets(task, claim, (), 1, own_producer=True)])
    return result.outcome


class Open:
    """A task's open transaction with a record and an offset."""

    def __init__(self, storage: KafkaStorage, task: TaskId, topic: str, at: int) -> None:
        settings = {
            "bootstrap.servers": storage.bootstrap_servers,
            "transactional.id": producer_id(storage.group_id, task),
            "partitioner": "murmur2_random",
            **QUIET,
        }
        self._producer = Producer(settings)
        self._producer.init_transactions(CALL_TIMEOUT_S)
        self._producer.begin_transaction()
        self._producer.produce(topic, value=b"line")
        key = offset_record_key(task.connector, PARTITION)
        self._producer.produce(storage.topics.offset, key=key, value=b'{"at":%d}' % at)
        self._producer.flush(CALL_TIMEOUT_S)

    def commit(self) -> None:
        self._producer.commit_transaction(CALL_TIMEOUT_S)


async def _opened(storage: KafkaStorage, task: TaskId, topic: str, at: int) -> Open:
    return await asyncio.to_thread(Open, storage, task, topic, at)


async def test_a_claim_is_written_down_with_a_producer_or_refused(store: CoordinatorStore) -> None:
    first = await _claim(store.offsets, TASK, 1)
    assert await _write_down(store.offsets, TASK, first) is CommitOutcome.COMMITTED
    second = await _claim(store.offsets, TASK, 1)
    assert await _write_down(store.offsets, TASK, first) is CommitOutcome.STALE_CLAIM
    assert await _write_down(store.offsets, TASK, second) is CommitOutcome.COMMITTED


async def test_offsets_that_a_task_committed_itself_are_fetched(
    storage: KafkaStorage, store: CoordinatorStore, topic: str
) -> None:
    transaction = await _opened(storage, TASK, topic, 5)
    await asyncio.to_thread(transaction.commit)
    assert await fetched(store.offsets, "c") == {PARTITION: ('{"at":5}', "")}


async def test_a_fetch_waits_for_transactions_that_are_open(
    storage: KafkaStorage, store: CoordinatorStore, topic: str
) -> None:
    # same key, so it precedes the requested offset in the same partition
    open_before = await _opened(storage, TASK, topic, 5)
    behind = await _opened(storage, OTHER, topic, 7)
    await asyncio.to_thread(behind.commit)
    fetching = asyncio.create_task(fetched(store.offsets, "c"))
    done, _ = await asyncio.wait([fetching], timeout=0.5)
    assert not done, "what is committed is behind a transaction that is open"
    await asyncio.to_thread(open_before.commit)
    assert await fetching == {PARTITION: ('{"at":7}', "")}


@pytest.mark.parametrize("reloaded", [False, True])
async def test_no_task_of_a_new_set_is_granted_before_those_of_the_old_one_are_fenced(
    storage: KafkaStorage, store: CoordinatorStore, topic: str, reloaded: bool
) -> None:
    for task in (TASK, OTHER):
        await _write_down(store.offsets, task, await _claim(store.offsets, task, 1))
    zombie = await _opened(storage, OTHER, topic, 5)
    if reloaded:
        async with CoordinatorStore.opened(storage) as heir:
            await heir.load(2, "b:1/run")
            await _claim(heir.offsets, TASK, 2)
    else:
        await _claim(store.offsets, TASK, 2)
    with pytest.raises(KafkaException, match=r"(?i)fenced|epoch"):
        await asyncio.to_thread(zombie.commit)
    assert await asyncio.to_thread(read_all, storage.bootstrap_servers, topic) == []


async def test_a_change_of_offsets_by_hand_fences_the_tasks_of_before(
    storage: KafkaStorage, store: CoordinatorStore, topic: str
) -> None:
    await _write_down(store.offsets, TASK, await _claim(store.offsets, TASK, 1))
    zombie = await _opened(storage, TASK, topic, 5)
    change = OffsetsChange(
        "c",
        TaskSet(1, 2),
        [CommittedOffset(PARTITION, '{"at":1}')],
        without_positions=True,
    )
    await store.offsets.change(change)
    with pytest.raises(KafkaException, match=r"(?i)fenced|epoch"):
        await asyncio.to_thread(zombie.commit)
    assert await fetched(store.offsets, "c") == {PARTITION: ('{"at":1}', "")}


async def test_a_rebalance_leaves_producers_alone(
    storage: KafkaStorage, store: CoordinatorStore, topic: str
) -> None:
    for task in (TASK, OTHER):
        await _write_down(store.offsets, task, await _claim(store.offsets, task, 1))
    running = await _opened(storage, OTHER, topic, 5)
    await _claim(store.offsets, TASK, 1)
    await asyncio.to_thread(running.commit)
    assert await fetched(store.offsets, "c") == {PARTITION: ('{"at":5}', "")}
