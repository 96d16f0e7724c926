"""Missing records in an otherwise intact log: links between records, and the end mark."""

import errno
import shutil
import sqlite3
from pathlib import Path

import pytest

from drover.errors import Reason
from drover.log import sqlite as sqlite_log
from drover.log.end_mark import End, EndMark, mark_path, read_mark
from drover.log.log import LogRecord
from drover.log.sqlite import SqliteLog
from drover.model.ids import Term
from drover.testing import ManualClock, latest_values, raises_reason, read_all


async def open_log(path: Path) -> SqliteLog:
    return await SqliteLog.open(path, ManualClock())


def record(index: int, key: str = "") -> LogRecord:
    return LogRecord((key or f"key-{index}").encode(), b"value %d" % index)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


async def filled(path: Path, count: int = 10) -> None:
    """A closed log of ``count`` records."""
    log = await open_log(path)
    await log.append([record(index) for index in range(count)])
    await log.close()


async def crashed(path: Path, directory: Path, count: int = 10) -> Path:
    """The files of a process that was killed after ``count`` appends of one record each."""
    log = await open_log(path)
    for index in range(count):
        await log.append([record(index)])
    directory.mkdir()
    for name in ("log.db", "log.db-wal", "log.db-end"):
        shutil.copy(path.with_name(name), directory)
    await log.close()
    return directory / "log.db"


