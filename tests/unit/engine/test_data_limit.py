"""A process at the limit of its data can report that, or ends with the reason."""

import subprocess
import sys
import textwrap

from drover_worker.engine.data_limit import RESERVE_BYTES
from drover_worker.engine.process_constants import DATA_LIMIT_VARIABLE, ExitCode

#: Python with Arrow's libraries, threads' stacks and allocators' arenas fits in.
LIMIT_BYTES = 1 << 30
PRELUDE = """
import os, resource, sys, threading
from drover_worker.engine import data_limit
from drover_worker.engine.plugins.threads import PluginThreads
data_limit.limit_data()

def limit():
    return resource.getrlimit(resource.RLIMIT_DATA)[0]

def use_up(taken):
    size = 64 << 20
    while size >= 4096:
        try:
            taken.append(b"x" * size)
        except MemoryError:
            size //= 2
    raise MemoryError

outcomes = []
ended = threading.Event()

def call(function):
    def done(outcome):
        # a thread's stack needs more than what is left
        thread = threading.Thread(target=lambda: (outcomes.append(outcome), ended.set()))
        thread.start()
    PluginThreads(abandoned_max=1, on_exhausted=print).run(
        "greedy", function, limit_ms=120_000, on_done=done
    )
    ended.wait(120)
    return type(outcomes[0].error).__name__
"""


def run(code: str) -> tuple[int, str]:
    """Run code in a limited process; returns its exit code and output."""
    ended = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=300,
        env={DATA_LIMIT_VARIABLE: str(LIMIT_BYTES), "MALLOC_ARENA_MAX": "1"},
        check=False,
    )
    assert not ended.stderr, ended.stderr
    return ended.returncode, ended.stdout


def test_what_an_ended_call_held_is_free_before_its_error_is_reported() -> None:
    code = """
    print(call(lambda: use_up([])), limit())
    data_limit.withdraw_reserve()
    print(limit())
    """
    expected = f"MemoryError {LIMIT_BYTES + RESERVE_BYTES}\n{LIMIT_BYTES}\n"
    assert run(code) == (0, expected)


def test_a_reserve_allows_the_report_while_the_plugin_still_holds_the_memory() -> None:
    code = """
    held = []
    print(call(lambda: use_up(held)))
    data_limit.withdraw_reserve()
    print(limit(), data_limit.without_reserve()[0])
    held.clear()
    data_limit.withdraw_reserve()
    print(limit())
    """
    granted = LIMIT_BYTES + RESERVE_BYTES
    assert run(code) == (0, f"MemoryError\n{granted} {LIMIT_BYTES}\n{LIMIT_BYTES}\n")


def test_a_hard_limit_within_the_reserve_is_no_change_by_a_plugin() -> None:
    code = """
    hard = limit() + (1 << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (limit(), hard))
    data_limit.grant_reserve()
    print(limit() == hard, data_limit.without_reserve()[0])
    """
    assert run(code) == (0, f"True {LIMIT_BYTES}\n")


def test_a_thread_without_memory_ends_the_process_with_the_reason() -> None:
    code = """
    data_limit.end_without_memory()
    thread = threading.Thread(target=lambda: use_up([]))
    thread.start()
    thread.join()
    print("goes on")
    """
    assert run(code) == (ExitCode.MEMORY_USED_UP, "")


def test_other_errors_of_threads_end_nothing() -> None:
    code = """
    threading.excepthook = lambda args: print(args.exc_type.__name__)
    data_limit.end_without_memory()
    thread = threading.Thread(target=lambda: [][0])
    thread.start()
    thread.join()
    """
    assert run(code) == (0, "IndexError\n")
