"""Drives status machines directly, on the bytes of a log in a list: no event loop, no clock."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from drover.errors import DroverError, Reason, UnavailableError
from drover.log.log import LogRecord, StoredRecord
from drover.machine import AppendFailed, Complete, Instruction, Outcome, Replayed, SetTimer
from drover.model.status import Status, StatusChange, StatusKey
from drover_status_store.core.events import RewriteDue
from drover_status_store.core.machine import StatusMachine
from drover_status_store.core.records import AnyRecord
from drover_status_store.server import decode_record, encode_record


class StatusDriver:
    """One process of the status store.

    Args:
        log: The log that it reads and appends to; drivers with the same log are replicas.
        make: A fresh machine.
    """

    def __init__(
        self,
        log: list[LogRecord] | None = None,
        make: Callable[[], StatusMachine] = StatusMachine,
    ) -> None:
        self.log: list[LogRecord] = [] if log is None else log
        self.now_ms = 0
        self._make = make
        self._timers: dict[str, SetTimer] = {}
        self.restart()

    @property
    def statuses(self) -> dict[StatusKey, Status]:
        """Every status that readers see."""
        return dict(self.machine.snapshot().statuses)

    def restart(self) -> None:
        """A fresh machine, loaded from the log."""
        self.machine = self._make()
        self._timers.clear()
        self._position = 0
        self.read(release=False)
        self._release(self.machine.loaded(self.now_ms, self._position))

    def submit(self, event: Any) -> Any:
        """The machine's response to ``event``, once its records are read back."""
        outcome = self.decide(event)
        self.append(outcome)
        self.read()
        return self.release(outcome, event.call_id)

    def decide(self, event: Any) -> Outcome[AnyRecord]:
        """The machine's decision, on the records read so far."""
        outcome = self.machine.handle(event, self.now_ms)
        self.machine.validate()
        return outcome

    def append(self, outcome: Outcome[AnyRecord]) -> None:
        """Write the records of a decision."""
        self.log += [encode_record(record) for record in outcome.records]

    def lose(self, outcome: Outcome[AnyRecord]) -> None:
        """Fail the append of a decision."""
        if outcome.on_append_failed is not None:
            error: DroverError = UnavailableError(Reason.STORAGE_UNAVAILABLE, "disk full")
            self._release(self.decide(AppendFailed(outcome.on_append_failed, error)).instructions)

    def release(self, outcome: Outcome[AnyRecord], call_id: str = "") -> Any:
        """Execute a decision's instructions; returns the response to the call."""
        return self._release(outcome.instructions, call_id)

    def write_foreign(self, *records: tuple[str, str | None]) -> None:
        """Append records that another program wrote: key and JSON; and read them."""
        for key, value in records:
            self.log.append(LogRecord(key.encode(), None if value is None else value.encode()))
        self.read()

    def read(self, *, release: bool = True) -> list[StatusChange]:
        """Read the log to its end; returns the watchers' changes."""
        start = self._position
        for offset in range(start, len(self.log)):
            record = self.log[offset]
            time_ms = self.now_ms if record.timestamp_ms is None else record.timestamp_ms
            stored = StoredRecord(offset, time_ms, record)
            replayed = Replayed(offset, decode_record(stored), timestamp_ms=time_ms)
            instructions = self.machine.replay(replayed)
            if release:
                self._release(instructions)
        self._position = len(self.log)
        self.machine.validate()
        return self.machine.history.read(start)

    def pass_time(self, duration_ms: int) -> None:
        """Advance the time, and process due timers."""
        self.now_ms += duration_ms
        for outcome in self.due():
            self.append(outcome)
            self.read()
            self.release(outcome)

    def due(self) -> Iterator[Outcome[AnyRecord]]:
        """The decisions of due timers, one after another."""
        while due := self._pop_due():
            yield self.decide(due.event)

    def decide_repeats(self) -> Sequence[AnyRecord]:
        """The statuses to write again because later records hide them."""
        return self.decide(RewriteDue()).records

    def _pop_due(self) -> SetTimer | None:
        for key, timer in self._timers.items():
            if timer.deadline_ms <= self.now_ms:
                return self._timers.pop(key)
        return None

    def _release(self, instructions: Sequence[Instruction], call_id: str = "") -> Any:
        answers: list[object] = []
        for instruction in instructions:
            if isinstance(instruction, SetTimer):
                self._timers[instruction.key] = instruction
            else:
                assert isinstance(instruction, Complete)
                assert instruction.call_id == call_id
                answers.append(instruction.response)
        assert len(answers) == (1 if call_id else 0)
        return answers[0] if answers else None
