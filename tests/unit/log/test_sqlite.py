"""Damaged files, full disks and crashes, and the log's error messages."""

import asyncio
import os
import sqlite3
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from drover.clock import SystemClock
from drover.errors import DataLossError, Reason, UnavailableError
from drover.log import batching_queue
from drover.log import sqlite as sqlite_log
from drover.log.log import LogRecord
from drover.log.sqlite import SqliteLog
from drover.log.sqlite_file import FORMAT
from drover.model.ids import Term
from drover.testing import ManualClock, latest_values, raises_reason, read_all
from tests.support.forked import ForkedProcess
from tests.support.waiting import wait_until_async


async def open_log(path: Path) -> SqliteLog:
    return await SqliteLog.open(path, ManualClock())


def record(index: int, size_bytes: int = 10) -> LogRecord:
    return LogRecord(f"key-{index}".encode(), bytes(size_bytes), f"request-{index}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
async def log(path: Path) -> AsyncIterator[SqliteLog]:
    opened = await open_log(path)
    yield opened
    await opened.close()


def pragma(log: SqliteLog, text: str) -> None:
    """Set a pragma on the writing connection while no write runs."""
    log._writer._connection.execute(f"PRAGMA {text}").fetchall()


async def filled(path: Path, count: int = 300) -> None:
    """A closed log of ``count`` records, all in the main file."""
    log = await open_log(path)
    await log.append([record(index, 200) for index in range(count)])
    await log.close()


# damaged files


@pytest.mark.parametrize("content", [b"", b"{}"])
async def test_a_file_that_is_no_database_is_reported(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with raises_reason(Reason.LOG_CORRUPT, str(path), "backup") as raised:
        await open_log(path)
    assert isinstance(raised.error, DataLossError)
    assert path.read_bytes() == content


async def test_another_programs_database_is_reported(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE record (offset INTEGER PRIMARY KEY)")
    connection.close()
    with raises_reason(Reason.LOG_CORRUPT, str(path), "not a Drover log"):
        await open_log(path)


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (FORMAT.version - 1, f"has format {FORMAT.version - 1}"),
        (FORMAT.version + 1, f"newer Drover (format {FORMAT.version + 1}"),
    ],
)
async def test_another_format_is_refused_and_left_alone(
    path: Path, version: int, message: str
) -> None:
    await filled(path)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    with raises_reason(Reason.LOG_CORRUPT, str(path), message):
        await open_log(path)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM record").fetchone() == (300,)
    connection.close()


@pytest.mark.parametrize("keep", [0.0, 0.001, 0.5, 0.99])
async def test_a_truncated_file_is_reported(path: Path, keep: float) -> None:
    await filled(path)
    os.truncate(path, int(path.stat().st_size * keep))
    with raises_reason(Reason.LOG_CORRUPT, str(path), "backup"):
        log = await open_log(path)
        await log.close()


async def test_an_overwritten_page_is_reported(path: Path) -> None:
    await filled(path)
    with path.open("r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xa5" * 4096)
    with raises_reason(Reason.LOG_CORRUPT, str(path)):
        log = await open_log(path)
        await log.close()


async def test_a_flipped_bit_in_a_value_is_found_on_reading(path: Path) -> None:
    log = await open_log(path)
    await log.append([record(0), LogRecord(b"k", b"the value that is hit"), record(2)])
    await log.close()
    content = path.read_bytes()
    assert content.count(b"the value that is hit") == 1
    path.write_bytes(content.replace(b"the value that is hit", b"the value that is hiu"))
    log = await open_log(path)
    with raises_reason(Reason.LOG_CORRUPT, str(path), "offset 1", "checksum"):
        await read_all(log)
    await log.close()


@pytest.mark.parametrize(
    "damage",
    [
        "key = CAST('key-9' AS BLOB)",
        "value = NULL",
        "value = 'text'",
        "value = zeroblob(length(value) + 1)",
        "timestamp_ms = timestamp_ms + 1",
        "timestamp_ms = 'soon'",
        "request_id = 'another'",
        "author = 'another'",
        "request_id = x'ff'",
        "offset = 77",
        "checksum = checksum + 1",
    ],
)
async def test_damage_in_any_column_is_found(path: Path, damage: str) -> None:
    await filled(path, 3)
    connection = sqlite3.connect(path)
    connection.execute(f"UPDATE record SET {damage} WHERE offset = 2")
    connection.commit()
    connection.close()
    log = await open_log(path)
    with raises_reason(Reason.LOG_CORRUPT, str(path)):
        await read_all(log)
    await log.close()


async def test_readers_leave_the_wal_alone(path: Path, log: SqliteLog) -> None:
    wal = path.with_name("log.db-wal")
    assert wal.exists()
    inode = wal.stat().st_ino
    for index in range(3):
        assert await log.end_offset() == index
        await read_all(log)
        await log.append([record(index)])
    assert wal.stat().st_ino == inode


# full and read-only disks


async def test_a_full_file_refuses_whole_appends_and_recovers(log: SqliteLog) -> None:
    await log.append([record(0)])
    pragma(log, "max_page_count = 20")
    with raises_reason(Reason.STORAGE_UNAVAILABLE, "full", "free space") as raised:
        await log.append([record(index, 10_000) for index in range(1, 50)])
    assert isinstance(raised.error, UnavailableError)
    assert [one.offset for one in await read_all(log)] == [0]
    assert await log.append([record(1)]) == 2
    pragma(log, "max_page_count = 100000")
    assert await log.append([record(index, 10_000) for index in range(2, 50)]) == 50


async def test_an_append_that_does_not_fit_spares_those_that_do(log: SqliteLog) -> None:
    pragma(log, "max_page_count = 40")
    too_large = [record(index, 10_000) for index in range(50)]
    outcomes = await asyncio.gather(
        *(log.append(too_large if n == 5 else [record(1_000 + n)]) for n in range(10)),
        return_exceptions=True,
    )
    assert isinstance(outcomes.pop(5), UnavailableError)
    assert sorted(outcome for outcome in outcomes if isinstance(outcome, int)) == list(range(1, 10))
    assert len(await read_all(log)) == 9


async def test_records_that_sqlite_cannot_hold_spare_their_neighbours(log: SqliteLog) -> None:
    outcomes = await asyncio.gather(
        log.append([record(0)]),
        log.append([record(1), LogRecord(b"k", b"v", "lone surrogate \ud800")]),
        log.append([record(2)]),
        return_exceptions=True,
    )
    assert [getattr(outcome, "reason", outcome) for outcome in outcomes] == [1, Reason.INTERNAL, 2]
    assert [one.record for one in await read_all(log)] == [record(0), record(2)]


async def test_a_read_only_file_refuses_appends_and_claims_and_recovers(log: SqliteLog) -> None:
    await log.append([record(0)])
    pragma(log, "query_only = ON")
    with raises_reason(Reason.STORAGE_UNAVAILABLE, "readonly"):
        await log.append([record(1)])
    with raises_reason(Reason.STORAGE_UNAVAILABLE, "readonly"):
        await log.claim("w", Term(1, 1))
    assert len(await read_all(log)) == 1
    pragma(log, "query_only = OFF")
    assert await log.append([record(1)]) == 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small disk needs root; the page limit tests cover the same errors")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


async def test_a_full_disk_refuses_appends_until_there_is_space(small_disk: Path) -> None:
    log = await open_log(small_disk / "log.db")
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(512 << 10))
    acknowledged = 0
    with raises_reason(Reason.STORAGE_UNAVAILABLE, "full"):
        for index in range(1_000):
            acknowledged = await log.append([record(index, 20_000)])
    assert 0 < acknowledged < 1_000
    with raises_reason(Reason.STORAGE_UNAVAILABLE):
        await log.append([record(index, 20_000) for index in range(5)])
    assert [one.record for one in await read_all(log)] == [
        record(index, 20_000) for index in range(acknowledged)
    ]
    ballast.unlink()
    assert await log.append([record(acknowledged)]) == acknowledged + 1
    await log.close()
    log = await open_log(small_disk / "log.db")
    assert len(await read_all(log)) == acknowledged + 1
    await log.close()


