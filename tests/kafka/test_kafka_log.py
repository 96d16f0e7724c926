"""A log in a topic with other writers: claims, transactions, foreign records."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from drover.errors import Reason
from drover.log.kafka.log import KafkaLog, KafkaLogSpec
from drover.log.kafka.topics import config_topic, ensure_topics, status_topic
from drover.log.log import FollowedLog, LogRecord
from drover.model.ids import Term
from drover.testing import latest_values, raises_reason, read_all
from tests.support.kafka.choice import Kafka
from tests.support.kafka.following import Following
from tests.support.kafka.logs import LogOnKafka, storage_on


def record(key: str, value: bytes | None = b"v") -> LogRecord:
    return LogRecord(key.encode(), value)


@pytest.fixture
async def first(kafka: Kafka, topic_prefix: str) -> AsyncIterator[LogOnKafka]:
    async with LogOnKafka.opened(kafka.bootstrap, topic_prefix) as opened:
        yield opened


@pytest.fixture
async def second(first: LogOnKafka, kafka: Kafka, topic_prefix: str) -> AsyncIterator[LogOnKafka]:
    """The log opened by another process on the same topics."""
    async with LogOnKafka.opened(kafka.bootstrap, topic_prefix) as opened:
        yield opened


@pytest.fixture
def raw(kafka: Kafka, first: LogOnKafka) -> "Raw":
    return Raw(kafka.bootstrap, first.spec.topic)


class Raw:
    """A plain client of another program."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.settings = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.topic = topic

    def transactional(self, transactional_id: str, **settings: object) -> Producer:
        producer = Producer({**self.settings, "transactional.id": transactional_id, **settings})
        producer.init_transactions(30)
        return producer

    def write(
        self, producer: Producer, key: bytes | None, value: bytes | None, **more: object
    ) -> None:
        producer.produce(self.topic, value=value, key=key, **more)  # type: ignore[arg-type]
        assert producer.flush(30) == 0


# claims


async def test_a_later_claim_of_another_process_fences_the_first(
    first: LogOnKafka, second: LogOnKafka
) -> None:
    earlier = await first.log.claim("w1", Term(1, 1))
    await first.log.append([record("a")], earlier)
    later = await second.log.claim("w2", Term(2, 1))
    assert later == earlier + 1
    with raises_reason(Reason.STALE_WRITER_EPOCH, "w2", str(later)):
        await first.log.append([record("b")], earlier)
    with raises_reason(Reason.STALE_WRITER_EPOCH):
        await first.log.append([record("b")], later)  # the claim is another process's
    await second.log.append([record("c")], later)
    assert list(await latest_values(first.log)) == [b"a", b"c"]


async def test_a_lower_term_is_refused_and_fences_nobody(
    first: LogOnKafka, second: LogOnKafka
) -> None:
    epoch = await first.log.claim("w1", Term(2, 1))
    with raises_reason(Reason.STALE_TERM, "w1", "2.1"):
        await second.log.claim("w2", Term(1, 9))
    with raises_reason(Reason.STALE_TERM, "w1"):
        await second.log.claim("w2", Term(2, 1))
    assert await first.log.append([record("a")], epoch) == 1


async def test_the_same_claim_through_another_process_has_the_same_epoch(
    first: LogOnKafka, second: LogOnKafka
) -> None:
    epoch = await first.log.claim("w1", Term(1, 1))
    assert await second.log.claim("w1", Term(1, 1)) == epoch
    with raises_reason(Reason.STALE_WRITER_EPOCH, "w1", "claim again"):
        await first.log.append([record("a")], epoch)
    await second.log.append([record("b")], epoch)
    assert await first.log.claim("w1", Term(1, 1)) == epoch
    await first.log.append([record("c")], epoch)
    assert list(await latest_values(second.log)) == [b"b", b"c"]


async def test_a_leader_of_kafka_connect_fences_and_is_fenced(first: LogOnKafka, raw: Raw) -> None:
    epoch = await first.log.claim("w1", Term(1, 1))
    connect = await asyncio.to_thread(raw.transactional, first.spec.transactional_id)
    with raises_reason(Reason.STALE_WRITER_EPOCH, "w1", "claim again"):
        await first.log.append([record("a")], epoch)
    assert await first.log.claim("w1", Term(1, 1)) == epoch
    await first.log.append([record("b")], epoch)
    connect.begin_transaction()
    connect.produce(raw.topic, value=b"too late", key=b"c")
    with pytest.raises(KafkaException, match="fenced by a newer instance"):
        await asyncio.to_thread(connect.commit_transaction, 30)
    assert list(await latest_values(first.log)) == [b"b"]


