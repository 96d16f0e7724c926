"""Schedules the compaction of a machine's log, so that it has at most twice its live records."""

import asyncio

import structlog

from drover.errors import DroverError
from drover.log.log import Log
from drover.machine import NeedsOldRecords

COMPACT_AFTER_RECORDS = 10_000

_logger = structlog.get_logger(__name__)


class Compactor:
    """Counts records that may be superseded, and compacts the log in the background."""

    def __init__(self, machine: object, log: Log, name: str) -> None:
        self._machine = machine
        self._log = log
        self._name = name
        self._kept_count = 0
        self._superseded_count = 0
        self._task: asyncio.Task[None] | None = None

    def loaded(self, *, record_count: int, key_count: int) -> None:
        """Start from a log with ``record_count`` records of ``key_count`` keys."""
        self._kept_count = key_count
        self._superseded_count = record_count - key_count
        self._compact_if_due()

    def appended(self, record_count: int) -> None:
        """Count ``record_count`` appended records."""
        self._superseded_count += record_count
        self._compact_if_due()

    async def close(self) -> None:
        """Cancel a running compaction; the next one continues where it stopped."""
        if (task := self._task) is not None:
            task.cancel()
            await asyncio.wait([task])

    def _compact_if_due(self) -> None:
        due = self._superseded_count >= max(COMPACT_AFTER_RECORDS, self._kept_count)
        if due and self._task is None:
            self._task = asyncio.create_task(self._compact(), name=f"{self._name} compaction")

    async def _compact(self) -> None:
        present = self._kept_count + self._superseded_count
        self._superseded_count = 0
        try:
            removed = await self._compact_log()
        except DroverError as error:
            _logger.warning("the log was not compacted", machine=self._name, error=error.message)
        except Exception:
            _logger.exception("compaction failed because of a defect", machine=self._name)
        else:
            self._kept_count = present - removed
            _logger.info(
                "the log was compacted", machine=self._name, removed=removed, kept=self._kept_count
            )
        finally:
            self._task = None

    async def _compact_log(self) -> int:
        if not isinstance(self._machine, NeedsOldRecords):
            return await self._log.compact()
        end_offset = await self._log.end_offset()
        # records appended after this call may need old records that ``needed_offsets`` lacks
        return await self._log.compact(
            keep_offsets=self._machine.needed_offsets(), below_offset=end_offset
        )
