"""Retention of embedded topics: on a timer, in small steps between the commits."""

import asyncio
import contextlib

import structlog

from drover.errors import DroverError
from drover_coordinator.backends.embedded.offsets import EmbeddedOffsets

INTERVAL_S = 60.0
#: The pause between two steps, in which engines can lock the same file.
PAUSE_S = 0.05

log = structlog.get_logger(__name__)


class RetentionTimer:
    """Removes records beyond the limits of age and size, at its start and every interval.

    Args:
        offsets: The store; a step queues with the commits.
        retention_ms: Older records of topics without this setting are removed; None keeps them.
        retention_bytes: The oldest records of a larger topic partition are removed, for topics
            without this setting; None keeps them.
        interval_s: From the end of one sweep to the start of the next.
        pause_s: Between two steps of a sweep.
    """

    def __init__(
        self,
        offsets: EmbeddedOffsets,
        *,
        retention_ms: int | None,
        retention_bytes: int | None,
        interval_s: float = INTERVAL_S,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._offsets = offsets
        self._retention_ms = retention_ms
        self._retention_bytes = retention_bytes
        self._interval_s = interval_s
        self._pause_s = pause_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start in the background; ``DescribeTopic`` then shows these limits."""
        self._task = asyncio.create_task(self._run(), name="retention")

    async def close(self) -> None:
        """Stop after the step in progress; idempotent."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def sweep(self) -> int:
        """Remove all records beyond the limits; returns how many.

        Raises:
            DroverError: The store is busy or broken; completed steps are not undone.
        """
        await self._offsets.set_default_retention(
            retention_ms=self._retention_ms, retention_bytes=self._retention_bytes
        )
        batch_count = record_count = size_bytes = 0
        while True:
            step = await self._offsets.apply_retention(
                retention_ms=self._retention_ms, retention_bytes=self._retention_bytes
            )
            if not step.batch_count:
                break
            batch_count += step.batch_count
            record_count += step.record_count
            size_bytes += step.size_bytes
            await asyncio.sleep(self._pause_s)
        if batch_count:
            log.info(
                "removed old records",
                batch_count=batch_count,
                record_count=record_count,
                size_bytes=size_bytes,
            )
        more = True
        while more:
            more = await self._offsets.give_space_back()
            await asyncio.sleep(self._pause_s)
        return record_count

    async def _run(self) -> None:
        while True:
            try:
                await self.sweep()
            except DroverError as error:
                log.warning("retention is delayed: the store cannot be used", why=error.message)
            except Exception:
                log.exception("retention failed")
            await asyncio.sleep(self._interval_s)
