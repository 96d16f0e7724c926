"""The runtime of a log-backed machine: decide, append, replay, release; one event at a time."""

import asyncio
import dataclasses
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import structlog

from drover.clock import Clock
from drover.errors import (
    DataLossError,
    DroverError,
    InternalError,
    Reason,
    ResourceExhaustedError,
    UnavailableError,
)
from drover.log.log import Log, LogRecord, StoredRecord
from drover.machine import (
    AppendFailed,
    CancelTimer,
    Complete,
    Fail,
    Instruction,
    LogBackedMachine,
    Notify,
    Outcome,
    Replayed,
    SetTimer,
)
from drover.runtime.alarms import Alarm, call_at
from drover.runtime.compaction import Compactor
from drover.runtime.timers import Timers
from drover.runtime.watchers import Watcher, Watchers

R = TypeVar("R")

MAX_QUEUE = 10_000
MAX_WATCHERS = 10_000
EVENTS_BETWEEN_YIELDS = 200
APPEND_FAILED_RETRY_MS = 1_000

_logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Decision(Generic[R]):
    """An outcome whose records are not durable yet."""

    event: object
    call_id: str
    outcome: Outcome[R]


class Runtime(Generic[R]):
    """Runs a log-backed machine.

    Events are handled strictly one at a time: ``machine.handle`` decides, its records are appended
    to the log, replayed into the machine, and only then its instructions are released. An event
    that finds the runtime idle is handled at once in the caller's task, and if it leads to no
    records it is answered there too, without a task switch.

    Args:
        machine: What decides. Its hard state must be empty.
        log: Where the records go. The runtime does not close it.
        encode: A record as the log keeps it; the outcome's request id is filled in.
        decode: The way back; None for records that are not the machine's concern. What it raises
            is reported as LOG_CORRUPT.
        clock: The time that the machine is told; timers follow it.
        name: Names the machine in logs and messages ("coordinator").
        max_queue: How many events may wait for their turn.
        max_watchers: How many watchers there may be.
        writer_epoch: For every append whose outcome names none; the shell has claimed the log.
        refusal: Asked before anything is decided: None, or the error of callers while the machine
            must not speak for its log. Timers that ring meanwhile are dropped.
        on_fenced: Called once when the log refuses ``writer_epoch``; returns what callers hear.
            The runtime serves nobody from then on; it still has to be closed.
    """

    def __init__(
        self,
        machine: LogBackedMachine[Any, R],
        log: Log,
        *,
        encode: Callable[[R], LogRecord],
        decode: Callable[[StoredRecord], R | None],
        clock: Clock,
        name: str,
        max_queue: int = MAX_QUEUE,
        max_watchers: int = MAX_WATCHERS,
        writer_epoch: int | None = None,
        refusal: Callable[[], DroverError | None] | None = None,
        on_fenced: Callable[[], DroverError] | None = None,
    ) -> None:
        self._machine = machine
        self._log = log
        self._encode = encode
        self._decode = decode
        self._clock = clock
        self._name = name
        self._max_queue = max_queue
        self._writer_epoch = writer_epoch
        self._refusal = refusal
        self._on_fenced = on_fenced
        self._queue: deque[tuple[object, str]] = deque()
        self._calls: dict[str, asyncio.Future[object]] = {}
        self._timers = Timers()
        self._watchers = Watchers(max_watchers)
        self._in_flight: _Decision[R] | None = None
        self._alarm: Alarm | None = None
        self._alarm_ms = 0
        self._wake = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        self._compactor = Compactor(machine, log, name)
        self._settled = asyncio.Event()
        self._settled.set()
        self._retry_count = 0
        self._handled_count = 0
        self._loading = False
        self._loaded = False
        self._closing = False
        self._why_closed: DroverError | None = None

    @property
    def loaded(self) -> bool:
        """Whether the whole log has been replayed, so that calls are served."""
        return self._loaded

    @property
    def log_id(self) -> str:
        """Names the sequence that the log's offsets count in; see ``Log.log_id``."""
        return self._log.log_id

    async def load(self) -> None:
        """Replay the whole log, then start to serve.

        Raises:
            DataLossError: LOG_CORRUPT, a record cannot be read or decoded.
            UnavailableError: STORAGE_UNAVAILABLE.
        """
        if self._loading or self._loaded:
            raise InternalError(f"{self._name} is loaded once only")
        self._loading = True
        keys: set[int] = set()
        record_count = 0
        async for batch in self._log.read(0):
            for stored in batch:
                self._replay_stored(stored)
                keys.add(hash(stored.record.key))
            record_count += len(batch)
            await asyncio.sleep(0)
            if self._closing:
                raise self._draining()
        end_offset = await self._log.end_offset()
        instructions = self._machine.loaded(self._clock.now_ms(), end_offset)
        self._loaded = True
        self._release(instructions)
        self._runner = asyncio.create_task(self._run(), name=f"{self._name} runtime")
        self._wake.set()
        self._compactor.loaded(record_count=record_count, key_count=len(keys))

    async def submit(
        self, event: object, *, call_id: str, on_cancel: object | None = None
    ) -> object:
        """Hand ``event`` to the machine and wait for its answer to ``call_id``.

        Args:
            event: Carries ``call_id``, so that the machine can answer it, at once or later.
            call_id: Unique among the calls that wait.
            on_cancel: Handed to the machine when this task is cancelled while the call waits.

        Raises:
            DroverError: What the machine answered.
            UnavailableError: LOADING before ``load`` is through, DRAINING from ``close`` on,
                STORAGE_UNAVAILABLE when the records could not be appended.
            ResourceExhaustedError: QUEUE_FULL, too many events wait.
            InternalError: The machine has a defect.
        """
        self._check_serving()
        if call_id in self._calls:
            raise InternalError(f"call id {call_id!r} is used twice")
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._calls[call_id] = answer
        try:
            self._accept(event, call_id)
        except ResourceExhaustedError:
            del self._calls[call_id]
            raise
        try:
            return await answer
        except asyncio.CancelledError:
            unanswered = self._calls.pop(call_id, None) is not None
            if not unanswered and not answer.cancelled():
                answer.exception()  # it came too late; nobody is to be warned about it
            if unanswered and on_cancel is not None and not self._closing:
                self._enqueue(on_cancel, "")
            raise

    async def post(self, event: object) -> None:
        """Hand ``event`` to the machine; nobody waits for an answer.

        It is taken however many events wait, since nobody would learn that it was lost: such as
        the end of a watch. Whoever posts sees to a bound, such as one event for each watch.

        Raises:
            UnavailableError: LOADING or DRAINING.
        """
        self.post_nowait(event)

    def post_nowait(self, event: object) -> None:
        """As ``post``, for callbacks of the event loop."""
        self._check_serving()
        if self._in_flight is None and not self._queue:
            self._decide(event, "")
        else:
            self._enqueue(event, "")

    def hold_timers(self, duration_ms: int) -> None:
        """Let no timer fire for so long, as what would move it may wait unheard."""
        self._timers.hold_until(self._clock.now_ms() + duration_ms)

    def watch(self, channel: str, max_queue: int, *, also: Sequence[str] = ()) -> Watcher:
        """Watch what the machine notifies on ``channel``, and on others, from now on.

        To combine it with a snapshot, watch first, then submit the request for the snapshot.

        Raises:
            UnavailableError: LOADING or DRAINING.
            ResourceExhaustedError: QUEUE_FULL, too many watchers.
        """
        self._check_serving()
        return self._watchers.add(channel, max_queue, also=also)

    async def wait_until_idle(self) -> None:
        """Wait until no event waits and no append is under way; timers may be set."""
        await self._settled.wait()

    async def close(self, why: DroverError | None = None) -> None:
        """Finish the append under way, end every waiting call and watch with ``why``; idempotent.

        Args:
            why: By default DRAINING. Whoever comes later hears it too.
        """
        self._why_closed = self._why_closed or why
        self._closing = True
        self._wake.set()
        if self._runner is not None:
            await asyncio.shield(self._runner)
        await self._compactor.close()
        if self._alarm is not None:
            self._alarm.cancel()
        self._end_calls()

    def _end_calls(self) -> None:
        self._timers.clear()
        self._queue.clear()
        for call_id in list(self._calls):
            self._fail(call_id, self._draining())
        self._watchers.end_all(self._draining())

    # accepting events

    def _check_serving(self) -> None:
        if self._closing:
            raise self._draining()
        if not self._loaded:
            raise UnavailableError(
                Reason.LOADING, f"{self._name} is reading its log; try again in a moment"
            )

    def _draining(self) -> DroverError:
        return self._why_closed or UnavailableError(
            Reason.DRAINING, f"{self._name} is shutting down; try again when it is back"
        )

    def _accept(self, event: object, call_id: str) -> None:
        if self._in_flight is None and not self._queue:
            self._decide(event, call_id)
        elif len(self._queue) < self._max_queue:
            self._enqueue(event, call_id)
        else:
            raise ResourceExhaustedError(
                Reason.QUEUE_FULL,
                f"{self._max_queue} requests wait for {self._name}; slow down and try again",
            )

    def _enqueue(self, event: object, call_id: str) -> None:
        self._queue.append((event, call_id))
        self._wake_runner()

    def _wake_runner(self) -> None:
        self._settled.clear()
        self._wake.set()

    # the serial loop

    async def _run(self) -> None:
        while not self._closing:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._drain()
                self._set_alarm()
            except Exception:
                _logger.exception("defect in the runtime", machine=self._name)
            self._settled.set()

    async def _drain(self) -> None:
        """Handle queued events and due timers until there are none.

        A round is what was queued at its start, then what timers were due: a heartbeat that came
        in time counts though the loop was late, and neither side starves the other.
        """
        await self._finish_append()
        busy = True
        while busy and not self._closing:
            busy = bool(self._queue)
            for _ in range(len(self._queue)):
                await self._handle(*self._queue.popleft())
            for _ in range(len(self._timers)):
                due = self._timers.pop_due(self._clock.now_ms())
                if due is None:
                    break
                busy = True
                await self._handle(due[1], "")

    async def _handle(self, event: object, call_id: str) -> None:
        if self._closing:
            self._fail(call_id, self._draining())
            return
        self._decide(event, call_id)
        self._handled_count += 1
        if self._handled_count % EVENTS_BETWEEN_YIELDS == 0:
            await asyncio.sleep(0)
        await self._finish_append()

    def _decide(self, event: object, call_id: str) -> None:
        """Let the machine decide; release what needs no records, put the rest in flight."""
        refusal = self._refusal() if self._refusal is not None else None
        if refusal is not None:
            self._fail(call_id, refusal)
            return
        try:
            outcome = self._machine.handle(event, self._clock.now_ms())
            if outcome.records:
                self._in_flight = _Decision(event, call_id, outcome)
                self._wake_runner()
            else:
                self._release(outcome.instructions)
        except DroverError as error:
            self._fail(call_id, error)
        except Exception:  # noqa: BLE001 a defect must not end the loop
            self._report_defect("handle", event, call_id)

    async def _finish_append(self) -> None:
        """Append, replay and release what is in flight, and what follows from a failure of it."""
        while self._in_flight is not None:
            decision = self._in_flight
            outcome = decision.outcome
            try:
                records = [self._encoded(record, outcome.request_id) for record in outcome.records]
                epoch = outcome.writer_epoch
                end_offset = await self._log.append(
                    records, self._writer_epoch if epoch is None else epoch
                )
            except DroverError as error:
                self._in_flight = None
                if epoch is None and error.reason is Reason.STALE_WRITER_EPOCH:
                    self._fenced()
                else:
                    self._append_failed(decision, error)
            except Exception:  # noqa: BLE001
                self._in_flight = None
                defect = self._report_defect("append", decision.event, decision.call_id)
                self._append_failed(decision, defect)
            else:
                self._in_flight = None
                self._apply(decision, end_offset - len(records))

    def _encoded(self, record: R, request_id: str) -> LogRecord:
        encoded = self._encode(record)
        return dataclasses.replace(encoded, request_id=request_id) if request_id else encoded

    def _apply(self, decision: _Decision[R], first_offset: int) -> None:
        outcome = decision.outcome
        instructions: list[Instruction] = []
        try:
            for offset, record in enumerate(outcome.records, first_offset):
                replayed = Replayed(offset, record, outcome.request_id)
                instructions.extend(self._machine.replay(replayed))
        except Exception:  # noqa: BLE001
            defect = self._report_defect("replay", decision.event, decision.call_id)
            self._fail_all(outcome.instructions, defect)
        else:
            instructions.extend(outcome.instructions)
        self._release(instructions)
        self._compactor.appended(len(outcome.records))

    def _append_failed(self, decision: _Decision[R], error: DroverError) -> None:
        _logger.warning(
            "append failed", machine=self._name, reason=str(error.reason), error=error.message
        )
        outcome = decision.outcome
        self._fail_all(outcome.instructions, error)
        if outcome.on_append_failed is None:
            self._fail(decision.call_id, error)  # nobody else will answer it
            return
        failed = AppendFailed(outcome.on_append_failed, error)
        if isinstance(decision.event, AppendFailed):
            # the repair could not be written either: not in a tight loop
            self._retry_count += 1
            deadline_ms = self._clock.now_ms() + APPEND_FAILED_RETRY_MS
            self._timers.set(f"append failed {self._retry_count}", deadline_ms, failed)
        else:
            self._decide(failed, "")

    def _fenced(self) -> None:
        """Another writer has the log: what this machine knows is of the past."""
        _logger.warning("the log has another writer", machine=self._name, epoch=self._writer_epoch)
        if self._on_fenced is not None and not self._closing:
            self._why_closed = self._on_fenced()
        self._closing = True
        self._end_calls()

    # releasing instructions

    def _release(self, instructions: Sequence[Instruction]) -> None:
        timers_changed = False
        for instruction in instructions:
            if isinstance(instruction, Complete):
                call = self._calls.pop(instruction.call_id, None)
                if call is not None and not call.done():
                    call.set_result(instruction.response)
            elif isinstance(instruction, SetTimer):
                self._timers.set(instruction.key, instruction.deadline_ms, instruction.event)
                timers_changed = True
            elif isinstance(instruction, CancelTimer):
                self._timers.cancel(instruction.key)
            elif isinstance(instruction, Notify):
                self._watchers.notify(instruction.channel, instruction.message)
            else:
                self._fail(instruction.call_id, instruction.error)
        if timers_changed:
            self._set_alarm()

    def _fail(self, call_id: str, error: DroverError) -> None:
        call = self._calls.pop(call_id, None)
        if call is not None and not call.done():
            call.set_exception(error)

    def _fail_all(self, instructions: Sequence[Instruction], error: DroverError) -> None:
        for instruction in instructions:
            if isinstance(instruction, Complete | Fail):
                self._fail(instruction.call_id, error)

    def _report_defect(self, where: str, event: object, call_id: str) -> InternalError:
        """Log the exception that is being handled and answer the call that met it."""
        _logger.exception(
            "defect in a machine", machine=self._name, where=where, event_type=type(event).__name__
        )
        error = InternalError(
            f"{self._name} has a defect (in {where}); its log has the trace at this time"
        )
        self._fail(call_id, error)
        return error

    # timers

    def _set_alarm(self) -> None:
        """Be woken for the next timer. An alarm that is too early is left alone: it sets the next
        one, and heartbeats, which only move timers back, need not touch the clock.
        """
        deadline_ms = self._timers.next_deadline_ms()
        if deadline_ms is None or self._closing:
            return
        if self._alarm is not None:
            if self._alarm_ms <= deadline_ms:
                return
            self._alarm.cancel()
        self._alarm_ms = deadline_ms
        self._alarm = call_at(self._clock, deadline_ms, self._ring)

    def _ring(self) -> None:
        """Handle due timers here as long as they need no append; else the runner does."""
        self._alarm = None
        for _ in range(len(self._timers)):
            if self._in_flight is not None or self._queue or self._closing:
                return  # the runner looks at timers, and sets the alarm, when it is through
            due = self._timers.pop_due(self._clock.now_ms())
            if due is None:
                break
            self._decide(due[1], "")
        self._set_alarm()

    # loading

    def _replay_stored(self, stored: StoredRecord) -> None:
        try:
            record = self._decode(stored)
        except Exception as error:
            raise DataLossError(
                Reason.LOG_CORRUPT,
                f"{self._name}: the record at offset {stored.offset} cannot be decoded ({error});"
                " restore the log from a backup",
                metadata={"offset": str(stored.offset)},
            ) from error
        if record is None:
            return
        try:
            self._machine.replay(Replayed(stored.offset, record, stored.record.request_id))
        except Exception as error:
            raise self._report_defect("replay", record, "") from error
