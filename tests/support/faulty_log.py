"""A log of any kind whose appends fail or wait, as a test says."""

import asyncio
from collections.abc import Sequence
from typing import Any

from drover.errors import Reason, UnavailableError
from drover.log.log import Log, LogRecord


class FaultyLog:
    """Passes everything on to ``log``, except appends that a test lets fail or wait."""

    def __init__(self, log: Log) -> None:
        self.log = log
        #: Set once an append waits.
        self.held = asyncio.Event()
        self._failure: bool | None = None
        self._gate = asyncio.Event()
        self._gate.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)

    def fail_next(self, *, written: bool = False) -> None:
        """Let the next append fail; if ``written``, after it has written, as on a lost answer."""
        self._failure = written

    def hold(self) -> None:
        """Let appends wait until ``release``."""
        self._gate.clear()

    def release(self) -> None:
        """Let appends proceed."""
        self._gate.set()

    async def append(self, records: Sequence[LogRecord], epoch: int | None = None) -> int:
        """As the log, unless a test says otherwise."""
        if not self._gate.is_set():
            self.held.set()
            await self._gate.wait()
        if self._failure is None:
            return await self.log.append(records, epoch)
        written, self._failure = self._failure, None
        if written:
            await self.log.append(records, epoch)
        raise UnavailableError(Reason.STORAGE_UNAVAILABLE, "no answer (scripted)")
