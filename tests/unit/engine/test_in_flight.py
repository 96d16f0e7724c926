"""After an engine's end, the connectors and tasks that were active in it are known."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from drover.model.ids import TaskId
from drover.model.names import CONNECTOR_NAME_MAX_CHARS
from drover.model.status import StatusKey
from drover_worker.engine.in_flight import InFlight, Mark, new_table, read_table
from tests.unit.engine.runner_world import Lines, LinesSource, World

C0, C1 = TaskId("c", 0), TaskId("c", 1)


def marks(table: int) -> tuple[Mark, ...]:
    found = read_table(table)
    assert found is not None
    return tuple(each for each in found if each.ended_ns is None)


def ended(table: int) -> tuple[Mark, ...]:
    return tuple(each for each in read_table(table) or () if each.ended_ns is not None)


def at_work(table: int) -> list[StatusKey]:
    return list(dict.fromkeys(each.key for each in marks(table)))


@pytest.fixture
def table() -> Iterator[int]:
    descriptor = new_table()
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize(
    "key",
    ["c", C0, TaskId("with:colon", 12), "ä:b", TaskId("🦆" * CONNECTOR_NAME_MAX_CHARS, 999_999)],
    ids=str,
)
def test_a_connector_or_task_is_marked_while_it_is_at_work(table: int, key: StatusKey) -> None:
    with InFlight(table).at_work(key):
        assert at_work(table) == [key]
    assert at_work(table) == []


def test_what_raised_is_not_at_work_any_more(table: int) -> None:
    with pytest.raises(MemoryError), InFlight(table).at_work(C0):
        raise MemoryError
    assert at_work(table) == []


def test_work_is_new_until_its_task_has_finished_a_run(table: int) -> None:
    in_flight = InFlight(table)
    with in_flight.at_work(C0, is_run=True):
        pass
    with in_flight.at_work(C1):  # its start does not count as a run
        pass
    with in_flight.at_work(C0, is_run=True), in_flight.at_work(C1, is_run=True):
        assert {each.key: each.is_seasoned for each in marks(table)} == {C0: True, C1: False}


def test_a_mark_shows_the_plugin_call_its_start_and_its_thread(table: int) -> None:
    in_flight = InFlight(table)
    with in_flight.at_work(C0):
        (outside,) = marks(table)
        with in_flight.plugin_call():
            (inside,) = marks(table)
        (after,) = marks(table)
    assert [outside.in_call, inside.in_call, after.in_call] == [False, True, False]
    assert inside.started_ns > outside.started_ns
    assert inside.thread_id == threading.get_native_id()
    with in_flight.at_work(C1):
        (again,) = marks(table)
    assert not again.in_call


def test_ended_work_stays_readable_until_its_slot_is_used_again(table: int) -> None:
    in_flight = InFlight(table)
    for key in (C0, C1):
        with in_flight.at_work(key, is_run=True), in_flight.plugin_call():
            (began,) = marks(table)
    assert [each.key for each in ended(table)] == [C0, C1]
    assert not any(each.in_call for each in ended(table))
    assert ended(table)[1].ended_ns is not None
    assert ended(table)[1].started_ns > began.started_ns
    for number in range(1_000):
        with in_flight.at_work(TaskId("many", number)):
            pass
    assert not {C0, C1} & {each.key for each in ended(table)}


def test_a_mark_shows_since_when_a_task_runs_in_the_engine(table: int) -> None:
    in_flight = InFlight(table)
    found = []
    for is_run in (False, True, True, False):
        with in_flight.at_work(C0, is_run=is_run):
            (mark,) = marks(table)
        found.append(mark.since_ns)
    started, first_run, second_run, changed = found
    assert started == first_run == second_run < changed


def test_a_plugin_call_inside_another_piece_of_work_marks_its_own(table: int) -> None:
    in_flight = InFlight(table)
    with in_flight.at_work(C0):
        with in_flight.at_work(C1), in_flight.plugin_call():
            assert {each.key for each in marks(table) if each.in_call} == {C1}
        with in_flight.plugin_call():
            assert {each.key for each in marks(table) if each.in_call} == {C0}


def test_a_copy_of_the_process_that_a_plugin_forked_ends_with_the_call(table: int) -> None:
    script = (
        "import os; from drover_worker.engine.in_flight import InFlight\n"
        f"in_flight = InFlight({table})\n"
        "with in_flight.at_work('c'):\n"
        "    with in_flight.plugin_call(): child = os.fork()\n"
        "    print('parent' if child else 'copy', flush=True)\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], pass_fds=[table], check=False, capture_output=True
    )
    assert ended.stdout == b"parent\n", ended.stderr
    assert at_work(table) == ["c"], "the copy leaves the mark"


def test_what_the_engine_ends_under_stays_marked_though_it_hears_of_that_first(table: int) -> None:
    in_flight = InFlight(table)
    with in_flight.at_work(C0, is_run=True):
        in_flight.keep(C0)
    assert at_work(table) == [C0]
    with in_flight.at_work(C0, is_run=True):
        pass
    assert at_work(table) == [C0]


def test_nobody_is_named_when_there_may_be_more(table: int) -> None:
    in_flight = InFlight(table)
    many = [in_flight.at_work(TaskId("many", number)) for number in range(1_000)]
    for mark in many:
        mark.__enter__()
    assert read_table(table) is None
    for mark in reversed(many):
        mark.__exit__(None, None, None)
    assert at_work(table) == []


def test_without_a_table_nothing_is_marked() -> None:
    with InFlight().at_work(C0):
        pass


def test_the_marks_outlive_a_process_that_is_killed(table: int) -> None:
    script = (
        "import os, signal; from drover_worker.engine.in_flight import InFlight\n"
        f"with InFlight({table}).at_work('c'): os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", script], pass_fds=[table], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert at_work(table) == ["c"]


def test_a_task_is_marked_while_it_runs_and_stays_so_once_spark_is_gone(
    table: int, world: World
) -> None:
    world.tools = replace(world.tools, in_flight=InFlight(table))
    task = TaskId(LinesSource.__name__, 0)
    seen: list[object] = []

    def lost() -> None:
        world.is_spark_running = False
        raise ConnectionRefusedError

    Lines.faults += [lambda: seen.append(at_work(table)), lost]
    runner = world.source()
    runner.run_once()
    assert seen == [[task]]
    assert at_work(table) == []
    runner.run_once()
    assert at_work(table) == [task]
