"""One suite for every kind of log."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from drover.errors import Reason
from drover.log.log import KEPT_RECORD_COUNT, Log, LogRecord
from drover.log.sqlite import SqliteLog
from drover.model.ids import Term
from drover.testing import ManualClock, MemoryLog, latest_values, raises_reason, read_all
from tests.support.kafka.logs import LogOnKafka


@dataclass
class Place:
    """A log, and a function that reopens it as after a restart."""

    log: Log
    clock: ManualClock
    reopen: Callable[[], Awaitable[Log]]
    large_bytes: int = 3 << 20


@asynccontextmanager
async def in_memory() -> AsyncIterator[Place]:
    clock = ManualClock()
    memory = MemoryLog(clock)

    async def reopen() -> Log:
        return memory.crash()

    yield Place(memory, clock, reopen)


@asynccontextmanager
async def on_sqlite(path: Path) -> AsyncIterator[Place]:
    clock = ManualClock()
    opened = [await SqliteLog.open(path, clock)]

    async def reopen() -> Log:
        await opened[-1].close()
        opened.append(await SqliteLog.open(path, clock))
        return opened[-1]

    yield Place(opened[0], clock, reopen)
    await opened[-1].close()


@asynccontextmanager
async def on_kafka(bootstrap: str, topic_prefix: str) -> AsyncIterator[Place]:
    clock = ManualClock()
    async with LogOnKafka.opened(bootstrap, topic_prefix, clock) as kafka:

        async def reopen() -> Log:
            await kafka.log.close()
            return await kafka.open()

        # by default brokers accept records of up to 1 MiB
        yield Place(kafka.log, clock, reopen, large_bytes=1_000_000)


@pytest.fixture(params=["memory", "sqlite", pytest.param("kafka", marks=pytest.mark.kafka)])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    if request.param == "memory":
        opening = in_memory()
    elif request.param == "sqlite":
        opening = on_sqlite(tmp_path / "log.db")
    else:
        bootstrap = request.getfixturevalue("kafka").bootstrap
        opening = on_kafka(bootstrap, request.getfixturevalue("topic_prefix"))
    async with opening as opened:
        yield opened


@pytest.fixture(params=["memory", "sqlite"])
async def compacting(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """Logs that compact themselves; brokers compact the topics of Kafka."""
    opening = in_memory() if request.param == "memory" else on_sqlite(tmp_path / "log.db")
    async with opening as opened:
        yield opened


def record(key: str, value: str | None = "v", request_id: str = "") -> LogRecord:
    return LogRecord(key.encode(), None if value is None else value.encode(), request_id)


async def test_an_empty_log_ends_at_0(place: Place) -> None:
    assert await place.log.end_offset() == 0
    assert await read_all(place.log) == []


async def test_records_are_read_as_they_were_written(place: Place) -> None:
    place.clock.advance(77)
    written = [
        LogRecord(b"", b"", ""),
        LogRecord(b"\x00\xff", b"\x00" * 3, "request-ü"),
        LogRecord(b"k", None, "r"),
        LogRecord(b"big", bytes(place.large_bytes), "r", "someone-ü"),
    ]
    await place.log.append(written)
    stored = await read_all(place.log)
    assert [one.record for one in stored] == written
    assert [one.offset for one in stored] == [0, 1, 2, 3]
    assert {one.timestamp_ms for one in stored} == {place.clock.now_ms()}


async def test_a_record_may_bring_its_own_time(place: Place) -> None:
    await place.log.append([LogRecord(b"k", b"v", timestamp_ms=1_234), record("k")])
    stored = await read_all(place.log)
    assert [one.timestamp_ms for one in stored] == [1_234, place.clock.now_ms()]
    assert [one.record.timestamp_ms for one in stored] == [None, None]


async def test_reading_starts_where_it_is_told(place: Place) -> None:
    await place.log.append([record(str(index)) for index in range(10)])
    assert [one.offset for one in await read_all(place.log, 7)] == [7, 8, 9]
    assert await read_all(place.log, 10) == []
    assert await read_all(place.log, 99) == []


async def test_batches_are_bounded(place: Place) -> None:
    await place.log.append([record(str(index)) for index in range(2_300)])
    sizes = [len(batch) async for batch in place.log.read()]
    assert sum(sizes) == 2_300
    assert max(sizes) <= 500


async def test_reading_sees_the_log_as_it_was_at_its_start(place: Place) -> None:
    await place.log.append([record("gone", str(index)) for index in range(1_500)])
    await place.log.append([record("gone", None)])
    reading = place.log.read()
    seen = list(await anext(reading))
    await place.log.append([record(f"later-{index}") for index in range(2_000)])
    async for batch in reading:
        seen.extend(batch)
    assert [one.offset for one in seen] == list(range(1_501))


async def test_reading_does_not_see_compaction(compacting: Place) -> None:
    await compacting.log.append([record("gone", str(index)) for index in range(1_500)])
    await compacting.log.append([record("gone", None)])
    reading = compacting.log.read()
    seen = list(await anext(reading))
    await compacting.log.append([record(f"later-{index}") for index in range(2_000)])
    assert await compacting.log.compact() == 1_501
    async for batch in reading:
        seen.extend(batch)
    assert [one.offset for one in seen] == list(range(1_501))


async def test_reading_can_be_given_up(place: Place) -> None:
    await place.log.append([record(str(index)) for index in range(2_000)])
    async for batch in place.log.read():
        assert batch
        break
    assert await place.log.append([record("x")]) == 2_001


async def test_everything_is_there_after_a_restart(place: Place) -> None:
    await place.log.append([record("a", request_id="r1"), record("b", None)])
    epoch = await place.log.claim("leader", Term(3, 1))
    before = await read_all(place.log)
    log = await place.reopen()
    assert await read_all(log) == before
    assert await log.claim("leader", Term(3, 1)) == epoch
    assert await log.append([record("c")], epoch) == 3


async def test_a_later_claim_fences_the_earlier_one(place: Place) -> None:
    first = await place.log.claim("w1", Term(1, 1))
    second = await place.log.claim("w2", Term(2, 1))
    assert second > first
    with raises_reason(Reason.STALE_WRITER_EPOCH, "w2"):
        await place.log.append([record("a")], first)
    assert await place.log.append([record("a")], second) == 1
    end = await place.log.append([record("b")])  # unprivileged
    assert end == await place.log.end_offset() == (await read_all(place.log))[-1].offset + 1


async def test_an_epoch_that_was_never_claimed_is_refused(place: Place) -> None:
    for epoch in (0, 1, -1):
        with raises_reason(Reason.STALE_WRITER_EPOCH):
            await place.log.append([record("a")], epoch)
    assert await place.log.end_offset() == 0


@pytest.mark.parametrize(
    ("owner", "term"),
    [("w2", Term(2, 2)), ("w1", Term(2, 1)), ("w1", Term(1, 9)), ("w2", Term(1, 1))],
    ids=["equal term, other owner", "lower sequence", "lower generation", "lower, other owner"],
)
async def test_a_stale_claim_is_refused(place: Place, owner: str, term: Term) -> None:
    epoch = await place.log.claim("w1", Term(2, 2))
    with raises_reason(Reason.STALE_TERM, "w1", "2.2"):
        await place.log.claim(owner, term)
    assert await place.log.append([record("a")], epoch) == 1


async def test_compaction_spares_the_offsets_it_is_told(compacting: Place) -> None:
    await compacting.log.append([record("k", str(index)) for index in range(2_000)])
    assert await compacting.log.compact(keep_offsets={3, 7}) == 998
    assert [one.offset for one in await read_all(compacting.log)][:3] == [3, 7, 1_000]


async def test_a_tombstone_stays_while_a_record_before_it_is_spared(compacting: Place) -> None:
    await compacting.log.append([record("k", "spared"), record("k", None), record("l", None)])
    await compacting.log.append([record(str(index)) for index in range(KEPT_RECORD_COUNT)])
    assert await compacting.log.compact(keep_offsets={0}) == 0
    assert b"k" not in await latest_values(compacting.log)
    assert await compacting.log.compact() == 3


async def test_compaction_leaves_out_what_it_is_told_to_ignore(compacting: Place) -> None:
    await compacting.log.append([record("k", "1"), record("k", "2"), record("k", "3")])
    await compacting.log.append([record(str(index)) for index in range(KEPT_RECORD_COUNT)])
    assert await compacting.log.compact(below_offset=2) == 1
    assert [one.offset for one in await read_all(compacting.log)][:2] == [1, 2]


async def test_appends_go_on_during_compaction(compacting: Place) -> None:
    await compacting.log.append([record(str(index % 100)) for index in range(20_000)])
    removed, *ends = await asyncio.gather(
        compacting.log.compact(),
        *(compacting.log.append([record(f"n-{index}")]) for index in range(200)),
    )
    assert removed >= 18_900
    assert sorted(ends) == list(range(20_001, 20_201))


async def test_offsets_go_on_after_compaction_and_restart(compacting: Place) -> None:
    await compacting.log.append([record("k", str(index)) for index in range(3_000)])
    await compacting.log.compact()
    log = await compacting.reopen()
    assert await log.append([record("k")]) == 3_001


async def test_compaction_loses_no_key(place: Place) -> None:
    """Brokers compact a log on Kafka, so its ``compact`` removes nothing."""
    await place.log.append([record(str(index % 7), str(index)) for index in range(1_100)])
    before = await latest_values(place.log)
    held_count = len(await read_all(place.log))
    removed_count = await place.log.compact()
    assert removed_count == held_count - len(await read_all(place.log))
    assert await latest_values(place.log) == before


async def test_concurrent_appends_stay_whole(place: Place) -> None:
    async def append(caller: int) -> int:
        return await place.log.append([record(f"{caller}") for _ in range(3)])

    ends = await asyncio.gather(*(append(caller) for caller in range(100)))
    stored = await read_all(place.log)
    for caller, end in enumerate(ends):
        mine = [one.offset for one in stored if one.record.key == str(caller).encode()]
        assert mine == [end - 3, end - 2, end - 1]


async def test_a_refused_append_does_not_fail_its_neighbours(place: Place) -> None:
    stale = await place.log.claim("w1", Term(1, 1))
    good = await place.log.claim("w2", Term(2, 1))
    outcomes = await asyncio.gather(
        *(
            place.log.append([record(str(index))], stale if index % 3 == 0 else good)
            for index in range(60)
        ),
        return_exceptions=True,
    )
    refused = {index for index, outcome in enumerate(outcomes) if isinstance(outcome, Exception)}
    assert refused == set(range(0, 60, 3))
    kept = {int(one.record.key) for one in await read_all(place.log)}
    assert kept == set(range(60)) - refused


async def test_a_claim_between_appends_fences_those_after_it(place: Place) -> None:
    old = await place.log.claim("w1", Term(1, 1))
    before, new, after = await asyncio.gather(
        place.log.append([record("before")], old),
        place.log.claim("w2", Term(2, 1)),
        place.log.append([record("after")], old),
        return_exceptions=True,
    )
    assert before == 1
    assert new == 2
    assert getattr(after, "reason", None) is Reason.STALE_WRITER_EPOCH


async def test_a_cancelled_append_leaves_the_log_usable(place: Place) -> None:
    append = asyncio.create_task(place.log.append([record("a")]))
    await asyncio.sleep(0)
    append.cancel()
    await asyncio.wait([append])
    end = await place.log.append([record("b")])
    assert [one.record.key for one in await read_all(place.log)][-1] == b"b"
    assert end == await place.log.end_offset()


async def test_close_finishes_appends_under_way(place: Place) -> None:
    appends = [asyncio.create_task(place.log.append([record(str(n))])) for n in range(20)]
    await asyncio.sleep(0)
    await place.log.close()
    assert sorted(await asyncio.gather(*appends)) == list(range(1, 21))
    log = await place.reopen()
    assert len(await read_all(log)) == 20


async def test_close_is_idempotent_and_final(place: Place) -> None:
    await place.log.append([record("a")])
    await asyncio.gather(place.log.close(), place.log.close())
    await place.log.close()
    for use in (
        lambda: place.log.append([record("b")]),
        lambda: place.log.claim("w", Term(1, 1)),
        lambda: place.log.end_offset(),
        lambda: place.log.compact(),
        lambda: read_all(place.log),
    ):
        with raises_reason(Reason.STORAGE_UNAVAILABLE, "closed"):
            await use()
