"""Who holds a lock of SQLite, on real files."""

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from drover.log.lock_holders import write_lock_holders

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists locks")


@pytest.fixture(params=["WAL", "DELETE"])
def connection(request: pytest.FixtureRequest, database: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA journal_mode = {request.param}")
        connection.execute("CREATE TABLE t (a)")
        yield connection


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "data.db"


def test_a_writer_holds_the_file_until_its_transaction_ends(
    database: Path, connection: sqlite3.Connection
) -> None:
    assert write_lock_holders(database) == {}
    connection.execute("BEGIN IMMEDIATE")
    assert write_lock_holders(database) == {os.getpid(): database}
    connection.execute("COMMIT")
    assert write_lock_holders(database) == {}


def test_a_reader_keeps_nobody_from_writing(database: Path, connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN")
    connection.execute("SELECT * FROM t").fetchall()
    assert write_lock_holders(database) == {}


def test_only_the_files_that_are_asked_for_count(
    database: Path, connection: sqlite3.Connection, tmp_path: Path
) -> None:
    connection.execute("BEGIN IMMEDIATE")
    other = tmp_path / "other.db"
    assert write_lock_holders(other) == {}
    assert write_lock_holders(other, database) == {os.getpid(): database}
