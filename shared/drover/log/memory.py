"""A log in memory with scripted faults, for tests and simulations."""

import asyncio
import dataclasses
from bisect import bisect_left
from collections.abc import AsyncIterator, Collection, Sequence
from typing import TypeVar

from drover.clock import Clock
from drover.errors import DroverError, Reason, UnavailableError
from drover.log.claims import WriterClaim, check_epoch, next_claim
from drover.log.log import KEPT_RECORD_COUNT, LogRecord, StoredRecord, closed_error
from drover.model.ids import Term

READ_BATCH_RECORDS = 500


class _Storage:
    """The state that survives a crash and that handles share."""

    def __init__(self) -> None:
        self.records: list[StoredRecord] = []
        self.end_offset = 0
        self.claim = WriterClaim()
        self.followers: set[asyncio.Event] = set()

    def wake_followers(self) -> None:
        for follower in self.followers:
            follower.set()


class MemoryLog:
    """A ``Log`` in memory.

    Faults that tests can inject:
        fail_next_append: appends fail with an error; nothing is written.
        hold_appends / release_appends: appends wait, as on a slow disk.
        tear_next_append: an append never returns, as when the process dies during it.
        crash: the log after a restart.

    ``shared`` returns a handle for another process that appends to the same log.

    Args:
        clock: The clock of the records' timestamps; they are 0 without one.
        kept_record_count: How many of the newest records compaction keeps; 1,000 by default.
    """

    def __init__(self, clock: Clock | None = None, *, kept_record_count: int | None = None) -> None:
        self._clock = clock
        self._kept_record_count = kept_record_count
        self._storage = _Storage()
        self._closed = False
        self._failures: list[tuple[DroverError, bool]] = []
        self._torn: bool | None = None
        self._gate = asyncio.Event()
        self._gate.set()
        self._lock = asyncio.Lock()
        self._torn_waiters: list[asyncio.Future[None]] = []

    @property
    def log_id(self) -> str:
        """Always empty: the log is one sequence."""
        return ""

    @property
    def records(self) -> Sequence[StoredRecord]:
        """The present records, oldest first."""
        return tuple(self._storage.records)

    @property
    def torn(self) -> bool:
        """Whether an append hangs because of ``tear_next_append``."""
        return bool(self._torn_waiters)

    def fail_next_append(
        self, error: DroverError | None = None, *, count: int = 1, written: bool = False
    ) -> None:
        """Let the next ``count`` appends fail with ``error``, by default STORAGE_UNAVAILABLE.

        With ``written`` their records are in the log, as when a broker's response is lost.
        """
        error = error or UnavailableError(Reason.STORAGE_UNAVAILABLE, "disk full (scripted)")
        self._failures.extend([(error, written)] * count)

    def hold_appends(self) -> None:
        """Let appends wait until ``release_appends``."""
        self._gate.clear()

    def release_appends(self) -> None:
        """Let the waiting appends continue, in order."""
        self._gate.set()

    def tear_next_append(self, *, survives: bool) -> None:
        """Let the next append hang until ``crash`` or ``close``.

        ``survives`` decides whether its records, all of them, are in the log afterwards.
        """
        self._torn = survives

    def crash(self) -> "MemoryLog":
        """The log after a restart; appends in flight fail, and this handle is closed."""
        self._end()
        return self._handle(type(self))

    def shared(self) -> "SharedMemoryLog":
        """Another handle on the same records, for another process that shares the log.

        Each handle has its own faults; records, claims and offsets are common.
        """
        return self._handle(SharedMemoryLog)

    def _handle(self, kind: "type[_Kind]") -> "_Kind":
        handle = kind(self._clock, kept_record_count=self._kept_record_count)
        handle._storage = self._storage
        return handle

    async def append(self, records: Sequence[LogRecord], epoch: int | None = None) -> int:
        """Append all records or none; returns the end offset."""
        async with self._lock:
            await self._gate.wait()
            self._check_open()
            if self._failures:
                error, written = self._failures.pop(0)
                if written:
                    check_epoch(self._storage.claim, epoch)
                    self._write(records)
                raise error
            check_epoch(self._storage.claim, epoch)
            if self._torn is not None:
                await self._tear(records)
            return self._write(records)

    async def read(self, start_offset: int = 0) -> AsyncIterator[Sequence[StoredRecord]]:
        """The records from ``start_offset`` to the present end, in batches."""
        self._check_open()
        present = [stored for stored in self._storage.records if stored.offset >= start_offset]
        for start in range(0, len(present), READ_BATCH_RECORDS):
            self._check_open()
            yield present[start : start + READ_BATCH_RECORDS]

    async def end_offset(self) -> int:
        """The last record's offset + 1."""
        self._check_open()
        return self._storage.end_offset

    async def claim(self, owner: str, term: Term) -> int:
        """Make ``owner`` the privileged writer; returns its epoch."""
        async with self._lock:
            self._check_open()
            self._storage.claim = next_claim(self._storage.claim, owner, term)
            return self._storage.claim.epoch

    async def compact(
        self, *, keep_offsets: Collection[int] = (), below_offset: int | None = None
    ) -> int:
        """Remove superseded records and old tombstones; returns how many."""
        self._check_open()
        records = self._storage.records
        below = self._storage.end_offset if below_offset is None else below_offset
        last = {stored.record.key: stored.offset for stored in records if stored.offset < below}
        kept_count = self._kept_record_count
        if kept_count is None:
            kept_count = KEPT_RECORD_COUNT
        first_kept = min(self._storage.end_offset - kept_count, below)
        spared = frozenset(keep_offsets)
        oldest_spared = min(spared, default=self._storage.end_offset)
        self._storage.records = [
            stored
            for stored in records
            if stored.offset >= first_kept
            or stored.offset in spared
            or (
                last[stored.record.key] == stored.offset
                # a tombstone may cover a spared record
                and (stored.record.value is not None or stored.offset > oldest_spared)
            )
        ]
        return len(records) - len(self._storage.records)

    async def close(self) -> None:
        """Finish the appends in flight; idempotent."""
        if not self._closed:
            self._gate.set()
            self._fail_torn()
            async with self._lock:
                self._end()

    def _write(self, records: Sequence[LogRecord]) -> int:
        now_ms = self._clock.now_ms() if self._clock else 0
        first = self._storage.end_offset
        for offset, record in enumerate(records, first):
            timestamp_ms = now_ms if record.timestamp_ms is None else record.timestamp_ms
            kept = dataclasses.replace(record, timestamp_ms=None)
            self._storage.records.append(StoredRecord(offset, timestamp_ms, kept))
        self._storage.end_offset = first + len(records)
        self._storage.wake_followers()
        return self._storage.end_offset

    async def _tear(self, records: Sequence[LogRecord]) -> None:
        survives, self._torn = self._torn, None
        if survives:
            self._write(records)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._torn_waiters.append(waiter)
        await waiter

    def _end(self) -> None:
        self._closed = True
        self._gate.set()
        self._fail_torn()
        self._storage.wake_followers()

    def _fail_torn(self) -> None:
        for waiter in self._torn_waiters:
            if not waiter.done():
                waiter.set_exception(closed_error())
        self._torn_waiters.clear()

    def _check_open(self) -> None:
        if self._closed:
            raise closed_error()


