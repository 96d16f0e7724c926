"""The two kinds of state machines in Drover.

A machine is pure: it has no clock, network, storage or threads. Time is the argument ``now_ms``.

*Log-backed* machines (group, config state, status state) separate decisions from changes.
``handle`` reads hard state and returns records and instructions. Hard state changes only in
``replay``, which processes live records and the records that are loaded at the start.
``drover.runtime`` ensures the order: decide, append, replay, release the instructions. Soft state
(parked calls, timers) may change in ``handle``.

*Volatile* machines (herder, connector and task lifecycles) receive events and return instructions.
A shell executes the instructions, and returns each completion as an event.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, runtime_checkable

from drover.errors import DroverError

RecordT = TypeVar("RecordT")
RecordT_co = TypeVar("RecordT_co", covariant=True)
EventT_contra = TypeVar("EventT_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Complete:
    """Complete the call that was parked under ``call_id`` with ``response``."""

    call_id: str
    response: object


@dataclass(frozen=True, slots=True)
class Fail:
    """Fail the call that was parked under ``call_id`` with ``error``."""

    call_id: str
    error: DroverError


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Pass ``event`` to the machine at ``deadline_ms``. Replaces a timer with the same key."""

    key: str
    deadline_ms: int
    event: object


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Cancel the timer ``key``, if it is set."""

    key: str


@dataclass(frozen=True, slots=True)
class Notify:
    """Send ``message`` to all watchers of ``channel``. A slow watcher is dropped."""

    channel: str
    message: object


Instruction = Complete | Fail | SetTimer | CancelTimer | Notify


@dataclass(slots=True)  # one per event; creating frozen ones takes several times as long
class Outcome(Generic[RecordT]):
    """The decision of a log-backed machine about one event.

    If the append of ``records`` fails, hard state is unchanged, every call that a ``Complete`` or
    ``Fail`` instruction names fails with the append's error, the other instructions are dropped,
    and ``on_append_failed`` is passed to the machine inside ``AppendFailed``. If
    ``on_append_failed`` is None, the call of the event fails too, if it is still parked.

    Attributes:
        records: Appended atomically, then replayed.
        instructions: Released after the records are replayed.
        writer_epoch: The epoch of a privileged append; None for other appends.
        request_id: Stored with the records. A machine that reads it in ``replay`` after a restart
            can return the first response to a repeated request.
        on_append_failed: See above.
        author: The user who requested the change; stored with the records.
    """

    records: Sequence[RecordT] = ()
    instructions: Sequence[Instruction] = ()
    writer_epoch: int | None = None
    request_id: str = ""
    on_append_failed: object | None = None
    author: str = ""


@dataclass(frozen=True, slots=True)
class AppendFailed:
    """The append of the records for ``event`` failed because of ``error``."""

    event: object
    error: DroverError


@dataclass(slots=True)  # one per record; not frozen, as Outcome
class Replayed(Generic[RecordT_co]):
    """A record for ``replay``.

    Attributes:
        offset: Its offset in the log.
        record: The record.
        request_id: The request that caused it.
        author: The user who requested it; empty if unknown.
        timestamp_ms: When it was decided.
    """

    offset: int
    record: RecordT_co
    request_id: str = ""
    author: str = ""
    timestamp_ms: int = 0


class LogBackedMachine(Protocol[EventT_contra, RecordT]):
    """A machine whose hard state is a fold over a log."""

    def handle(self, event: EventT_contra, now_ms: int) -> Outcome[RecordT]:
        """Decide about ``event``; must not change hard state."""

    def replay(self, replayed: Replayed[RecordT]) -> Sequence[Instruction]:
        """Apply a durable record; the only place where hard state changes.

        Returns:
            Instructions such as notifications for watchers. They are released for live records
            only, not while the log is loaded.
        """

    def loaded(self, now_ms: int, end_offset: int) -> Sequence[Instruction]:
        """The whole log has been replayed; return instructions such as timers."""

    def validate(self) -> None:
        """Raise AssertionError if an invariant is violated."""


@runtime_checkable
class NeedsOldRecords(Protocol):
    """A log-backed machine whose fold depends on more than the last record of each key."""

    def needed_offsets(self) -> Collection[int]:
        """Offsets that compaction must keep, so that replaying the compacted log has the same
        result.
        """


InstructionT_co = TypeVar("InstructionT_co", covariant=True)


class VolatileMachine(Protocol[EventT_contra, InstructionT_co]):
    """A machine without a log: events in, instructions out."""

    def step(self, event: EventT_contra, now_ms: int) -> Sequence[InstructionT_co]:
        """Handle an event; return the instructions for the shell, in order."""

    def validate(self) -> None:
        """Raise AssertionError if an invariant is violated."""


__all__ = [
    "AppendFailed",
    "CancelTimer",
    "Complete",
    "Fail",
    "Instruction",
    "LogBackedMachine",
    "NeedsOldRecords",
    "Notify",
    "Outcome",
    "Replayed",
    "SetTimer",
    "VolatileMachine",
]
