"""Calls of user functions with a time limit."""

import ctypes
import queue
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


class OverdueError(Exception):
    """A call exceeded its time limit; not a TimeoutError, which the function may raise itself."""


@dataclass(slots=True, eq=False)
class _Call:
    function: Callable[[], Any]
    done: threading.Event = field(default_factory=threading.Event)
    value: Any = None
    error: Exception | None = None


_Calls = queue.SimpleQueue[_Call | None]


class _Runner:
    """A thread that runs calls one after another; it ends when this object is collected."""

    def __init__(self) -> None:
        self._calls = _Calls()
        self._thread = threading.Thread(target=_serve, args=(self._calls,), daemon=True)
        self._thread.start()
        weakref.finalize(self, self._calls.put, None)

    def run(self, call: _Call, limit_s: float) -> bool:
        """Run a call; False if it does not return within ``limit_s``."""
        self._calls.put(call)
        return call.done.wait(limit_s)

    def end(self) -> None:
        """End the thread if it runs Python code; a thread in native code cannot be stopped."""
        self._calls.put(None)
        assert self._thread.ident is not None
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(self._thread.ident), ctypes.py_object(SystemExit)
        )


_of_caller = threading.local()


def call_within(limit_s: float, function: Callable[[], T]) -> T:
    """Call a function with a time limit; returns its result or raises its error.

    The function runs on a separate thread. Calls from one thread share that thread until a call
    exceeds its limit, so functions may use thread-local state.

    Raises:
        OverdueError: The function did not return within ``limit_s``.
    """
    runner = getattr(_of_caller, "runner", None)
    if runner is None:
        runner = _of_caller.runner = _Runner()
    call = _Call(function)
    if not runner.run(call, limit_s):
        _of_caller.runner = None
        runner.end()
        raise OverdueError
    if call.error is not None:
        raise call.error
    value: T = call.value
    return value


def _serve(calls: _Calls) -> None:
    while (call := calls.get()) is not None:
        try:
            call.value = call.function()
        except Exception as error:  # noqa: BLE001 - raised again in the calling thread
            call.error = error
        except BaseException as error:  # noqa: BLE001 - sys.exit() in the function, or end()
            call.error = RuntimeError(f"{type(error).__name__}: {error}")
        call.done.set()
        del call  # releases the result while the thread waits for the next call