_Kind = TypeVar("_Kind", bound=MemoryLog)


class SharedMemoryLog(MemoryLog):
    """A ``FollowedLog`` in memory; create one with ``MemoryLog.shared``.

    An additional fault:
        hold_tail / release_tail: records arrive late, as over a slow connection.
    """

    def __init__(self, clock: Clock | None = None, *, kept_record_count: int | None = None) -> None:
        super().__init__(clock, kept_record_count=kept_record_count)
        self._tail_gate = asyncio.Event()
        self._tail_gate.set()

    def hold_tail(self) -> None:
        """Let ``tail`` return nothing until ``release_tail``; returned batches are unaffected."""
        self._tail_gate.clear()

    def release_tail(self) -> None:
        """Let ``tail`` continue."""
        self._tail_gate.set()

    async def tail(self, start_offset: int) -> AsyncIterator[Sequence[StoredRecord]]:
        """Every record from ``start_offset`` on, including future ones, until closed."""
        self._check_open()
        appended = asyncio.Event()
        self._storage.followers.add(appended)
        try:
            while not self._closed:
                appended.clear()
                await self._tail_gate.wait()
                batch = self._from(start_offset)
                if batch and not self._closed:
                    start_offset = batch[-1].offset + 1
                    yield batch
                elif not self._closed:
                    await appended.wait()
        finally:
            self._storage.followers.discard(appended)

    def _from(self, start_offset: int) -> Sequence[StoredRecord]:
        records = self._storage.records
        first = bisect_left(records, start_offset, key=lambda stored: stored.offset)
        return tuple(records[first : first + READ_BATCH_RECORDS])

    def _end(self) -> None:
        super()._end()
        self._tail_gate.set()