def execute(path: Path, sql: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(sql)
    connection.close()


async def read_whole(path: Path) -> int:
    """Read the whole log; returns the number of records."""
    log = await open_log(path)
    try:
        return len(await read_all(log))
    finally:
        await log.close()


# links


@pytest.mark.parametrize(
    ("doomed", "where"),
    [
        ("0", "before offset 1"),
        ("5", "between the offsets 4 and 6"),
        ("3, 4, 5", "between the offsets 2 and 6"),
        ("0, 1, 2, 8", "before offset 3"),
    ],
)
async def test_rows_that_are_missing_are_told_with_their_place(
    path: Path, doomed: str, where: str
) -> None:
    await filled(path)
    execute(path, f"DELETE FROM record WHERE offset IN ({doomed})")
    with raises_reason(Reason.LOG_CORRUPT, str(path), where, "backup"):
        await read_whole(path)


@pytest.mark.parametrize("damage", ["previous = 2", "previous = 'x'", "previous = -1"])
async def test_a_damaged_link_is_found(path: Path, damage: str) -> None:
    await filled(path)
    execute(path, f"UPDATE record SET {damage} WHERE offset = 5")
    with raises_reason(Reason.LOG_CORRUPT, "between the offsets 4 and 5"):
        await read_whole(path)


async def test_reading_from_the_middle_finds_gaps_behind_it(path: Path) -> None:
    await filled(path)
    execute(path, "DELETE FROM record WHERE offset IN (2, 7)")
    log = await open_log(path)
    with raises_reason(Reason.LOG_CORRUPT, "between the offsets 6 and 8"):
        [batch async for batch in log.read(3)]
    assert [each.offset for batch in [b async for b in log.read(8)] for each in batch] == [8, 9]
    await log.close()


@pytest.mark.parametrize("batch_count", [1, 2, 1_000])
async def test_compaction_leaves_no_gaps(
    path: Path, monkeypatch: pytest.MonkeyPatch, batch_count: int
) -> None:
    monkeypatch.setattr(sqlite_log, "KEPT_RECORD_COUNT", 3)
    monkeypatch.setattr(sqlite_log, "DELETE_BATCH_RECORDS", batch_count)
    log = await open_log(path)
    # superseded records: single, consecutive, and at the log start
    for key in ("a", "b", "a", "c", "c", "c", "d", "b", "e", "f", "g", "a"):
        await log.append([record(0, key)])
    before = await latest_values(log)
    assert await log.compact() == 5
    assert [each.offset for each in await read_all(log)] == [5, 6, 7, 8, 9, 10, 11]
    await log.append([record(1, "d")])
    assert await log.compact() == 1
    await log.close()
    log = await open_log(path)
    assert [each.offset for each in await read_all(log)] == [5, 7, 8, 9, 10, 11, 12]
    assert await latest_values(log) == {**before, b"d": b"value 1"}
    await log.close()
    execute(path, "DELETE FROM record WHERE offset = 7")
    with raises_reason(Reason.LOG_CORRUPT, "between the offsets 5 and 8"):
        await read_whole(path)


# the end mark


async def test_a_lost_wal_is_told(path: Path, tmp_path: Path) -> None:
    copy = await crashed(path, tmp_path / "crashed")
    copy.with_name("log.db-wal").unlink()
    for _ in range(2):
        with raises_reason(
            Reason.LOG_CORRUPT, str(copy), "ends at offset 0", "offset 10", "-wal", "backup"
        ):
            await open_log(copy)
    mark_path(copy).unlink()  # by this the operator accepts the loss of the records
    assert await read_whole(copy) == 0


@pytest.mark.parametrize("keep", [0.99, 0.5, 0.1, 0.0])
async def test_a_wal_that_was_cut_short_is_told(path: Path, tmp_path: Path, keep: float) -> None:
    copy = await crashed(path, tmp_path / "crashed")
    wal = copy.with_name("log.db-wal")
    content = wal.read_bytes()
    wal.write_bytes(content[: int(len(content) * keep)])
    with raises_reason(Reason.LOG_CORRUPT, str(copy), "offset 10", "truncated"):
        await open_log(copy)


async def test_a_flipped_bit_in_the_wal_is_told(path: Path, tmp_path: Path) -> None:
    copy = await crashed(path, tmp_path / "crashed")
    wal = copy.with_name("log.db-wal")
    content = bytearray(wal.read_bytes())
    content[len(content) // 2] ^= 1
    wal.write_bytes(content)
    with raises_reason(Reason.LOG_CORRUPT, str(copy), "offset 10"):
        await open_log(copy)


async def test_a_claim_that_went_with_the_wal_is_told(path: Path, tmp_path: Path) -> None:
    log = await open_log(path)
    await log.claim("w", Term(1, 1))
    crash = tmp_path / "crashed"
    crash.mkdir()
    for name in ("log.db", "log.db-end"):
        shutil.copy(path.with_name(name), crash)
    await log.close()
    with raises_reason(Reason.LOG_CORRUPT, "claim 1 was acknowledged"):
        await open_log(crash / "log.db")


async def test_a_crash_alone_is_no_damage(path: Path, tmp_path: Path) -> None:
    copy = await crashed(path, tmp_path / "crashed")
    log = await open_log(copy)
    assert len(await read_all(log)) == 10
    assert await log.append([record(10)]) == 11
    await log.close()
    assert await read_whole(copy) == 11


async def test_a_file_that_is_gone_after_a_crash_is_told(path: Path, tmp_path: Path) -> None:
    copy = await crashed(path, tmp_path / "crashed")
    copy.unlink()
    with raises_reason(Reason.LOG_CORRUPT, str(copy), "missing", "offset 10"):
        await open_log(copy)


async def test_a_closed_log_is_one_file_and_may_be_replaced_by_a_backup(path: Path) -> None:
    await filled(path, 3)
    backup = path.with_name("backup")
    shutil.copy(path, backup)
    log = await open_log(path)
    await log.append([record(3)])
    assert read_mark(path) == End(4, 0)
    await log.close()
    assert sorted(each.name for each in path.parent.iterdir()) == ["backup", "log.db"]
    shutil.copy(backup, path)
    assert await read_whole(path) == 3


@pytest.mark.parametrize("content", [b"", b"\0" * 24, b"DREM" + b"\xff" * 20, b"x" * 99])
async def test_a_mark_that_the_machine_spoiled_says_nothing(path: Path, content: bytes) -> None:
    await filled(path, 3)
    mark_path(path).write_bytes(content)
    assert read_mark(path) is None
    assert await read_whole(path) == 3


async def test_a_mark_behind_the_log_is_right(path: Path) -> None:
    await filled(path, 3)
    mark = EndMark(path)
    mark.write(End(2, 0))
    mark.close(remove=False)
    assert await read_whole(path) == 3


async def test_refused_appends_move_no_mark(path: Path) -> None:
    log = await open_log(path)
    await log.append([record(0)])
    log._writer._connection.execute("PRAGMA query_only = ON")
    with raises_reason(Reason.STORAGE_UNAVAILABLE):
        await log.append([record(1)])
    assert read_mark(path) == End(1, 0)
    log._writer._connection.execute("PRAGMA query_only = OFF")
    await log.close()


async def test_a_mark_that_cannot_be_made_is_storage_that_cannot_be_used(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(EndMark, "__init__", out_of_files)
        with raises_reason(Reason.STORAGE_UNAVAILABLE, "Too many open files"):
            await SqliteLog.open(path, ManualClock())
    log = await SqliteLog.open(path, ManualClock())
    await log.close()


def out_of_files(*_: object) -> None:
    raise OSError(errno.EMFILE, "Too many open files")
