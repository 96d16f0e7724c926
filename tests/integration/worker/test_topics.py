"""Topics and their records over a worker's gRPC, from a real store."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from drover.api.common.v1.topics_pb2 import (
    PRODUCE_FORMAT_JSON,
    PRODUCE_FORMAT_LINES,
    ProduceOptions,
    ReadPosition,
    RecordQuery,
)
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import ConnectClient
from drover.dataplane.store import EmbeddedStore
from drover.errors import (
    InvalidArgumentError,
    NotFoundError,
    Reason,
    ResourceExhaustedError,
    Violation,
)
from drover.model import produce_input
from drover.model.times import TIME_MAX_MS
from drover_worker.admin import topics
from drover_worker.admin.call import Deadline
from drover_worker.engine.topics import reads
from tests.support.fake_engine import SINK
from tests.support.stored_topics import delete_topic, store_records
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import RunningWorker


@pytest.fixture
def store(tmp_path: Path, worker: RunningWorker) -> EmbeddedStore:
    return EmbeddedStore(tmp_path / "data.db")


def asked(**wanted: Any) -> pb.WatchTopicRequest:
    return pb.WatchTopicRequest(query=RecordQuery(topic="t", **wanted.pop("query", {})), **wanted)


async def numbers(client: ConnectClient, request: pb.WatchTopicRequest) -> list[int]:
    found = []
    async with aclosing(client.watch_topic(request)) as responses:
        async for response in responses:
            found += [json.loads(record.value) for record in response.records]
    return found


def at_ms(time_ms: int) -> Timestamp:
    return Timestamp(seconds=time_ms // 1_000, nanos=time_ms % 1_000 * 1_000_000)


def store_numbers(store: EmbeddedStore, *wanted: int) -> None:
    store_records(store, "t", [{"value": b"%d" % number} for number in wanted])


async def test_topics_are_listed_described_and_counted(
    store: EmbeddedStore, client: ConnectClient
) -> None:
    store_numbers(store, *range(5))
    (listed,) = await client.list_topics()
    assert (listed.name, listed.partition_count) == ("t", 1)
    (partition,) = (await client.describe_topic("t")).partitions
    assert partition.end_offset == 5
    everything = await client.get_topic_record_count(RecordQuery(topic="t"))
    assert (everything.record_count, everything.complete) == (5, True)
    some = await client.get_topic_record_count(RecordQuery(topic="t", conditions=["value>2"]))
    assert (some.record_count, some.scanned_count, some.complete) == (2, 5, True)
    offsets = await client.get_topic_record_count(RecordQuery(topic="t"), count_offsets=True)
    assert (offsets.record_count, offsets.scanned_count, offsets.complete) == (5, 0, True)
    query = RecordQuery(topic="t", conditions=["value>2"])
    with pytest.raises(InvalidArgumentError, match="count_offsets"):
        await client.get_topic_record_count(query, count_offsets=True)


async def test_a_count_that_is_not_complete_at_the_deadline_has_no_more_than_there_is(
    store: EmbeddedStore, client: ConnectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_numbers(store, *range(5))
    monkeypatch.setattr(reads, "_TIME_S", 0.0)
    for _ in range(3):
        store_numbers(store, *range(5))
    whole = await client.get_topic_record_count(RecordQuery(topic="t", conditions=["value>=0"]))
    assert (whole.record_count, whole.complete, whole.positions[0].offset) == (20, True, 20)
    left_s = iter([10.0, 10.0, 0.0])
    monkeypatch.setattr(Deadline, "remaining_s", lambda _: next(left_s))
    some = await client.get_topic_record_count(RecordQuery(topic="t"))
    assert (some.record_count, some.complete, some.positions[0].offset) == (10, False, 10)


async def test_records_come_in_messages_that_grpc_takes(
    store: EmbeddedStore, client: ConnectClient
) -> None:
    wide = [{"value": b"%d" % number + b" " * 60_000} for number in range(200)]
    store_records(store, "t", wide)
    assert await numbers(client, asked()) == list(range(200))
    assert await numbers(client, asked(record_count_max=70)) == list(range(70))
    assert await numbers(client, asked(last_count=3)) == [197, 198, 199]


async def test_a_follower_gets_what_comes_and_outlives_an_engine(
    store: EmbeddedStore, client: ConnectClient, worker: RunningWorker
) -> None:
    store_numbers(store, 1, 2, 3)
    seen: list[int] = []

    async def follow() -> None:
        request = asked(last_count=2, follow=True, query={"conditions": ["value!=5"]})
        async with aclosing(client.watch_topic(request)) as responses:
            async for response in responses:
                seen.extend(json.loads(record.value) for record in response.records)

    following = asyncio.create_task(follow())
    await wait_until_async(lambda: seen == [2, 3])
    worker.engine.die()
    store_numbers(store, 4, 5, 6)
    worker.engine.come_back()
    await wait_until_async(lambda: seen == [2, 3, 4, 6])
    delete_topic(store, "t")
    with pytest.raises(NotFoundError, match="'t' was deleted, or deleted and created again"):
        await following


async def test_a_read_starts_at_a_time_and_searches_in_steps(
    store: EmbeddedStore, client: ConnectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "_TIME_S", -1.0)
    for at in range(0, 60, 20):
        records = [{"value": b"%d" % n, "timestamp_ms": n} for n in (at, at + 10, 1)]
        store_records(store, "t", records)
    assert await numbers(client, asked(start_time=at_ms(31))) == [40, 50, 1]
    assert await numbers(client, asked(start_time=at_ms(30), record_count_max=2)) == [30, 1]
    # a start between two milliseconds
    between = Timestamp(nanos=30_000_001)
    assert await numbers(client, asked(start_time=between)) == [40, 50, 1]
    # also after a worker has ended the stream, positions have precedence
    positions = [ReadPosition(partition=0, offset=7)]
    assert await numbers(client, asked(start_time=at_ms(0), positions=positions)) == [50, 1]


async def test_a_follower_from_a_time_without_records_waits_for_new_ones(
    store: EmbeddedStore, client: ConnectClient
) -> None:
    store_numbers(store, 1, 2)
    request = asked(start_time=at_ms(TIME_MAX_MS), follow=True)
    async with aclosing(client.watch_topic(request)) as responses:
        first = await anext(responses)
        assert (first.synced, len(first.records)) == (True, 0)
        store_numbers(store, 3)
        assert [each.value for each in (await anext(responses)).records] == ["3"]


async def test_a_read_has_one_start_at_a_time_that_records_have(client: ConnectClient) -> None:
    for seconds, nanos in ((-1, 0), (-(2**63), 0), (2**63 - 1, 0), (TIME_MAX_MS, 0), (0, -1)):
        with pytest.raises(InvalidArgumentError) as told:
            await numbers(client, asked(start_time=Timestamp(seconds=seconds, nanos=nanos)))
        (found,) = told.value.violations
        assert found == Violation("start_time", "must be a time from 1970 to 9999")
    with pytest.raises(InvalidArgumentError) as told:
        await numbers(client, asked(start_time=at_ms(0), start_offset=1, last_count=1))
    (first, second) = told.value.violations
    assert {first.field, second.field} == {"start_time"}
    assert "start_offset" in first.description
    assert "last_count" in second.description


async def test_a_connectors_converters_decode(store: EmbeddedStore, client: ConnectClient) -> None:
    store_records(store, "t", [{"value": b"\x00\x00\x00\x07"}])
    config = {"connector.class": SINK, "topics": "t", "value.converter": "IntegerConverter"}
    await client.create_connector("c", config)
    assert await numbers(client, asked(connector="c")) == [7]
    with pytest.raises(NotFoundError) as told:
        await numbers(client, asked(connector="d"))
    assert told.value.reason is Reason.CONNECTOR_NOT_FOUND


async def test_every_fault_of_a_request_is_told(client: ConnectClient) -> None:
    request = pb.WatchTopicRequest(last_count=1_001, start_offset=-1, record_count_max=-1)
    with pytest.raises(InvalidArgumentError) as told:
        await numbers(client, request)
    assert {each.field for each in told.value.violations} == {
        "last_count", "start_offset", "record_count_max", "query.topic",
    }  # fmt: skip


async def test_a_worker_reads_for_so_many_at_once(
    store: EmbeddedStore, client: ConnectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_numbers(store, 1)
    monkeypatch.setattr(topics, "_READS_MAX", 1)
    async with aclosing(client.watch_topic(asked(follow=True))) as first:
        await anext(first)
        with pytest.raises(ResourceExhaustedError):
            await numbers(client, asked())
    await wait_until_async(lambda: _readable(client))


async def _readable(client: ConnectClient) -> bool:
    try:
        return await numbers(client, asked()) == [1]
    except ResourceExhaustedError:
        return False


def produced(**options: Any) -> ProduceOptions:
    return ProduceOptions(**{"topic": "t", "format": PRODUCE_FORMAT_LINES, **options})


async def test_an_input_of_many_messages_is_written_once(
    store: EmbeddedStore,
    client: ConnectClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    store.ensure_topic("t")
    lines = b"".join(b"%d%s\n" % (number, b" " * 100_000) for number in range(50))
    sent: list[int] = []
    options = produced(value_converter="string", request_id="one")
    found = await client.produce_records(options, lines, on_sent=sent.append)
    assert (found.record_count, found.repeated_call) == (50, False)
    assert sent == [*range(1 << 20, len(lines), 1 << 20), len(lines)]
    again = await client.produce_records(options, lines)
    assert (again.record_count, again.repeated_call) == (50, True)
    assert await numbers(client, asked()) == list(range(50))
    assert list(folder.iterdir()) == []


async def test_every_malformed_line_of_an_input_is_told_and_none_is_written(
    store: EmbeddedStore, client: ConnectClient
) -> None:
    store.ensure_topic("t")
    with pytest.raises(InvalidArgumentError) as told:
        await client.produce_records(
            produced(format=PRODUCE_FORMAT_JSON), b'{"value":1}\nno\n{"value":2,"partition":9}\n'
        )
    assert [each.field for each in told.value.violations] == ["line 2", "line 3"]
    assert await numbers(client, asked()) == []
    with pytest.raises(InvalidArgumentError) as told:
        await client.produce_records(
            ProduceOptions(key_separator="\n", request_id="x" * 201, null_marker="x" * 101), b""
        )
    assert {each.field for each in told.value.violations} == {
        "options.topic", "options.format", "options.key_separator", "options.null_marker",
        "options.request_id",
    }  # fmt: skip
    with pytest.raises(NotFoundError):
        await client.produce_records(produced(connector="none"), b"1")


async def test_an_input_above_the_limit_is_refused_before_it_is_kept(
    store: EmbeddedStore, client: ConnectClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.ensure_topic("t")
    monkeypatch.setattr(produce_input, "INPUT_BYTES_MAX", 3 << 20)
    with pytest.raises(InvalidArgumentError) as told:
        await client.produce_records(produced(), b"1\n" * (2 << 20))
    assert told.value.reason is Reason.TOO_LARGE


async def test_an_input_whose_caller_gives_up_is_not_written(
    store: EmbeddedStore, client: ConnectClient, worker: RunningWorker
) -> None:
    store.ensure_topic("t")
    first = pb.ProduceRecordsRequest(options=produced(), data=b"1\n")
    going_on = asyncio.Event()

    async def requests() -> AsyncIterator[pb.ProduceRecordsRequest]:
        yield first
        going_on.set()
        await asyncio.Event().wait()

    calls = [worker.stub.ProduceRecords(requests(), timeout=20) for _ in range(2)]
    await going_on.wait()

    async def is_full() -> bool:
        try:
            await client.produce_records(produced(), b"2")
        except ResourceExhaustedError:
            return True
        return False

    await wait_until_async(is_full)
    for call in calls:
        call.cancel()
    store_numbers(store, 7)
    await wait_until_async(lambda: _is_taken(client))
    assert 1 not in await numbers(client, asked())


async def _is_taken(client: ConnectClient) -> bool:
    try:
        await client.produce_records(produced(), b"3")
    except ResourceExhaustedError:
        return False
    return True
