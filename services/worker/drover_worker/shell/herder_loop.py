"""Drives the herder: passes events to it one at a time, and its instructions to the runner.

The herder runs inside ``post``, on the event loop, and never waits. Its instructions go to the
``InstructionRunner``; their outcomes are posted as events.
"""

import asyncio
from collections import deque
from collections.abc import Callable

import structlog

from drover.clock import Clock
from drover.errors import DeadlineExceededError, InternalError, Reason
from drover.machine import CancelTimer, Complete, Fail, SetTimer
from drover.model.status import StatusKey
from drover.rpc.logs import log_context
from drover_worker.core import events, requests
from drover_worker.core.herder import Herder
from drover_worker.core.instructions import Halt, HerderInstruction
from drover_worker.core.lifecycle.lifecycle import IN_ENGINE
from drover_worker.core.readiness import why_not_serving

#: Runs an instruction in the background; must not block.
RunInstruction = Callable[[HerderInstruction], None]
Observer = Callable[[events.HerderEvent], None]

_log = structlog.get_logger("drover.worker")

#: Added to the caller's timeout, so that the herder's own error arrives first: it names the cause.
_ANSWER_MARGIN_S = 0.2
_PULSES_UNTIL_STALE = 5


class HerderLoop:
    """The only place that calls ``Herder.step``. For one event loop."""

    def __init__(self, herder: Herder, clock: Clock, *, stale_after_ms: int = 10_000) -> None:
        """The herder counts as stalled after ``stale_after_ms`` without a handled event."""
        self.herder = herder
        self._stale_after_s = stale_after_ms / 1000
        self._turned_s = asyncio.get_running_loop().time()
        self._clock = clock
        self._run_instruction: RunInstruction | None = None
        self._engine_stall: Callable[[], str] = str
        self._queue: deque[events.HerderEvent] = deque()
        self._stepping = False
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._calls: dict[str, asyncio.Future[requests.Response]] = {}
        self._call_count = 0
        self._offset_waiters: dict[int, tuple[int, asyncio.Future[None]]] = {}
        self._observers: list[Observer] = []
        self._stage = ""
        self.halted = asyncio.Event()
        #: Set when the herder raised: its state is invalid, so the worker must end.
        self.defect: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    def start(self, run_instruction: RunInstruction) -> None:
        """Run instructions with ``run_instruction``; call it before the first event."""
        self._run_instruction = run_instruction

    def attach_engine(self, stall: Callable[[], str]) -> None:
        """Use ``stall``, which returns what is wrong with an engine that does not answer."""
        self._engine_stall = stall

    def observe(self, observer: Observer) -> None:
        """Call ``observer`` after each event that the herder handled."""
        self._observers.append(observer)

    def renew(self, key: StatusKey) -> bool:
        """Restart a connector or task that runs in the engine; False when it does not run."""
        item = self.herder.work.find(key)
        if item is None or item.revoked or item.failure is not None or item.phase not in IN_ENGINE:
            return False
        self.post(events.ConfigExpired(key, item.run_id))
        return True

    @property
    def turns(self) -> bool:
        """Whether the herder has handled an event recently; each ``pulse`` is one."""
        return asyncio.get_running_loop().time() - self._turned_s < self._stale_after_s

    @property
    def pulse_every_s(self) -> float:
        """The interval for calls of ``pulse``."""
        return self._stale_after_s / _PULSES_UNTIL_STALE

    def pulse(self) -> None:
        """Post an event that proves that the herder is live."""
        self.post(events.PulseDue())

    def why_not_serving(self, *, opened: bool = True) -> str:
        """Why this worker does not serve; empty while it serves. ``opened`` allows it to serve."""
        return why_not_serving(
            self.herder, opened=opened, turns=self.turns, engine_stall=self._engine_stall()
        )

    def post(self, event: events.HerderEvent) -> None:
        """Pass an event to the herder: at once, or after the event in progress."""
        self._queue.append(event)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._queue:
                self._step(self._queue.popleft())
        finally:
            self._stepping = False

    async def request(
        self,
        request: requests.Request,
        *,
        timeout_s: float,
        hop_count: int = 0,
        author: str = "",
    ) -> requests.Response:
        """Send a request to the herder on behalf of ``author``; returns its one response.

        Raises:
            DroverError: The herder's error; DEADLINE_EXCEEDED names the stage.
        """
        self._call_count += 1
        call_id = str(self._call_count)
        answer: asyncio.Future[requests.Response] = asyncio.get_running_loop().create_future()
        self._calls[call_id] = answer
        deadline_ms = self._clock.now_ms() + int(timeout_s * 1000)
        try:
            self.post(events.RequestReceived(call_id, request, deadline_ms, hop_count, author))
            async with asyncio.timeout(timeout_s + _ANSWER_MARGIN_S):
                return await answer
        except TimeoutError:
            raise self.deadline_error(type(request).__name__) from None
        finally:
            if not answer.done() or answer.cancelled():
                self.post(events.RequestCancelled(call_id))
            self._calls.pop(call_id, None)

    async def wait_for_config_offset(self, offset: int) -> None:
        """Wait until the config view has reached ``offset``; the caller sets a timeout."""
        if self.herder.context.view.loaded and self.herder.context.view.offset >= offset:
            return
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        key = id(reached)
        self._offset_waiters[key] = (offset, reached)
        try:
            await reached
        finally:
            del self._offset_waiters[key]

    async def wait_until_loaded(self, timeout_s: float) -> None:
        """Wait until the config view has been loaded.

        Raises:
            DeadlineExceededError: Names the stage.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self.wait_for_config_offset(0)
        except TimeoutError:
            raise self.deadline_error("the call") from None

    def deadline_error(self, what: str) -> DeadlineExceededError:
        """The error for a caller after its deadline."""
        text = f"{what} did not finish in time: {self.herder.describe_stage()}"
        return DeadlineExceededError(Reason.DEADLINE_EXCEEDED, text)

    def close(self) -> None:
        """Cancel all timers and waiting calls."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for answer in self._calls.values():
            if not answer.done():
                answer.cancel()

    def _step(self, event: events.HerderEvent) -> None:
        if self.defect.done():
            return
        try:
            instructions = self.herder.step(event, self._clock.now_ms())
            # instructions are logged with the generation in which they were decided
            with log_context(generation=self.herder.context.generation):
                for instruction in instructions:
                    self._carry_out(instruction)
        except Exception as error:  # noqa: BLE001 - a defect: the step is incomplete, so end
            _log.error("the herder failed", event_type=type(event).__name__, exc_info=error)
            self.defect.set_result(error)
            return
        self._turned_s = asyncio.get_running_loop().time()
        self._log_stage()
        self._wake_offset_waiters()
        with log_context(generation=self.herder.context.generation):
            for observer in self._observers:
                observer(event)

    def _carry_out(self, instruction: HerderInstruction) -> None:
        match instruction:
            case SetTimer():
                self._set_timer(instruction)
            case CancelTimer(key):
                self._cancel_timer(key)
            case Complete(call_id, response):
                answer = self._calls.get(call_id)
                if answer is not None and not answer.done():
                    answer.set_result(response)  # type: ignore[arg-type]
            case Fail(call_id, error):
                answer = self._calls.get(call_id)
                if answer is not None and not answer.done():
                    answer.set_exception(error)
            case Halt():
                self.halted.set()
            case _:
                if self._run_instruction is None:
                    raise InternalError("the herder loop was not started")
                self._run_instruction(instruction)

    def _set_timer(self, timer: SetTimer) -> None:
        self._cancel_timer(timer.key)
        delay_s = max(timer.deadline_ms - self._clock.now_ms(), 0) / 1000
        loop = asyncio.get_running_loop()
        self._timers[timer.key] = loop.call_later(delay_s, self._fire, timer)

    def _fire(self, timer: SetTimer) -> None:
        self._timers.pop(timer.key, None)
        self.post(timer.event)  # type: ignore[arg-type]

    def _cancel_timer(self, key: str) -> None:
        handle = self._timers.pop(key, None)
        if handle is not None:
            handle.cancel()

    def _wake_offset_waiters(self) -> None:
        view = self.herder.context.view
        if not view.loaded:
            return
        for offset, reached in self._offset_waiters.values():
            if view.offset >= offset and not reached.done():
                reached.set_result(None)

    def _log_stage(self) -> None:
        membership = self.herder.membership
        if membership.stage.name != self._stage:
            self._stage = membership.stage.name
            _log.info(
                "stage",
                stage=self._stage,
                reason=membership.reason,
                generation=self.herder.context.generation,
                leads=membership.leads,
            )
