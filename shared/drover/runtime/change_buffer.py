"""The recent changes of a log, so that a watcher can go on where it was. Pure."""

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
#: A watcher that was away for longer reads a snapshot, as after a start.
MAX_AGE_MS = 10 * 60_000
#: Less than brokers keep a tombstone for those who have not read it (a day).
SHARED_LOG_COMPLETE_MS = 12 * 3_600_000


@dataclass(frozen=True, slots=True)
class _Entry(Generic[EventT]):
    offset: int
    events: Sequence[EventT]
    size_bytes: int
    timestamp_ms: int


class ChangeBuffer(Generic[EventT]):
    """Every change caused by the records from ``start_offset`` up to ``end_offset``.

    A log-backed machine fills it in ``replay``, live and at load, so that watchers resume across a
    restart of the service. Bounded: the oldest changes are forgotten first.

    Args:
        max_events: How many changes are kept.
        max_bytes: How large they may be together, as estimated by whoever adds them.
        max_age_ms: How much older than the last one.
        complete_ms: For a log whose offsets have gaps where nothing is missing, as on Kafka, so
            that a gap does not tell what compaction has removed: what is older than this when the
            log is loaded does not count as known. None for a log without such gaps.
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
        """The first offset whose changes are all known."""
        return self._start_offset

    @property
    def end_offset(self) -> int:
        """The offset after the last record seen."""
        return self._end_offset

    @classmethod
    def of(cls, log: Log) -> "ChangeBuffer[EventT]":
        """An empty history of a log."""
        followed = isinstance(log, FollowedLog)
        return cls(complete_ms=SHARED_LOG_COMPLETE_MS if followed else None)

    def record_seen(
        self,
        offset: int,
        events: Sequence[EventT] = (),
        size_bytes: int = 0,
        timestamp_ms: int = 0,
    ) -> None:
        """The record at ``offset``, decided at ``timestamp_ms``, caused ``events``, maybe none.

        When offsets before it were never seen, compaction has removed records: what came earlier
        would be a history with holes, and is forgotten.
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
        """The log has been read to ``end_offset``."""
        if self._complete_ms is None:
            self.skip_to(end_offset)
            return
        oldest_ms = now_ms - self._complete_ms
        known_from = self._entries[0].offset if self._entries else self._end_offset
        old_count = 0
        for count, entry in enumerate(self._entries, 1):
            if entry.timestamp_ms < oldest_ms:
                old_count = count
                known_from = entry.offset + 1
        for _ in range(old_count):
            self._forget_oldest()
        self._start_offset = max(self._start_offset, known_from)
        self._end_offset = end_offset

    def skip_to(self, end_offset: int) -> None:
        """The log ends at ``end_offset`` and what led there is not known."""
        if end_offset == self._end_offset:
            return
        self._entries.clear()
        self._event_count = self._size_bytes = 0
        self._start_offset = self._end_offset = end_offset

    def read(self, start_offset: int) -> list[EventT]:
        """The changes from ``start_offset`` on, in log order.

        Raises:
            OutOfRangeError: REVISION_COMPACTED, the history does not reach back that far, or the
                log ends before ``start_offset``: then it is another log than the reader thinks.
        """
        if start_offset < self._start_offset:
            raise self._out_of_range(
                f"changes before offset {self._start_offset} are forgotten, {start_offset} was"
                " asked for: read a snapshot and watch from its end"
            )
        if start_offset > self._end_offset:
            raise self._out_of_range(
                f"the log ends at offset {self._end_offset}, {start_offset} was asked for: it is"
                " not the log that was read before; read a snapshot and watch from its end"
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
            self._forget_oldest()
        while self._entries and now_ms - self._entries[0].timestamp_ms > self._max_age_ms:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
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
