"""The files of the shards: created once, and never recreated by mistake."""

from pathlib import Path

import pytest

from drover.clock import SystemClock
from drover.errors import Reason
from drover.log.directory import DataDirectory
from drover.log.log import StoredRecord
from drover.log.sqlite import SqliteLog
from drover.testing import raises_reason
from drover_coordinator.backends.embedded import shard_files
from drover_coordinator.backends.embedded.shard_files import open_shards, shard_path
from drover_coordinator.record_codec import decode_record

SHARDS = 3


def setup(path: Path, shard_count: int = SHARDS) -> None:
    """Create or check the files, as a start does."""
    open_shards(DataDirectory(path), shard_count).close()


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
        Reason.INVALID_CONFIG,
        f"DROVER_GROUP_SHARDS must be 3, not 4: {tmp_path} was created with 3",
    ):
        setup(tmp_path, 4)
    assert not shard_path(tmp_path, 3).exists()
    setup(tmp_path)


def test_a_shard_log_that_is_gone_is_begun_anew(tmp_path: Path) -> None:
    setup(tmp_path)
    for each in tmp_path.glob("groups-1.db*"):
        each.unlink()
    setup(tmp_path)
    assert shard_path(tmp_path, 1).exists()


def test_a_first_start_that_was_cut_short_is_taken_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_missing = shard_files._create_missing

    def die_after_the_first(path: Path, shard_count: int) -> None:
        make_missing(path, 1)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shard_files, "_create_missing", die_after_the_first)
        with pytest.raises(KeyboardInterrupt):
            setup(tmp_path)
    setup(tmp_path)
    assert shard_path(tmp_path, SHARDS - 1).exists()
