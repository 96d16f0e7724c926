"""Whether a runtime loads, serves or ends, and what its callers hear about that."""

import asyncio

from drover.errors import DroverError, Reason, UnavailableError


class Lifecycle:
    """Loading, then serving, then ending, for whatever reason came first.

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
        """Whether nothing new is taken on any more."""
        return self._ending.is_set()

    @property
    def failed(self) -> bool:
        """Whether the machine is not what its log says any more."""
        return self._failed.is_set()

    @property
    def error(self) -> DroverError:
        """What callers hear at the end: by default DRAINING."""
        return self._why or UnavailableError(
            Reason.DRAINING, f"{self._name} is shutting down; try again when it is back"
        )

    def end(self, why: DroverError | None = None) -> None:
        """Take nothing new on; the first reason that is given counts."""
        self._why = self._why or why
        self._ending.set()

    def fail(self, why: DroverError) -> None:
        """As ``end``, and there is nothing left that could be told."""
        self.end(why)
        self._failed.set()

    def check_loaded(self) -> None:
        """Raise LOADING, or why it failed, while the machine cannot be asked about its log."""
        if self.failed:
            raise self.error
        if not self.loaded:
            raise UnavailableError(
                Reason.LOADING, f"{self._name} is reading its log; try again in a moment"
            )

    def check_serving(self) -> None:
        """Raise what ``check_loaded`` raises, or why it ends."""
        if self.ending:
            raise self.error
        self.check_loaded()

    async def wait_until_ending(self) -> None:
        """Wait until the end begins."""
        await self._ending.wait()

    async def wait_until_failed(self) -> DroverError:
        """Wait for a failure; returns why."""
        await self._failed.wait()
        return self.error
