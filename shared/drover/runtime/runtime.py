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
#: Notifies watchers that records were applied, own or foreign: once for each append or for several
#: appends together. The message is None.
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
    to the log and replayed into the machine, and only then its instructions are released. If the
    runtime is idle, an event is handled at once in the caller's task. Without records its call
    completes there too, without a task switch.

    A ``FollowedLog`` has other writers. Its records, own and foreign, are replayed in the log's
    order when ``tail`` returns them, so foreign records may precede the records of a decision. The
    instructions of a decision are still released after its own records.

    Args:
        machine: The machine; its hard state must be empty.
        log: The log; the runtime does not close it.
        encode: Encodes a record for the log. The runtime fills in author and time, and the request
            id if the outcome has one.
        decode: Decodes a record; None for a record that the machine ignores. Its exceptions are
            reported as LOG_CORRUPT.
        clock: The clock of the machine and its timers.
        name: Names the machine in logs and messages ("coordinator").
        max_queue: How many events may wait in the queue.
        max_watchers: The maximum number of watchers.
        writer_epoch: The epoch of appends whose outcome has none; from the shell's claim of the
            log.
        refusal: Called before each decision: returns an error if the machine must not decide now,
            for example because its lease expired, else None. Timers that fire then are dropped.
        on_fenced: Called once if the log rejects ``writer_epoch``; returns the error for callers.
            The runtime then serves no more calls; it still has to be closed.
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
        """Whether the whole log has been replayed, so that calls are accepted."""
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
            UnavailableError: STORAGE_UNAVAILABLE; DRAINING if it was closed during the load.
        """
        if self._loading or self._life.loaded:
            raise InternalError(f"{self._name} is loaded twice")
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
        """Raise an error if the machine's state is not loaded.

        Raises:
            UnavailableError: LOADING before ``load`` has returned.
            DroverError: The failure of the log, see ``wait_until_failed``.
        """
        self._life.check_loaded()

    async def wait_until_applied(self, end_offset: int) -> None:
        """Wait until every record below ``end_offset``, own or foreign, has been replayed.

        Raises:
            UnavailableError: LOADING or DRAINING.
            DroverError: The failure of the log, see ``wait_until_failed``.
        """
        self._life.check_serving()
        await self._journal.wait_until_applied(end_offset)

    async def catch_up(self) -> int:
        """Wait until every record appended before this call, own or foreign, has been replayed.

        Returns:
            The log's end offset.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE; else as ``wait_until_applied``.
        """
        self._life.check_serving()
        end_offset = await self._log.end_offset()
        await self._journal.wait_until_applied(end_offset)
        return end_offset

    async def wait_until_failed(self) -> DroverError:
        """Wait until a followed log can no longer be read; returns the error.

        The machine's state then no longer matches the log: callers and watchers get the error, and
        the shell has to close this runtime and load a new one.
        """
        return await self._life.wait_until_failed()

    async def submit(
        self, event: object, *, call_id: str, on_cancel: object | None = None
    ) -> object:
        """Submit ``event`` to the machine and wait for its response to ``call_id``.

        Args:
            event: Has ``call_id``, so that the machine can complete the call, at once or later.
            call_id: Unique among the parked calls.
            on_cancel: Submitted to the machine if this task is cancelled while the call is parked.

        Raises:
            DroverError: The machine's error for the call.
            UnavailableError: LOADING before ``load`` has returned, DRAINING after ``close``,
                STORAGE_UNAVAILABLE if the records could not be appended.
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
                answer.exception()  # retrieved, to avoid asyncio's warning about a lost exception
            if unanswered and on_cancel is not None and not self._life.ending:
                self._enqueue(on_cancel, "")
            raise

    async def post(self, event: object) -> None:
        """Submit ``event`` to the machine without waiting for a response.

        It is accepted even if the queue is full, because its loss would go unnoticed (for example
        the end of a watch). The caller has to bound such events, for example to one per watch.

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
        """Let no timer fire for ``duration_ms``, because heartbeats may wait to be handled."""
        self._timers.hold_until(self._clock.now_ms() + duration_ms)

    def watch(self, channel: str, max_queue: int, *, also: Sequence[str] = ()) -> Watcher:
        """Watch the machine's future notifications on ``channel``, and on the channels ``also``.

        To combine it with a snapshot, watch first, then submit the request for the snapshot.

        Raises:
            UnavailableError: LOADING or DRAINING.
            ResourceExhaustedError: QUEUE_FULL, too many watchers.
        """
        self._life.check_serving()
        return self._watchers.add(channel, max_queue, also=also)

    def samples(self) -> Iterator[Sample]:
        """Samples of the log, the queue and the watchers, for ``Metrics.add``."""
        yield from self._journal.figures.samples(self._name)
        yield table.LOG_END.at(self._journal.end_offset, self._name)
        yield table.LOG_QUEUE.at(len(self._queue), self._name)
        yield table.LOG_WATCHERS.at(len(self._watchers), self._name)

    async def wait_until_idle(self) -> None:
        """Wait until the queue is empty and no append is in flight; timers may be set."""
        await self._settled.wait()

    async def close(self, why: DroverError | None = None) -> None:
        """Finish the append in flight, then end all parked calls and watches; idempotent.

        Args:
            why: The error for them and for later callers; DRAINING by default.
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
        return self._in_flight is None and not self._queue and not self._journal.outcome_unknown

    def _accept(self, event: object, call_id: str) -> None:
        if self._idle:
            self._decide(event, call_id)
        elif len(self._queue) < self._max_queue:
            self._enqueue(event, call_id)
        else:
            raise ResourceExhaustedError(
                Reason.QUEUE_FULL,
                f"{self._max_queue} requests are waiting for {self._name}, the maximum: back off",
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
        """Handle queued events and due timers until none is left.

        Each round handles the events queued at its start, then the due timers. So a heartbeat that
        arrived in time precedes the session timer even if the loop was late, and neither events nor
        timers starve.
        """
        await self._finish_append()
        busy = True
        while busy and not self._life.ending:
            busy = bool(self._queue)
            for _ in range(len(self._queue)):
                if self._journal.outcome_unknown:
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
        """Let the machine decide; an outcome with records becomes the decision in flight."""
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
        """Append, replay and release the decision in flight, and the repairs of failed appends."""
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
            self._delivery.fail(decision.call_id, error)  # the machine will not complete it
            return
        failed = AppendFailed(outcome.on_append_failed, error)
        if isinstance(decision.event, AppendFailed):
            # the append of the repair failed too: retry after a pause, not in a tight loop
            self._retry_count += 1
            deadline_ms = self._clock.now_ms() + APPEND_FAILED_RETRY_MS
            self._timers.set(f"append failed {self._retry_count}", deadline_ms, failed)
        else:
            self._decide(failed, "")

    def _fenced(self) -> None:
        """End the runtime: another writer has fenced it, so the machine's state is stale."""
        _logger.warning("fenced by another writer", machine=self._name, epoch=self._writer_epoch)
        if self._on_fenced is not None and not self._life.ending:
            self._life.end(self._on_fenced())
        self._life.end()
        self._end_calls()

    def _report_defect(self, where: str, event: object, call_id: str) -> InternalError:
        """Log the exception that is being handled and fail its call."""
        error = report_defect(self._name, where, event)
        self._delivery.fail(call_id, error)
        return error

    def _ring(self) -> None:
        """Handle due timers here until one needs an append; the runner handles the others."""
        for _ in range(len(self._timers)):
            if self._life.ending:
                return
            if not self._idle:
                self._wake_runner()  # it handles the timers and sets the alarm
                return
            due = self._timers.pop_due(self._clock.now_ms())
            if due is None:
                break
            self._decide(due[1], "")
        self._delivery.set_alarm()

    # a followed log

    def _applied(self, instructions: Sequence[Instruction]) -> None:
        """Release the instructions of records that the follower has replayed."""
        if self._life.loaded:
            self._delivery.release(instructions)
            self._watchers.notify(APPLIED_CHANNEL, None)

    def _broken(self, why: DroverError) -> None:
        """Fail the runtime: no more records are replayed, so the machine's state is stale."""
        if not self._life.ending:
            self._life.fail(why)
            self._wake.set()
            self._end_calls()

    async def _catch_up(self) -> None:
        """Replay the log to its end after a failed append, before the next decision.

        If the log cannot be read, all queued calls fail; events without a call are decided on the
        present state.
        """
        try:
            await self._journal.catch_up(self._life.wait_until_ending())
        except DroverError as error:
            queued, self._queue = self._queue, deque()
            for event, call_id in queued:
                if call_id:
                    self._delivery.fail(call_id, error)
                else:
                    self._queue.append((event, call_id))
