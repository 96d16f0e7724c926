"""Replays a log into a machine, and lets callers wait until an offset has been replayed."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import structlog

from drover.errors import DataLossError, DroverError, InternalError, Reason
from drover.log.log import StoredRecord
from drover.machine import Instruction, LogBackedMachine, Outcome, Replayed

R = TypeVar("R")

_logger = structlog.get_logger(__name__)


def report_defect(name: str, where: str, event: object) -> InternalError:
    """Log the exception that is being handled; returns the error for the machine's callers."""
    _logger.exception(
        "defect in a machine", machine=name, where=where, event_type=type(event).__name__
    )
    return InternalError(f"{name} has a defect (in {where}): see the traceback in its log")


class LogReplay(Generic[R]):
    """Replays records into a machine in log order.

    Args:
        machine: The machine; its hard state must be empty.
        decode: See ``Runtime``.
        name: Names the machine in messages.
    """

    def __init__(
        self,
        machine: LogBackedMachine[Any, R],
        decode: Callable[[StoredRecord], R | None],
        name: str,
    ) -> None:
        self._machine = machine
        self._decode = decode
        self._name = name
        self._end_offset = 0
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._stopped: DroverError | None = None

    @property
    def end_offset(self) -> int:
        """The offset up to which records have been replayed."""
        return self._end_offset

    def replay_stored(self, batch: Sequence[StoredRecord]) -> list[Instruction]:
        """Replay records that were read from the log; returns the machine's instructions.

        Raises:
            DataLossError: LOG_CORRUPT, a record cannot be decoded.
            InternalError: The machine has a defect, and its state no longer matches the log.
        """
        instructions: list[Instruction] = []
        replay = self._machine.replay
        # kept short for speed: every start replays all records
        for stored, record in self._decoded(batch):
            cause = stored.record
            replayed = Replayed(
                stored.offset, record, cause.request_id, cause.author, stored.timestamp_ms
            )
            try:
                released = replay(replayed)
            except Exception as error:
                raise report_defect(self._name, "replay", record) from error
            if released:
                instructions += released
        if batch:
            self._advance(batch[-1].offset + 1)
        return instructions

    def replay_own(
        self, outcome: Outcome[R], end_offset: int, decided_ms: int
    ) -> Sequence[Instruction]:
        """Replay the records of a decision, which were appended up to ``end_offset``.

        Raises:
            Exception: As the machine's ``replay``.
        """
        instructions: list[Instruction] = []
        first_offset = end_offset - len(outcome.records)
        try:
            for offset, record in enumerate(outcome.records, first_offset):
                replayed = Replayed(offset, record, outcome.request_id, outcome.author, decided_ms)
                instructions.extend(self._machine.replay(replayed))
        finally:
            self._advance(end_offset)
        return instructions

    async def wait_until(self, end_offset: int) -> None:
        """Wait until every record below ``end_offset`` has been replayed.

        Raises:
            DroverError: The error that ``stop`` got.
        """
        if self._end_offset >= end_offset:
            return
        self.check_running()
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[reached] = end_offset
        try:
            await reached
        finally:
            self._waiting.pop(reached, None)

    def skip_to(self, end_offset: int) -> None:
        """Continue at ``end_offset``; there are no records before it."""
        self._advance(end_offset)

    def check_running(self) -> None:
        """Raise the error that ``stop`` got, if it was called."""
        if self._stopped is not None:
            raise self._stopped

    def stop(self, why: DroverError) -> None:
        """End all waits with ``why``, because no more records are replayed; idempotent."""
        self._stopped = self._stopped or why
        for reached in self._waiting:
            if not reached.done():
                reached.set_exception(self._stopped)

    def _advance(self, end_offset: int) -> None:
        self._end_offset = end_offset
        for reached, awaited_offset in self._waiting.items():
            if awaited_offset <= end_offset and not reached.done():
                reached.set_result(None)

    def _decoded(self, batch: Sequence[StoredRecord]) -> Iterator[tuple[StoredRecord, R]]:
        """Decode a batch; records that the machine ignores are left out."""
        decode = self._decode
        for stored in batch:
            try:
                record = decode(stored)
            except Exception as error:
                raise DataLossError(
                    Reason.LOG_CORRUPT,
                    f"{self._name}: the record at offset {stored.offset} cannot be decoded"
                    f" ({error}): restore the log from a backup",
                    metadata={"offset": str(stored.offset)},
                ) from error
            if record is not None:
                yield stored, record
