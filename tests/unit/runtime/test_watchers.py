"""Watchers: bounded, and they never block the machine."""

import asyncio

from drover.errors import Reason, UnavailableError
from drover.runtime.watchers import Watchers
from drover.testing import raises_reason
from tests.support.waiting import wait_until_async


async def test_messages_come_in_order_to_everyone_on_the_channel() -> None:
    watchers = Watchers(max_watchers=10)
    first, second = watchers.add("x", 10), watchers.add("x", 10)
    other = watchers.add("y", 10)
    for number in range(3):
        watchers.notify("x", number)
    watchers.notify("nobody", 0)
    watchers.notify("y", "y")
    assert [await anext(first) for _ in range(3)] == [0, 1, 2]
    assert [await anext(second) for _ in range(3)] == [0, 1, 2]
    assert await anext(other) == "y"


async def test_a_waiting_reader_is_woken() -> None:
    watchers = Watchers(max_watchers=10)
    watcher = watchers.add("x", 10)
    reading = asyncio.ensure_future(anext(watcher))
    await asyncio.sleep(0)
    assert not reading.done()
    watchers.notify("x", "hello")
    assert await reading == "hello"


async def test_a_slow_watcher_is_dropped_alone_and_told() -> None:
    watchers = Watchers(max_watchers=10)
    slow, quick = watchers.add("x", 3), watchers.add("x", 4)
    for number in range(4):
        watchers.notify("x", number)
    assert len(watchers) == 1
    with raises_reason(Reason.QUEUE_FULL, "3 messages", "snapshot"):
        await anext(slow)
    with raises_reason(Reason.QUEUE_FULL):
        await anext(slow)
    assert [await anext(quick) for _ in range(4)] == [0, 1, 2, 3]


async def test_ready_messages_can_be_taken_together() -> None:
    watchers = Watchers(max_watchers=10)
    watcher = watchers.add("x", 10)
    for number in range(5):
        watchers.notify("x", number)
    assert [await anext(watcher), *watcher.take_ready(2)] == [0, 1, 2]
    assert watcher.take_ready(100) == [3, 4]
    assert watcher.take_ready(100) == []


async def test_closing_ends_iteration_and_frees_the_place() -> None:
    watchers = Watchers(max_watchers=1)
    with watchers.add("x", 10) as watcher:
        with raises_reason(Reason.QUEUE_FULL, "1 watchers"):
            watchers.add("x", 10)
        ending = asyncio.ensure_future(collect(watcher))
        await asyncio.sleep(0)
    assert await ending == []
    watcher.close()
    assert len(watchers) == 0
    watchers.add("y", 10)


async def test_a_cancelled_reader_can_read_on() -> None:
    watchers = Watchers(max_watchers=1)
    watcher = watchers.add("x", 10)
    reading = asyncio.ensure_future(anext(watcher))
    await asyncio.sleep(0)
    reading.cancel()
    await wait_until_async(reading.done)
    watchers.notify("x", 1)
    assert await anext(watcher) == 1


async def test_the_end_of_all_comes_after_what_is_queued() -> None:
    watchers = Watchers(max_watchers=10)
    busy, waiting = watchers.add("x", 10), watchers.add("y", 10)
    reading = asyncio.ensure_future(anext(waiting))
    await asyncio.sleep(0)
    watchers.notify("x", 1)
    watchers.end_all(UnavailableError(Reason.DRAINING, "shutting down"))
    assert await anext(busy) == 1
    for ended in (anext(busy), reading):
        with raises_reason(Reason.DRAINING):
            await ended
    assert len(watchers) == 0


async def collect(watcher: object) -> list[object]:
    return [message async for message in watcher]  # type: ignore[attr-defined]
