"""A damaged group log on disk, and the error of a coordinator that opens it."""

import asyncio
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from drover.errors import DataLossError, Reason
from drover.log import sqlite as sqlite_log
from drover.log.sqlite import SqliteLog
from drover.model.group import GroupDescription
from drover.model.offsets import GroupOffset, GroupOffsetPage, TopicPartition
from drover.runtime import compaction
from drover.runtime.runtime import Runtime
from drover.testing import ManualClock
from drover_coordinator.core.groups.events import (
    CommitGroupOffsets,
    DeleteGroup,
    DeleteGroupOffsets,
    DescribeGroup,
    FetchGroupOffsets,
)
from drover_coordinator.core.groups.machine import GroupsMachine
from drover_coordinator.core.groups.records import LogValue
from drover_coordinator.record_codec import decode_record, encode_record
from tests.support.waiting import wait_until_async

COUNT = 30


class Coordinator:
    """The group machine on a real log."""

    def __init__(self, runtime: Runtime[LogValue], machine: GroupsMachine) -> None:
        self.machine = machine
        self._runtime = runtime
        self._calls = 0

    async def call(self, make: Callable[[str], object]) -> object:
        """Submit the event that ``make`` returns for a new call id."""
        self._calls += 1
        call_id = str(self._calls)
        return await self._runtime.submit(make(call_id), call_id=call_id)

    async def commit(self, group_id: str, *positions: int) -> None:
        """Commit offsets of the topic ``t``, one per partition."""
        offsets = tuple(
            GroupOffset("t", partition, position, metadata=f"note {group_id}")
            for partition, position in enumerate(positions)
        )
        await self.call(lambda call_id: CommitGroupOffsets(call_id, group_id, "", -1, offsets))

    async def offsets(self, group_id: str) -> list[int]:
        """The committed offsets, by partition."""
        page = await self.call(lambda call_id: FetchGroupOffsets(call_id, group_id))
        assert isinstance(page, GroupOffsetPage)
        return [each.offset for each in page.offsets]


@asynccontextmanager
async def started(path: Path) -> AsyncIterator[Coordinator]:
    """Load the log and serve."""
    clock = ManualClock()
    log = await SqliteLog.open(path, clock)
    machine = GroupsMachine()
    runtime = Runtime(
        machine, log, encode=encode_record, decode=decode_record, clock=clock, name="coordinator"
    )
    try:
        await runtime.load()
        yield Coordinator(runtime, machine)
    finally:
        await runtime.close()
        await log.close()


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """The log of a coordinator that stopped, with a record for each of 30 groups."""
    path = tmp_path / "groups.db"
    async with started(path) as coordinator:
        for index in range(COUNT):
            await coordinator.commit(f"group {index:02}", 1_000 + index)
    return path


@pytest.fixture
async def killed(path: Path, tmp_path: Path) -> Path:
    """The log of a coordinator that was killed after three more commits."""
    copy = tmp_path / "killed"
    copy.mkdir()
    async with started(path) as coordinator:
        for position in (1, 2, 3):
            await coordinator.commit("last", position)
        for name in ("groups.db", "groups.db-wal", "groups.db-end"):
            shutil.copy(path.with_name(name), copy)
    return copy / "groups.db"


async def refusal(path: Path) -> str:
    """The coordinator's error when it cannot start; a second start raises the same error."""
    messages = []
    for _ in range(2):
        with pytest.raises(DataLossError) as caught:
            async with started(path):
                pass
        assert caught.value.reason is Reason.LOG_CORRUPT
        messages.append(caught.value.message)
    assert messages[0] == messages[1]
    assert str(path) in messages[0]
    assert "backup" in messages[0]
    return messages[0]


