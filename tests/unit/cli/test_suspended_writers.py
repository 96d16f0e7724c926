"""Which processes are killed because they were suspended in the middle of a write."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psutil
import pytest

from drover.local.suspended_writers import SuspendedWriters
from tests.support.freezing import suspend
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists locks")

WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("INSERT INTO t VALUES (1)")
print("writing", flush=True)
sys.stdin.read()
connection.execute("COMMIT")
"""

StartWriter = Callable[[], "subprocess.Popen[str]"]
Events = list[tuple[str, str]]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    database = tmp_path / "data.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (a)")
    return database


@pytest.fixture
def start_writer(database: Path) -> Iterator[StartWriter]:
    with ExitStack() as stack:

        def start() -> "subprocess.Popen[str]":
            pipe = subprocess.PIPE
            command = [sys.executable, "-c", WRITER, str(database)]
            process = stack.enter_context(
                subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
            )
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == "writing\n"
            return process

        yield start


def looks(database: Path, names: dict[int, str], events: Events) -> SuspendedWriters:
    def hear(name: str, text: str) -> None:
        events.append((name, text))

    return SuspendedWriters(database.parent, lambda: names, hear)


def rows(database: Path) -> int:
    """The number of rows, counted once the write lock is free."""
    with closing(sqlite3.connect(database, isolation_level=None, timeout=60)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        return int(connection.execute("SELECT count(*) FROM t").fetchone()[0])


def test_one_below_a_supervised_process_is_killed_at_the_second_look(
    database: Path, start_writer: StartWriter
) -> None:
    events: Events = []
    writers = looks(database, {os.getpid(): "worker-1"}, events)
    writer = start_writer()
    suspend(writer.pid)
    writers.check()
    assert writer.poll() is None
    assert events == []
    writers.check()
    assert writer.wait(60) == -signal.SIGKILL
    [(name, text)] = events
    assert name == "worker-1"
    assert str(writer.pid) in text
    assert "data.db" in text
    assert rows(database) == 0, "the unfinished transaction is rolled back"


def test_one_that_goes_on_is_left_alone(database: Path, start_writer: StartWriter) -> None:
    events: Events = []
    writers = looks(database, {os.getpid(): "worker-1"}, events)
    writer = start_writer()
    suspend(writer.pid)
    writers.check()
    writer.send_signal(signal.SIGCONT)
    wait_until(lambda: psutil.Process(writer.pid).status() != psutil.STATUS_STOPPED)
    for _ in range(3):
        writers.check()
    writer.communicate("")
    assert writer.returncode == 0
    assert rows(database) == 1
    assert events == []


def test_one_that_is_not_supervised_is_left_alone(
    database: Path, start_writer: StartWriter
) -> None:
    events: Events = []
    writer = start_writer()
    writers = looks(database, {}, events)
    suspend(writer.pid)
    for _ in range(3):
        writers.check()
    assert writer.poll() is None
    assert events == []
