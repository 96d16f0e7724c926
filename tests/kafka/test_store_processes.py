"""Config stores and status stores as processes on a real Kafka: failures and recovery."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from drover.api.config_store.v1 import config_store_service_pb2 as pb
from drover.api.config_store.v1 import config_store_service_pb2_grpc as pb_grpc
from drover.client import (
    ConfigStoreClient,
    EventsRead,
    FailoverChannel,
    SnapshotRead,
    StatusStoreClient,
    channel,
    follow,
)
from drover.client.calls import unary
from drover.codec.config_store import TARGET_STATES
from drover.errors import Reason
from drover.model.config import TargetState
from drover.model.ids import TaskId
from drover.model.status import RunState, Status, StatusWrite
from drover.rpc.server import STORAGE_HEALTH
from drover.testing import raises_reason
from tests.support.kafka.broker import KafkaBroker
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import create_topic, produce
from tests.support.kafka.told import assert_told_in_turn
from tests.support.refusals import refusal
from tests.support.service_process import assert_one_clear_line, run_to_its_end
from tests.support.store_process import (
    Leader,
    OnKafka,
    StoreProcess,
    assert_kept,
    at,
    writing,
    wrote_more,
)
from tests.support.waiting import wait_until, wait_until_async

StartStore = Callable[..., StoreProcess]


@pytest.fixture
def where(kafka: Kafka, topic_prefix: str) -> OnKafka:
    return OnKafka(bootstrap=kafka.bootstrap, prefix=topic_prefix)


@pytest.fixture
def new_store(tmp_path: Path) -> Iterator[StartStore]:
    """Makes stores and stops them at the end."""
    made: list[StoreProcess] = []

    def make(
        where: OnKafka, service: str = "config-store", *, start: bool = True, **environment: str
    ) -> StoreProcess:
        made.append(StoreProcess(service, where, tmp_path, **environment))
        if start:
            made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.process.stop()


# replicas


async def test_a_leader_writes_at_one_store_and_the_other_serves_it(
    where: OnKafka, new_store: StartStore
) -> None:
    one, two = new_store(where), new_store(where)
    async with at(one) as writer, at(two) as reader:
        leader = Leader(writer)
        snapshot = await reader.get_snapshot()
        assert snapshot.log_id == (await writer.get_snapshot()).log_id != ""
        async with (
            asyncio.timeout(30),
            aclosing(reader.watch(snapshot.end_offset, snapshot.log_id)) as batches,
        ):
            await anext(batches)
            await leader.write("a")
            batch = await anext(batches)
            while not batch.events:
                batch = await anext(batches)
        assert [event.change.connector.name for event in batch.events] == ["a"]  # type: ignore[union-attr]
        assert batch.end_offset == leader.written["a"] == await reader.get_end_offset()
        # writes that need no claim are valid at any replica
        await reader.put_target_state(name="a", target_state=TargetState.PAUSED)
        end_offset = await writer.get_end_offset()
        entry = (await writer.get_snapshot()).connectors["a"]
        assert entry.target_state is TargetState.PAUSED
        with raises_reason(Reason.STALE_WRITER_EPOCH):
            await reader.delete_connector(name="a", writer_epoch=leader._epoch)
        assert end_offset > leader.written["a"]


async def test_a_leader_that_claims_at_another_store_fences_its_first_claim(
    where: OnKafka, new_store: StartStore
) -> None:
    one, two = new_store(where), new_store(where)
    async with at(one) as first, at(two) as second:
        old = Leader(first)
        await old.write("a")
        new = Leader(second, claims=1)
        await new.write("b")
        with raises_reason(Reason.STALE_WRITER_EPOCH):
            await first.put_connector_config(name="c", config={}, writer_epoch=old._epoch)
        await new.write("c")
        old.written.update(new.written)
        await assert_kept(old, where, one, two)


async def test_nothing_is_lost_when_a_store_is_killed(
    where: OnKafka, new_store: StartStore
) -> None:
    one, two = new_store(where), new_store(where)
    seen: list[str] = []

    async def watch(client: ConfigStoreClient) -> None:
        async with aclosing(follow(client, name="test")) as reads:  # type: ignore[type-var]
            async for read in reads:
                if isinstance(read, SnapshotRead):
                    seen.extend(sorted(read.snapshot.connectors))
                if isinstance(read, EventsRead):
                    seen.extend(event.change.connector.name for event in read.events)  # type: ignore[union-attr]

    async with at(one, two) as client:
        watching = asyncio.create_task(watch(client))
        async with writing(one, two) as leader:
            await wrote_more(leader)
            one.process.kill()
            await wrote_more(leader)
            one.start()
            await wrote_more(leader)
            two.process.kill()
            await wrote_more(leader)
            two.start()
        await wait_until_async(lambda: len(seen) >= len(leader.written))
        watching.cancel()
        await asyncio.wait([watching])
    assert sorted(seen) == sorted(leader.written)
    # which store gets the first claim depends on timing; at least one kill hit the claim's holder
    assert leader.claims >= 2
    await assert_kept(leader, where, one, two)


async def test_a_store_that_is_told_to_stop_does_so_in_order(
    where: OnKafka, new_store: StartStore
) -> None:
    one, two = new_store(where), new_store(where)
    async with writing(one, two) as leader:
        await wrote_more(leader)
        assert await asyncio.to_thread(one.process.stop) == 0
        await wrote_more(leader)
    assert one.said("draining") == 1
    await assert_kept(leader, where, two)


# brokers


@pytest.mark.faults("kafka")
async def test_nothing_is_lost_when_the_broker_is_killed(
    mortal_broker: KafkaBroker, topic_prefix: str, new_store: StartStore
) -> None:
    broker = mortal_broker
    where = OnKafka(bootstrap=broker.bootstrap, prefix=topic_prefix)
    one, two = new_store(where), new_store(where)
    async with writing(one, two) as leader:
        await wrote_more(leader)
        await asyncio.to_thread(broker.kill)
        await wait_until_async(lambda: leader.failures > 0)
        await asyncio.to_thread(broker.start)
        await wrote_more(leader)
    await assert_kept(leader, where, one, two)


async def pause_once(store: StoreProcess, name: str) -> None:
    """A write without retry."""
    request = pb.PutTargetStateRequest(
        name=name, target_state=TARGET_STATES.encode(TargetState.PAUSED), request_id="once"
    )
    async with channel(store.address) as connection:
        method = pb_grpc.ConfigStoreServiceStub(connection).PutTargetState
        await unary(method, request, timeout_s=60, retry=False)


async def test_a_store_goes_on_being_read_while_the_broker_is_away(
    mortal_broker: KafkaBroker, topic_prefix: str, new_store: StartStore
) -> None:
    broker = mortal_broker
    where = OnKafka(bootstrap=broker.bootstrap, prefix=topic_prefix)
    store = new_store(where)
    async with at(store) as client:
        leader = Leader(client)
        await leader.write("a")
        store.wait_for_storage(serving=True)
        await asyncio.to_thread(broker.stop)
        await asyncio.to_thread(store.wait_for_storage, serving=False)
        assert store.health() is True
        snapshot = await client.get_snapshot()
        assert list(snapshot.connectors) == ["a"]
        async with asyncio.timeout(30), aclosing(client.watch(0, snapshot.log_id)) as batches:
            assert len((await anext(batches)).events) == 1
        with raises_reason(Reason.STORAGE_UNAVAILABLE):
            await pause_once(store, "a")
        await asyncio.to_thread(broker.start)
        await asyncio.to_thread(store.wait_for_storage, serving=True)
        await client.put_target_state(name="a", target_state=TargetState.PAUSED, timeout_s=60)
        await leader.write("b")
    assert_told_in_turn(
        store.process.log(), "the storage is unavailable", "the storage is available again"
    )
    store.assert_unharmed()


@pytest.mark.faults("kafka")
async def test_a_store_listens_before_its_broker_is_there(
    mortal_broker: KafkaBroker, topic_prefix: str, new_store: StartStore
) -> None:
    broker = mortal_broker
    broker.stop()
    where = OnKafka(bootstrap=broker.bootstrap, prefix=topic_prefix)
    store = new_store(where, start=False)
    store.start(serving=False)
    assert store.health() is False
    assert store.health(STORAGE_HEALTH) is False
    wait_until(lambda: store.said("the storage is unavailable"))
    async with at(store) as client:
        await refusal(Reason.LOADING, lambda: client.get_end_offset(timeout_s=2))
        broker.start()
        await wait_until_async(store.health, timeout_s=60, describe=store.process.shown_log)
        assert await client.get_end_offset() == 0
        await Leader(client).write("a")
    assert_told_in_turn(
        store.process.log(), "the storage is unavailable", "the storage is available again"
    )
    store.assert_unharmed()


# rejected calls


async def ended(service: str, where: OnKafka, directory: Path, **environment: str) -> Any:
    return await run_to_its_end(service, directory, {**where.environment(), **environment})


async def test_a_config_topic_of_several_partitions_is_refused(
    where: OnKafka, tmp_path: Path
) -> None:
    create_topic(
        where.bootstrap, where.config_topic, partitions=3, config={"cleanup.policy": "compact"}
    )
    done = await ended("config-store", where, tmp_path)
    assert_one_clear_line(done, "config-store", where.config_topic, "3", "kafka-topics")


@pytest.mark.parametrize(
    ("environment", "parts"),
    [
        ({"DROVER_KAFKA_CONFIG": '{"acks": "1"}'}, ["DROVER_KAFKA_CONFIG", "acks"]),
        ({"DROVER_STORAGE_URL": "kafka://nowhere"}, ["DROVER_STORAGE_URL", "nowhere"]),
    ],
)
async def test_wrong_settings_end_the_start(
    where: OnKafka, tmp_path: Path, environment: dict[str, str], parts: list[str]
) -> None:
    done = await ended("config-store", where, tmp_path, **environment)
    assert_one_clear_line(done, "config-store", *parts, exit_code=2)


# changed logs


@pytest.mark.parametrize("service", ["config-store", "status-store"])
async def test_a_store_that_has_missed_records_for_good_ends(
    where: OnKafka, new_store: StartStore, service: str
) -> None:
    """The topic grew and was truncated while the store was paused."""
    store = new_store(where, service)
    topic = where.config_topic if service == "config-store" else where.status_topic
    store.process.freeze()
    # its pending fetch may return the first records; this many exceed one response
    records = [(b"key %d" % number, bytes(50_000)) for number in range(200)]
    produce(where.bootstrap, topic, records)
    truncate(where.bootstrap, topic)
    store.process.thaw()
    await wait_until_async(
        lambda: not store.process.is_alive, timeout_s=90, describe=store.process.shown_log
    )
    (line,) = [line for line in store.process.log().splitlines() if not line.startswith("{")]
    assert line.startswith(f"drover {service}: ")
    assert topic in line
    assert "Restart to read" in line


async def test_a_store_whose_topic_was_made_again_ends(
    where: OnKafka, new_store: StartStore
) -> None:
    store = new_store(where)
    async with at(store) as client:
        await Leader(client).write("a")
    make_again(where.bootstrap, where.config_topic)
    await wait_until_async(
        lambda: not store.process.is_alive, timeout_s=90, describe=store.process.shown_log
    )
    (line,) = [line for line in store.process.log().splitlines() if not line.startswith("{")]
    assert line.startswith("drover config-store: ")
    assert where.config_topic in line


def truncate(bootstrap: str, topic: str) -> None:
    """Delete all records; brokers require a policy with "delete" for this."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    policy = ConfigEntry(
        "cleanup.policy", "compact,delete", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[policy])
    admin.incremental_alter_configs([resource])[resource].result(30)
    partitions = admin.list_topics(topic, timeout=30).topics[topic].partitions
    ends = [TopicPartition(topic, each, OFFSET_END) for each in partitions]

    def is_empty() -> bool:
        try:
            for done in admin.delete_records(ends, request_timeout=30).values():
                done.result(30)
        except KafkaException:  # the new policy is not effective yet
            return False
        return True

    wait_until(is_empty)


