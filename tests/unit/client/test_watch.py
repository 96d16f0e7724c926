import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

import pytest

from drover.client import watch
from drover.client.watch import EventsRead, SnapshotRead, follow
from drover.errors import (
    DroverError,
    InvalidArgumentError,
    OutOfRangeError,
    Reason,
    ResourceExhaustedError,
    UnavailableError,
)


@dataclass(frozen=True)
class Event:
    offset: int


@dataclass(frozen=True)
class Snapshot:
    end_offset: int
    log_id: str = ""


Batch = EventsRead[Event] | Exception | None
COMPACTED = OutOfRangeError(Reason.REVISION_COMPACTED, "too old")
AWAY = UnavailableError(Reason.SERVICE_UNREACHABLE, "away")


@dataclass
class ScriptedLog:
    """Returns scripted snapshots and watches. A watch blocks after its last batch, unless that is
    an error or None (the server ended the stream).
    """

    snapshots: list[Snapshot | Exception]
    watches: list[list[Batch]]
    starts: list[int] = field(default_factory=list)
    log_ids: list[str] = field(default_factory=list)

    async def get_snapshot(self) -> Snapshot:
        snapshot = self.snapshots.pop(0)
        if isinstance(snapshot, Exception):
            raise snapshot
        return snapshot

    async def watch(
        self, start_offset: int, log_id: str = ""
    ) -> AsyncGenerator[EventsRead[Event], None]:
        self.starts.append(start_offset)
        self.log_ids.append(log_id)
        for batch in self.watches.pop(0):
            if batch is None:
                return
            if isinstance(batch, Exception):
                raise batch
            yield batch
        await asyncio.Event().wait()


def events(*offsets: int, end: int) -> EventsRead[Event]:
    return EventsRead([Event(offset) for offset in offsets], end)


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "BACKOFF_FIRST_S", 0.001)
    monkeypatch.setattr(watch, "BACKOFF_MAX_S", 0.002)


async def read(log: ScriptedLog, count: int) -> list[object]:
    found: list[object] = []
    async with aclosing(follow(log, name="test")) as reads:  # type: ignore[type-var]
        async for item in reads:
            found.append(item)
            if len(found) == count:
                break
    return found


async def test_a_snapshot_then_events_from_its_end() -> None:
    log = ScriptedLog([Snapshot(5)], [[events(end=5), events(5, 6, end=7), events(end=9)]])
    assert await read(log, 3) == [
        SnapshotRead(Snapshot(5)),
        events(5, 6, end=7),
        events(end=9),  # an end offset without events that is later than the last one
    ]
    assert log.starts == [5]


@pytest.mark.parametrize(
    "broken",
    [AWAY, None, ResourceExhaustedError(Reason.QUEUE_FULL, "slow"), TimeoutError("silent")],
    ids=str,
)
async def test_a_break_is_resumed_where_it_was(broken: Batch) -> None:
    log = ScriptedLog([Snapshot(5)], [[events(5, end=6), broken], [events(6, end=7)]])
    assert await read(log, 3) == [
        SnapshotRead(Snapshot(5)),
        events(5, end=6),
        events(6, end=7),
    ]
    assert log.starts == [5, 6]


async def test_an_event_that_comes_again_is_dropped() -> None:
    log = ScriptedLog(
        [Snapshot(5)], [[events(5, 6, end=7), AWAY], [events(5, 6, 7, end=8), events(7, end=8)]]
    )
    reading = read(log, 3)
    assert await reading == [
        SnapshotRead(Snapshot(5)),
        events(5, 6, end=7),
        events(7, end=8),
    ]


async def test_compacted_history_brings_a_new_snapshot() -> None:
    log = ScriptedLog(
        [Snapshot(5), Snapshot(90)], [[events(5, end=6), AWAY], [COMPACTED], [events(90, end=91)]]
    )
    assert await read(log, 4) == [
        SnapshotRead(Snapshot(5)),
        events(5, end=6),
        SnapshotRead(Snapshot(90)),
        events(90, end=91),
    ]
    assert log.starts == [5, 6, 90]


async def test_a_log_that_is_shorter_than_before_brings_a_new_snapshot() -> None:
    log = ScriptedLog([Snapshot(50), Snapshot(2)], [[events(end=2)], [events(2, end=3)]])
    assert await read(log, 3) == [
        SnapshotRead(Snapshot(50)),
        SnapshotRead(Snapshot(2)),
        events(2, end=3),
    ]


async def test_a_snapshot_is_asked_for_until_it_comes() -> None:
    log = ScriptedLog([AWAY, AWAY, Snapshot(1)], [[events(1, end=2)]])
    assert await read(log, 2) == [SnapshotRead(Snapshot(1)), events(1, end=2)]


async def test_a_request_that_the_server_refuses_ends_the_loop() -> None:
    refused: DroverError = InvalidArgumentError(Reason.INVALID_REQUEST, "what?")
    log = ScriptedLog([Snapshot(1)], [[refused]])
    with pytest.raises(InvalidArgumentError):
        await read(log, 2)


async def test_a_watch_that_does_not_begin_is_begun_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "FIRST_MESSAGE_S", 0.01)
    log = ScriptedLog([Snapshot(1)], [[], [], [events(1, end=2)]])
    assert await read(log, 2) == [SnapshotRead(Snapshot(1)), events(1, end=2)]
    assert log.starts == [1, 1, 1]


async def test_a_watch_that_falls_silent_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SILENCE_S", 0.01)
    log = ScriptedLog([Snapshot(1)], [[events(1, end=2)], [events(2, end=3)]])
    assert await read(log, 3) == [
        SnapshotRead(Snapshot(1)),
        events(1, end=2),
        events(2, end=3),
    ]
    assert log.starts == [1, 2]


async def test_cancelling_the_reader_stops_it() -> None:
    log = ScriptedLog([Snapshot(1)], [[events(1, end=2)]])
    second = asyncio.Event()

    async def forever() -> None:
        async for item in follow(log, name="test"):
            if isinstance(item, EventsRead):
                second.set()

    task = asyncio.create_task(forever())
    await second.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_watch_says_which_log_its_offset_counts_in() -> None:
    log = ScriptedLog(
        [Snapshot(5, "one"), Snapshot(2, "other")],
        [[events(5, end=6), COMPACTED], [events(2, end=3)]],
    )
    assert await read(log, 4) == [
        SnapshotRead(Snapshot(5, "one")),
        events(5, end=6),
        SnapshotRead(Snapshot(2, "other")),
        events(2, end=3),
    ]
    assert log.log_ids == ["one", "other"]


async def test_a_snapshot_of_an_earlier_moment_is_not_taken() -> None:
    behind = [Snapshot(4, "one"), Snapshot(5, "one")]
    log = ScriptedLog(
        [Snapshot(5, "one"), *behind, Snapshot(6, "one")],
        [[events(5, end=6), COMPACTED], [events(end=6)]],
    )
    assert await read(log, 3) == [
        SnapshotRead(Snapshot(5, "one")),
        events(5, end=6),
        SnapshotRead(Snapshot(6, "one")),
    ]


async def test_a_log_whose_end_is_gone_is_taken_in_the_end() -> None:
    gone: list[Snapshot | Exception] = [Snapshot(4, "one")] * watch.OLDER_TRIES
    log = ScriptedLog([Snapshot(5, "one"), *gone], [[COMPACTED], [events(end=4)]])
    assert await read(log, 2) == [
        SnapshotRead(Snapshot(5, "one")),
        SnapshotRead(Snapshot(4, "one")),
    ]
