"""The files of the shards: made once, taken over once, never begun anew by mistake."""

import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from drover.clock import SystemClock
from drover.errors import Reason
from drover.log.directory import DataDirectory
from drover.log.log import StoredRecord
from drover.log.sqlite import SqliteLog
from drover.model.group import shard_of
from drover.model.offsets import GroupOffset, TopicPartition
from drover.testing import raises_reason
from drover_coordinator.backends.embedded import shard_files
from drover_coordinator.backends.embedded.shard_files import (
    OLD_LOG,
    OLD_LOG_TAKEN,
    open_shards,
    shard_path,
)
from drover_coordinator.core.groups.records import (
    FloorRecord,
    GroupMetadata,
    GroupRecord,
    LogValue,
    OffsetRecord,
)
from drover_coordinator.record_codec import decode_record, encode_record

SHARDS = 3
GROUPS = [f"group-{number}" for number in range(20)]


def setup(path: Path, shard_count: int = SHARDS) -> None:
    """What a start does."""
    open_shards(DataDirectory(path), shard_count).close()


def metadata(generation: int) -> GroupMetadata:
    return GroupMetadata("connect", generation, "default", "m", 1_000)


async def write_old_log(path: Path) -> list[GroupRecord]:
    """An earlier version's log: groups that live, one that was removed."""
    records = [GroupRecord(group_id, metadata(1)) for group_id in GROUPS]
    records += [GroupRecord(group_id, metadata(2)) for group_id in GROUPS[:10]]
    records += [GroupRecord(GROUPS[3], None)]
    log = await SqliteLog.open(path / OLD_LOG, SystemClock())
    for record in records:
        await log.append([encode_record(record)])
    await log.close()
    return records


async def read(path: Path) -> list[StoredRecord]:
    log = await SqliteLog.open(path, SystemClock())
    stored = [record async for batch in log.read() for record in batch]
    await log.close()
    return stored


async def read_shards(path: Path) -> list[list[object]]:
    return [
        [decode_record(stored) for stored in await read(shard_path(path, shard))]
        for shard in range(SHARDS)
    ]


async def test_offsets_go_with_their_group_and_the_floor_into_every_log(tmp_path: Path) -> None:
    at, floor = TopicPartition("t", 0), FloorRecord(9)
    offsets: list[LogValue] = [
        OffsetRecord(group_id, at, GroupOffset("t", 0, 7, commit_time_ms=1)) for group_id in GROUPS
    ]
    log = await SqliteLog.open(tmp_path / OLD_LOG, SystemClock())
    await log.append([encode_record(record) for record in [*offsets, floor]])
    await log.close()
    setup(tmp_path)
    assert await read_shards(tmp_path) == [
        [*(offsets[n] for n, each in enumerate(GROUPS) if shard_of(each, SHARDS) == shard), floor]
        for shard in range(SHARDS)
    ]


def of_shard(records: Sequence[GroupRecord], shard: int) -> list[GroupRecord]:
    return [record for record in records if shard_of(record.group_id, SHARDS) == shard]


async def test_a_first_start_makes_an_empty_log_for_each_shard(tmp_path: Path) -> None:
    setup(tmp_path)
    assert await read_shards(tmp_path) == [[], [], []]
    setup(tmp_path)


@pytest.mark.parametrize("table_is_lost", [False, True])
def test_another_number_of_shards_is_refused(tmp_path: Path, table_is_lost: bool) -> None:
    setup(tmp_path)
    if table_is_lost:
        for each in tmp_path.glob("coordinators.db*"):
            each.unlink()
    with raises_reason(
        Reason.INVALID_CONFIG, f"DROVER_GROUP_SHARDS must be 3, not 4: {tmp_path} was begun with 3"
    ):
        setup(tmp_path, 4)
    assert not shard_path(tmp_path, 3).exists()
    setup(tmp_path)


async def test_an_old_log_is_taken_over_record_by_record(tmp_path: Path) -> None:
    records = await write_old_log(tmp_path)
    old = await read(tmp_path / OLD_LOG)
    setup(tmp_path)
    assert await read_shards(tmp_path) == [of_shard(records, shard) for shard in range(SHARDS)]
    for shard in range(SHARDS):
        stored = await read(shard_path(tmp_path, shard))
        assert [each.offset for each in stored] == list(range(len(stored)))
        assert {each.timestamp_ms for each in stored} <= {each.timestamp_ms for each in old}
    assert not (tmp_path / OLD_LOG).exists()
    assert await read(tmp_path / OLD_LOG_TAKEN) == old, "it is kept as it was"
    assert not list(tmp_path.glob("*.taking-over*"))


async def test_what_came_after_the_take_over_is_not_overwritten(tmp_path: Path) -> None:
    await write_old_log(tmp_path)
    setup(tmp_path)
    log = await SqliteLog.open(shard_path(tmp_path, 0), SystemClock())
    await log.append([encode_record(GroupRecord("new", metadata(7)))])
    await log.close()
    later = await read_shards(tmp_path)
    await write_old_log(tmp_path)  # by an earlier version that was started by mistake
    setup(tmp_path)
    assert await read_shards(tmp_path) == later
    for each in tmp_path.glob("coordinators.db*"):
        each.unlink()
    setup(tmp_path)
    assert await read_shards(tmp_path) == later


@pytest.mark.parametrize("step", ["_distribute", "_sync", "_make_missing", "_put_away"])
async def test_a_take_over_that_was_cut_short_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    records = await write_old_log(tmp_path)

    def die(*arguments: object) -> None:
        raise KeyboardInterrupt(step)

    with monkeypatch.context() as patched:
        patched.setattr(shard_files, step, die)
        with pytest.raises(KeyboardInterrupt):
            setup(tmp_path)
    setup(tmp_path)
    assert await read_shards(tmp_path) == [of_shard(records, shard) for shard in range(SHARDS)]
    assert not (tmp_path / OLD_LOG).exists()


async def test_a_damaged_old_log_stops_the_start_and_stays_as_it_is(tmp_path: Path) -> None:
    await write_old_log(tmp_path)
    with sqlite3.connect(tmp_path / OLD_LOG) as old:
        old.execute("UPDATE record SET checksum = checksum + 1 WHERE offset = 5")
    old.close()
    with raises_reason(Reason.LOG_CORRUPT, str(tmp_path / OLD_LOG), "offset 5"):
        setup(tmp_path)
    assert (tmp_path / OLD_LOG).exists()
    assert not shard_path(tmp_path, 0).exists()


def test_a_shard_log_that_is_gone_is_begun_anew(tmp_path: Path) -> None:
    setup(tmp_path)
    for each in tmp_path.glob("groups-1.db*"):
        each.unlink()
    setup(tmp_path)
    assert shard_path(tmp_path, 1).exists()


async def test_an_old_log_with_records_still_in_its_write_ahead_log(tmp_path: Path) -> None:
    """As a killed process leaves it."""
    origin, copy = tmp_path / "origin", tmp_path / "copy"
    origin.mkdir()
    copy.mkdir()
    log = await SqliteLog.open(origin / OLD_LOG, SystemClock())
    records = [GroupRecord(group_id, metadata(1)) for group_id in GROUPS]
    await log.append([encode_record(record) for record in records])
    for each in origin.iterdir():
        shutil.copy(each, copy / each.name)
    await log.close()
    assert (copy / f"{OLD_LOG}-wal").stat().st_size > 0
    setup(copy)
    assert await read_shards(copy) == [of_shard(records, shard) for shard in range(SHARDS)]
    assert [decode_record(each) for each in await read(copy / OLD_LOG_TAKEN)] == records
