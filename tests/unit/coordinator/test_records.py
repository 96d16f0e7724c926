"""The group log's records: round trips, and blobs of earlier versions that must stay readable.

``DROVER_BLESS=1`` writes missing blobs. It never rewrites an existing blob, because logs in the
field hold such bytes.
"""

import json
import os
from pathlib import Path

import pytest
import structlog.testing
from hypothesis import given
from hypothesis import strategies as st

from drover.api.storage.v1 import group_record_pb2 as pb
from drover.errors import DataLossError, Reason
from drover.log.log import LogRecord, StoredRecord
from drover.model.group import OfferedProtocol
from drover.model.offsets import GroupOffset, TopicPartition
from drover_coordinator import record_codec
from drover_coordinator.core.groups.records import (
    FloorRecord,
    GroupMetadata,
    GroupRecord,
    LogValue,
    MemberRecord,
    OffsetRecord,
)
from drover_coordinator.record_codec import decode_record, encode_record

GOLDEN = Path(__file__).parent / "golden"

MEMBER = MemberRecord(
    member_id="worker-1f2e",
    client_id="worker",
    client_host="10.0.0.7",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=60_000,
    protocols=(OfferedProtocol("sessioned", b"\x00\x02"), OfferedProtocol("default", b"\x00\x01")),
    assignment=b"\xff\x00tasks",
)
FLIGHTS = TopicPartition("flights", 3)
SAMPLES: dict[str, LogValue] = {
    "created": GroupRecord("drover", GroupMetadata("", 0, "", "", 1_700_000_000_000)),
    "told": GroupRecord(
        "drover",
        GroupMetadata("connect", 7, "default", "worker-1f2e", 1_700_000_000_001, (MEMBER,)),
    ),
    "assigned": GroupRecord(
        "drover",
        GroupMetadata(
            "connect", 7, "default", "worker-1f2e", 1_700_000_000_002, (MEMBER,), assigned=True
        ),
    ),
    "static": GroupRecord(
        "grüppe",
        GroupMetadata(
            "connect",
            2**31 - 1,
            "default",
            "m",
            1,
            (MemberRecord("m", "", "", 1, 1, (OfferedProtocol("default", b""),), b"", "i-1"),),
        ),
    ),
    "tombstone": GroupRecord("drover", None),
    "offset": OffsetRecord(
        "grüppe",
        FLIGHTS,
        GroupOffset("flights", 3, 2**63 - 1, 7, "where it was", 1_700_000_000_003, 2**40),
    ),
    "offset-zero": OffsetRecord(
        "", TopicPartition("t", 0), GroupOffset("t", 0, 0, 0, "", 1, expire_time_ms=0)
    ),
    "offset-plain": OffsetRecord(
        "g", TopicPartition("t", 0), GroupOffset("t", 0, 5, commit_time_ms=1_700_000_000_004)
    ),
    "offset-removed": OffsetRecord("grüppe", FLIGHTS, None),
    "floor": FloorRecord(2**31 - 1),
}


def stored(record: LogRecord) -> StoredRecord:
    return StoredRecord(3, 1_700_000_000_000, record)


@pytest.mark.parametrize("name", SAMPLES)
def test_golden_blobs_round_trip(name: str) -> None:
    path = GOLDEN / f"{name}.json"
    encoded = encode_record(SAMPLES[name])
    if not path.exists() and os.environ.get("DROVER_BLESS") == "1":
        blob = {"key": encoded.key.hex(), "value": encoded.value and encoded.value.hex()}
        path.write_text(json.dumps(blob, indent=1) + "\n")
    blob = json.loads(path.read_text())
    value = None if blob["value"] is None else bytes.fromhex(blob["value"])
    golden = LogRecord(bytes.fromhex(blob["key"]), value)
    assert decode_record(stored(golden)) == SAMPLES[name]
    assert encoded == golden


texts = st.text(max_size=20)
partitions = st.builds(TopicPartition, st.text(min_size=1, max_size=20), st.integers(0, 2**31 - 1))
moments = st.integers(0, 2**62)


@st.composite
def offset_records(draw: st.DrawFn) -> OffsetRecord:
    at = draw(partitions)
    offset = draw(
        st.none()
        | st.builds(
            GroupOffset,
            topic=st.just(at.topic),
            partition=st.just(at.partition),
            offset=st.integers(0, 2**63 - 1),
            leader_epoch=st.none() | st.integers(0, 2**31 - 1),
            metadata=texts,
            commit_time_ms=moments,
            expire_time_ms=st.none() | moments,
        )
    )
    return OffsetRecord(draw(texts), at, offset)


