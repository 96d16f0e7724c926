"""What one event leads to, collected while it is handled."""

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
class Turn:
    """The records and instructions of one event, in order."""

    now_ms: int
    records: list[LogValue] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    on_append_failed: object | None = None

    def complete(self, call_id: str, response: object) -> None:
        """Answer a call."""
        self.instructions.append(Complete(call_id, response))

    def fail(self, call_id: str, error: DroverError) -> None:
        """Answer a call with an error."""
        self.instructions.append(Fail(call_id, error))

    def set_timer(self, key: str, deadline_ms: int, event: object) -> None:
        """Set or move a timer."""
        self.instructions.append(SetTimer(key, deadline_ms, event))

    def cancel_timer(self, key: str) -> None:
        """Forget a timer."""
        self.instructions.append(CancelTimer(key))

    def notify(self, channel: str, message: object) -> None:
        """Tell the watchers."""
        self.instructions.append(Notify(channel, message))

    def append(self, record: LogValue, on_append_failed: object | None = None) -> None:
        """Make ``record`` durable before anything of this turn is released."""
        self.records.append(record)
        if on_append_failed is not None:
            self.on_append_failed = on_append_failed

    def outcome(self) -> Outcome[LogValue]:
        """What the runtime gets."""
        return Outcome(
            records=tuple(self.records),
            instructions=tuple(self.instructions),
            on_append_failed=self.on_append_failed,
        )
