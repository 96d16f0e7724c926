"""After an engine's end, the connectors and tasks that were active in it are known."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from drover.model.ids import TaskId
from drover.model.names import CONNECTOR_NAME_MAX_CHARS
from drover.model.status import StatusKey
from drover_worker.engine.in_flight import InFlight, new_table, read_table
from tests.unit.engine.runner_world import Lines, LinesSource, World

C0, C1 = TaskId("c", 0), TaskId("c", 1)


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
        assert read_table(table) == (key,)
    assert read_table(table) == ()


def test_what_raised_is_not_at_work_any_more(table: int) -> None:
    with pytest.raises(MemoryError), InFlight(table).at_work(C0):
        raise MemoryError
    assert read_table(table) == ()


def test_what_had_finished_a_run_is_named_only_when_all_had(table: int) -> None:
    in_flight = InFlight(table)
    with in_flight.at_work(C0, is_run=True):
        pass
    with in_flight.at_work(C1):  # its start does not count as a run
        pass
    with in_flight.at_work(C0, is_run=True):
        assert read_table(table) == (C0,)
        with in_flight.at_work(C1, is_run=True):
            assert read_table(table) == (C1,)


def test_what_the_engine_ends_under_stays_marked_though_it_hears_of_that_first(table: int) -> None:
    in_flight = InFlight(table)
    with in_flight.at_work(C0, is_run=True):
        in_flight.keep(C0)
    assert read_table(table) == (C0,)
    with in_flight.at_work(C0, is_run=True):
        pass
    assert read_table(table) == (C0,)


def test_nobody_is_named_when_there_may_be_more(table: int) -> None:
    in_flight = InFlight(table)
    marks = [in_flight.at_work(TaskId("many", number)) for number in range(1_000)]
    for mark in marks:
        mark.__enter__()
    assert read_table(table) is None
    for mark in marks:
        mark.__exit__(None, None, None)
    assert read_table(table) == ()


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
    assert read_table(table) == ("c",)


def test_a_task_is_marked_while_it_runs_and_stays_so_once_spark_is_gone(
    table: int, world: World
) -> None:
    world.tools = replace(world.tools, in_flight=InFlight(table))
    task = TaskId(LinesSource.__name__, 0)
    seen: list[object] = []

    def lost() -> None:
        world.is_spark_running = False
        raise ConnectionRefusedError

    Lines.faults += [lambda: seen.append(read_table(table)), lost]
    runner = world.source()
    runner.run_once()
    assert seen == [(task,)]
    assert read_table(table) == ()
    runner.run_once()
    assert read_table(table) == (task,)