async def test_claims_at_the_same_time_end_with_one_writer(
    first: LogOnKafka, second: LogOnKafka
) -> None:
    outcomes = await asyncio.gather(
        *(
            process.log.claim(f"w{generation}", Term(generation, 1))
            for generation in range(1, 6)
            for process in (first, second)
        ),
        return_exceptions=True,
    )
    reasons = {getattr(one, "reason", None) for one in outcomes if isinstance(one, Exception)}
    assert reasons <= {Reason.STALE_TERM, Reason.STORAGE_UNAVAILABLE}
    last = await first.log.claim("w9", Term(9, 1))
    with raises_reason(Reason.STALE_WRITER_EPOCH):
        await second.log.append([record("a")], last - 1)
    await first.log.append([record("b")], last)
    assert list(await latest_values(second.log)) == [b"b"]


async def test_two_logs_have_claims_of_their_own(first: LogOnKafka) -> None:
    topic = first.client.storage.topics.control
    client, control = first.client, first.control
    await ensure_topics(client, [replace(status_topic(client.storage), name=topic, may_grow=True)])
    specs = [
        KafkaLogSpec(topic=topic, partitions=[n], transactional_id=f"{topic}-{n}", followed=False)
        for n in (1, 2)
    ]
    logs = [await KafkaLog.open(client, control, spec, first.clock) for spec in specs]
    try:
        epochs = [await log.claim(f"w{n}", Term(n, n)) for n, log in enumerate(logs)]
        assert epochs == [1, 1]
        # with no other writer during the claim, the offsets of one append have no gaps
        ends = await asyncio.gather(
            *(logs[0].append([record(f"{n}-{part}") for part in range(3)], 1) for n in range(50))
        )
        stored = {one.offset: one.record.key for one in await read_all(logs[0])}
        for n, end in enumerate(ends):
            mine = [stored[end - 3 + part] for part in range(3)]
            assert mine == [b"%d-%d" % (n, part) for part in range(3)]
        assert await read_all(logs[1]) == []
        assert not isinstance(logs[0], FollowedLog)
    finally:
        for log in logs:
            await log.close()


# transactions


async def test_aborted_transactions_are_not_seen(first: LogOnKafka, raw: Raw) -> None:
    following = Following(first.log)
    await first.log.append([record("a")])
    producer = await asyncio.to_thread(raw.transactional, f"{raw.topic}-other")
    producer.begin_transaction()
    raw.write(producer, b"never", b"v")
    await asyncio.to_thread(producer.abort_transaction, 30)
    assert await first.log.end_offset() == 1
    await first.log.append([record("b")])
    await following.brings([b"a", b"b"])
    assert [one.record.key for one in await read_all(first.log)] == [b"a", b"b"]


async def test_a_topic_of_aborted_records_alone_is_empty(first: LogOnKafka, raw: Raw) -> None:
    producer = await asyncio.to_thread(raw.transactional, f"{raw.topic}-other")
    for _ in range(3):
        producer.begin_transaction()
        raw.write(producer, b"never", b"v")
        await asyncio.to_thread(producer.abort_transaction, 30)
    assert await read_all(first.log) == []
    assert await first.log.end_offset() == 0
    await first.log.append([record("a")])
    assert [one.offset for one in await read_all(first.log)] == [6]


async def test_markers_at_the_end_are_no_records(first: LogOnKafka, second: LogOnKafka) -> None:
    epoch = await first.log.claim("w1", Term(1, 1))
    for number in range(3):
        end = await first.log.append([record(str(number))], epoch)
    for process in (first, second):
        assert await process.log.end_offset() == end == 5
        assert [one.offset for one in await read_all(process.log)] == [0, 2, 4]
    following = Following(second.log, end)
    assert await second.log.end_offset() == end
    await first.log.append([record("after")], epoch)
    await following.brings([b"after"])


