"""The two kinds of machine that decide everything in Drover.

A machine is pure: it has no clock, no network, no storage, no threads. Time comes in as ``now_ms``.

*Log-backed* machines (group, config state, status state) split deciding from changing: ``handle``
looks at hard state and returns records and instructions; hard state changes only in ``replay``,
which serves live records and those read at start-up alike. ``drover.runtime`` keeps the order:
decide, append, replay, release the instructions. Soft state (parked calls, timers) may change in
``handle``.

*Volatile* machines (herder, connector and task lifecycles) take events and return instructions that
a shell executes, feeding each completion back as an event.
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
    """Answer the call that was parked under ``call_id`` with ``response``."""

    call_id: str
    response: object


@dataclass(frozen=True, slots=True)
class Fail:
    """Answer the call that was parked under ``call_id`` with ``error``."""

    call_id: str
    error: DroverError


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Hand ``event`` to the machine at ``deadline_ms``; replaces the timer of the same key."""

    key: str
    deadline_ms: int
    event: object


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Forget the timer ``key``, if it is set."""

    key: str


@dataclass(frozen=True, slots=True)
class Notify:
    """Give ``message`` to everyone who watches ``channel``. A slow watcher is dropped, not waited
    for.
    """

    channel: str
    message: object


Instruction = Complete | Fail | SetTimer | CancelTimer | Notify


@dataclass(slots=True)  # one for every event; frozen ones take several times as long to make
class Outcome(Generic[RecordT]):
    """What a log-backed machine decided about one event.

    ``records`` are appended atomically and then replayed; ``instructions`` are released only after
    that. When the append fails, hard state is unchanged, every call that a ``Complete`` or ``Fail``
    among the instructions names is failed with the append's error, the other instructions are
    dropped, and ``on_append_failed`` goes back into the machine inside ``AppendFailed``; if it is
    None, the call that brought the event is failed too, should it still wait.

    ``request_id`` is stored beside the records; a machine that sees it again in ``replay`` after a
    restart can answer a repeated request as it did the first time. So is ``author``, who asked.
    """

    records: Sequence[RecordT] = ()
    instructions: Sequence[Instruction] = ()
    writer_epoch: int | None = None
    request_id: str = ""
    on_append_failed: object | None = None
    author: str = ""


@dataclass(frozen=True, slots=True)
class AppendFailed:
    """The records that ``event`` led to could not be appended, because of ``error``."""

    event: object
    error: DroverError


@dataclass(slots=True)  # one for every record, as with outcomes
class Replayed(Generic[RecordT_co]):
    """A record as ``replay`` gets it: with its log offset, the request that caused it, who asked
    for it (empty if unknown) and when it was decided.
    """

    offset: int
    record: RecordT_co
    request_id: str = ""
    author: str = ""
    timestamp_ms: int = 0


class LogBackedMachine(Protocol[EventT_contra, RecordT]):
    """A machine whose hard state is the fold of a log."""

    def handle(self, event: EventT_contra, now_ms: int) -> Outcome[RecordT]:
        """Decide about ``event``; must not change hard state."""

    def replay(self, replayed: Replayed[RecordT]) -> Sequence[Instruction]:
        """Apply a durable record; the one place where hard state changes.

        The instructions it returns (such as notifications for watchers) are released only live, not
        while the log is loaded.
        """

    def loaded(self, now_ms: int, end_offset: int) -> Sequence[Instruction]:
        """The whole log has been replayed; arm what has to be armed."""

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""


@runtime_checkable
class NeedsOldRecords(Protocol):
    """A log-backed machine whose fold depends on more than the last record of each key."""

    def needed_offsets(self) -> Collection[int]:
        """Offsets that compaction must spare, so that replaying what is left comes out the same."""


InstructionT_co = TypeVar("InstructionT_co", covariant=True)


class VolatileMachine(Protocol[EventT_contra, InstructionT_co]):
    """A machine without a log: events in, instructions out."""

    def step(self, event: EventT_contra, now_ms: int) -> Sequence[InstructionT_co]:
        """Take an event; return what the shell has to do, in order."""

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""


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