group_records = st.builds(
    GroupRecord,
    group_id=st.text(min_size=1, max_size=20),
    metadata=st.none()
    | st.builds(
        GroupMetadata,
        protocol_type=texts,
        generation=st.integers(0, 2**31 - 1),
        protocol_name=texts,
        leader_id=texts,
        state_timestamp_ms=st.integers(0, 2**62),
        members=st.lists(
            st.builds(
                MemberRecord,
                member_id=texts,
                client_id=texts,
                client_host=texts,
                session_timeout_ms=st.integers(0, 2**40),
                rebalance_timeout_ms=st.integers(0, 2**40),
                protocols=st.lists(
                    st.builds(OfferedProtocol, texts, st.binary(max_size=20)), max_size=3
                ).map(tuple),
                assignment=st.binary(max_size=20),
                instance_id=st.none() | texts,
            ),
            max_size=3,
        ).map(tuple),
        assigned=st.booleans(),
    ),
)


records = (
    group_records | offset_records() | st.builds(FloorRecord, generation=st.integers(0, 2**31 - 1))
)


@given(record=records)
def test_any_record_round_trips(record: LogValue) -> None:
    assert decode_record(stored(encode_record(record))) == record


@given(first=records, second=records)
def test_records_share_a_key_when_they_are_about_the_same_thing(
    first: LogValue, second: LogValue
) -> None:
    def subject(record: LogValue) -> object:
        match record:
            case GroupRecord(group_id, _):
                return group_id
            case OffsetRecord(group_id, at, _):
                return group_id, at
            case FloorRecord():
                return FloorRecord

    same_key = encode_record(first).key == encode_record(second).key
    assert same_key == (subject(first) == subject(second))


@pytest.mark.parametrize(
    "record",
    [
        LogRecord(b"\xff\xff\xff", b""),
        LogRecord(encode_record(SAMPLES["told"]).key, b"\x32\x7fnot a member"),
        LogRecord(b"", b""),
        LogRecord(b"", None),
        LogRecord(encode_record(SAMPLES["offset"]).key, b"\x1a\x7fcut off"),
        LogRecord(pb.GroupMetadataKey(offset=pb.GroupOffsetKey()).SerializeToString(), None),
        LogRecord(
            pb.GroupMetadataKey(
                offset=pb.GroupOffsetKey(group_id="g", topic="t", partition=-1)
            ).SerializeToString(),
            None,
        ),
        LogRecord(encode_record(SAMPLES["floor"]).key, b"\xff"),
        LogRecord(
            pb.GroupMetadataKey(
                group_id="g", generation_floor=pb.GenerationFloorKey()
            ).SerializeToString(),
            b"",
        ),
    ],
)
def test_bytes_that_are_no_record_are_a_data_loss(record: LogRecord) -> None:
    with pytest.raises(DataLossError, match="offset 3") as caught:
        decode_record(stored(record))
    assert caught.value.reason is Reason.LOG_CORRUPT


def test_keys_tell_groups_apart() -> None:
    assert encode_record(SAMPLES["told"]).key == encode_record(SAMPLES["tombstone"]).key
    assert encode_record(SAMPLES["told"]).key != encode_record(SAMPLES["static"]).key


def test_records_of_a_kind_from_a_later_version_are_passed_over_and_told_of_once() -> None:
    record_codec._report_unknown.cache_clear()
    unknown = b"\x7a\x03new"  # field 15
    with structlog.testing.capture_logs() as logs:
        for value in (b"whatever", b"\xff\xff", None):
            assert decode_record(stored(LogRecord(unknown, value))) is None
        assert decode_record(stored(LogRecord(b"\x80\x01\x05", b""))) is None  # field 16
    assert [entry["key_fields"] for entry in logs] == [(15,), (16,)]
    assert {entry["log_level"] for entry in logs} == {"warning"}


def test_what_a_later_version_adds_to_a_known_record_is_passed_over() -> None:
    encoded = encode_record(SAMPLES["offset"])
    assert encoded.value is not None
    extended = LogRecord(encoded.key + b"\x7a\x03new", encoded.value + b"\x7a\x03new")
    assert decode_record(stored(extended)) == SAMPLES["offset"]
