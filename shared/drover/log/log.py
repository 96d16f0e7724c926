"""The log: keyed records in order, compacted, with one privileged writer at a time."""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from drover.errors import Reason, UnavailableError
from drover.model.ids import Term

KEPT_RECORD_COUNT = 1_000
"""Compaction leaves this many of the newest records alone."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A keyed record; a ``value`` of None is a tombstone. ``request_id`` names its cause, or is
    empty.
    """

    key: bytes
    value: bytes | None
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record where it stands in the log; compaction leaves gaps between offsets."""

    offset: int
    timestamp_ms: int
    record: LogRecord


class Log(Protocol):
    """A durable sequence of keyed records.

    Compaction keeps the last record of each key and, apart from that, the last 1,000 records, so
    that their request ids are found again after a restart.
    """

    async def append(self, records: Sequence[LogRecord], epoch: int | None = None) -> int:
        """Append all records or none; durable when it returns the end offset (last offset + 1).

        ``epoch`` comes from ``claim``; None is for records that any writer may append.

        Raises:
            FailedPreconditionError: STALE_WRITER_EPOCH, a later claim exists.
            UnavailableError: STORAGE_UNAVAILABLE, nothing was written (disk full, read-only).
        """

    def read(self, start_offset: int = 0) -> AsyncIterator[Sequence[StoredRecord]]:
        """Every record from ``start_offset`` to the present end, in batches of bounded size.

        Raises:
            DataLossError: LOG_CORRUPT, with the place.
        """

    async def end_offset(self) -> int:
        """The last record's offset + 1; 0 for an empty log."""

    async def claim(self, owner: str, term: Term) -> int:
        """Make ``owner`` the privileged writer and return its epoch, which fences all earlier ones.

        Claiming again with the same owner and term returns the same epoch.

        Raises:
            FailedPreconditionError: STALE_TERM, the stored term is higher, or equal with another
            owner.
        """

    async def compact(
        self, *, keep_offsets: Collection[int] = (), below_offset: int | None = None
    ) -> int:
        """Remove superseded records while serving; returns how many.

        ``keep_offsets`` are spared though superseded, and records from ``below_offset`` on count
        as not there yet: they neither go nor supersede. So a reader to whom old records still
        matter can name them (``NeedsOldRecords``).
        """

    async def close(self) -> None:
        """Finish the appends under way and release the storage; idempotent."""


def closed_error() -> UnavailableError:
    """The answer of a log that is closed."""
    return UnavailableError(Reason.STORAGE_UNAVAILABLE, "the log is closed")
