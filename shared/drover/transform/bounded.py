"""Calls of people's functions that end in time, whatever the functions do."""

import ctypes
import queue
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


class OverdueError(Exception):
    """A call that did not return in time; a function's own TimeoutError is something else."""


@dataclass(slots=True, eq=False)
class _Call:
    function: Callable[[], Any]
    done: threading.Event = field(default_factory=threading.Event)
    value: Any = None
    error: Exception | None = None


_Calls = queue.SimpleQueue[_Call | None]


class _Runner:
    """A thread that runs one call after another, and ends with whoever has it."""

    def __init__(self) -> None:
        self._calls = _Calls()
        self._thread = threading.Thread(target=_serve, args=(self._calls,), daemon=True)
        self._thread.start()
        weakref.finalize(self, self._calls.put, None)

    def run(self, call: _Call, limit_s: float) -> bool:
        """Whether it returned in time."""
        self._calls.put(call)
        return call.done.wait(limit_s)

    def end(self) -> None:
        """Nothing can stop a thread that is outside of Python; one that runs Python code ends."""
        self._calls.put(None)
        assert self._thread.ident is not None
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(self._thread.ident), ctypes.py_object(SystemExit)
        )


_of_caller = threading.local()


def call_within(limit_s: float, function: Callable[[], T]) -> T:
    """What the function returns, or raises.

    It runs on a thread of its own, which is the same for all calls from one thread that end in
    time: a function may keep what belongs to a thread.

    Raises:
        OverdueError: it did not return in time.
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
        except Exception as error:  # noqa: BLE001 - it is raised where it was called
            call.error = error
        except BaseException as error:  # noqa: BLE001 - sys.exit() of a function, or ours
            call.error = RuntimeError(f"{type(error).__name__}: {error}")
        call.done.set()
        del call  # the next one may be long in coming