def make_again(bootstrap: str, topic: str) -> None:
    """Delete the topic, and create one with the same name."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic], operation_timeout=30)[topic].result(30)
    wait_until(lambda: topic not in admin.list_topics(timeout=30).topics)
    create_topic(bootstrap, topic, config={"cleanup.policy": "compact"})


# statuses, which are in several partitions


def running(task: int) -> StatusWrite:
    return StatusWrite(Status(TaskId("c", task), RunState.RUNNING, "w:1", 1))


@pytest.mark.faults("kafka")
async def test_statuses_are_kept_when_a_status_store_is_killed(
    where: OnKafka, new_store: StartStore
) -> None:
    one, two = new_store(where, "status-store"), new_store(where, "status-store")
    written: list[TaskId] = []

    async def write(client: StatusStoreClient, count: int) -> None:
        for _ in range(count):
            task = len(written)
            await client.put_statuses([running(task)], timeout_s=30)
            written.append(TaskId("c", task))

    seen: set[object] = set()

    async def watch(client: StatusStoreClient) -> None:
        async with aclosing(follow(client, name="test")) as reads:  # type: ignore[type-var]
            async for read in reads:
                if isinstance(read, SnapshotRead):
                    seen.update(read.snapshot.statuses)
                if isinstance(read, EventsRead):
                    seen.update(event.key for event in read.events)

    async with FailoverChannel([one.address, two.address]) as replicas:
        client = StatusStoreClient(replicas.as_channel())
        watching = asyncio.create_task(watch(client))
        await write(client, 20)
        one.process.kill()
        await write(client, 20)
        await asyncio.to_thread(one.start)
        two.process.kill()
        await write(client, 20)
        await asyncio.to_thread(two.start)
        await wait_until_async(lambda: seen >= set(written), describe=lambda: seen)
        watching.cancel()
        await asyncio.wait([watching])
    for store in (one, two):
        async with FailoverChannel([store.address]) as replicas:
            reader = StatusStoreClient(replicas.as_channel())
            await reader.flush()

            async def known(reader: StatusStoreClient = reader) -> bool:
                return {*(await reader.get_snapshot()).statuses} == {*written}

            await wait_until_async(known)
        store.assert_unharmed()
