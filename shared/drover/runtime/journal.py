"""Connects a runtime with its log: loads it, appends to it, and follows other writers' records."""

import asyncio
import dataclasses
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

import structlog

from drover.errors import DroverError, InternalError, Reason, UnavailableError
from drover.log.log import FollowedLog, Log, LogRecord, StoredRecord
from drover.machine import Instruction, LogBackedMachine, Outcome
from drover.runtime.compaction import Compactor
from drover.runtime.log_metrics import LogFigures
from drover.runtime.log_replay import LogReplay, report_defect

R = TypeVar("R")

_logger = structlog.get_logger(__name__)


class Journal(Generic[R]):
    """Appends the records of decisions and replays records into a machine.

    If this process is the log's only writer, the records of a decision are replayed after their
    append. In a ``FollowedLog`` all records, own and foreign, are replayed when ``tail`` returns
    them.

    Args:
        machine: The machine; its hard state must be empty.
        log: The log.
        encode: See ``Runtime``.
        decode: See ``Runtime``.
        name: Names the machine in messages.
        on_applied: Called after records of a followed log were replayed, with the instructions that
            ``replay`` returned.
        on_broken: Called once if a followed log can no longer be read.
    """

    def __init__(
        self,
        machine: LogBackedMachine[Any, R],
        log: Log,
        *,
        encode: Callable[[R], LogRecord],
        decode: Callable[[StoredRecord], R | None],
        name: str,
        on_applied: Callable[[Sequence[Instruction]], None],
        on_broken: Callable[[DroverError], None],
    ) -> None:
        self._log = log
        self._followed = log if isinstance(log, FollowedLog) else None
        self._encode = encode
        self._name = name
        self._on_applied = on_applied
        self._on_broken = on_broken
        self._fold = LogReplay(machine, decode, name)
        self._compactor = Compactor(machine, log, name)
        self._follower: asyncio.Task[None] | None = None
        self.figures = LogFigures()
        #: an append failed, but its records may be in the log
        self._outcome_unknown = False

    @property
    def end_offset(self) -> int:
        """The offset up to which records have been replayed."""
        return self._fold.end_offset

    @property
    def outcome_unknown(self) -> bool:
        """Whether ``catch_up`` has to precede the next decision."""
        return self._outcome_unknown

    async def load(self) -> int:
        """Replay the whole log; returns its end. A followed log is then followed.

        After STORAGE_UNAVAILABLE of a followed log it may be called again.

        Raises:
            DataLossError: LOG_CORRUPT, a record cannot be read or decoded.
            InternalError: A record cannot be applied.
            UnavailableError: STORAGE_UNAVAILABLE, or the error that ``close`` got.
        """
        if self._followed is None:
            return await self._read()
        if self._follower is None:
            following = self._follow(self._followed)
            self._follower = asyncio.create_task(following, name=f"{self._name} follower")
            await asyncio.sleep(0)  # the follower must start before the end offset is read
        await self._fold.wait_until(await self._log.end_offset())
        return self._fold.end_offset

    async def _read(self) -> int:
        keys: set[int] = set()
        record_count = 0
        async for batch in self._log.read(0):
            self._fold.replay_stored(batch)
            keys.update([hash(stored.record.key) for stored in batch])
            record_count += len(batch)
            await asyncio.sleep(0)
            self._fold.check_running()
        end_offset = await self._log.end_offset()
        self._fold.skip_to(end_offset)
        self._compactor.loaded(record_count=record_count, key_count=len(keys))
        return end_offset

    async def append(self, outcome: Outcome[R], epoch: int | None, decided_ms: int) -> int:
        """Append the records of a decision; returns their end offset.

        ``apply`` has to follow immediately.

        Raises:
            DroverError: As ``Log.append``, or the error that ended the following of the log.
        """
        records = [
            dataclasses.replace(
                encoded,
                request_id=outcome.request_id or encoded.request_id,
                author=outcome.author,
                timestamp_ms=decided_ms,
            )
            for encoded in map(self._encode, outcome.records)
        ]
        started_s = time.perf_counter()
        try:
            end_offset = await self._log.append(records, epoch)
        except BaseException:
            self._outcome_unknown = self._followed is not None
            self.figures.failed(time.perf_counter() - started_s)
            raise
        self.figures.appended(len(records), time.perf_counter() - started_s)
        if self._followed is not None:
            await self._fold.wait_until(end_offset)
        return end_offset

    def apply(self, outcome: Outcome[R], end_offset: int, decided_ms: int) -> Sequence[Instruction]:
        """Replay the records that ``append`` has appended, unless the follower has done so.

        Raises:
            Exception: As the machine's ``replay``.
        """
        if self._followed is not None:
            return ()
        try:
            return self._fold.replay_own(outcome, end_offset, decided_ms)
        finally:
            self._compactor.appended(len(outcome.records))

    async def catch_up(self, until: Awaitable[None]) -> None:
        """Read the log to its end after a failed append, so that retried requests are recognised.

        Returns early if ``until`` does.

        Raises:
            DroverError: The log cannot be read; ``catch_up`` has to be repeated.
        """
        reading = asyncio.ensure_future(self._read_to_end())
        limit = asyncio.ensure_future(until)
        try:
            await asyncio.wait({reading, limit}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()
                self._outcome_unknown = False
        finally:
            for task in (reading, limit):
                task.cancel()
            await asyncio.wait({reading, limit})

    async def _read_to_end(self) -> None:
        await self._fold.wait_until(await self._log.end_offset())

    async def wait_until_applied(self, end_offset: int) -> None:
        """See ``Runtime.wait_until_applied``."""
        await self._fold.wait_until(end_offset)

    async def close(self, why: DroverError) -> None:
        """Stop following the log and end all waits with ``why``; idempotent."""
        self._fold.stop(why)
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.wait([self._follower])
        await self._compactor.close()

    async def _follow(self, log: FollowedLog) -> None:
        """Replay the batches of ``log.tail`` until ``close``."""
        why: DroverError = UnavailableError(
            Reason.STORAGE_UNAVAILABLE, f"the log of {self._name} was closed"
        )
        try:
            async for batch in log.tail(0):
                self._on_applied(self._fold.replay_stored(batch))
                await asyncio.sleep(0)  # let the runtime handle events between batches
        except InternalError as error:  # logged by ``report_defect`` already
            why = error
        except DroverError as error:
            _logger.error(
                "the log can no longer be followed",
                machine=self._name,
                reason=str(error.reason),
                why=error.message,
            )
            why = error
        except Exception:  # noqa: BLE001
            why = report_defect(self._name, "following its log", log)
        self._fold.stop(why)
        self._on_broken(why)
