"""Runs plugin code on separate threads, with time limits.

A Python thread cannot be stopped. A call that exceeds its limit is abandoned: its caller gets
TimedOut, the daemon thread stays, and its later result is ignored. When an engine has too many of
them, ``on_exhausted`` is called once to have the engine replaced.
"""

import contextvars
import heapq
import itertools
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from drover.dataplane.answers import trace_on_executor
from drover.errors import Reason, ResourceExhaustedError
from drover.model.status import StatusKey
from drover_worker.engine.in_flight import InFlight
from drover_worker.engine.plugins.memory_relief import relieve_memory
from drover_worker.engine.plugins.stacks import stack_of

TRACE_MAX_BYTES = 64 * 1024
_RUNNING_MAX = 64
_WAITING_MAX = 10_000

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Returned:
    """The call returned ``value``."""

    value: object


@dataclass(frozen=True, slots=True)
class Raised:
    """The call raised ``error``."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The call was abandoned after ``limit_ms``; ``stack`` has the calls in which it hung."""

    limit_ms: int
    stack: str = field(default="", compare=False)


Outcome = Returned | Raised | TimedOut
DoneHandler = Callable[[Outcome], None]


@dataclass(slots=True, eq=False)
class _Call:
    name: str
    function: Callable[[], object]
    limit_ms: int
    on_done: DoneHandler
    #: The connector or task whose code runs, if the call belongs to one.
    key: StatusKey | None
    #: Whether its thread counts towards the engine's replacement if it hangs.
    counted: bool
    #: Called when the abandoned call has returned.
    on_late: Callable[[], object] = bool
    #: The log context of the caller.
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    #: Set by the thread that decides the outcome: the one that ran the call, or the watchdog.
    decided: bool = False
    thread: threading.Thread | None = None


