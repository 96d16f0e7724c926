"""The one loop that follows a log: a snapshot, then every change, whatever breaks in between."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import structlog

from drover.backoff import Backoff
from drover.errors import (
    DroverError,
    InvalidArgumentError,
    OutOfRangeError,
    Reason,
    UnavailableError,
    UnsupportedCallError,
)

BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 1.0
#: A watch that has said nothing for this long after it began is begun again.
FIRST_MESSAGE_S = 10.0
#: Later too: servers send a progress mark every 10 s, so that three are missing.
SILENCE_S = 30.0
#: A server that is behind has caught up by then, or else the end of the log is gone.
OLDER_TRIES = 10

_log = structlog.get_logger("drover.client")


class HasEndOffset(Protocol):
    """A snapshot: the state at ``end_offset``, in the log named ``log_id``."""

    @property
    def end_offset(self) -> int:
        """Where to watch from."""

    @property
    def log_id(self) -> str:
        """Names the sequence that offsets count in; empty if there is only one."""


class HasOffset(Protocol):
    """An event: what the record at ``offset`` changed."""

    @property
    def offset(self) -> int:
        """Its place in the log."""


SnapshotT = TypeVar("SnapshotT", bound=HasEndOffset)
EventT = TypeVar("EventT", bound=HasOffset)
SnapshotT_co = TypeVar("SnapshotT_co", bound=HasEndOffset, covariant=True)
EventT_co = TypeVar("EventT_co", bound=HasOffset, covariant=True)


@dataclass(frozen=True, slots=True)
class SnapshotRead(Generic[SnapshotT_co]):
    """The whole state: replaces everything that was read before."""

    snapshot: SnapshotT_co


@dataclass(frozen=True, slots=True)
class EventsRead(Generic[EventT_co]):
    """Changes in log order, perhaps none; everything below ``end_offset`` has now been seen."""

    events: Sequence[EventT_co]
    end_offset: int


class WatchableLog(Protocol[SnapshotT_co, EventT_co]):
    """What ``follow`` needs; ConfigStoreClient and StatusStoreClient are such."""

    async def get_snapshot(self) -> SnapshotT_co:
        """The whole state."""

    def watch(
        self, start_offset: int, log_id: str = ""
    ) -> AsyncGenerator[EventsRead[EventT_co], None]:
        """The changes from ``start_offset`` on, until the stream breaks."""


async def follow(
    log: WatchableLog[SnapshotT, EventT], *, name: str
) -> AsyncIterator[SnapshotRead[SnapshotT] | EventsRead[EventT]]:
    """Follow a log for ever: first a snapshot, then batches of events, each event once.

    A break is resumed at the last ``end_offset`` after 0.1 to 1 s; when the history no longer
    reaches back that far, or the log is another one, a new snapshot comes. It is not of an earlier
    moment, should another server give it that is behind. Nothing is read ahead: the caller's pace
    is the stream's. Close or cancel it to stop.

    Args:
        log: Whom to ask.
        name: For the logs, such as "config-store".

    Raises:
        InvalidArgumentError, UnsupportedCallError: The server does not understand; no other
            error ends the loop.
    """
    position: int | None = None
    seen, log_id = 0, ""
    backoff = Backoff(BACKOFF_FIRST_S, BACKOFF_MAX_S, jitter=True)
    while True:
        try:
            if position is None:
                snapshot = await log.get_snapshot()
                is_same = bool(log_id) and snapshot.log_id == log_id
                if is_same and snapshot.end_offset < seen and backoff.pauses < OLDER_TRIES:
                    raise UnavailableError(Reason.LOADING, f"it is behind: {seen} was seen before")
                seen = position = snapshot.end_offset
                log_id = snapshot.log_id
                yield SnapshotRead(snapshot)
            async with aclosing(log.watch(position, log_id)) as batches:
                batch: EventsRead[EventT] | None = await _next(batches, FIRST_MESSAGE_S)
                while batch is not None:
                    backoff.reset()
                    if batch.end_offset < position:
                        _log.warning("the log is another one", log=name, position=position)
                        position = None
                        break
                    events = [event for event in batch.events if event.offset >= position]
                    if events or batch.end_offset > position:
                        seen = position = batch.end_offset
                        yield EventsRead(events, position)
                    batch = await _next(batches, SILENCE_S)
        except OutOfRangeError:
            position = None
        except (InvalidArgumentError, UnsupportedCallError):
            raise
        except (DroverError, TimeoutError) as error:
            if backoff.pauses == 0:
                _log.info("a watch broke", log=name, position=position, why=str(error))
        await asyncio.sleep(backoff.next_pause_s())


async def _next(
    batches: AsyncGenerator[EventsRead[EventT], None], limit_s: float
) -> EventsRead[EventT] | None:
    try:
        async with asyncio.timeout(limit_s):
            return await anext(batches, None)
    except TimeoutError:
        raise TimeoutError(f"the watch was silent for {limit_s} s") from None
