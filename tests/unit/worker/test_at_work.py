"""Which work is suspected after an engine's end, by how the engine ended."""

import threading
from dataclasses import replace

from drover.model.status import StatusKey
from drover_worker.core.events import EndKind
from drover_worker.engine.in_flight import Mark
from drover_worker.shell.at_work import Suspects, busy_threads, suspects, thread_times_s

SEASONED = Mark("seasoned", is_seasoned=True, in_call=True, started_ns=50, thread_id=1)
NEW = Mark("new", is_seasoned=False, in_call=True, started_ns=10, thread_id=2)
NEWER = Mark("newer", is_seasoned=False, in_call=True, started_ns=20, thread_id=3)
BETWEEN_CALLS = Mark("between", is_seasoned=False, in_call=False, started_ns=90, thread_id=4)
SECOND_NS = 1_000_000_000
END_NS = 100 * SECOND_NS


def ended(key: str, *, since_s: int, at_s: int) -> Mark:
    """Work that ended at a time."""
    return Mark(
        key,
        is_seasoned=True,
        in_call=False,
        started_ns=at_s * SECOND_NS,
        thread_id=9,
        since_ns=since_s * SECOND_NS,
        ended_ns=at_s * SECOND_NS,
    )


ALL = (SEASONED, NEW, NEWER, BETWEEN_CALLS)


def at_work(
    marks: tuple[Mark, ...], kind: EndKind, busy: tuple[int, ...] = ()
) -> tuple[StatusKey, ...] | None:
    return suspects(marks, kind, busy).at_work


def test_after_a_crash_all_work_is_suspected_and_the_last_plugin_call_most() -> None:
    assert at_work(ALL, EndKind.CRASH) == ("newer", "new", "seasoned", "between")


def test_after_the_kill_of_an_engine_that_spins_its_busy_thread_is_suspected() -> None:
    assert at_work(ALL, EndKind.CRASH, (1,)) == ("seasoned",)
    assert len(at_work(ALL, EndKind.CRASH, (999,)) or ()) == 4


def test_when_memory_ran_out_healthy_work_that_blocks_is_not_suspected() -> None:
    assert at_work(ALL, EndKind.MEMORY) == ("newer", "new", "between")
    assert at_work((SEASONED,), EndKind.MEMORY) == ("seasoned",)


def test_after_a_kill_by_another_process_only_new_work_is_suspected() -> None:
    assert at_work(ALL, EndKind.KILL) == ("newer", "new", "between")
    assert at_work((SEASONED,), EndKind.KILL) == ()


def test_unknown_work_stays_unknown_and_idle_engines_accuse_nobody() -> None:
    assert suspects(None, EndKind.CRASH) == Suspects(None)
    assert suspects((), EndKind.CRASH) == Suspects()


def test_after_a_crash_what_worked_shortly_before_is_suspected_too() -> None:
    first = ended("first", since_s=1, at_s=98)
    last = ended("last", since_s=2, at_s=99)
    long_ago = ended("long ago", since_s=3, at_s=97)
    old = replace(SEASONED, since_ns=0)
    marks = (first, long_ago, last)
    assert suspects(marks, EndKind.CRASH, ended_ns=END_NS) == Suspects((), ("last", "first"))
    found = suspects((*marks, old), EndKind.CRASH, ended_ns=END_NS)
    assert found == Suspects(("seasoned",), ("last", "first"))
    for kind in (EndKind.KILL, EndKind.MEMORY):
        assert suspects(marks, kind, ended_ns=END_NS) == Suspects(), "not after a kill"
    assert suspects(marks, EndKind.CRASH) == Suspects(), "not if the engine was killed"


def test_a_new_connector_is_suspected_before_an_old_one_that_is_at_work() -> None:
    created = ended("created", since_s=95, at_s=99)
    old = replace(SEASONED, since_ns=0)
    before = ended("before", since_s=1, at_s=99)
    found = suspects((before, old, created), EndKind.CRASH, ended_ns=END_NS)
    assert found == Suspects(("created", "seasoned"), ("before",))
    newest = replace(SEASONED, key="newest", since_ns=99 * SECOND_NS)
    found = suspects((old, newest, created), EndKind.CRASH, ended_ns=END_NS)
    assert found == Suspects(("newest", "seasoned"), ("created",))


def test_what_damaged_the_process_is_the_only_suspect() -> None:
    damaged = replace(NEW, key="damaged", has_damaged=True)
    for kind in EndKind:
        assert suspects((*ALL, damaged), kind, ended_ns=END_NS) == Suspects(("damaged",))


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
