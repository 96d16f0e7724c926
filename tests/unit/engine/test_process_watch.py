"""The connector whose code changes the process of its engine is named."""

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest
import structlog

from drover.model.ids import TaskId
from drover_worker.engine.in_flight import InFlight
from drover_worker.engine.process_constants import ExitCode
from drover_worker.engine.process_state import ProcessState
from drover_worker.engine.process_watch import ProcessWatch
from tests.unit.engine.test_in_flight import marks, table

A0, A1, B0 = TaskId("a", 0), TaskId("a", 1), TaskId("b", 0)

__all__ = ["table"]


@pytest.fixture(autouse=True)
def collection() -> Iterator[None]:
    yield
    gc.enable()


@pytest.fixture
def watch() -> ProcessWatch:
    return ProcessWatch(ProcessState())


def test_the_connector_whose_call_changed_the_process_is_named(watch: ProcessWatch) -> None:
    with structlog.testing.capture_logs() as logs:
        for key in (A0, A1, A0):
            watch.call_began(key)
            gc.disable()
            assert watch.call_ended(key)
            assert gc.isenabled()
        watch.call_began(B0)
        watch.call_ended(B0)
    assert watch.note_of("a").startswith("its code changed garbage collection in the engine's")
    assert watch.note_of("b") == ""
    (line,) = logs
    assert (line["connectors"], line["restored"]) == (["a"], ["garbage collection"])


def test_of_calls_at_the_same_time_none_is_accused_in_its_status(watch: ProcessWatch) -> None:
    watch.call_began(A0)
    watch.call_began(B0)
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            gc.disable()
            watch.call_ended(A0)
            assert gc.isenabled()
            watch.call_began(A0)
    (line,) = logs
    assert line["connectors"] == ["a", "b"]
    watch.call_ended(A0)
    assert watch.note_of("a") == watch.note_of("b") == ""
    gc.disable()
    watch.call_ended(B0)
    assert watch.note_of("b"), "it ran alone since the last check"


def test_a_start_clears_what_was_noted(watch: ProcessWatch) -> None:
    watch.call_began(A0)
    gc.disable()
    watch.call_ended(A0)
    watch.started("b")
    assert watch.note_of("a")
    watch.started("a")
    assert watch.note_of("a") == ""


def test_an_engine_whose_connections_a_plugin_closed_ends_and_names_it(table: int) -> None:
    script = (
        "import os, socket\n"
        "from drover_worker.engine.in_flight import InFlight\n"
        "from drover_worker.engine.process_state import ProcessState\n"
        "from drover_worker.engine.process_watch import ProcessWatch\n"
        "sock, _ = socket.socketpair()\n"
        f"watch = ProcessWatch(ProcessState((sock.fileno(),)))\n"
        f"in_flight = InFlight({table}, watch)\n"
        "with in_flight.at_work('good'), in_flight.at_work('bad'), in_flight.plugin_call():\n"
        "    os.closerange(3, 4096)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], pass_fds=[table], check=False, capture_output=True
    )
    assert ended.returncode == ExitCode.DAMAGED, ended.stderr
    assert [each.key for each in marks(table) if each.has_damaged] == ["bad"]


def test_a_call_that_raises_is_checked_too(table: int, watch: ProcessWatch) -> None:
    in_flight = InFlight(table, watch)

    def fail() -> None:
        gc.disable()
        raise MemoryError

    with pytest.raises(MemoryError), in_flight.at_work(A0), in_flight.plugin_call():
        fail()
    assert gc.isenabled()
    assert watch.note_of("a")
