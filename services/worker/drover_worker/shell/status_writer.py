"""Writes statuses to the status store: in batches, the latest of each key, with retries."""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Protocol

import structlog

from drover.backoff import Backoff
from drover.errors import DroverError, InvalidArgumentError
from drover.model.status import StatusKey, StatusWrite

BATCH_COUNT_MAX = 500
BATCH_BYTES_MAX = 1024 * 1024
TRACE_MAX_CHARS = 16 * 1024
_CUT_MARK = "\n… (cut) …\n"
_BACKOFF_FIRST_S = 0.1
_BACKOFF_MAX_S = 2.0

_log = structlog.get_logger("drover.worker")


class PutStatuses(Protocol):
    """The part of the status store's client that the writer uses."""

    async def put_statuses(
        self, writes: Sequence[StatusWrite], *, writer: str, number: int, timeout_s: float
    ) -> object:
        """Write statuses in one append."""


class StatusWriter:
    """Queues at most one write per key; a newer write replaces the queued one.

    One call is in flight at a time. The writes of a failed call are sent again with a higher
    number; the store ignores late copies of calls with lower numbers.
    """

    def __init__(
        self,
        store: PutStatuses,
        version_of: Callable[[StatusKey], str] = lambda _: "",
        *,
        writer: str = "",
    ) -> None:
        """``version_of`` returns the version of an item's plugin; empty if unknown. ``writer`` is
        unique among all writers; random by default.
        """
        self._store = store
        self._version_of = version_of
        self._writer = writer or uuid.uuid4().hex
        self._numbers = count(1)
        self._waiting: dict[StatusKey, StatusWrite] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def write(self, write: StatusWrite) -> None:
        """Queue a status, with the version of its plugin."""
        trace, version = shortened(write.status.trace), self._version_of(write.status.key)
        write = replace(write, status=replace(write.status, trace=trace, version=version))
        # at the end of the queue: statuses that were queued in between must be written first
        waiting = self._waiting.pop(write.status.key, None)
        self._waiting[write.status.key] = _in_place_of(waiting, write)
        self._idle.clear()
        self._wake.set()

    async def wait_idle(self) -> None:
        """Wait until the queue is empty; the caller sets a timeout."""
        await self._idle.wait()

    async def run(self) -> None:
        """Write until cancelled."""
        backoff = Backoff(_BACKOFF_FIRST_S, _BACKOFF_MAX_S)
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                batch = self._take_batch()
                try:
                    await self._store.put_statuses(
                        batch, writer=self._writer, number=next(self._numbers), timeout_s=5.0
                    )
                    backoff.reset()
                except InvalidArgumentError as error:
                    _log.error(
                        "the status store refused statuses", count=len(batch), why=error.message
                    )
                except DroverError as error:
                    self._put_back(batch)
                    _log.warning(
                        "the status store is unavailable; statuses are retried",
                        count=len(self._waiting),
                        why=error.message,
                    )
                    await asyncio.sleep(backoff.next_pause_s())
            self._idle.set()

    def _take_batch(self) -> list[StatusWrite]:
        batch: list[StatusWrite] = []
        size = 0
        for key in list(self._waiting):
            size += len(self._waiting[key].status.trace) * 4 + 256
            if batch and (size > BATCH_BYTES_MAX or len(batch) == BATCH_COUNT_MAX):
                break
            batch.append(self._waiting.pop(key))
        return batch

    def _put_back(self, batch: Sequence[StatusWrite]) -> None:
        older = {w.status.key: w for w in batch}
        newer = {key: _in_place_of(older.pop(key, None), w) for key, w in self._waiting.items()}
        self._waiting = {**older, **newer}


def _in_place_of(older: StatusWrite | None, newer: StatusWrite) -> StatusWrite:
    """``newer``, to be written instead of ``older``. If both have the same state and ``older`` is
    unconditional (not safe), so is the result: a repeated report with new counts is safe, but it
    replaces a write that was not.
    """
    if older is None or older.safe or older.status.state is not newer.status.state:
        return newer
    return replace(newer, safe=False)


def shortened(trace: str) -> str:
    """The trace within the size limit: the middle is cut, as the last lines matter most."""
    if len(trace) <= TRACE_MAX_CHARS:
        return trace
    head = (TRACE_MAX_CHARS - len(_CUT_MARK)) // 2
    tail = TRACE_MAX_CHARS - len(_CUT_MARK) - head
    return trace[:head] + _CUT_MARK + trace[-tail:]
