"""The faults that tests can script."""

import asyncio

import pytest

from drover.errors import Reason, UnavailableError
from drover.log.log import LogRecord
from drover.testing import MemoryLog, raises_reason, read_all
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
