"""Which work is suspected after an engine's end, by how the engine ended."""

import threading

from drover_worker.core.events import EndKind
from drover_worker.engine.in_flight import Mark
from drover_worker.shell.at_work import busy_threads, suspects, thread_times_s

SEASONED = Mark("seasoned", is_seasoned=True, in_call=True, started_ns=50, thread_id=1)
NEW = Mark("new", is_seasoned=False, in_call=True, started_ns=10, thread_id=2)
NEWER = Mark("newer", is_seasoned=False, in_call=True, started_ns=20, thread_id=3)
BETWEEN_CALLS = Mark("between", is_seasoned=False, in_call=False, started_ns=90, thread_id=4)
ALL = (SEASONED, NEW, NEWER, BETWEEN_CALLS)


def test_after_a_crash_all_work_is_suspected_and_the_last_plugin_call_most() -> None:
    assert suspects(ALL, EndKind.CRASH) == ("newer", "new", "seasoned", "between")


def test_after_the_kill_of_an_engine_that_spins_its_busy_thread_is_suspected() -> None:
    assert suspects(ALL, EndKind.CRASH, busy_threads={1}) == ("seasoned",)
    assert len(suspects(ALL, EndKind.CRASH, busy_threads={999}) or ()) == 4


def test_when_memory_ran_out_healthy_work_that_blocks_is_not_suspected() -> None:
    assert suspects(ALL, EndKind.MEMORY) == ("newer", "new", "between")
    assert suspects([SEASONED], EndKind.MEMORY) == ("seasoned",)


def test_after_a_kill_by_another_process_only_new_work_is_suspected() -> None:
    assert suspects(ALL, EndKind.KILL) == ("newer", "new", "between")
    assert suspects([SEASONED], EndKind.KILL) == ()


def test_unknown_work_stays_unknown_and_idle_engines_accuse_nobody() -> None:
    assert suspects(None, EndKind.CRASH) is None
    assert suspects((), EndKind.CRASH) == ()


def test_the_processor_time_of_a_thread_is_read_from_the_kernel() -> None:
    found = thread_times_s([threading.get_native_id(), 2**22 + 1])
    assert list(found) == [threading.get_native_id()]
    assert found[threading.get_native_id()] >= 0


def test_the_time_of_another_thread_is_not_counted() -> None:
    ids: list[int] = []
    idle, done = threading.Event(), threading.Event()

    def wait() -> None:
        ids.append(threading.get_native_id())
        idle.set()
        done.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    idle.wait()
    before = thread_times_s([*ids, threading.get_native_id()])
    while thread_times_s([threading.get_native_id()])[threading.get_native_id()] < (
        before[threading.get_native_id()] + 0.1
    ):
        pass
    after = thread_times_s(before)
    done.set()
    thread.join()
    assert busy_threads(before, after) == {threading.get_native_id()}


def test_a_thread_is_busy_when_it_used_most_of_the_time_of_all() -> None:
    before, after = {1: 5.0, 2: 5.0, 3: 0.0}, {1: 5.3, 2: 5.1, 4: 9.0}
    assert busy_threads(before, after) == {1}
    assert busy_threads(before, {1: 5.01, 2: 5.0}) == frozenset(), "a moment is no evidence"
