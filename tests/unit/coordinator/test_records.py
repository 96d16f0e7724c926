"""The group log's records: round trips, and blobs of earlier versions that must stay readable.

``DROVER_BLESS=1`` writes blobs that are missing; one that exists is never rewritten, because logs
in the field hold such bytes.
"""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drover.errors import DataLossError, Reason
from drover.log.log import LogRecord, StoredRecord
from drover.model.group import OfferedProtocol
from services.coordinator.core.values import GroupMetadata, GroupRecord, MemberRecord
from services.coordinator.records import decode_record, encode_record

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
SAMPLES = {
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
records = st.builds(
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


@given(record=records)
def test_any_record_round_trips(record: GroupRecord) -> None:
    assert decode_record(stored(encode_record(record))) == record


@pytest.mark.parametrize(
    "record",
    [
        LogRecord(b"\xff\xff\xff", b""),
        LogRecord(encode_record(SAMPLES["told"]).key, b"\x32\x7fnot a member"),
        LogRecord(b"", b""),
        LogRecord(b"", None),
    ],
)
def test_bytes_that_are_no_record_are_a_data_loss(record: LogRecord) -> None:
    with pytest.raises(DataLossError, match="offset 3") as caught:
        decode_record(stored(record))
    assert caught.value.reason is Reason.LOG_CORRUPT


def test_keys_tell_groups_apart() -> None:
    assert encode_record(SAMPLES["told"]).key == encode_record(SAMPLES["tombstone"]).key
    assert encode_record(SAMPLES["told"]).key != encode_record(SAMPLES["static"]).key