def flip(path: Path, needle: bytes) -> None:
    """Flip a bit in the only occurrence of ``needle``."""
    content = bytearray(path.read_bytes())
    assert content.count(needle) == 1
    content[content.index(needle) + len(needle) // 2] ^= 4
    path.write_bytes(bytes(content))


def execute(path: Path, sql: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(sql)
    connection.close()


@pytest.mark.parametrize("index", [0, COUNT // 2, COUNT - 1])
async def test_a_flipped_bit_in_any_record_is_told_with_its_offset(path: Path, index: int) -> None:
    flip(path, f"note group {index:02}".encode())
    assert f"offset {index}" in await refusal(path)


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.7, 0.95])
async def test_a_truncated_file_is_told(path: Path, keep: float) -> None:
    os.truncate(path, int(path.stat().st_size * keep))
    await refusal(path)


@pytest.mark.parametrize(
    ("index", "where"),
    [(0, "before offset 1"), (COUNT // 2, f"between the offsets {COUNT // 2 - 1} and")],
)
async def test_a_deleted_row_is_told_with_its_place(path: Path, index: int, where: str) -> None:
    execute(path, f"DELETE FROM record WHERE offset = {index}")
    assert where in await refusal(path)


async def test_a_record_that_was_taken_for_another_is_told(path: Path) -> None:
    execute(
        path,
        "UPDATE record SET value = (SELECT value FROM record WHERE offset = 3) WHERE offset = 7",
    )
    assert "offset 7" in await refusal(path)


async def test_a_kill_loses_nothing(killed: Path) -> None:
    async with started(killed) as coordinator:
        assert await coordinator.offsets("last") == [3]
        assert await coordinator.offsets("group 00") == [1_000]


@pytest.mark.parametrize("keep", [None, 0.0, 0.5, 0.999])
async def test_a_write_ahead_log_that_is_not_whole_is_told(
    killed: Path, keep: float | None
) -> None:
    wal = killed.with_name("groups.db-wal")
    if keep is None:
        wal.unlink()
    else:
        os.truncate(wal, int(wal.stat().st_size * keep))
    message = await refusal(killed)
    assert f"records up to offset {COUNT + 3} were acknowledged" in message


async def test_a_flipped_bit_in_the_write_ahead_log_is_told(killed: Path) -> None:
    wal = killed.with_name("groups.db-wal")
    content = bytearray(wal.read_bytes())
    content[len(content) // 2] ^= 1
    wal.write_bytes(bytes(content))
    await refusal(killed)


# compaction while serving


async def test_compaction_while_serving_changes_nothing_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "COMPACT_AFTER_RECORDS", 50)
    monkeypatch.setattr(sqlite_log, "KEPT_RECORD_COUNT", 5)
    path = tmp_path / "groups.db"
    expected: dict[str, list[int]] = {}
    async with started(path) as coordinator:
        for turn in range(100):
            name = f"group {turn % 7}"
            await coordinator.commit(name, turn, turn, turn)
            expected[name] = [turn] * 3
            if turn % 5 == 0:
                partitions = (TopicPartition("t", 1),)
                await coordinator.call(
                    lambda call_id, n=name, p=partitions: DeleteGroupOffsets(call_id, n, p)  # type: ignore[misc]
                )
                expected[name] = [turn] * 2
            if turn % 11 == 0:
                await coordinator.call(lambda call_id, n=name: DeleteGroup(call_id, n))  # type: ignore[misc]
                expected[name] = []
        state = coordinator.machine.hard_state()

        async def compacted() -> bool:
            return await asyncio.to_thread(row_count, path) < 150

        await wait_until_async(compacted)
    async with started(path) as coordinator:
        assert coordinator.machine.hard_state() == state
        for name, positions in expected.items():
            assert await coordinator.offsets(name) == positions
            described = await coordinator.call(lambda call_id, n=name: DescribeGroup(call_id, n))  # type: ignore[misc]
            assert isinstance(described, GroupDescription)


def row_count(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        (count,) = connection.execute("SELECT count(*) FROM record").fetchone()
    finally:
        connection.close()
    assert isinstance(count, int)
    return count
