"""Writers and readers whose requests or responses are lost."""

import itertools
import random
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from typing import cast

import pytest
from confluent_kafka import Consumer, TopicPartition

from drover.errors import DroverError, Reason, UnavailableError
from drover.log.kafka.client import KafkaClient
from drover.log.kafka.log import FollowedKafkaLog, KafkaLog
from drover.log.kafka.records import Produced
from drover.log.kafka.writer import TransactionalWriter
from drover.log.log import LogRecord
from drover.model.ids import Term
from drover.testing import raises_reason, read_all
from tests.support.addresses import HOST, free_ports
from tests.support.kafka.broker import BrokerOptions, KafkaBroker
from tests.support.kafka.callers import Caller, assert_all_kept, calling
from tests.support.kafka.clients import CALL_TIMEOUT_S, create_topic
from tests.support.kafka.clients import read_all as read_topic
from tests.support.kafka.following import Following
from tests.support.kafka.jars import KafkaJars
from tests.support.kafka.logs import LogOnKafka, impatient, storage_on
from tests.support.kafka.relay import (
    ADD_PARTITIONS_TO_TXN,
    LIST_OFFSETS,
    PRODUCE,
    Fate,
    Outages,
    Relay,
)
from tests.support.waiting import wait_until_async

#: The tests share a separate broker.
pytestmark = pytest.mark.xdist_group("lost_answers")

#: The first try may come before the previous transaction is complete.
SEVERAL_TRIES_S = 6.0
SEEDS = 2
LOST_COUNT = 100


@pytest.fixture(scope="module")
def relay(kafka_jars: KafkaJars, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relay]:
    """A relay between a broker and all its clients, the broker itself included."""
    (port,) = free_ports(1)
    settings = {"advertised.listeners": f"PLAINTEXT://{HOST}:{port}"}
    directory = tmp_path_factory.mktemp("relayed")
    broker = KafkaBroker(kafka_jars, directory, BrokerOptions(settings=settings))
    with ExitStack() as stack:
        stack.callback(broker.stop)
        broker.start()
        relay = Relay(port, broker.port)
        stack.callback(relay.close)
        yield relay


@pytest.fixture
async def client(relay: Relay, topic_prefix: str) -> AsyncIterator[KafkaClient]:
    client = KafkaClient(storage_on(relay.bootstrap, topic_prefix), timeout_s=CALL_TIMEOUT_S)
    yield client
    await client.close()


@pytest.mark.parametrize("first", [Fate.ANSWER_LOST, Fate.LOST], ids=["written", "not written"])
async def test_a_record_is_not_taken_for_one_that_was_given_up(
    relay: Relay, client: KafkaClient, topic_prefix: str, first: Fate
) -> None:
    topic = f"{topic_prefix}topic"
    create_topic(relay.bootstrap, topic)
    writer = TransactionalWriter(client, f"{topic_prefix}writer")
    await writer.begin()
    fates = itertools.chain([first], itertools.repeat(Fate.LOST))

    async def write(value: bytes) -> None:
        await writer.write([Produced(topic, b"key", value)])

    await write(b"first")
    with (
        impatient(client),
        relay.losing(partial(next_of, PRODUCE, fates)),
        raises_reason(Reason.STORAGE_UNAVAILABLE),
    ):
        await write(b"given up")
    await write(b"acknowledged")
    await write(b"last")
    await writer.close()
    values = [record.value for record in read_topic(relay.bootstrap, topic)]
    assert values == [b"first", b"acknowledged", b"last"]


@pytest.mark.parametrize(
    ("api_key", "fate"),
    [
        pytest.param(PRODUCE, Fate.LOST, id="not sent", marks=pytest.mark.faults("kafka")),
        pytest.param(PRODUCE, Fate.ANSWER_LOST, id="not heard"),
        pytest.param(
            *(ADD_PARTITIONS_TO_TXN, Fate.ANSWER_LOST),
            id="begun but not heard",
            marks=pytest.mark.faults("kafka"),
        ),
    ],
)
async def test_an_append_that_was_given_up_was_not_written_and_the_claim_stays(
    relay: Relay, topic_prefix: str, api_key: int, fate: Fate
) -> None:
    async with after_one_was_given_up(relay, topic_prefix, api_key, fate) as (log, epoch):
        await log.append([LogRecord(b"after", b"v")], epoch)
        assert [one.record.key for one in await read_all(log)] == [b"before", b"after"]


