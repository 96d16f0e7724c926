"""A machine as the fold of its log: records are replayed in log order, and others wait for that."""

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
    """Log the exception that is being handled; returns what callers of the machine hear."""
    _logger.exception(
        "defect in a machine", machine=name, where=where, event_type=type(event).__name__
    )
    return InternalError(f"{name} has a defect (in {where}); its log has the trace at this time")


class LogReplay(Generic[R]):
    """Replays records into a machine, and knows how far it is.

    Args:
        machine: Its hard state must be empty.
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
        """Every record below it has been replayed."""
        return self._end_offset

    def replay_stored(self, batch: Sequence[StoredRecord]) -> list[Instruction]:
        """Replay what was read from the log; returns what the machine wants to be released.

        Raises:
            DataLossError: LOG_CORRUPT, a record cannot be decoded.
            InternalError: The machine has a defect, and its state is not the log's any more.
        """
        instructions: list[Instruction] = []
        replay = self._machine.replay
        # with few steps a record, since every start goes through all of them
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
        """Replay the records of a decision, which have been appended up to ``end_offset``; raises
        what the machine raises.
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
            DroverError: What ``stop`` was told; nothing is replayed any more.
        """
        if self._end_offset >= end_offset:
            return
        self.check_going()
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[reached] = end_offset
        try:
            await reached
        finally:
            self._waiting.pop(reached, None)

    def skip_to(self, end_offset: int) -> None:
        """There are no records between here and ``end_offset``."""
        self._advance(end_offset)

    def check_going(self) -> None:
        """Raise what ``stop`` was told, if it was."""
        if self._stopped is not None:
            raise self._stopped

    def stop(self, why: DroverError) -> None:
        """Nothing will be replayed any more: end every wait with ``why``; idempotent."""
        self._stopped = self._stopped or why
        for reached in self._waiting:
            if not reached.done():
                reached.set_exception(self._stopped)

    def _advance(self, end_offset: int) -> None:
        self._end_offset = end_offset
        for reached, wanted in self._waiting.items():
            if wanted <= end_offset and not reached.done():
                reached.set_result(None)

    def _decoded(self, batch: Sequence[StoredRecord]) -> Iterator[tuple[StoredRecord, R]]:
        """What concerns the machine, in order."""
        decode = self._decode
        for stored in batch:
            try:
                record = decode(stored)
            except Exception as error:
                raise DataLossError(
                    Reason.LOG_CORRUPT,
                    f"{self._name}: the record at offset {stored.offset} cannot be decoded"
                    f" ({error}); restore the log from a backup",
                    metadata={"offset": str(stored.offset)},
                ) from error
            if record is not None:
                yield stored, record
