"""The lifecycle of a runtime (loading, serving, ending), and the errors that callers get."""

import asyncio

from drover.errors import DroverError, Reason, UnavailableError


class Lifecycle:
    """Loading, then serving, then ending.

    Args:
        name: Names the machine in messages.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._why: DroverError | None = None
        self._failed = asyncio.Event()
        self._ending = asyncio.Event()
        self.loaded = False

    @property
    def ending(self) -> bool:
        """Whether new calls are rejected, because the runtime ends."""
        return self._ending.is_set()

    @property
    def failed(self) -> bool:
        """Whether the machine's state no longer matches its log."""
        return self._failed.is_set()

    @property
    def error(self) -> DroverError:
        """The error for callers at the end; DRAINING by default."""
        return self._why or UnavailableError(
            Reason.DRAINING, f"{self._name} is shutting down: retry after its restart"
        )

    def end(self, why: DroverError | None = None) -> None:
        """Reject new calls, with the first ``why`` that was given."""
        self._why = self._why or why
        self._ending.set()

    def fail(self, why: DroverError) -> None:
        """End because the machine's state no longer matches its log."""
        self.end(why)
        self._failed.set()

    def check_loaded(self) -> None:
        """Raise LOADING during the load, or the error of a failure."""
        if self.failed:
            raise self.error
        if not self.loaded:
            raise UnavailableError(Reason.LOADING, f"{self._name} is loading its log: retry")

    def check_serving(self) -> None:
        """Raise as ``check_loaded``, or the error of the end."""
        if self.ending:
            raise self.error
        self.check_loaded()

    async def wait_until_ending(self) -> None:
        """Wait until ``end`` or ``fail`` was called."""
        await self._ending.wait()

    async def wait_until_failed(self) -> DroverError:
        """Wait for a failure; returns its error."""
        await self._failed.wait()
        return self.error
