"""The log: a compacted sequence of keyed records with one privileged writer at a time."""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from drover.errors import Reason, UnavailableError
from drover.model.ids import Term

KEPT_RECORD_COUNT = 1_000
"""Compaction keeps this many of the newest records."""


@dataclass(slots=True)  # not frozen: there is one for each record read, and creation is much faster
class LogRecord:
    """A keyed record; a ``value`` of None is a tombstone.

    ``request_id`` is the id of the request that caused it and ``author`` the user; both may be
    empty. ``timestamp_ms`` is the time of the decision; if None, the log uses its clock. It is None
    in records that are read, because ``StoredRecord`` has the time.
    """

    key: bytes
    value: bytes | None
    request_id: str = ""
    author: str = ""
    timestamp_ms: int | None = None


@dataclass(slots=True)  # as above
class StoredRecord:
    """A record and its offset in the log; compaction leaves gaps between offsets.

    On Kafka ``place`` is topic, partition and offset of the record. A log of several partitions has
    its own offsets.
    """

    offset: int
    timestamp_ms: int
    record: LogRecord
    place: tuple[str, int, int] | None = field(default=None, compare=False)


class Log(Protocol):
    """A durable sequence of keyed records.

    Compaction keeps the last record of each key and also the last 1,000 records, so that their
    request ids are available after a restart.
    """

    @property
    def log_id(self) -> str:
        """Identifies the sequence to which offsets belong.

        A reader that resumes with an offset of another sequence would miss records. Empty for a
        service whose log never changes.
        """

    async def append(self, records: Sequence[LogRecord], epoch: int | None = None) -> int:
        """Append all records or none; durable when it returns the end offset (last offset + 1).

        ``epoch`` is the result of ``claim``; None for records that any writer may append.

        Raises:
            FailedPreconditionError: STALE_WRITER_EPOCH, a later claim exists.
            UnavailableError: STORAGE_UNAVAILABLE. Nothing was written (disk full, read-only),
                unless the metadata's ``outcome`` is ``unknown``: then read the log to its end.
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

        ``keep_offsets`` are kept even if superseded, so that a fold that needs old records can name
        them (``NeedsOldRecords``). Records from ``below_offset`` on are ignored: they are not
        removed, and do not supersede others.
        """

    async def close(self) -> None:
        """Finish the appends in flight and release the storage; idempotent."""


@runtime_checkable
class FollowedLog(Log, Protocol):
    """A log to which other processes append too.

    Records of this process take effect when ``tail`` returns them, in order with other processes'
    records. With one partition, offsets are the topic's. With several partitions they number the
    records in the order of arrival in this process, and have no meaning in another process.
    """

    def tail(self, start_offset: int) -> AsyncIterator[Sequence[StoredRecord]]:
        """Every record from ``start_offset`` on, including future ones, until the log is closed.

        After the loss of a connection it continues with the next record. At most one at a time.

        Raises:
            DataLossError: LOG_CORRUPT, unread records were removed (a truncated topic).
        """


def closed_error() -> UnavailableError:
    """The error of calls to a closed log."""
    return UnavailableError(Reason.STORAGE_UNAVAILABLE, "the log is closed")
