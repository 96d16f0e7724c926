"""The simulated runtime of a log-backed machine: decide, append, replay, release, one at a time.

It does what ``drover.runtime`` does, on a simulated disk, with the real machine.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from drover.errors import DroverError, Reason, UnavailableError
from drover.log.log import LogRecord, StoredRecord
from drover.machine import (
    AppendFailed,
    CancelTimer,
    Complete,
    Fail,
    Instruction,
    LogBackedMachine,
    NeedsOldRecords,
    Notify,
    Outcome,
    Replayed,
    SetTimer,
)
from drover.runtime.runtime import APPEND_FAILED_RETRY_MS, APPLIED_CHANNEL
from simulation.disk import Disk
from simulation.network import Heard, ServerCall
from simulation.process import Process, ProcessTimers
from simulation.world import BrokenRuleError

MachineT = TypeVar("MachineT", bound=LogBackedMachine[Any, Any])

LOADING_MAX_MS = 200
#: Every parked call has a shorter deadline; an older one was forgotten.
PARKED_MAX_MS = 30_000
LOADING = UnavailableError(Reason.LOADING, "the log is being read")


@dataclass(slots=True)
class _Waiting:
    """A parked call; ``heard`` gets the response."""

    event: object
    heard: Heard
    since_ms: int


@dataclass(slots=True)
class _Decision:
    """An outcome whose records are not durable yet."""

    event: object
    call_id: str
    outcome: Outcome[Any]
    decided_ms: int


class Fence(Protocol):
    """Protects a runtime whose log another process may take over."""

    @property
    def epoch(self) -> int:
        """The epoch of every append."""

    def refusal(self) -> DroverError | None:
        """The error while the runtime may not decide; None if it may."""

    def lost(self) -> DroverError:
        """The error for all callers after another process has taken over the log."""


class SimulatedRuntime(Generic[MachineT]):
    """One incarnation of a machine on its disk.

    Args:
        process: Its process.
        disk: Its log.
        machine: A new one.
        encode: Encodes a record for the log.
        decode: The inverse of ``encode``.
        notify: Gets the machine's notifications for watchers, by channel.
        released: Sees every response when it leaves the machine: the event, and the response.
        on_loaded: Called when the log has been read.
        validate_every: The number of events between two validations of the machine.
        fence: Rejects writes of any process but the log's owner; None for a log of one service.
        on_end: Called when the runtime stops serving, with the error for its watchers.
    """

    def __init__(
        self,
        process: Process,
        disk: Disk,
        machine: MachineT,
        *,
        encode: Callable[[Any], LogRecord],
        decode: Callable[[StoredRecord], Any],
        notify: Callable[[str, object], None],
        released: Callable[[object, object], None],
        on_loaded: Callable[[], None] = lambda: None,
        validate_every: int = 1,
        fence: Fence | None = None,
        on_end: Callable[[DroverError], None] = lambda why: None,
    ) -> None:
        self._process = process
        self._disk = disk
        self.machine = machine
        self._encode = encode
        self._decode = decode
        self._notify = notify
        self._released = released
        self._on_loaded = on_loaded
        self._validate_every = validate_every
        self._fence = fence
        self._on_end = on_end
        self._closing: DroverError | None = None
        self._on_closed: Callable[[], None] | None = None
        self._event_count = 0
        self._retry_count = 0
        self._queue: deque[tuple[object, str]] = deque()
        self._round_left = 0
        self._in_flight: _Decision | None = None
        self._calls: dict[str, _Waiting] = {}
        self._answered: set[str] = set()
        self._timers = ProcessTimers(process, self._go_on)
        self.loaded = False
        process.after(process.world.between(0, LOADING_MAX_MS), self._load)

    # --- from outside ------------------------------------------------------------------------

    def submit(self, event: object, call_id: str, heard: Heard) -> None:
        """Post an event; ``heard`` gets the machine's response or a DroverError."""
        if self._closing is not None:
            heard(self._closing)
            return
        if not self.loaded:
            heard(LOADING)
            return
        assert call_id not in self._calls
        self._calls[call_id] = _Waiting(event, heard, self._process.world.now_ms)
        self._queue.append((event, call_id))
        self._go_on()

    def serve(self, call: ServerCall, event: object, on_cancel: object | None = None) -> None:
        """Answer a call with the machine's response to ``event``."""
        if on_cancel is not None:
            call.watch_for_cancel(partial(self._abandon, call.call_id, on_cancel))
        self.submit(event, call.call_id, call.answer)

    def post(self, event: object) -> None:
        """Post an event that has no caller."""
        if self.loaded and self._closing is None:
            self._queue.append((event, ""))
            self._go_on()

    def compact(self) -> None:
        """Compact the log online: choose the offsets to keep now, remove the others after a
        delay.
        """
        if not self.loaded or self._closing is not None:
            return
        keep: Sequence[int] = ()
        below: int | None = None
        machine: object = self.machine
        if isinstance(machine, NeedsOldRecords):
            below = self._disk.end_offset
            keep = tuple(machine.needed_offsets())
        world = self._process.world
        self._process.after(world.between(0, 300), partial(self._compact, keep, below))

    def close(self, why: DroverError, closed: Callable[[], None]) -> None:
        """Finish the pending append, fail every call with ``why``, then call ``closed``."""
        self._closing = self._closing or why
        self._on_closed = closed
        if self._in_flight is None:
            self._end_calls()

    def check_parked(self) -> None:
        """Check that no call is parked for ever.

        Raises:
            BrokenRuleError: A call is older than ``PARKED_MAX_MS``.
        """
        for call_id, waiting in self._calls.items():
            age_ms = self._process.world.now_ms - waiting.since_ms
            if age_ms > PARKED_MAX_MS:
                raise BrokenRuleError(
                    "every parked request gets its answer",
                    f"call {call_id} waits for {age_ms} ms: {waiting.event}",
                    self._process.name,
                )

    # --- the loop ----------------------------------------------------------------------------

    def _load(self) -> None:
        if self._closing is not None:
            return
        for stored in self._disk.read():
            cause = stored.record
            self.machine.replay(
                Replayed(
                    stored.offset,
                    self._decode(stored),
                    cause.request_id,
                    cause.author,
                    stored.timestamp_ms,
                )
            )
        instructions = self.machine.loaded(self._process.now_ms, self._disk.end_offset)
        self.loaded = True
        self._release(instructions)
        self._validate(always=True)
        self._on_loaded()

    def _go_on(self) -> None:
        """Process rounds as the runtime does: queued events first, due timers second."""
        while self._in_flight is None and self._closing is None:
            if self._round_left and self._queue:
                self._round_left -= 1
                self._decide(*self._queue.popleft())
                continue
            due = self._timers.pop_due()
            if due is not None:
                self._decide(due, "")
            elif self._queue:
                self._round_left = len(self._queue)
            else:
                self._round_left = 0
                self._timers.arm()
                break

    def _decide(self, event: object, call_id: str) -> None:
        now_ms = self._process.now_ms
        refusal = None if self._fence is None else self._fence.refusal()
        if refusal is not None:
            self._fail(call_id, refusal)
            return
        try:
            outcome = self.machine.handle(event, now_ms)
        except DroverError as error:
            self._fail(call_id, error)
            return
        if outcome.records:
            self._in_flight = _Decision(event, call_id, outcome, now_ms)
            records = [self._encoded(record, self._in_flight) for record in outcome.records]
            epoch = outcome.writer_epoch
            if epoch is None and self._fence is not None:
                epoch = self._fence.epoch
            self._disk.append(self._process, records, epoch, self._appended)
        else:
            self._release(outcome.instructions)
        self._validate()

    def _encoded(self, record: object, decision: _Decision) -> LogRecord:
        outcome = decision.outcome
        return replace(
            self._encode(record),
            request_id=outcome.request_id,
            author=outcome.author,
            timestamp_ms=decision.decided_ms,
        )

    def _appended(self, result: int | DroverError) -> None:
        assert self._in_flight is not None
        decision, self._in_flight = self._in_flight, None
        event, call_id, outcome = decision.event, decision.call_id, decision.outcome
        if isinstance(result, DroverError):
            if self._fence is not None and result.reason is Reason.STALE_WRITER_EPOCH:
                self._closing = self._closing or self._fence.lost()
            else:
                self._append_failed(event, call_id, outcome, result)
        else:
            instructions: list[Instruction] = []
            for offset, record in enumerate(outcome.records, result - len(outcome.records)):
                replayed = Replayed(
                    offset, record, outcome.request_id, outcome.author, decision.decided_ms
                )
                instructions.extend(self.machine.replay(replayed))
            instructions.extend(outcome.instructions)
            self._release(instructions)
            self._notify(APPLIED_CHANNEL, None)
        if self._closing is not None:
            self._end_calls()
            return
        self._validate()
        self._go_on()

    def _end_calls(self) -> None:
        assert self._closing is not None
        self._queue.clear()
        for call_id in list(self._calls):
            self._fail(call_id, self._closing)
        self._on_end(self._closing)
        closed, self._on_closed = self._on_closed, None
        if closed is not None:
            closed()

    def _append_failed(
        self, event: object, call_id: str, outcome: Outcome[Any], error: DroverError
    ) -> None:
        for instruction in outcome.instructions:
            if isinstance(instruction, Complete | Fail):
                self._fail(instruction.call_id, error)
        if outcome.on_append_failed is None or self._closing is not None:
            self._fail(call_id, error)
            return
        failed = AppendFailed(outcome.on_append_failed, error)
        if isinstance(event, AppendFailed):
            self._retry_count += 1
            deadline_ms = self._process.now_ms + APPEND_FAILED_RETRY_MS
            self._timers.set(f"append failed {self._retry_count}", deadline_ms, failed)
        else:
            self._decide(failed, "")

    def _release(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Complete(call_id, response):
                    self._answer(call_id, response)
                case Fail(call_id, error):
                    self._answer(call_id, error)
                case SetTimer(key, deadline_ms, event):
                    self._timers.set(key, deadline_ms, event)
                case CancelTimer(key):
                    self._timers.cancel(key)
                case Notify(channel, message):
                    self._notify(channel, message)

    def _answer(self, call_id: str, response: object) -> None:
        if call_id in self._answered:
            raise BrokenRuleError(
                "a request gets one answer", f"call {call_id} gets {response}", self._process.name
            )
        self._answered.add(call_id)
        waiting = self._calls.pop(call_id, None)
        if waiting is not None:
            self._released(waiting.event, response)
            waiting.heard(response)

    def _fail(self, call_id: str, error: DroverError) -> None:
        if call_id and call_id in self._calls:
            self._answer(call_id, error)

    def _abandon(self, call_id: str, on_cancel: object) -> None:
        if self._calls.pop(call_id, None) is not None:
            self.post(on_cancel)

    def _compact(self, keep: Sequence[int], below: int | None) -> None:
        removed = self._disk.compact(keep, below)
        self._process.world.tell(
            (self._disk.name,), "{}: compaction removes {} records", self._disk.name, removed
        )

    def _validate(self, *, always: bool = False) -> None:
        """Validate the machine; between decision and replay its state may be incomplete."""
        self._event_count += 1
        if self._in_flight is not None:
            return
        if always or self._event_count % self._validate_every == 0:
            try:
                self.machine.validate()
            except AssertionError as error:
                raise BrokenRuleError(
                    "a machine's invariants hold", str(error), self._process.name
                ) from error
