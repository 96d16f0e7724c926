"""The log: keyed records in order, compacted, with one privileged writer at a time."""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from drover.errors import Reason, UnavailableError
from drover.model.ids import Term

KEPT_RECORD_COUNT = 1_000
"""Compaction leaves this many of the newest records alone."""


@dataclass(slots=True)  # one for every record read; frozen ones take several times as long to make
class LogRecord:
    """A keyed record; a ``value`` of None is a tombstone.

    ``request_id`` names its cause and ``author`` who asked for it; both may be empty.
    ``timestamp_ms`` is when it was decided; the log's own clock says so if it is None, as it is in
    what is read (``StoredRecord`` has the time).
    """

    key: bytes
    value: bytes | None
    request_id: str = ""
    author: str = ""
    timestamp_ms: int | None = None


@dataclass(slots=True)  # as above
class StoredRecord:
    """A record where it stands in the log; compaction leaves gaps between offsets.

    ``place`` is topic, partition and offset of what stands on Kafka, where a log of several
    partitions counts offsets of its own.
    """

    offset: int
    timestamp_ms: int
    record: LogRecord
    place: tuple[str, int, int] | None = field(default=None, compare=False)


class Log(Protocol):
    """A durable sequence of keyed records.

    Compaction keeps the last record of each key and, apart from that, the last 1,000 records, so
    that their request ids are found again after a restart.
    """

    @property
    def log_id(self) -> str:
        """Names the sequence that the offsets count in: whoever reads on with an offset of another
        one would miss records unnoticed. Empty where a service has one log for all its life.
        """

    async def append(self, records: Sequence[LogRecord], epoch: int | None = None) -> int:
        """Append all records or none; durable when it returns the end offset (last offset + 1).

        ``epoch`` comes from ``claim``; None is for records that any writer may append.

        Raises:
            FailedPreconditionError: STALE_WRITER_EPOCH, a later claim exists.
            UnavailableError: STORAGE_UNAVAILABLE, nothing was written (disk full, read-only) unless
                the metadata's ``outcome`` is ``unknown``: read to the end to know.
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


@runtime_checkable
class FollowedLog(Log, Protocol):
    """A log that other processes append to as well.

    What this process appends takes effect when ``tail`` brings it, in its place among what others
    wrote. Offsets are the topic's own where there is one partition. Where there are several they
    count the records in the order of arrival here, and mean nothing to another process.
    """

    def tail(self, start_offset: int) -> AsyncIterator[Sequence[StoredRecord]]:
        """Every record from ``start_offset`` on, as it comes, without end; ends when closed.

        It outlives the loss of the connection and goes on with the next record. One at a time.

        Raises:
            DataLossError: LOG_CORRUPT, records that were not read are gone (a truncated topic).
        """


def closed_error() -> UnavailableError:
    """The answer of a log that is closed."""
    return UnavailableError(Reason.STORAGE_UNAVAILABLE, "the log is closed")
