"""The runtime of a log-backed machine: decide, append, replay, release; one event at a time."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import structlog

from drover.clock import Clock
from drover.errors import (
    DroverError,
    InternalError,
    Reason,
    ResourceExhaustedError,
)
from drover.log.log import Log, LogRecord, StoredRecord
from drover.machine import AppendFailed, Instruction, LogBackedMachine, Outcome
from drover.metrics import table
from drover.metrics.metric import Sample
from drover.runtime.delivery import Delivery
from drover.runtime.journal import Journal
from drover.runtime.lifecycle import Lifecycle
from drover.runtime.log_replay import report_defect
from drover.runtime.watchers import Watcher, Watchers

R = TypeVar("R")

MAX_QUEUE = 10_000
MAX_WATCHERS = 10_000
EVENTS_BETWEEN_YIELDS = 200
APPEND_FAILED_RETRY_MS = 1_000
#: Where watchers hear that records were applied, whoever wrote them; once for each append, or for a
#: few of them together. There is no message.
APPLIED_CHANNEL = "records applied"

_logger = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Decision(Generic[R]):
    """An outcome whose records are not durable yet."""

    event: object
    call_id: str
    outcome: Outcome[R]
    decided_ms: int


class Runtime(Generic[R]):
    """Runs a log-backed machine.

    Events are handled strictly one at a time: ``machine.handle`` decides, its records are appended
    to the log, replayed into the machine, and only then its instructions are released. An event
    that finds the runtime idle is handled at once in the caller's task, and if it leads to no
    records it is answered there too, without a task switch.

    A ``FollowedLog`` has other writers. There records take effect, own and foreign alike, when the
    log brings them, in its order: between a decision and its records there may be records of
    others. What a decision releases still waits for its own.

    Args:
        machine: What decides. Its hard state must be empty.
        log: Where the records go. The runtime does not close it.
        encode: A record as the log keeps it, with a request id of its own where the outcome names
            none; author and time are filled in.
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
        self._clock = clock
        self._name = name
        self._max_queue = max_queue
        self._writer_epoch = writer_epoch
        self._refusal = refusal
        self._on_fenced = on_fenced
        self._queue: deque[tuple[object, str]] = deque()
        self._watchers = Watchers(max_watchers)
        self._delivery = Delivery(clock, self._watchers, self._ring)
        self._timers = self._delivery.timers
        self._journal = Journal(
            machine,
            log,
            encode=encode,
            decode=decode,
            name=name,
            on_applied=self._applied,
            on_broken=self._broken,
        )
        self._in_flight: _Decision[R] | None = None
        self._wake = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._settled.set()
        self._retry_count = 0
        self._handled_count = 0
        self._loading = False
        self._life = Lifecycle(name)

    @property
    def loaded(self) -> bool:
        """Whether the whole log has been replayed, so that calls are served."""
        return self._life.loaded

    @property
    def log_id(self) -> str:
        """Names the sequence that the log's offsets count in; see ``Log.log_id``."""
        return self._log.log_id

    async def load(self) -> None:
        """Replay the whole log, then start to serve.

        After STORAGE_UNAVAILABLE it may be called again.

        Raises:
            DataLossError: LOG_CORRUPT, a record cannot be read or decoded.
            UnavailableError: STORAGE_UNAVAILABLE; DRAINING when it was closed meanwhile.
        """
        if self._loading or self._life.loaded:
            raise InternalError(f"{self._name} is loaded once only")
        self._loading = True
        try:
            end_offset = await self._journal.load()
        finally:
            self._loading = False
        if self._life.ending:
            raise self._life.error
        instructions = self._machine.loaded(self._clock.now_ms(), end_offset)
        self._life.loaded = True
        self._delivery.release(instructions)
        self._runner = asyncio.create_task(self._run(), name=f"{self._name} runtime")
        self._wake.set()

    def check_loaded(self) -> None:
        """Raise an error for callers while the machine cannot be asked about its log.

        Raises:
            UnavailableError: LOADING before ``load`` is through.
            DroverError: What broke the log, see ``wait_until_failed``.
        """
        self._life.check_loaded()

    async def wait_until_applied(self, end_offset: int) -> None:
        """Wait until every record below ``end_offset`` has taken effect, whoever wrote it.

        Raises:
            UnavailableError: LOADING or DRAINING.
            DroverError: What broke the log, see ``wait_until_failed``.
        """
        self._life.check_serving()
        await self._journal.wait_until_applied(end_offset)

    async def catch_up(self) -> int:
        """Wait until everything has taken effect that was written before, by whomever; returns the
        log's end.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE; else as ``wait_until_applied``.
        """
        self._life.check_serving()
        end_offset = await self._log.end_offset()
        await self._journal.wait_until_applied(end_offset)
        return end_offset

    async def wait_until_failed(self) -> DroverError:
        """Wait until a followed log cannot be followed any more; returns why.

        The machine is not what the log says from then on: callers and watchers hear the error, and
        whoever has made the runtime has to close it and load another one.
        """
        return await self._life.wait_until_failed()

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
        self._life.check_serving()
        answer = self._delivery.expect(call_id)
        try:
            self._accept(event, call_id)
        except ResourceExhaustedError:
            self._delivery.forget(call_id)
            raise
        try:
            return await answer
        except asyncio.CancelledError:
            unanswered = self._delivery.forget(call_id)
            if not unanswered and not answer.cancelled():
                answer.exception()  # it came too late; nobody is to be warned about it
            if unanswered and on_cancel is not None and not self._life.ending:
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
        self._life.check_serving()
        if self._idle:
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
        self._life.check_serving()
        return self._watchers.add(channel, max_queue, also=also)

    def samples(self) -> Iterator[Sample]:
        """Its log, queue and watchers, for ``Metrics.add``."""
        yield from self._journal.figures.samples(self._name)
        yield table.LOG_END.at(self._journal.end_offset, self._name)
        yield table.LOG_QUEUE.at(len(self._queue), self._name)
        yield table.LOG_WATCHERS.at(len(self._watchers), self._name)

    async def wait_until_idle(self) -> None:
        """Wait until no event waits and no append is under way; timers may be set."""
        await self._settled.wait()

    async def close(self, why: DroverError | None = None) -> None:
        """Finish the append under way, end every waiting call and watch with ``why``; idempotent.

        Args:
            why: By default DRAINING. Whoever comes later hears it too.
        """
        self._life.end(why)
        self._wake.set()
        if self._runner is not None:
            await asyncio.shield(self._runner)
        await self._journal.close(self._life.error)
        self._end_calls()

    def _end_calls(self) -> None:
        self._queue.clear()
        self._delivery.end(self._life.error)

    # accepting events

    @property
    def _idle(self) -> bool:
        """Whether an event may be handled at once, without the runner."""
        return self._in_flight is None and not self._queue and not self._journal.unsure

    def _accept(self, event: object, call_id: str) -> None:
        if self._idle:
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
        while not self._life.ending:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._drain()
                self._delivery.set_alarm()
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
        while busy and not self._life.ending:
            busy = bool(self._queue)
            for _ in range(len(self._queue)):
                if self._journal.unsure:
                    await self._catch_up()
                if not self._queue:
                    break
                await self._handle(*self._queue.popleft())
            for _ in range(len(self._timers)):
                due = self._timers.pop_due(self._clock.now_ms())
                if due is None:
                    break
                busy = True
                await self._handle(due[1], "")

    async def _handle(self, event: object, call_id: str) -> None:
        if self._life.ending:
            self._delivery.fail(call_id, self._life.error)
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
            self._delivery.fail(call_id, refusal)
            return
        now_ms = self._clock.now_ms()
        try:
            outcome = self._machine.handle(event, now_ms)
            if outcome.records:
                self._in_flight = _Decision(event, call_id, outcome, now_ms)
                self._wake_runner()
            else:
                self._delivery.release(outcome.instructions)
        except DroverError as error:
            self._delivery.fail(call_id, error)
        except Exception:  # noqa: BLE001 a defect must not end the loop
            self._report_defect("handle", event, call_id)

    async def _finish_append(self) -> None:
        """Append, replay and release what is in flight, and what follows from a failure of it."""
        while self._in_flight is not None:
            decision = self._in_flight
            outcome = decision.outcome
            epoch = outcome.writer_epoch
            used_epoch = self._writer_epoch if epoch is None else epoch
            try:
                end_offset = await self._journal.append(outcome, used_epoch, decision.decided_ms)
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
                self._apply(decision, end_offset)

    def _apply(self, decision: _Decision[R], end_offset: int) -> None:
        outcome = decision.outcome
        try:
            replayed = self._journal.apply(outcome, end_offset, decision.decided_ms)
        except Exception:  # noqa: BLE001
            defect = self._report_defect("replay", decision.event, decision.call_id)
            self._delivery.fail_named(outcome.instructions, defect)
        else:
            self._delivery.release([*replayed, *outcome.instructions])
        self._watchers.notify(APPLIED_CHANNEL, None)

    def _append_failed(self, decision: _Decision[R], error: DroverError) -> None:
        _logger.warning(
            "append failed", machine=self._name, reason=str(error.reason), error=error.message
        )
        outcome = decision.outcome
        self._delivery.fail_named(outcome.instructions, error)
        if outcome.on_append_failed is None or self._life.failed:
            self._delivery.fail(decision.call_id, error)  # nobody else will answer it
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
        if self._on_fenced is not None and not self._life.ending:
            self._life.end(self._on_fenced())
        self._life.end()
        self._end_calls()

    def _report_defect(self, where: str, event: object, call_id: str) -> InternalError:
        """Log the exception that is being handled and answer the call that met it."""
        error = report_defect(self._name, where, event)
        self._delivery.fail(call_id, error)
        return error

    def _ring(self) -> None:
        """Handle due timers here as long as they need no append; else the runner does."""
        for _ in range(len(self._timers)):
            if self._life.ending:
                return
            if not self._idle:
                self._wake_runner()  # it looks at timers, and sets the alarm, when it is through
                return
            due = self._timers.pop_due(self._clock.now_ms())
            if due is None:
                break
            self._decide(due[1], "")
        self._delivery.set_alarm()

    # a log that others write to as well

    def _applied(self, instructions: Sequence[Instruction]) -> None:
        """The log has brought records, and the machine has replayed them."""
        if self._life.loaded:
            self._delivery.release(instructions)
            self._watchers.notify(APPLIED_CHANNEL, None)

    def _broken(self, why: DroverError) -> None:
        """No record will be applied any more: nothing may be decided or told from now on."""
        if not self._life.ending:
            self._life.fail(why)
            self._wake.set()
            self._end_calls()

    async def _catch_up(self) -> None:
        """Let the machine see what became of an append that failed, before it decides again.

        When the log cannot say, every call that waits is refused; what nobody waits for is decided
        by what is known.
        """
        try:
            await self._journal.catch_up(self._life.wait_until_ending())
        except DroverError as error:
            waiting, self._queue = self._queue, deque()
            for event, call_id in waiting:
                if call_id:
                    self._delivery.fail(call_id, error)
                else:
                    self._queue.append((event, call_id))