async def test_the_next_claim_ends_a_transaction_that_hangs(
    first: LogOnKafka, second: LogOnKafka, raw: Raw
) -> None:
    """The writer was killed inside it; without the claim it would end only at its ten-second
    timeout.
    """
    killed = await asyncio.to_thread(raw.transactional, first.spec.transactional_id)
    killed.begin_transaction()
    raw.write(killed, b"never", b"v")
    epoch = await first.log.claim("w1", Term(1, 1))
    await first.log.append([record("a")], epoch)
    assert [one.record.key for one in await read_all(second.log)] == [b"a"]


async def test_an_append_is_answered_when_everybody_can_read_it(
    first: LogOnKafka, second: LogOnKafka
) -> None:
    epoch = await first.log.claim("w1", Term(1, 1))
    for number in range(10):
        end = await first.log.append([record(str(number))], epoch)
        assert await second.log.end_offset() == end


# appends and tailing


async def test_a_tail_brings_everybodys_records_in_the_logs_order(
    first: LogOnKafka, second: LogOnKafka
) -> None:
    tails = [Following(first.log), Following(second.log)]
    epoch = await first.log.claim("w1", Term(1, 1))
    await asyncio.gather(
        *(first.log.append([record(f"first-{n}")], epoch) for n in range(100)),
        *(second.log.append([record(f"second-{n}")]) for n in range(100)),
    )
    stored = await read_all(first.log)
    assert len(stored) == 200
    for tail in tails:
        await tail.brings_count(200)
        assert tail.stored == stored
    await first.log.close()
    await tails[0].task
    assert not tails[1].task.done()


async def test_a_tail_is_read_once_at_a_time(first: LogOnKafka) -> None:
    following = Following(first.log)
    await first.log.append([record("a")])
    await following.brings([b"a"])
    again = Following(first.log)
    await asyncio.wait([again.task])
    assert "twice" in str(again.task.exception())
    following.task.cancel()
    await asyncio.wait([following.task])
    await Following(first.log).brings([b"a"])


async def test_records_of_others_need_no_headers_and_no_key(first: LogOnKafka, raw: Raw) -> None:
    producer = Producer(raw.settings)
    headers = [
        ("drover-request-id", b"first"),
        ("drover-request-id", b"last"),
        ("drover-author", b"\xff"),
        ("null", None),
    ]
    raw.write(producer, b"a", None)
    raw.write(producer, b"", b"v", headers=headers)
    stored = [one.record for one in await read_all(first.log)]
    assert stored == [LogRecord(b"a", None), LogRecord(b"", b"v", "last", "\ufffd")]


@pytest.mark.parametrize("size_bytes", [200_000, 3 << 20], ids=["for the topic", "for any"])
@pytest.mark.parametrize("privileged", [True, False])
async def test_a_record_that_is_too_large_fails_alone(
    kafka: Kafka, topic_prefix: str, size_bytes: int, privileged: bool
) -> None:
    topic = config_topic(storage_on(kafka.bootstrap, topic_prefix))
    topic = replace(topic, settings={"max.message.bytes": "100000"})
    async with LogOnKafka.opened(kafka.bootstrap, topic_prefix, topics=[topic]) as opened:
        log = opened.log
        epoch = await log.claim("w1", Term(1, 1)) if privileged else None
        outcomes = await asyncio.gather(
            log.append([record("a")], epoch),
            log.append([record("b"), record("large", bytes(size_bytes))], epoch),
            log.append([record("c")], epoch),
            return_exceptions=True,
        )
        assert [isinstance(one, Exception) for one in outcomes] == [False, True, False]
        assert getattr(outcomes[1], "reason", None) is Reason.TOO_LARGE
        assert topic.name in str(outcomes[1])
        await log.append([record("d")], epoch)
        kept = {one.record.key for one in await read_all(log)}
        # without a transaction, earlier records may remain
        assert kept - (set() if privileged else {b"b"}) == {b"a", b"c", b"d"}


async def test_a_record_rejected_while_later_ones_are_queued_is_named(
    kafka: Kafka, topic_prefix: str
) -> None:
    topic = config_topic(storage_on(kafka.bootstrap, topic_prefix))
    topic = replace(topic, settings={"max.message.bytes": "100000"})
    records = [record("large", bytes(200_000)), *(record(f"k{n}") for n in range(300_000))]
    async with LogOnKafka.opened(kafka.bootstrap, topic_prefix, topics=[topic]) as opened:
        epoch = await opened.log.claim("w1", Term(1, 1))
        with raises_reason(Reason.TOO_LARGE, topic.name):
            await opened.log.append(records, epoch)
        await opened.log.append([record("a")], epoch)
        assert [each.record.key for each in await read_all(opened.log)] == [b"a"]


