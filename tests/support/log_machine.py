"""Drives a log-backed machine directly, through the bytes of its log: no event loop, no clock."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from drover.errors import DroverError
from drover.machine import (
    Complete,
    Fail,
    Instruction,
    LogBackedMachine,
    NeedsOldRecords,
    Notify,
    Replayed,
)

RecordT = TypeVar("RecordT")
MachineT = TypeVar("MachineT", bound=LogBackedMachine[Any, Any])


class LogMachineDriver(Generic[MachineT, RecordT]):
    """A machine and its log as a list of (key, value, request id).

    A record's time is 1,000 ms for each record before it; it has the author of its event.

    Args:
        make: A fresh machine.
        encode: Key and value of a record.
        decode: The way back.
    """

    def __init__(
        self,
        make: Callable[[], MachineT],
        encode: Callable[[RecordT], tuple[bytes, bytes | None]],
        decode: Callable[[bytes, bytes | None], RecordT],
    ) -> None:
        self._make = make
        self._encode = encode
        self._decode = decode
        self.machine = make()
        #: every record ever written, at the index of its offset
        self.log: list[tuple[bytes, bytes | None, str]] = []
        self.authors: list[str] = []
        self.compacted: set[int] = set()
        self.epochs: list[int | None] = []
        self.notified: list[Notify] = []

    def submit(self, event: Any) -> Any:
        """The machine's response to ``event``; raises its error."""
        outcome = self.machine.handle(event, 0)
        instructions: list[Instruction] = []
        if outcome.records:
            self.epochs.append(outcome.writer_epoch)
        for record in outcome.records:
            instructions += self._append(*self._encode(record), outcome.request_id, outcome.author)
        instructions += outcome.instructions
        self.machine.validate()
        return self._answer(event.call_id, instructions)

    def append_foreign(self, *records: tuple[str, str | None]) -> None:
        """Append records that another program wrote: key and JSON."""
        for key, value in records:
            self._append(key.encode(), None if value is None else value.encode(), "")
        self.machine.validate()

    def restart(self) -> None:
        """A fresh machine, loaded from the log."""
        self.machine = self._make()
        for offset in range(len(self.log)):
            if offset not in self.compacted:
                self._replay(offset)
        self.machine.loaded(0, len(self.log))
        self.machine.validate()

    def compact(self) -> None:
        """Remove every superseded record and tombstone that the machine does not need."""
        spared: set[int] = set()
        machine: object = self.machine
        if isinstance(machine, NeedsOldRecords):
            spared.update(machine.needed_offsets())
        last = {key: offset for offset, (key, _, _) in enumerate(self.log)}
        # a tombstone may hide a spared record
        oldest_spared = min(spared, default=len(self.log))
        self.compacted |= {
            offset
            for offset, (key, value, _) in enumerate(self.log)
            if offset not in spared
            and (last[key] != offset or (value is None and offset < oldest_spared))
        }

    def _append(
        self, key: bytes, value: bytes | None, request_id: str, author: str = ""
    ) -> Sequence[Instruction]:
        self.log.append((key, value, request_id))
        self.authors.append(author)
        return self._replay(len(self.log) - 1)

    def _replay(self, offset: int) -> Sequence[Instruction]:
        key, value, request_id = self.log[offset]
        record = self._decode(key, value)
        author = self.authors[offset]
        return self.machine.replay(Replayed(offset, record, request_id, author, offset * 1_000))

    def _answer(self, call_id: str, instructions: Sequence[Instruction]) -> Any:
        answers: list[object] = []
        failures: list[DroverError] = []
        for instruction in instructions:
            match instruction:
                case Complete(answered, response):
                    assert answered == call_id
                    answers.append(response)
                case Fail(answered, error):
                    assert answered == call_id
                    failures.append(error)
                case Notify():
                    self.notified.append(instruction)
                case _:
                    raise AssertionError(f"unexpected {instruction}")
        assert len(answers) + len(failures) == 1, instructions
        if failures:
            raise failures[0]
        return answers[0]