class PluginThreads:
    """Runs calls concurrently, each on a named daemon thread; thread-safe."""

    def __init__(
        self,
        *,
        abandoned_max: int,
        on_exhausted: Callable[[str], None],
        in_flight: InFlight | None = None,
    ) -> None:
        """Start the watchdog.

        Args:
            abandoned_max: How many hung threads are tolerated.
            on_exhausted: Called once, with the reason, when there are more.
            in_flight: Marks calls while they run.
        """
        self._abandoned_max = abandoned_max
        self._on_exhausted = on_exhausted
        self._in_flight = in_flight or InFlight()
        self._changed = threading.Condition()
        self._running_count = 0
        self._waiting: deque[_Call] = deque()
        self._deadlines: list[tuple[float, int, _Call]] = []
        self._sequence = itertools.count()
        self._abandoned: dict[int, str] = {}
        self._abandoned_uncounted: set[int] = set()
        self._exhausted = False
        threading.Thread(target=self._watch, name="plugin-watchdog", daemon=True).start()

    @property
    def abandoned_count(self) -> int:
        """Abandoned calls that are still running."""
        with self._changed:
            return len(self._abandoned)

    @property
    def abandoned_uncounted_count(self) -> int:
        """Abandoned calls that are still running and do not count."""
        with self._changed:
            return len(self._abandoned_uncounted)

    def run(
        self,
        name: str,
        function: Callable[[], object],
        *,
        limit_ms: int,
        on_done: DoneHandler,
        key: StatusKey | None = None,
        counted: bool = True,
        on_late: Callable[[], object] = bool,
    ) -> None:
        """Run ``function``; ``on_done`` gets the outcome exactly once, on another thread.

        Args:
            name: The call's name in logs.
            function: The call.
            limit_ms: Its time limit.
            on_done: Gets the outcome.
            key: The connector or task whose code runs, if the call belongs to one.
            counted: Whether a hung call counts towards the engine's replacement.
            on_late: Called when an abandoned call has returned after all.

        Raises:
            ResourceExhaustedError: QUEUE_FULL.
        """
        call = _Call(name, function, limit_ms, on_done, key, counted, on_late)
        with self._changed:
            if self._running_count >= _RUNNING_MAX:
                if len(self._waiting) >= _WAITING_MAX:
                    raise ResourceExhaustedError(
                        Reason.QUEUE_FULL,
                        f"the queue of plugin calls is full ({_WAITING_MAX}): retry later",
                    )
                self._waiting.append(call)
                return
            self._begin(call)

    def write_off(self, thread: threading.Thread, name: str) -> None:
        """Count a hung thread of another owner until its owner calls ``written_off_ended``."""
        with self._changed:
            self._abandoned[id(thread)] = name
            reason = self._exhaustion()
        if reason:
            self._on_exhausted(reason)

    def written_off_ended(self, thread: threading.Thread) -> None:
        """Stop counting a thread that ``write_off`` counted: its call has returned."""
        with self._changed:
            self._abandoned.pop(id(thread), None)

    def _begin(self, call: _Call) -> None:
        """Start a call's thread; requires the lock."""
        self._running_count += 1
        deadline = time.monotonic() + call.limit_ms / 1000
        heapq.heappush(self._deadlines, (deadline, next(self._sequence), call))
        if self._deadlines[0][2] is call:
            self._changed.notify()
        call.thread = threading.Thread(
            target=self._execute, args=(call,), name=call.name, daemon=True
        )
        call.thread.start()

    def _execute(self, call: _Call) -> None:
        outcome: Outcome
        try:
            with self._marked(call):
                outcome = Returned(call.context.copy().run(call.function))
        except BaseException as error:  # noqa: BLE001 - plugin code may raise anything, SystemExit too
            relieve_memory(error)
            outcome = Raised(error)
        with self._changed:
            in_time = not call.decided
            call.decided = True
            if in_time:
                self._end_one()
            else:
                self._abandoned.pop(id(call), None)
                self._abandoned_uncounted.discard(id(call))
        if in_time:
            self._report(call, outcome)
        else:
            log.info("an abandoned plugin call returned", call=call.name)
            try:
                call.context.copy().run(call.on_late)
            except Exception:
                log.exception("handling a late return failed", call=call.name)

    @contextmanager
    def _marked(self, call: _Call) -> Iterator[None]:
        """Mark the connector or task of a call while it runs."""
        if call.key is None:
            yield
            return
        with self._in_flight.at_work(call.key), self._in_flight.plugin_call():
            yield

    def _end_one(self) -> None:
        """Release the slot of a finished call to a waiting call; requires the lock."""
        self._running_count -= 1
        if self._waiting:
            self._begin(self._waiting.popleft())

    def _watch(self) -> None:
        while True:
            overdue: list[_Call] = []
            with self._changed:
                now = time.monotonic()
                while self._deadlines and (
                    self._deadlines[0][2].decided or self._deadlines[0][0] <= now
                ):
                    call = heapq.heappop(self._deadlines)[2]
                    if not call.decided:
                        call.decided = True
                        if call.counted:
                            self._abandoned[id(call)] = call.name
                        else:
                            self._abandoned_uncounted.add(id(call))
                        self._end_one()
                        overdue.append(call)
                reason = self._exhaustion() if overdue else ""
                if not overdue:
                    self._changed.wait(self._deadlines[0][0] - now if self._deadlines else None)
            for call in overdue:
                ident = call.thread.ident if call.thread is not None else None
                stack = stack_of(ident) if ident is not None else ""
                log.warning(
                    "abandoning a plugin call", call=call.name, limit_ms=call.limit_ms, stack=stack
                )
                self._report(call, TimedOut(call.limit_ms, stack))
            if reason:
                self._on_exhausted(reason)

    def _exhaustion(self) -> str:
        """The reason to replace the engine, once, when too many threads hang; requires the lock."""
        if self._exhausted or len(self._abandoned) <= self._abandoned_max:
            return ""
        self._exhausted = True
        names = ", ".join(sorted(set(self._abandoned.values()))[:8])
        return f"{len(self._abandoned)} plugin calls hang: {names}"

    def _report(self, call: _Call, outcome: Outcome) -> None:
        try:
            call.context.copy().run(call.on_done, outcome)
        except Exception:
            log.exception("handling the outcome of a plugin call failed", call=call.name)


def format_trace(error: BaseException) -> str:
    """The traceback of ``error`` for a status, shortened in the middle to TRACE_MAX_BYTES.

    The traceback of an error of an executor already has the causes and the message; the calls on
    the driver come before it.
    """
    executor_trace = trace_on_executor(error)
    if executor_trace is None:
        return cap_text("".join(traceback.format_exception(error)))
    calls = "".join(traceback.format_tb(error.__traceback__))
    return cap_text(f"Traceback (most recent call last):\n{calls}{executor_trace}")


def cap_text(text: str, max_bytes: int = TRACE_MAX_BYTES) -> str:
    """``text``, shortened in the middle to at most ``max_bytes`` of UTF-8."""
    if text.isascii() and len(text) <= max_bytes:
        return text
    encoded = text.encode(errors="replace")
    if len(encoded) <= max_bytes:
        return encoded.decode()
    mark = f"\n... {len(encoded) - max_bytes} bytes cut ...\n".encode()
    side = (max_bytes - len(mark)) // 2
    cut = encoded[:side] + mark + encoded[-side:]
    return cut.decode(errors="ignore")
