"""The loop that follows a store's log: a snapshot, then all changes, across broken streams."""

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
#: The maximum wait for the first message of a watch; after it, the watch is restarted.
FIRST_MESSAGE_S = 10.0
#: The maximum wait for later messages. Servers send a progress message at least every 10 s.
SILENCE_S = 30.0
#: The maximum number of retries if a server lags behind an earlier snapshot. If it still lags, the
#: log was truncated.
OLDER_TRIES = 10

_log = structlog.get_logger("drover.client")


class HasEndOffset(Protocol):
    """A snapshot: the state at ``end_offset``, in the log named ``log_id``."""

    @property
    def end_offset(self) -> int:
        """The offset from which to watch."""

    @property
    def log_id(self) -> str:
        """The log to which the offsets belong; empty if there is only one log."""


class HasOffset(Protocol):
    """A change by the record at ``offset``."""

    @property
    def offset(self) -> int:
        """The record's offset in the log."""


SnapshotT = TypeVar("SnapshotT", bound=HasEndOffset)
EventT = TypeVar("EventT", bound=HasOffset)
SnapshotT_co = TypeVar("SnapshotT_co", bound=HasEndOffset, covariant=True)
EventT_co = TypeVar("EventT_co", bound=HasOffset, covariant=True)


@dataclass(frozen=True, slots=True)
class SnapshotRead(Generic[SnapshotT_co]):
    """The whole state, which replaces all earlier snapshots and events."""

    snapshot: SnapshotT_co


@dataclass(frozen=True, slots=True)
class EventsRead(Generic[EventT_co]):
    """Changes in log order, possibly none; all records below ``end_offset`` have been read."""

    events: Sequence[EventT_co]
    end_offset: int


class WatchableLog(Protocol[SnapshotT_co, EventT_co]):
    """A store's client for ``follow``: ConfigStoreClient or StatusStoreClient."""

    async def get_snapshot(self) -> SnapshotT_co:
        """The whole state."""

    def watch(
        self, start_offset: int, log_id: str = ""
    ) -> AsyncGenerator[EventsRead[EventT_co], None]:
        """Yield the changes from ``start_offset`` on, until the stream breaks."""


async def follow(
    log: WatchableLog[SnapshotT, EventT], *, name: str
) -> AsyncIterator[SnapshotRead[SnapshotT] | EventsRead[EventT]]:
    """Follow a log without end: first a snapshot, then batches of events, each event once.

    A broken stream is resumed at the last ``end_offset`` after 0.1 to 1 s. If the history starts
    after that offset, or the server has another log, a new snapshot is read. A snapshot is never
    older than the previous position, even if the next server lags behind. There is no read-ahead:
    the stream advances at the caller's pace. Close or cancel it to stop.

    Args:
        log: The store's client.
        name: The store's name in log events, such as "config-store".

    Raises:
        InvalidArgumentError, UnsupportedCallError: The server does not support the call; no other
            error ends the loop.
    """
    position: int | None = None
    last_end, log_id = 0, ""
    backoff = Backoff(BACKOFF_FIRST_S, BACKOFF_MAX_S, jitter=True)
    while True:
        try:
            if position is None:
                snapshot = await log.get_snapshot()
                is_same = bool(log_id) and snapshot.log_id == log_id
                if is_same and snapshot.end_offset < last_end and backoff.pauses < OLDER_TRIES:
                    raise UnavailableError(
                        Reason.LOADING,
                        f"the snapshot ends at {snapshot.end_offset}, before the last read"
                        f" position {last_end}: the server lags behind",
                    )
                last_end = position = snapshot.end_offset
                log_id = snapshot.log_id
                yield SnapshotRead(snapshot)
            async with aclosing(log.watch(position, log_id)) as batches:
                batch: EventsRead[EventT] | None = await _next(batches, FIRST_MESSAGE_S)
                while batch is not None:
                    backoff.reset()
                    if batch.end_offset < position:
                        _log.warning(
                            "the log was truncated or replaced: reading a snapshot",
                            log=name,
                            position=position,
                        )
                        position = None
                        break
                    events = [event for event in batch.events if event.offset >= position]
                    if events or batch.end_offset > position:
                        last_end = position = batch.end_offset
                        yield EventsRead(events, position)
                    batch = await _next(batches, SILENCE_S)
        except OutOfRangeError:
            position = None
        except (InvalidArgumentError, UnsupportedCallError):
            raise
        except (DroverError, TimeoutError) as error:
            if backoff.pauses == 0:
                _log.info("a watch ended: retrying", log=name, position=position, why=str(error))
        await asyncio.sleep(backoff.next_pause_s())


async def _next(
    batches: AsyncGenerator[EventsRead[EventT], None], limit_s: float
) -> EventsRead[EventT] | None:
    try:
        async with asyncio.timeout(limit_s):
            return await anext(batches, None)
    except TimeoutError:
        raise TimeoutError(f"the watch received no message for {limit_s} s") from None