async def test_a_full_disk_at_the_start_is_reported(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(bytes((1 << 20) - 4_096))
    with raises_reason(Reason.STORAGE_UNAVAILABLE, str(small_disk)):
        await open_log(small_disk / "log.db")
    (small_disk / "ballast").unlink()
    log = await open_log(small_disk / "log.db")
    await log.close()


# the writer


async def test_concurrent_appends_share_commits(
    log: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[int] = []
    commit = log._writer._commit

    def counted(jobs: "list[sqlite_log._Job]") -> object:
        groups.append(len(jobs))
        return commit(jobs)

    monkeypatch.setattr(log._writer, "_commit", counted)
    await asyncio.gather(*(log.append([record(index)]) for index in range(300)))
    assert sum(groups) == 300
    assert len(groups) <= 150


async def test_appends_that_wait_are_bounded(
    log: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching_queue, "MAX_WAITING_JOBS", 5)
    log._writer._jobs._ready.acquire()  # the writer cannot take queued appends
    try:
        appends = [asyncio.ensure_future(log.append([record(n)])) for n in range(8)]
        await wait_until_async(
            lambda: sum(append.done() for append in appends) == 3, describe="three are refused"
        )
    finally:
        log._writer._jobs._ready.release()
    outcomes = await asyncio.gather(*appends, return_exceptions=True)
    assert outcomes[:5] == [1, 2, 3, 4, 5]
    assert [getattr(outcome, "reason", None) for outcome in outcomes[5:]] == [Reason.QUEUE_FULL] * 3


async def test_a_compaction_cut_short_brings_nothing_back(
    log: SqliteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_log, "DELETE_BATCH_RECORDS", 1)
    await log.append([LogRecord(b"a", b"1"), LogRecord(b"a", b"2"), LogRecord(b"a", None)])
    await log.append([record(index) for index in range(1_500)])
    before = await latest_values(log)
    do = log._writer.do
    changes = 0

    async def cut_short(change: Callable[[sqlite3.Connection], int]) -> int:
        nonlocal changes
        changes += 1
        if changes % 2 == 0:
            raise UnavailableError(Reason.STORAGE_UNAVAILABLE, "scripted")
        return await do(change)

    monkeypatch.setattr(log._writer, "do", cut_short)
    for removed in (1, 2):
        with raises_reason(Reason.STORAGE_UNAVAILABLE):
            await log.compact()
        assert len(await read_all(log)) == 1_503 - removed
        assert await latest_values(log) == before
    assert await log.compact() == 1
    assert await latest_values(log) == before


class GatedConnection:
    """A connection whose COMMITs wait until the test releases them."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.gate = threading.Event()
        self.waiting = threading.Event()

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> sqlite3.Cursor:
        if sql == "COMMIT":
            self.waiting.set()
            assert self.gate.wait(30)
        return self._connection.execute(sql, parameters)

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)


@pytest.fixture
def gated(log: SqliteLog, monkeypatch: pytest.MonkeyPatch) -> Iterator[GatedConnection]:
    connection = GatedConnection(log._writer._connection)
    monkeypatch.setattr(log._writer, "_connection", connection)
    yield connection
    connection.gate.set()


async def test_an_append_is_answered_only_when_it_is_committed(
    log: SqliteLog, gated: GatedConnection
) -> None:
    append = asyncio.ensure_future(log.append([record(0)]))
    await wait_until_async(gated.waiting.is_set)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not append.done()
    assert await read_all(log) == []
    gated.gate.set()
    assert await append == 1
    assert len(await read_all(log)) == 1


async def test_close_finishes_what_was_queued_before_it(
    path: Path, log: SqliteLog, gated: GatedConnection
) -> None:
    appends = [asyncio.ensure_future(log.append([record(0)]))]
    await wait_until_async(gated.waiting.is_set)
    appends += [asyncio.ensure_future(log.append([record(n)])) for n in range(1, 4)]
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(log.close())
    await asyncio.sleep(0)
    gated.gate.set()
    assert await asyncio.gather(*appends) == [1, 2, 3, 4]
    await closing
    again = await open_log(path)
    assert len(await read_all(again)) == 4
    await again.close()


async def test_files_of_a_closed_log_are_released(path: Path) -> None:
    log = await open_log(path)
    await log.append([record(index) for index in range(2_000)])
    reading = log.read()
    await anext(reading)
    await log.close()
    assert [link for link in open_files() if link.startswith(str(path))] == []
    assert [entry.name for entry in path.parent.iterdir()] == ["log.db"]
    with raises_reason(Reason.STORAGE_UNAVAILABLE, "closed"):
        await anext(reading)


def open_files() -> list[str]:
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            links.append(str(entry.readlink()))
        except OSError:  # the descriptor has been closed
            continue
    return links


WRITER = """
import asyncio, sys
from pathlib import Path
from drover.clock import SystemClock
from drover.log.log import LogRecord
from drover.log.sqlite import SqliteLog

async def main():
    log = await SqliteLog.open(Path(sys.argv[1]), SystemClock())
    start = await log.end_offset()

    async def append(caller):
        number = 0
        while True:
            number += 1
            name = f"{start}/{caller}/{number}".encode()
            records = [LogRecord(name + b"/%d" % part, bytes(500)) for part in range(3)]
            await log.append(records)
            sys.stdout.write(name.decode() + "\\n")
            sys.stdout.flush()

    async def compact():
        while True:
            await log.compact()

    await asyncio.gather(compact(), *(append(caller) for caller in range(8)))

asyncio.run(main())
"""


@pytest.mark.e2e
async def test_every_acknowledged_record_outlives_kill_9(path: Path) -> None:
    acknowledged: list[str] = []
    for life in range(1, 6):
        reading, writing = os.pipe()
        with os.fdopen(reading) as lines:
            with os.fdopen(writing, "w") as out:
                program = ("-c", WRITER, str(path))
                writer = ForkedProcess(program, env=os.environ, out=out)
            acknowledged += [lines.readline().strip() for _ in range(150 * life)]
            writer.kill()
            rest = lines.read()
        # the kill may have cut the last line
        acknowledged.extend(line for line in rest.split("\n")[:-1] if line)
        log = await SqliteLog.open(path, SystemClock())
        stored = await read_all(log)
        await log.close()
        parts: dict[str, int] = {}
        for one in stored:
            name = one.record.key.decode().rpartition("/")[0]
            parts[name] = parts.get(name, 0) + 1
        assert set(acknowledged) <= set(parts)
        assert set(parts.values()) == {3}, "an append is whole or absent"
        assert [one.offset for one in stored] == list(range(len(stored)))
    assert len(acknowledged) >= 150 * 15