@pytest.mark.faults("kafka")
async def test_a_transaction_that_brokers_never_heard_of_costs_the_claim_and_a_new_one_goes_on(
    relay: Relay, topic_prefix: str
) -> None:
    """librdkafka ends the transaction, the broker rejects that, and the producer is unusable."""
    async with after_one_was_given_up(relay, topic_prefix, ADD_PARTITIONS_TO_TXN, Fate.LOST) as (
        log,
        epoch,
    ):

        async def costs_the_claim() -> bool:
            with pytest.raises(DroverError) as caught:
                await log.append([LogRecord(b"refused", b"v")], epoch)
            return "w still owns the claim: claim again with the same term" in caught.value.message

        await wait_until_async(costs_the_claim)
        assert await log.claim("w", Term(1, 1)) == epoch
        await log.append([LogRecord(b"after", b"v")], epoch)
        assert [one.record.key for one in await read_all(log)] == [b"before", b"after"]


@asynccontextmanager
async def after_one_was_given_up(
    relay: Relay, prefix: str, api_key: int, fate: Fate
) -> AsyncIterator[tuple[KafkaLog, int]]:
    """A log and its writer's epoch, after an append for which all requests of one kind were
    lost.
    """
    async with LogOnKafka.opened(relay.bootstrap, prefix, timeout_s=CALL_TIMEOUT_S) as on_kafka:
        log = on_kafka.log
        epoch = await log.claim("w", Term(1, 1))
        await log.append([LogRecord(b"before", b"v")], epoch)
        with (
            impatient(on_kafka.client, SEVERAL_TRIES_S),
            relay.losing(partial(next_of, api_key, itertools.repeat(fate))),
            raises_reason(Reason.STORAGE_UNAVAILABLE, "nothing was written") as raised,
        ):
            await log.append([LogRecord(b"given up", b"v")], epoch)
        assert "outcome" not in raised.error.metadata
        yield log, epoch


@pytest.mark.faults("kafka")
@pytest.mark.parametrize("seed", range(SEEDS))
async def test_nothing_is_lost_by_a_network_that_loses_requests_and_answers(
    relay: Relay, topic_prefix: str, seed: int
) -> None:
    async with LogOnKafka.opened(
        relay.bootstrap, topic_prefix, timeout_s=CALL_TIMEOUT_S
    ) as on_kafka:
        log = on_kafka.log
        assert isinstance(log, FollowedKafkaLog)
        following = Following(log)
        callers = [
            *(Caller(log, f"plain-{index}", None) for index in range(2)),
            *(Caller(log, f"leader-{index}", Term(1, 1)) for index in range(2)),
        ]
        outages = Outages(random.Random(seed), chance=0.02, max_lost=8)
        async with calling(*callers):
            with impatient(on_kafka.client), relay.losing(outages):
                await wait_until_async(lambda: outages.lost_count >= LOST_COUNT, timeout_s=300)
        await assert_all_kept(log, *callers)
        end = await log.end_offset()
        await wait_until_async(lambda: following.stored[-1].offset + 1 == end)
        assert following.stored == await read_all(log), "the tail missed nothing"


class Deaf:
    """A consumer that receives no records, as librdkafka's sometimes does after a lost
    connection.
    """

    def assign(self, places: Sequence[TopicPartition]) -> None:
        pass

    def poll(self, timeout_s: float) -> None:
        threading.Event().wait(timeout_s)

    def close(self) -> None:
        pass


async def test_a_consumer_that_stands_still_is_replaced(
    relay: Relay, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drover.log.kafka.reader.TOPIC_CHECK_S", 0.5)
    async with LogOnKafka.opened(relay.bootstrap, topic_prefix) as on_kafka:
        log, client = on_kafka.log, on_kafka.client
        assert isinstance(log, FollowedKafkaLog)
        await log.append([LogRecord(b"before", b"v")])
        made = client.consumer
        consumers = iter([cast("Consumer", Deaf())])
        monkeypatch.setattr(
            client, "consumer", lambda settings: next(consumers, None) or made(settings)
        )
        following = Following(log)
        await following.brings([b"before"])
        await log.append([LogRecord(b"after", b"v")])
        await following.brings([b"before", b"after"])


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.ANSWER_LOST])
async def test_the_end_of_a_topic_is_found_or_not_but_never_made_up(
    relay: Relay, client: KafkaClient, topic_prefix: str, fate: Fate
) -> None:
    topic = f"{topic_prefix}topic"
    create_topic(relay.bootstrap, topic)
    assert await client.stable_offsets(topic, [0]) == {0: 0}
    for lost_count in (1, 2, 4):
        losses = iter([fate] * lost_count)
        fates = itertools.chain(losses, itertools.repeat(Fate.ANSWERED))
        losing = relay.losing(partial(next_of, LIST_OFFSETS, fates))
        with impatient(client), losing, suppress(UnavailableError):
            assert await client.stable_offsets(topic, [0]) == {0: 0}
        assert len(list(losses)) < lost_count, "no request was lost"
        assert await client.stable_offsets(topic, [0]) == {0: 0}


def next_of(wanted: int, fates: Iterator[Fate], api_key: int) -> Fate:
    return next(fates) if api_key == wanted else Fate.ANSWERED
