"""Between a runtime and its log: loading, appending, and following what others append."""

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
    """Makes decisions durable, and lets records take effect in a machine.

    In a log of this process alone the records of a decision take effect once they are appended. In
    a ``FollowedLog`` all records do so, own and foreign alike, when the log brings them.

    Args:
        machine: Its hard state must be empty.
        log: Where the records go.
        encode: See ``Runtime``.
        decode: See ``Runtime``.
        name: Names the machine in messages.
        on_applied: Called after the log has brought records, with what the machine wants to be
            released because of them.
        on_broken: Called once when a followed log cannot be followed any more.
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
        #: an append failed, and its records may be in the log all the same
        self._unsure = False

    @property
    def end_offset(self) -> int:
        """Every record below it has taken effect."""
        return self._fold.end_offset

    @property
    def unsure(self) -> bool:
        """Whether nothing may be decided before ``catch_up``."""
        return self._unsure

    async def load(self) -> int:
        """Replay the whole log; returns its end. A followed log is followed from then on.

        After STORAGE_UNAVAILABLE of a followed log it may be called again.

        Raises:
            DataLossError: LOG_CORRUPT, a record cannot be read or decoded.
            InternalError: A record cannot be applied.
            UnavailableError: STORAGE_UNAVAILABLE, or what ``close`` was told.
        """
        if self._followed is None:
            return await self._read()
        if self._follower is None:
            following = self._follow(self._followed)
            self._follower = asyncio.create_task(following, name=f"{self._name} follower")
            await asyncio.sleep(0)  # it has begun: the end that is asked for is one that it reaches
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
            self._fold.check_going()
        end_offset = await self._log.end_offset()
        self._fold.skip_to(end_offset)
        self._compactor.loaded(record_count=record_count, key_count=len(keys))
        return end_offset

    async def append(self, outcome: Outcome[R], epoch: int | None, decided_ms: int) -> int:
        """Append the records of a decision; returns their end offset.

        ``apply`` has to follow, with nothing in between.

        Raises:
            DroverError: What the log says, or why it cannot be followed any more.
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
        began_s = time.perf_counter()
        try:
            end_offset = await self._log.append(records, epoch)
        except BaseException:
            self._unsure = self._followed is not None
            self.figures.failed(time.perf_counter() - began_s)
            raise
        self.figures.appended(len(records), time.perf_counter() - began_s)
        if self._followed is not None:
            await self._fold.wait_until(end_offset)
        return end_offset

    def apply(self, outcome: Outcome[R], end_offset: int, decided_ms: int) -> Sequence[Instruction]:
        """Let the records that ``append`` has appended take effect, if they have not done so yet;
        raises what the machine raises.
        """
        if self._followed is not None:
            return ()
        try:
            return self._fold.replay_own(outcome, end_offset, decided_ms)
        finally:
            self._compactor.appended(len(outcome.records))

    async def catch_up(self, until: Awaitable[None]) -> None:
        """After an append that failed: see what became of it, so that a request that is repeated is
        recognised. Returns early when ``until`` does.

        Raises:
            DroverError: The log cannot say; it has to be asked again.
        """
        seeing = asyncio.ensure_future(self._see_the_end())
        limit = asyncio.ensure_future(until)
        try:
            await asyncio.wait({seeing, limit}, return_when=asyncio.FIRST_COMPLETED)
            if seeing.done():
                seeing.result()
                self._unsure = False
        finally:
            for task in (seeing, limit):
                task.cancel()
            await asyncio.wait({seeing, limit})

    async def _see_the_end(self) -> None:
        await self._fold.wait_until(await self._log.end_offset())

    async def wait_until_applied(self, end_offset: int) -> None:
        """See ``Runtime.wait_until_applied``."""
        await self._fold.wait_until(end_offset)

    async def close(self, why: DroverError) -> None:
        """Follow no longer; whoever waits hears ``why``; idempotent."""
        self._fold.stop(why)
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.wait([self._follower])
        await self._compactor.close()

    async def _follow(self, log: FollowedLog) -> None:
        """Apply what the log brings, in batches that it bounds, until ``close``."""
        why: DroverError = UnavailableError(
            Reason.STORAGE_UNAVAILABLE, f"the log of {self._name} was closed"
        )
        try:
            async for batch in log.tail(0):
                self._on_applied(self._fold.replay_stored(batch))
                await asyncio.sleep(0)  # events have their turn, however much there is
        except InternalError as error:  # which was told where it happened
            why = error
        except DroverError as error:
            _logger.error(
                "the log cannot be followed any more",
                machine=self._name,
                reason=str(error.reason),
                why=error.message,
            )
            why = error
        except Exception:  # noqa: BLE001
            why = report_defect(self._name, "following its log", log)
        self._fold.stop(why)
        self._on_broken(why)
