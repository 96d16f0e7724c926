"""SQLite files, on a real disk: creation, checks, transactions, locks."""

import os
import sqlite3
import stat
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drover.dataplane import database as data_file
from drover.errors import DataLossError, Reason, UnavailableError
from drover.log import sqlite_file as log_file
from drover.sqlite import FileFormat, SqliteFile, write_lock_holders
from drover.testing import raises_reason
from drover_coordinator.backends.embedded import lease_file
from tests.support.waiting import wait_until

FORMATS = {
    "log": log_file.FORMAT,
    "data.db": data_file.FORMAT,
    "coordinators.db": lease_file.FORMAT,
}
#: The application id and the version of files in the field.
STORED = {"log": (0x44524F56, 3), "data.db": (0x44525644, 4), "coordinators.db": (0x44524F4C, 2)}

only_linux_lists_locks = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux lists locks"
)


def format_of(version: int = 1, oldest_version: int = 1) -> FileFormat:
    return FileFormat(
        name="a test file",
        application_id=7,
        version=version,
        oldest_version=oldest_version,
        schema="CREATE TABLE IF NOT EXISTS t (a); CREATE TABLE IF NOT EXISTS u (a)",
        remedy="Write it again",
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file.db"


@pytest.fixture
def file(path: Path) -> SqliteFile:
    return SqliteFile(path, format_of(), lock_timeout_s=20)


@pytest.fixture
def impatient(path: Path) -> SqliteFile:
    return SqliteFile(path, format_of(), lock_timeout_s=0.02)


@pytest.fixture
def opened(file: SqliteFile) -> Iterator[sqlite3.Connection]:
    with closing(file.open_or_create()) as connection:
        yield connection


@pytest.fixture
def other(path: Path, opened: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """A connection of another program to the open file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def pragma(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def modes_in(directory: Path) -> dict[str, int]:
    return {each.name: stat.S_IMODE(each.stat().st_mode) for each in directory.iterdir()}


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def tables(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
    return [name for (name,) in rows]


def write(connection: sqlite3.Connection, file: SqliteFile, value: object) -> None:
    with file.transaction(connection):
        connection.execute("INSERT INTO t VALUES (?)", (value,))


def values(connection: sqlite3.Connection) -> list[Any]:
    return [value for (value,) in connection.execute("SELECT a FROM t")]


# creating and opening


@pytest.mark.parametrize("kind", FORMATS)
def test_a_new_file_has_its_format_and_is_durable(path: Path, kind: str) -> None:
    with closing(SqliteFile(path, FORMATS[kind], 5).open_or_create()) as connection:
        assert (pragma(connection, "application_id"), pragma(connection, "user_version")) == STORED[
            kind
        ]
        assert pragma(connection, "journal_mode") == "wal"
        full = 2
        assert pragma(connection, "synchronous") == full


def test_pragmas_of_a_new_file_come_before_its_first_page(path: Path) -> None:
    with closing(SqliteFile(path, data_file.FORMAT, 5).open_or_create()) as connection:
        incremental = 2
        assert pragma(connection, "auto_vacuum") == incremental
        assert pragma(connection, "page_size") == data_file.PAGE_SIZE_BYTES


def test_a_file_is_opened_with_what_was_written(
    file: SqliteFile, opened: sqlite3.Connection
) -> None:
    write(opened, file, "kept")
    opened.close()
    with closing(file.open_or_create()) as again:
        assert values(again) == ["kept"]


def test_a_creation_that_was_cut_short_is_taken_up_again(file: SqliteFile) -> None:
    unfinished = file.path.with_name("file.db.new")
    unfinished.write_bytes(b"half a fi")
    file.create()
    assert not unfinished.exists()
    with closing(file.connect()) as connection:
        assert file.read_version(connection) == 1


def test_a_connection_alone_creates_nothing(file: SqliteFile) -> None:
    with raises_reason(Reason.STORAGE_UNAVAILABLE, str(file.path)):
        file.connect()
    assert not file.path.exists()


def test_a_path_with_special_characters(tmp_path: Path) -> None:
    path = tmp_path / "a b?c#d%41 ü" / "file.db"
    path.parent.mkdir()
    file = SqliteFile(path, format_of(), 5)
    file.open_or_create().close()
    assert [each.name for each in path.parent.iterdir()] == ["file.db"]
    file.connect().close()


def test_an_older_file_gets_what_it_lacks(path: Path) -> None:
    execute(
        path, "CREATE TABLE t (a)", "PRAGMA application_id = 7", "INSERT INTO t VALUES ('kept')"
    )
    execute(path, "PRAGMA user_version = 1")
    with closing(SqliteFile(path, format_of(version=2), 5).open_or_create()) as connection:
        assert pragma(connection, "user_version") == 2
        assert tables(connection) == ["t", "u"]
        assert values(connection) == ["kept"]


def test_an_upgrade_that_fails_leaves_the_file_as_it_was(path: Path) -> None:
    file = SqliteFile(path, format_of(), 5)
    file.open_or_create().close()
    broken = FileFormat("a test file", 7, 2, "DROP TABLE t; CREATE TABLE u (a)", "Write it again")
    with pytest.raises(UnavailableError, match="table u already exists"):
        SqliteFile(path, broken, 5).open_or_create()
    with closing(file.open_or_create()) as connection:
        assert tables(connection) == ["t", "u"]


@pytest.mark.parametrize("kind", FORMATS)
def test_many_create_a_file_at_once_and_one_does(path: Path, kind: str) -> None:
    once = replace(
        FORMATS[kind], schema=FORMATS[kind].schema + ";CREATE TABLE t (a);INSERT INTO t VALUES (1)"
    )

    def open_and_write(number: int) -> None:
        file = SqliteFile(path, once, 60)
        with closing(file.open_or_create()) as connection:
            write(connection, file, number)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(open_and_write, range(2, 24)))
    with closing(sqlite3.connect(path)) as connection:
        assert sorted(values(connection)) == list(range(1, 24))


@pytest.mark.parametrize("statement_number", range(1, 4))
def test_a_file_that_another_process_creates_meanwhile_is_not_a_strange_one(
    file: SqliteFile, statement_number: int
) -> None:
    with closing(file.connect(create=True)) as connection:
        seen = 0

        def create_before(_: str) -> None:
            nonlocal seen
            seen += 1
            if seen == statement_number:
                file.open_or_create().close()

        connection.set_trace_callback(create_before)
        assert file.read_version(connection) in (0, 1)
        connection.set_trace_callback(None)
        assert file.read_version(connection) == (1 if seen >= statement_number else 0)


def test_a_copy_that_is_not_in_wal_mode_enters_it(
    file: SqliteFile, opened: sqlite3.Connection, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    opened.execute("VACUUM INTO ?", (str(copy),))
    with closing(sqlite3.connect(copy)) as connection:
        assert pragma(connection, "journal_mode") == "delete"
    with closing(SqliteFile(copy, file.format, 5).open_or_create()) as connection:
        assert pragma(connection, "journal_mode") == "wal"


def test_a_copy_enters_wal_mode_once_nobody_else_writes_it(path: Path) -> None:
    file = SqliteFile(path, format_of(), 60)
    file.create()
    waits = threading.Event()

    def see(statement: str) -> None:
        if statement == "BEGIN EXCLUSIVE":
            waits.set()

    with (
        closing(sqlite3.connect(path, isolation_level=None)) as writer,
        closing(file.connect()) as connection,
        ThreadPoolExecutor(1) as thread,
    ):
        writer.execute("BEGIN IMMEDIATE")
        connection.set_trace_callback(see)
        entering = thread.submit(file.enter_wal_mode, connection)
        wait_until(lambda: waits.is_set() or entering.done())
        writer.execute("COMMIT")
        entering.result(60)
        assert pragma(connection, "journal_mode") == "wal"


@pytest.mark.parametrize("kind", ["DEFERRED", "IMMEDIATE"])
def test_a_transaction_that_does_not_end_keeps_a_copy_from_wal_mode(
    impatient: SqliteFile, kind: str
) -> None:
    impatient.create()
    with closing(sqlite3.connect(impatient.path, isolation_level=None)) as connection:
        connection.execute(f"BEGIN {kind}")
        values(connection)
        with raises_reason(Reason.STORAGE_UNAVAILABLE, "locked"):
            impatient.open_or_create()


# what is refused


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_that_is_no_database_is_damaged(path: Path, kind: str) -> None:
    content = b"no database at all, though it is long enough to have a header" * 90
    path.write_bytes(content)
    with raises_reason(
        Reason.LOG_CORRUPT, f"{path} is damaged: file is not a database", FORMATS[kind].remedy
    ) as raised:
        SqliteFile(path, FORMATS[kind], 5).open_or_create()
    assert isinstance(raised.error, DataLossError)
    assert raised.error.metadata == {"path": str(path)}
    assert path.read_bytes() == content


def test_a_damaged_page_is_found(file: SqliteFile, opened: sqlite3.Connection) -> None:
    write(opened, file, "x" * 50_000)
    opened.close()
    with file.path.open("r+b") as raw:
        raw.seek(4096)
        raw.write(bytes(8192))
    with raises_reason(Reason.LOG_CORRUPT, f"{file.path} is damaged", "Write it again"):
        file.open_or_create(check_pages=True)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_of_another_program_is_refused_and_left_alone(path: Path, kind: str) -> None:
    execute(path, "CREATE TABLE theirs (a)")
    before = path.read_bytes()
    with raises_reason(
        Reason.LOG_CORRUPT, str(path), "another program", f"not {FORMATS[kind].name}"
    ):
        SqliteFile(path, FORMATS[kind], 5).open_or_create()
    assert path.read_bytes() == before


def test_a_file_of_another_kind_is_refused(file: SqliteFile, opened: sqlite3.Connection) -> None:
    with raises_reason(Reason.LOG_CORRUPT, "not a Drover log"):
        SqliteFile(file.path, log_file.FORMAT, 5).open_or_create()


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_of_a_newer_version_is_refused_and_left_alone(path: Path, kind: str) -> None:
    file = SqliteFile(path, FORMATS[kind], 5)
    file.open_or_create().close()
    execute(path, "PRAGMA user_version = 9")
    before = path.read_bytes()
    with raises_reason(
        Reason.LOG_CORRUPT,
        f"{path} was written by a newer Drover (format 9, this one reads up to {STORED[kind][1]})",
    ) as raised:
        file.open_or_create()
    assert raised.error.metadata == {"path": str(path), "format": "9"}
    assert path.read_bytes() == before


def test_a_file_of_a_version_that_is_too_old_is_refused(path: Path) -> None:
    SqliteFile(path, format_of(version=1), 5).open_or_create().close()
    file = SqliteFile(path, format_of(version=3, oldest_version=2), 5)
    with raises_reason(Reason.LOG_CORRUPT, "has format 1, and this Drover reads from format 2 on"):
        file.open_or_create()


def test_a_missing_directory_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "file.db"
    file = SqliteFile(path, format_of(), 5)
    for attempt in (file.open_or_create, file.create):
        with raises_reason(Reason.STORAGE_UNAVAILABLE, str(path), "writable") as raised:
            attempt()
        assert isinstance(raised.error, UnavailableError)
        assert raised.error.metadata == {"path": str(path)}


def test_a_directory_in_the_files_place_is_reported(file: SqliteFile) -> None:
    file.path.mkdir()
    with raises_reason(Reason.STORAGE_UNAVAILABLE, str(file.path)):
        file.open_or_create()


# transactions


def test_a_transaction_is_rolled_back_as_a_whole(
    file: SqliteFile, opened: sqlite3.Connection
) -> None:
    def fail_after_a_write() -> None:
        with file.transaction(opened):
            opened.execute("INSERT INTO t VALUES (1)")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_after_a_write()
    assert values(opened) == []
    write(opened, file, 2)
    assert values(opened) == [2]


def test_a_full_file_refuses_a_transaction_and_takes_the_next(
    file: SqliteFile, opened: sqlite3.Connection
) -> None:
    opened.execute(f"PRAGMA max_page_count = {pragma(opened, 'page_count')}")
    with raises_reason(Reason.STORAGE_UNAVAILABLE, "full; nothing was written", "free space"):
        write(opened, file, "x" * 100_000)
    opened.execute("PRAGMA max_page_count = 1000")
    write(opened, file, "fits")
    assert values(opened) == ["fits"]


def test_a_read_only_file_refuses_a_transaction(
    file: SqliteFile, opened: sqlite3.Connection
) -> None:
    opened.execute("PRAGMA query_only = ON")
    with raises_reason(Reason.STORAGE_UNAVAILABLE, "readonly"):
        write(opened, file, 1)


def test_a_writer_waits_within_bounds_and_names_the_process_that_writes(
    impatient: SqliteFile, opened: sqlite3.Connection, other: sqlite3.Connection
) -> None:
    with closing(impatient.open_or_create()) as connection:
        other.execute("BEGIN IMMEDIATE")
        with raises_reason(
            Reason.STORAGE_UNAVAILABLE,
            f"{impatient.path} stayed locked by another process for 0.02 s",
            f"pid {os.getpid()} has the lock" if sys.platform == "linux" else "",
        ):
            write(connection, impatient, 1)
        other.execute("COMMIT")
        write(connection, impatient, 2)
        assert values(connection) == [2]


def test_a_writer_waits_longer_than_its_connection_polls(
    file: SqliteFile, opened: sqlite3.Connection, other: sqlite3.Connection
) -> None:
    with (
        closing(file.open_or_create()) as connection,
        ThreadPoolExecutor(1) as thread,
    ):
        connection.execute("PRAGMA busy_timeout = 1")
        other.execute("BEGIN IMMEDIATE")
        writing = thread.submit(write, connection, file, 1)
        opened.execute("PRAGMA busy_timeout = 100")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            opened.execute("BEGIN IMMEDIATE")
        assert not writing.done()
        other.execute("COMMIT")
        writing.result(60)
        assert values(connection) == [1]


def test_who_reads_and_who_opens_waits_for_no_writer(
    impatient: SqliteFile, opened: sqlite3.Connection, other: sqlite3.Connection
) -> None:
    other.execute("BEGIN IMMEDIATE")
    with (
        closing(impatient.open_or_create()) as connection,
        impatient.transaction(connection, "DEFERRED"),
    ):
        assert values(connection) == []


# who holds a lock


@pytest.fixture(params=["WAL", "DELETE"])
def plain(request: pytest.FixtureRequest, path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA journal_mode = {request.param}")
        connection.execute("CREATE TABLE t (a)")
        yield connection


@only_linux_lists_locks
def test_a_writer_holds_the_file_until_its_transaction_ends(
    path: Path, plain: sqlite3.Connection
) -> None:
    assert write_lock_holders(path) == {}
    plain.execute("BEGIN IMMEDIATE")
    assert write_lock_holders(path) == {os.getpid(): path}
    plain.execute("COMMIT")
    assert write_lock_holders(path) == {}


@only_linux_lists_locks
def test_a_reader_holds_no_write_lock(path: Path, plain: sqlite3.Connection) -> None:
    plain.execute("BEGIN")
    plain.execute("SELECT * FROM t").fetchall()
    assert write_lock_holders(path) == {}


@only_linux_lists_locks
def test_only_the_files_that_are_asked_for_count(
    path: Path, plain: sqlite3.Connection, tmp_path: Path
) -> None:
    plain.execute("BEGIN IMMEDIATE")
    another = tmp_path / "another.db"
    assert write_lock_holders(another) == {}
    assert write_lock_holders(another, path) == {os.getpid(): path}


def test_a_file_and_its_log_are_for_its_user_only(file: SqliteFile, path: Path) -> None:
    with closing(file.open_or_create()) as connection:
        connection.execute("INSERT INTO t VALUES (1)")
        modes = modes_in(path.parent)
        assert set(modes) == {"file.db", "file.db-wal", "file.db-shm"}
        assert set(modes.values()) == {0o600}
    path.chmod(0o644)  # of an older version
    file.open_or_create().close()
    assert modes_in(path.parent)["file.db"] == 0o600


def test_a_file_that_is_created_at_once_is_for_its_user_only(file: SqliteFile, path: Path) -> None:
    file.create()
    assert modes_in(path.parent) == {"file.db": 0o600}
