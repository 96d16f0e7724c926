"""A log that is known before it can be opened."""

from collections.abc import AsyncIterator, Callable, Collection, Sequence

from drover.errors import DroverError, Reason, UnavailableError
from drover.log.log import FollowedLog, LogRecord, StoredRecord
from drover.model.ids import Term


class DeferredLog:
    """Stands for a ``FollowedLog`` that ``arrived`` gives later, so that a service listens before.

    Args:
        on_append: Called after each append with whether the storage could be written.
    """

    def __init__(self, on_append: Callable[[bool], None]) -> None:
        self._on_append = on_append
        self._log: FollowedLog | None = None

    def arrived(self, log: FollowedLog) -> None:
        """From now on this is ``log``."""
        self._log = log

    @property
    def log_id(self) -> str:
        """Empty before it arrived."""
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
        """Close it if it arrived."""
        if self._log is not None:
            await self._log.close()

    def _opened(self) -> FollowedLog:
        if self._log is None:
            raise UnavailableError(
                Reason.STORAGE_UNAVAILABLE, "the log is not open yet; try again in a moment"
            )
        return self._log