# several partitions


@pytest.fixture
async def statuses(kafka: Kafka, topic_prefix: str) -> AsyncIterator[list[KafkaLog]]:
    """The logs of two processes over the five partitions of one topic."""
    storage = storage_on(kafka.bootstrap, topic_prefix)
    spec = KafkaLogSpec(topic=storage.topics.status)

    def opened() -> AbstractAsyncContextManager[LogOnKafka]:
        return LogOnKafka.opened(
            kafka.bootstrap, topic_prefix, spec=spec, topics=[status_topic(storage)]
        )

    async with opened() as one, opened() as other:
        yield [one.log, other.log]


async def test_several_partitions_are_one_sequence_of_arrivals(statuses: list[KafkaLog]) -> None:
    first, second = statuses
    for log in statuses:
        assert await read_all(log) == []
        assert await log.end_offset() == 0
    tails = [Following(log) for log in statuses]
    await first.append([record("a")])
    keys = [f"k{n}" for n in range(200)]
    ends = await asyncio.gather(
        *(statuses[n % 2].append([record(key, b"%d" % n)]) for n, key in enumerate(keys))
    )
    assert max(ends) <= 201
    for log, tail in zip(statuses, tails, strict=True):
        assert await log.end_offset() == 201
        await tail.brings_count(201)
        assert [one.offset for one in tail.stored] == list(range(201))
        assert {one.record.key.decode() for one in tail.stored} == {"a", *keys}
    assert first.log_id != second.log_id


async def test_an_append_to_several_partitions_tells_by_when_it_was_brought(
    statuses: list[KafkaLog],
) -> None:
    log = statuses[0]
    tail = Following(log)
    for number in range(20):
        end = await log.append([record(f"k{number}"), record(f"l{number}")])
        await tail.brings_count(end)
        assert {b"k%d" % number, b"l%d" % number} <= set(tail.keys[:end])


async def test_a_tail_of_several_partitions_goes_on_where_reading_ended(
    statuses: list[KafkaLog],
) -> None:
    writer, reader = statuses
    writing = Following(writer)
    for number in range(50):
        await writer.append([record(f"k{number}")])
    read = await read_all(reader)
    assert [one.offset for one in read] == list(range(50))
    assert await reader.end_offset() == 50
    tail = Following(reader, 50)
    await writer.append([record("after")])
    await tail.brings([b"after"])
    assert tail.stored[0].offset == 50
    tail.task.cancel()
    await asyncio.wait([tail.task])
    await writer.append([record("later")])
    tail = Following(reader, 51)
    await tail.brings([b"later"])
    assert not writing.task.done()


async def test_the_same_key_always_goes_to_the_partition_that_java_chooses(
    statuses: list[KafkaLog], kafka: Kafka, topic_prefix: str
) -> None:
    log = statuses[0]
    tail = Following(log)
    await log.append([record("status-connector-a", b"1")])
    await log.append([record("status-connector-a", b"2")])
    await tail.brings_count(2)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    topic = storage_on(kafka.bootstrap, topic_prefix).topics.status
    places = {TopicPartition(topic, n): OffsetSpec.latest() for n in range(5)}
    ends = {
        place.partition: future.result(30).offset
        for place, future in admin.list_offsets(places).items()
    }
    assert ends == {0: 0, 1: 0, 2: 0, 3: 0, 4: 0, murmur2(b"status-connector-a") % 5: 2}


def murmur2(key: bytes) -> int:
    """Java's hash, made positive as its producer does."""
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for start in range(0, whole, 4):
        k = int.from_bytes(key[start : start + 4], "little") * multiplier & mask
        k ^= k >> 24
        h = (h * multiplier & mask) ^ (k * multiplier & mask)
    rest = key[whole:]
    if rest:
        h ^= int.from_bytes(rest, "little")
        h = h * multiplier & mask
    h ^= h >> 13
    h = h * multiplier & mask
    h ^= h >> 15
    return h & 0x7FFFFFFF
