"""An asyncio event loop on simulated time: one for each incarnation of a process.

Production code runs on it unchanged. Each round of callbacks is an action of the world, so the
seed decides its order with the actions of all other processes; a suspended process runs no
callback, and after a crash none of its callbacks runs again.

The packages ``looptime`` and ``async-solipsism`` simulate the time of one loop. Here each process
has a clock and can be suspended and crash apart from the others.
"""

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import TYPE_CHECKING, Any

from simulation.world import BrokenRuleError

if TYPE_CHECKING:
    from simulation.process import Process

#: Finished tasks are forgotten when there are this many.
_TASKS_MAX = 500
#: The exceptions of a task that are no errors for a caller.
_DEFECTS = (
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    RuntimeError,
    TypeError,
    ValueError,
    asyncio.InvalidStateError,
)
_DISPOSE_TRIES = 3


class ProcessLoop(asyncio.AbstractEventLoop):
    """The event loop of the present incarnation of ``process``."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        self._incarnation = process.incarnation
        self._ready: deque[asyncio.Handle] = deque()
        self._scheduled = False
        self._closed = False
        #: All tasks that may be unfinished, so that none is collected before the end.
        self._tasks: list[asyncio.Task[Any]] = []
        process.world.loops.append(self)

    @classmethod
    def of(cls, process: "Process") -> "ProcessLoop":
        """A new loop of a process; not all of asyncio's methods exist."""
        return cls(process)

    @contextmanager
    def running(self) -> Iterator[None]:
        """The block runs on this loop."""
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            yield
        finally:
            events._set_running_loop(before)

    def crash(self) -> None:
        """Run no further callbacks."""
        self._closed = True

    def dispose(self) -> None:
        """At the end of the simulation: let the unfinished tasks end without an effect."""
        self.crash()
        with self.running():
            for _ in range(_DISPOSE_TRIES):  # a task may start others at its end
                for task in self._tasks:
                    task.cancel()
                while self._ready:
                    handle = self._ready.popleft()
                    if not handle.cancelled():
                        handle._run()
        self._tasks.clear()

    # --- asyncio.AbstractEventLoop -----------------------------------------------------------

    def time(self) -> float:
        """Seconds on the clock of the process."""
        return self._process.now_ms / 1000

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Run a callback in the next round."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        if not self._scheduled and not self._closed:
            self._scheduled = True
            self._process.world.after(0, self._wake)
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback after ``delay`` seconds on the clock of the process."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback at a time of the clock of the process."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not self._closed:
            delay_ms = max(round((when - self.time()) * 1000), 0)
            self._process.after(delay_ms, lambda: None if handle.cancelled() else handle._run())
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer does nothing when it is due."""

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        """Start a task."""
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        if len(self._tasks) > _TASKS_MAX:
            self._tasks = [each for each in self._tasks if not each.done()]
        self._tasks.append(task)
        task.add_done_callback(self._check)
        return task

    def _check(self, task: asyncio.Task[Any]) -> None:
        """An exception in a task is a defect, unless it is an error for a caller."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, _DEFECTS):
            self.call_exception_handler(
                {"message": f"{task.get_name()} failed", "exception": error}
            )

    def get_debug(self) -> bool:
        """No debugging."""
        return False

    def is_running(self) -> bool:
        """It runs until its process ends."""
        return not self._closed

    def is_closed(self) -> bool:
        """Whether its process has ended."""
        return self._closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """An exception that nothing handles is a defect."""
        error = context.get("exception")
        never_read = "never retrieved" in context.get("message", "")
        if error is None or self._closed or never_read or isinstance(error, BrokenRuleError):
            return
        raise BrokenRuleError(
            "nothing crashes", f"{context.get('message')}: {error!r}", self._process.name
        ) from error

    def _wake(self) -> None:
        self._process.wake(self._incarnation, self._run_round)

    def _run_round(self) -> None:
        self._scheduled = False
        for _ in range(len(self._ready)):
            if self._closed:
                return
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._run()
        if self._ready and not self._scheduled and not self._closed:
            self._scheduled = True
            self._process.world.after(0, self._wake)
