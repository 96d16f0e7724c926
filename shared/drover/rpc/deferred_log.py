"""A log that a service can use before the brokers are reachable."""

from collections.abc import AsyncIterator, Callable, Collection, Sequence

from drover.errors import DroverError, Reason, UnavailableError
from drover.log.log import FollowedLog, LogRecord, StoredRecord
from drover.model.ids import Term


class DeferredLog:
    """A proxy for a ``FollowedLog`` that is opened later; a service can start before that.

    Args:
        on_append: Called after each append; false if the storage was unavailable.
    """

    def __init__(self, on_append: Callable[[bool], None]) -> None:
        self._on_append = on_append
        self._log: FollowedLog | None = None

    def set_log(self, log: FollowedLog) -> None:
        """Pass all later calls to ``log``."""
        self._log = log

    @property
    def log_id(self) -> str:
        """See ``Log.log_id``; empty before ``set_log``."""
        return "" if self._log is None else self._log.log_id

    async def append(self, records: Sequence[LogRecord], epoch: int | None = None) -> int:
        """See ``Log.append``."""
        try:
            end_offset = await self._opened().append(records, epoch)
        except DroverError as error:
            if error.reason is Reason.STORAGE_UNAVAILABLE:
                self._on_append(False)
            raise
        self._on_append(True)
        return end_offset

    def read(self, start_offset: int = 0) -> AsyncIterator[Sequence[StoredRecord]]:
        """See ``Log.read``."""
        return self._opened().read(start_offset)

    def tail(self, start_offset: int) -> AsyncIterator[Sequence[StoredRecord]]:
        """See ``FollowedLog.tail``."""
        return self._opened().tail(start_offset)

    async def end_offset(self) -> int:
        """See ``Log.end_offset``."""
        return await self._opened().end_offset()

    async def claim(self, owner: str, term: Term) -> int:
        """See ``Log.claim``."""
        return await self._opened().claim(owner, term)

    async def compact(
        self, *, keep_offsets: Collection[int] = (), below_offset: int | None = None
    ) -> int:
        """See ``Log.compact``."""
        return await self._opened().compact(keep_offsets=keep_offsets, below_offset=below_offset)

    async def close(self) -> None:
        """Close the log if it is open."""
        if self._log is not None:
            await self._log.close()

    def _opened(self) -> FollowedLog:
        if self._log is None:
            raise UnavailableError(
                Reason.STORAGE_UNAVAILABLE, "the log of this service is not open yet: retry"
            )
        return self._log
