"""Collects the outcome of one event: records to append and instructions."""

from dataclasses import dataclass, field

from drover.errors import DroverError
from drover.machine import (
    CancelTimer,
    Complete,
    Fail,
    Instruction,
    Notify,
    Outcome,
    SetTimer,
)
from drover_coordinator.core.groups.records import LogValue


@dataclass(slots=True)
class OutcomeBuilder:
    """The records and instructions of one event, in order.

    ``on_append_failed`` is the event that the machine handles if the append fails.
    """

    now_ms: int
    records: list[LogValue] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    on_append_failed: object | None = None

    def complete(self, call_id: str, response: object) -> None:
        """Complete a call with a response."""
        self.instructions.append(Complete(call_id, response))

    def fail(self, call_id: str, error: DroverError) -> None:
        """Fail a call with an error."""
        self.instructions.append(Fail(call_id, error))

    def set_timer(self, key: str, deadline_ms: int, event: object) -> None:
        """Set or move a timer."""
        self.instructions.append(SetTimer(key, deadline_ms, event))

    def cancel_timer(self, key: str) -> None:
        """Cancel a timer."""
        self.instructions.append(CancelTimer(key))

    def notify(self, channel: str, message: object) -> None:
        """Send a message to the watchers of a channel."""
        self.instructions.append(Notify(channel, message))

    def append(self, record: LogValue, on_append_failed: object | None = None) -> None:
        """Append ``record`` before any instruction of this event is released."""
        self.records.append(record)
        if on_append_failed is not None:
            self.on_append_failed = on_append_failed

    def outcome(self) -> Outcome[LogValue]:
        """The collected outcome, for the runtime."""
        return Outcome(
            records=tuple(self.records),
            instructions=tuple(self.instructions),
            on_append_failed=self.on_append_failed,
        )
