"""Faults that tests inject into a memory log."""

import asyncio

import pytest

from drover.errors import Reason, UnavailableError
from drover.log.log import FollowedLog, LogRecord, StoredRecord
from drover.model.ids import Term
from drover.testing import ManualClock, MemoryLog, SharedMemoryLog, raises_reason, read_all
from tests.support.waiting import wait_until_async

RECORD = LogRecord(b"k", b"v")


async def test_scripted_failures_come_in_order_and_write_nothing() -> None:
    log = MemoryLog()
    log.fail_next_append()
    log.fail_next_append(UnavailableError(Reason.DRAINING, "scripted"))
    with raises_reason(Reason.STORAGE_UNAVAILABLE, "scripted"):
        await log.append([RECORD])
    with raises_reason(Reason.DRAINING):
        await log.append([RECORD])
    assert await log.append([RECORD]) == 1


async def test_held_appends_wait_and_then_go_in_order() -> None:
    log = MemoryLog()
    log.hold_appends()
    appends = [asyncio.create_task(log.append([LogRecord(bytes([n]), b"")])) for n in range(3)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert not any(append.done() for append in appends)
    assert log.records == ()
    log.release_appends()
    assert await asyncio.gather(*appends) == [1, 2, 3]


@pytest.mark.parametrize("survives", [True, False])
async def test_a_torn_append_is_whole_or_absent_after_the_crash(survives: bool) -> None:
    log = MemoryLog()
    await log.append([RECORD])
    log.tear_next_append(survives=survives)
    append = asyncio.create_task(log.append([RECORD, RECORD]))
    await wait_until_async(lambda: log.torn, describe="the append is torn")
    assert not append.done()
    reopened = log.crash()
    with raises_reason(Reason.STORAGE_UNAVAILABLE):
        await append
    assert len(await read_all(reopened)) == (3 if survives else 1)
    assert await reopened.append([RECORD]) == (4 if survives else 2)


async def test_an_append_may_fail_though_it_was_written() -> None:
    log = MemoryLog()
    log.fail_next_append(written=True)
    with raises_reason(Reason.STORAGE_UNAVAILABLE):
        await log.append([RECORD])
    assert len(await read_all(log)) == 1


async def test_a_record_keeps_the_time_that_it_brings() -> None:
    log = MemoryLog(ManualClock())
    await log.append([LogRecord(b"k", b"v", "r", "me", 5)])
    assert await read_all(log) == [StoredRecord(0, 5, LogRecord(b"k", b"v", "r", "me"))]


def test_only_a_shared_log_is_followed() -> None:
    assert not isinstance(MemoryLog(), FollowedLog)
    assert isinstance(MemoryLog().shared(), FollowedLog)


class Following:
    """The offsets that a tail has delivered so far."""

    def __init__(self, log: SharedMemoryLog, start_offset: int = 0) -> None:
        self.offsets: list[int] = []
        self.task = asyncio.create_task(self._follow(log, start_offset))

    async def _follow(self, log: SharedMemoryLog, start_offset: int) -> None:
        async for batch in log.tail(start_offset):
            self.offsets.extend(stored.offset for stored in batch)

    async def reaches(self, offsets: list[int]) -> None:
        await wait_until_async(lambda: self.offsets == offsets, describe=lambda: self.offsets)


async def test_a_tail_brings_what_every_handle_appends() -> None:
    first = MemoryLog().shared()
    second = first.shared()
    await first.append([RECORD])
    following = Following(first)
    await second.append([RECORD, RECORD])
    await first.append([RECORD])
    await following.reaches([0, 1, 2, 3])
    later = Following(second, 2)
    await later.reaches([2, 3])
    await first.close()
    await following.task
    await second.append([RECORD])
    await later.reaches([2, 3, 4])
    await second.close()
    await later.task


async def test_a_claim_of_one_handle_fences_another() -> None:
    first = MemoryLog().shared()
    second = first.shared()
    epoch = await first.claim("w1", Term(1, 1))
    await second.claim("w2", Term(2, 1))
    with raises_reason(Reason.STALE_WRITER_EPOCH, "w2"):
        await first.append([RECORD], epoch)


async def test_a_held_tail_brings_records_when_it_is_released() -> None:
    log = MemoryLog().shared()
    log.hold_tail()
    following = Following(log)
    await log.append([RECORD])
    for _ in range(5):
        await asyncio.sleep(0)
    assert following.offsets == []
    log.release_tail()
    await following.reaches([0])
    log.crash()
    await following.task
