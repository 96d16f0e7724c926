"""Loading a compacted group log gives the same state, for any log."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from drover.log import sqlite as sqlite_log
from drover.log.log import StoredRecord
from drover.log.sqlite import SqliteLog
from drover.machine import Replayed
from drover.model.offsets import GroupOffset, TopicPartition
from drover.testing import ManualClock, read_all
from drover_coordinator.core.groups.machine import GroupsMachine
from drover_coordinator.core.groups.records import (
    FloorRecord,
    GroupMetadata,
    GroupRecord,
    LogValue,
    OffsetRecord,
)
from drover_coordinator.record_codec import decode_record, encode_record

KEPT = 2

group_ids = st.sampled_from(["g", "h"])
partitions = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.just(0))
group_records = st.builds(
    GroupRecord,
    group_id=group_ids,
    metadata=st.none()
    | st.builds(
        GroupMetadata,
        protocol_type=st.sampled_from(["", "consumer"]),
        generation=st.integers(0, 9),
        protocol_name=st.just(""),
        leader_id=st.just(""),
        state_timestamp_ms=st.integers(0, 9),
    ),
)


@st.composite
def offset_records(draw: st.DrawFn) -> OffsetRecord:
    at = draw(partitions)
    offset = draw(st.none() | st.integers(0, 9))
    kept = None if offset is None else GroupOffset(at.topic, at.partition, offset)
    return OffsetRecord(draw(group_ids), at, kept)


@st.composite
def logs(draw: st.DrawFn) -> list[LogValue]:
    """Records in any order; floors only rise."""
    records = draw(
        st.lists(group_records | offset_records() | st.just(FloorRecord(0)), max_size=30)
    )
    return [
        FloorRecord(10 + index) if isinstance(record, FloorRecord) else record
        for index, record in enumerate(records)
    ]


def fold(stored: Sequence[StoredRecord]) -> dict[str, object]:
    machine = GroupsMachine()
    for each in stored:
        record = decode_record(each)
        assert record is not None
        machine.replay(Replayed(each.offset, record))
    machine.loaded(0, len(stored))
    machine.validate()
    return machine.hard_state()


@settings(max_examples=60)
@given(records=logs(), more=logs())
def test_the_fold_is_the_same_before_and_after(
    records: list[LogValue], more: list[LogValue]
) -> None:
    async def compare(path: Path) -> None:
        log = await SqliteLog.open(path, ManualClock())
        try:
            for part in (records, [each for each in more if not isinstance(each, FloorRecord)]):
                await log.append([encode_record(each) for each in part])
                before = await read_all(log)
                removed = await log.compact()
                after = await read_all(log)
                assert len(after) == len(before) - removed
                assert fold(after) == fold(before)
        finally:
            await log.close()

    with TemporaryDirectory() as directory, patch.object(sqlite_log, "KEPT_RECORD_COUNT", KEPT):
        asyncio.run(compare(Path(directory) / "groups.db"))
