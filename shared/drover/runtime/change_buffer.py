"""The recent changes of a log, from which a watcher can resume. Pure."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Generic, TypeVar

from drover.errors import OutOfRangeError, Reason
from drover.log.log import FollowedLog, Log

EventT = TypeVar("EventT")

MAX_EVENTS = 20_000
MAX_BYTES = 64 * 1024 * 1024
#: A watcher that was disconnected for longer reads a snapshot.
MAX_AGE_MS = 10 * 60_000
#: Shorter than the time for which brokers keep tombstones (a day).
SHARED_LOG_COMPLETE_MS = 12 * 3_600_000


@dataclass(frozen=True, slots=True)
class _Entry(Generic[EventT]):
    offset: int
    events: Sequence[EventT]
    size_bytes: int
    timestamp_ms: int


class ChangeBuffer(Generic[EventT]):
    """Every change caused by the records from ``start_offset`` up to ``end_offset``.

    A log-backed machine fills it in ``replay``, live and at load, so that watchers can resume
    across a restart of the service. It is bounded: the oldest changes are dropped first.

    Args:
        max_events: The maximum number of changes.
        max_bytes: The maximum total size, as estimated by the caller of ``record_seen``.
        max_age_ms: The maximum age, relative to the latest change.
        complete_ms: For a log on Kafka, whose offsets have gaps even without compaction, so that a
            gap does not show whether compaction removed records. Changes older than this are
            dropped when the log is loaded. None for a log with contiguous offsets.
    """

    def __init__(
        self,
        *,
        max_events: int = MAX_EVENTS,
        max_bytes: int = MAX_BYTES,
        max_age_ms: int = MAX_AGE_MS,
        complete_ms: int | None = None,
    ) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._max_age_ms = max_age_ms
        self._complete_ms = complete_ms
        self._entries: deque[_Entry[EventT]] = deque()
        self._event_count = 0
        self._size_bytes = 0
        self._start_offset = 0
        self._end_offset = 0

    @property
    def start_offset(self) -> int:
        """The offset from which on all changes are in the buffer."""
        return self._start_offset

    @property
    def end_offset(self) -> int:
        """The offset after the last record seen."""
        return self._end_offset

    @classmethod
    def of(cls, log: Log) -> "ChangeBuffer[EventT]":
        """An empty buffer for a log."""
        followed = isinstance(log, FollowedLog)
        return cls(complete_ms=SHARED_LOG_COMPLETE_MS if followed else None)

    def record_seen(
        self,
        offset: int,
        events: Sequence[EventT] = (),
        size_bytes: int = 0,
        timestamp_ms: int = 0,
    ) -> None:
        """Add the changes of the record at ``offset``, decided at ``timestamp_ms``.

        A gap before ``offset`` means that compaction removed records; then all earlier changes are
        dropped, because the history would be incomplete.
        """
        if offset != self._end_offset and (self._complete_ms is None or offset < self._end_offset):
            self.skip_to(offset)
        self._end_offset = offset + 1
        if not events:
            return
        self._entries.append(_Entry(offset, events, size_bytes, timestamp_ms))
        self._event_count += len(events)
        self._size_bytes += size_bytes
        self._trim(timestamp_ms)

    def loaded(self, end_offset: int, now_ms: int) -> None:
        """Handle the end of the load: the log was read up to ``end_offset``."""
        if self._complete_ms is None:
            self.skip_to(end_offset)
            return
        oldest_ms = now_ms - self._complete_ms
        complete_from = self._entries[0].offset if self._entries else self._end_offset
        old_count = 0
        for count, entry in enumerate(self._entries, 1):
            if entry.timestamp_ms < oldest_ms:
                old_count = count
                complete_from = entry.offset + 1
        for _ in range(old_count):
            self._drop_oldest()
        self._start_offset = max(self._start_offset, complete_from)
        self._end_offset = end_offset

    def skip_to(self, end_offset: int) -> None:
        """Drop all changes and continue at ``end_offset``."""
        if end_offset == self._end_offset:
            return
        self._entries.clear()
        self._event_count = self._size_bytes = 0
        self._start_offset = self._end_offset = end_offset

    def read(self, start_offset: int) -> list[EventT]:
        """The changes from ``start_offset`` on, in log order.

        Raises:
            OutOfRangeError: REVISION_COMPACTED, the changes from ``start_offset`` on were dropped,
                or the log ends before it: then the reader's offset is from another log.
        """
        if start_offset < self._start_offset:
            raise self._out_of_range(
                f"changes from offset {start_offset} are not available, only from"
                f" {self._start_offset}: read a snapshot and watch from its end"
            )
        if start_offset > self._end_offset:
            raise self._out_of_range(
                f"offset {start_offset} is beyond the log's end, {self._end_offset}, so it is from"
                " another log: read a snapshot and watch from its end"
            )
        recent = takewhile(lambda entry: entry.offset >= start_offset, reversed(self._entries))
        return [event for entry in reversed(list(recent)) for event in entry.events]

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        offsets = [entry.offset for entry in self._entries]
        assert offsets == sorted(set(offsets)), offsets
        assert self._event_count == sum(len(entry.events) for entry in self._entries)
        assert self._size_bytes == sum(entry.size_bytes for entry in self._entries)
        assert 0 <= self._start_offset <= self._end_offset
        assert all(self._start_offset <= offset < self._end_offset for offset in offsets)

    def _trim(self, now_ms: int) -> None:
        while self._event_count > self._max_events or self._size_bytes > self._max_bytes:
            self._drop_oldest()
        while self._entries and now_ms - self._entries[0].timestamp_ms > self._max_age_ms:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = self._entries.popleft()
        self._event_count -= len(oldest.events)
        self._size_bytes -= oldest.size_bytes
        self._start_offset = oldest.offset + 1

    def _out_of_range(self, message: str) -> OutOfRangeError:
        return OutOfRangeError(
            Reason.REVISION_COMPACTED,
            message,
            metadata={"startOffset": str(self._start_offset), "endOffset": str(self._end_offset)},
        )
