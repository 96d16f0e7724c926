"""A log while its broker is killed, frozen, or not yet running."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from drover.errors import Reason, UnavailableError
from drover.log.kafka import client as kafka_client
from drover.log.kafka import writer as kafka_writer
from drover.log.kafka.client import DEFAULT_TIMEOUT_S, KafkaClient
from drover.log.kafka.control import ControlTopic
from drover.log.kafka.jobs import JobResult
from drover.log.kafka.log import FollowedKafkaLog
from drover.log.log import LogRecord
from drover.model.ids import Term
from drover.testing import raises_reason, read_all
from tests.support.addresses import free_addresses
from tests.support.kafka.broker import KafkaBroker
from tests.support.kafka.callers import Caller
from tests.support.kafka.following import Following
from tests.support.kafka.logs import IMPATIENT_S, LogOnKafka, impatient, storage_on
from tests.support.waiting import wait_until_async

T = TypeVar("T")

#: A call with several steps may wait for the client's timeout in each step.
RETURN_TIMEOUT_S = 300
A = LogRecord(b"a", b"v")
B = LogRecord(b"b", b"v")


@asynccontextmanager
async def opened(
    broker: KafkaBroker, prefix: str
) -> AsyncIterator[tuple[FollowedKafkaLog, KafkaClient]]:
    async with LogOnKafka.opened(broker.bootstrap, prefix) as on_kafka:
        assert isinstance(on_kafka.log, FollowedKafkaLog)
        yield on_kafka.log, on_kafka.client


@pytest.mark.faults("kafka")
async def test_no_acknowledged_record_is_lost_when_the_broker_is_killed_under_load(
    mortal_broker: KafkaBroker, topic_prefix: str
) -> None:
    async with opened(mortal_broker, topic_prefix) as (log, client):
        following = Following(log)
        callers = [Caller(log, f"plain-{index}", None) for index in range(4)]
        callers += [Caller(log, f"leader-{index}", Term(1, 1)) for index in range(4)]

        with impatient(client):
            try:
                await asyncio.gather(*(caller.goes_on() for caller in callers))
                await asyncio.to_thread(mortal_broker.kill)
                await asyncio.gather(*(caller.fails() for caller in callers))
                await asyncio.to_thread(mortal_broker.start)
                await asyncio.gather(*(caller.goes_on() for caller in callers))
            finally:
                await asyncio.gather(*(caller.stop() for caller in callers))

        acknowledged = {key for caller in callers for key in caller.acknowledged}
        stored = await read_all(log)
        assert acknowledged <= {one.record.key for one in stored}
        end = await log.end_offset()
        await wait_until_async(lambda: following.stored[-1].offset + 1 == end)
        assert following.stored == stored, "the tail resumed at the next offset"
        assert not following.task.done()


@pytest.mark.faults("kafka")
async def test_a_broker_that_comes_back_is_used_again(
    mortal_broker: KafkaBroker, topic_prefix: str
) -> None:
    async with opened(mortal_broker, topic_prefix) as (log, client):
        following = Following(log)
        epoch = await log.claim("w", Term(1, 1))
        await log.append([A], epoch)
        await asyncio.to_thread(mortal_broker.stop)
        with impatient(client):
            with raises_reason(Reason.STORAGE_UNAVAILABLE, mortal_broker.bootstrap):
                await log.append([B])
            with raises_reason(Reason.STORAGE_UNAVAILABLE, mortal_broker.bootstrap):
                await log.end_offset()
            with raises_reason(Reason.STORAGE_UNAVAILABLE):
                await read_all(log)
            with raises_reason(Reason.STORAGE_UNAVAILABLE):
                await log.claim("w", Term(2, 1))
        await asyncio.to_thread(mortal_broker.start)
        await until_it_works(lambda: log.claim("w", Term(2, 1)))
        await log.append([LogRecord(b"after", b"v")], epoch + 1)
        await wait_until_async(lambda: b"after" in following.keys)
        # a failed append wrote nothing or everything
        assert [key for key in following.keys if key != b"b"] == [b"a", b"after"]


@pytest.mark.faults("kafka")
async def test_a_broker_that_is_not_there_at_the_start_is_waited_for_by_trying_again(
    mortal_broker: KafkaBroker, topic_prefix: str
) -> None:
    await asyncio.to_thread(mortal_broker.stop)
    client = KafkaClient(storage_on(mortal_broker.bootstrap, topic_prefix), timeout_s=30)
    with impatient(client), raises_reason(Reason.STORAGE_UNAVAILABLE, mortal_broker.bootstrap):
        await ControlTopic.open(client)
    await asyncio.to_thread(mortal_broker.start)
    control = await until_it_works(lambda: ControlTopic.open(client))
    await control.check_cluster(client.storage.group_id, None)
    await control.close()
    await client.close()


@pytest.mark.faults("kafka")
async def test_an_append_to_a_broker_that_is_silent_was_not_written(
    mortal_broker: KafkaBroker, topic_prefix: str
) -> None:
    async with opened(mortal_broker, topic_prefix) as (log, client):
        epoch = await log.claim("w", Term(1, 1))
        await log.append([A], epoch)
        mortal_broker.freeze()
        try:
            with (
                impatient(client),
                raises_reason(Reason.STORAGE_UNAVAILABLE, "nothing was written") as raised,
            ):
                await log.append([B], epoch)
            assert "outcome" not in raised.error.metadata
        finally:
            mortal_broker.thaw()
        # the broker may not have seen the transaction at all, which loses the claim
        caller = Caller(log, "after", Term(2, 1))
        await caller.goes_on()
        await caller.stop()
        keys = [one.record.key for one in await read_all(log)]
        assert keys == [b"a", *caller.acknowledged]


async def test_an_append_whose_outcome_is_unknown_drops_the_claim(
    mortal_broker: KafkaBroker, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_transaction = kafka_writer.TransactionalWriter._end_transaction

    def while_it_is_silent(
        writer: kafka_writer.TransactionalWriter, producer: Producer, _timeout_s: float
    ) -> JobResult:
        mortal_broker.freeze()
        return end_transaction(writer, producer, IMPATIENT_S)

    async with opened(mortal_broker, topic_prefix) as (log, _):
        epoch = await log.claim("w", Term(1, 1))
        await log.append([A], epoch)
        monkeypatch.setattr(
            kafka_writer.TransactionalWriter, "_end_transaction", while_it_is_silent
        )
        try:
            with raises_reason(Reason.STORAGE_UNAVAILABLE, "not known") as raised:
                await log.append([B], epoch)
        finally:
            monkeypatch.undo()
            mortal_broker.thaw()
        assert raised.error.metadata["outcome"] == "unknown"
        with raises_reason(Reason.STALE_WRITER_EPOCH, "could not be ended"):
            await log.append([A], epoch)
        assert await until_it_works(lambda: log.claim("w", Term(1, 1))) == epoch
        await log.append([LogRecord(b"after", b"v")], epoch)
        keys = [one.record.key for one in await read_all(log)]
        assert [key for key in keys if key != b"b"] == [b"a", b"after"]


async def test_an_append_that_is_committed_and_cannot_be_read_back_does_not_claim_the_contrary(
    mortal_broker: KafkaBroker, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_transaction = kafka_writer.TransactionalWriter._end_transaction

    async with opened(mortal_broker, topic_prefix) as (log, client):

        def before_it_is_silent(
            writer: kafka_writer.TransactionalWriter, producer: Producer, timeout_s: float
        ) -> JobResult:
            answer = end_transaction(writer, producer, timeout_s)
            mortal_broker.freeze()
            monkeypatch.setattr(client, "timeout_s", IMPATIENT_S)
            return answer

        epoch = await log.claim("w", Term(1, 1))
        monkeypatch.setattr(
            kafka_writer.TransactionalWriter, "_end_transaction", before_it_is_silent
        )
        try:
            with raises_reason(Reason.STORAGE_UNAVAILABLE, "was written") as raised:
                await log.append([A], epoch)
        finally:
            monkeypatch.undo()
            mortal_broker.thaw()
        assert raised.error.metadata["outcome"] == "unknown"
        await until_it_works(log.end_offset)
        assert [one.record.key for one in await read_all(log)] == [b"a"]


async def test_a_dead_writers_open_transaction_holds_readers_up_for_its_timeout_only(
    mortal_broker: KafkaBroker, topic_prefix: str
) -> None:
    async with opened(mortal_broker, topic_prefix) as (log, _):
        following = Following(log)
        dead = Producer(
            {
                "bootstrap.servers": mortal_broker.bootstrap,
                "transactional.id": f"{topic_prefix}dead",
                "transaction.timeout.ms": 4_000,
                "log_level": 0,
            }
        )
        await asyncio.to_thread(dead.init_transactions, 30)
        dead.begin_transaction()
        dead.produce(f"{topic_prefix}configs", b"v", b"never")
        assert await asyncio.to_thread(dead.flush, 30) == 0
        assert await log.end_offset() == 0, "what may yet be given up is not there"
        end = await log.append([A])
        await following.brings([b"a"])
        assert await log.end_offset() == end


async def until_it_works(call: Callable[[], Awaitable[T]]) -> T:
    results: list[T] = []
    failures: list[str] = []

    async def works() -> bool:
        try:
            results.append(await call())
        except UnavailableError as error:
            failures.append(error.message)
            return False
        return True

    await wait_until_async(
        works, timeout_s=RETURN_TIMEOUT_S, describe=lambda: (len(failures), failures[-5:])
    )
    return results[-1]


async def test_an_admin_client_that_hears_nothing_for_long_is_replaced(
    kafka: KafkaBroker, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_client, "ADMIN_SILENCE_MAX_S", 0.1)
    (nobody,) = free_addresses(1)
    client = KafkaClient(storage_on(kafka.bootstrap, topic_prefix), timeout_s=IMPATIENT_S)
    deaf = AdminClient({"bootstrap.servers": nobody, "log_level": 0})
    monkeypatch.setattr(client, "_admin", deaf)
    for _ in range(2):
        with raises_reason(Reason.STORAGE_UNAVAILABLE, kafka.bootstrap):
            await client.describe_topic(topic_prefix)
    monkeypatch.setattr(client, "timeout_s", DEFAULT_TIMEOUT_S)
    assert await client.describe_topic(topic_prefix) is None
    await client.close()
