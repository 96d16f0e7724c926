import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from drover.api.status_store.v1 import status_store_service_pb2 as pb
from drover.codec import status_store as codec
from drover.errors import InvalidArgumentError
from drover.model.failures import Failure, FailureCause, FailureHistory
from drover.model.ids import TaskId
from drover.model.status import (
    RecordCounts,
    RunState,
    Status,
    StatusEvent,
    StatusSnapshot,
    StatusWrite,
)

#: Field 2000, a varint.
UNKNOWN_FIELD = b"\x80\x7d\x01"

text = st.text(max_size=20)
keys = text | st.builds(TaskId, text, st.integers(0, 2**31 - 1))
count = st.integers(0, 2**63 - 1)
time_ms = st.integers(0, 253_402_300_799_999)
failures = st.builds(
    FailureHistory,
    st.integers(-1, 2**53),
    st.lists(
        st.builds(Failure, time_ms, st.sampled_from(FailureCause), text, text), max_size=3
    ).map(tuple),
    st.integers(0, 2**53),
    time_ms,
    text,
)
statuses = st.builds(
    Status,
    keys,
    st.sampled_from(RunState),
    text,
    st.integers(-1, 2**31 - 1),
    st.text(max_size=200),
    counts=st.none() | st.builds(RecordCounts, count, count, count, count, count),
    failures=st.none() | failures,
    figures=st.dictionaries(text, st.integers(-(2**63), 2**63 - 1), max_size=3),
)


@given(st.builds(StatusWrite, statuses, st.booleans()))
def test_writes(write: StatusWrite) -> None:
    assert codec.decode_write(codec.encode_write(write)) == write


@given(statuses, st.integers(0, 2**63 - 1), st.booleans())
def test_events(status: Status, offset: int, removed: bool) -> None:
    event = StatusEvent(offset, status.key, None if removed else status)
    assert codec.decode_event(codec.encode_event(event)) == event


def test_an_event_of_a_newer_server_is_ignored() -> None:
    assert codec.decode_event(pb.StatusEvent(offset=3)) is None
    for key_of_another_kind in (
        pb.StatusEvent(offset=3, removed=pb.StatusKey()),
        pb.StatusEvent(offset=3, updated=pb.StatusEntry(state=pb.RUN_STATE_RUNNING)),
    ):
        assert codec.decode_event(key_of_another_kind) is None


def test_a_state_of_a_newer_server_is_a_status_of_which_nothing_is_known() -> None:
    entry = pb.StatusEntry(key=pb.StatusKey(connector="a"), worker_id="w")
    # each number is logged once per process, so no other test may use it
    entry.state = 4711  # type: ignore[assignment]
    known = codec.encode_status(Status("b", RunState.RUNNING, "w", 1))
    with structlog.testing.capture_logs() as told:
        event = codec.decode_event(pb.StatusEvent(offset=3, updated=entry))
        chunk = pb.GetSnapshotResponse(statuses=[entry, known], end_offset=4, complete=True)
        snapshot = codec.decode_snapshot([chunk])
    assert event == StatusEvent(3, "a", None)
    assert list(snapshot.statuses) == ["b"]
    assert [each["value"] for each in told] == ["RUN_STATE_4711"]


def test_a_kind_of_event_of_a_newer_server_is_skipped_and_reported_once() -> None:
    newer = pb.StatusEvent.FromString(pb.StatusEvent(offset=3).SerializeToString() + UNKNOWN_FIELD)
    key = pb.StatusKey.FromString(UNKNOWN_FIELD)
    known = StatusEvent(4, "a", None)
    with structlog.testing.capture_logs() as reported:
        found = [
            codec.decode_event(message)
            for message in (newer, newer, pb.StatusEvent(removed=key), codec.encode_event(known))
        ]
    assert found == [None, None, None, known]
    assert [(each["message"], each["fields"]) for each in reported] == [
        ("drover.api.status_store.v1.StatusEvent", [2000]),
        ("drover.api.status_store.v1.StatusKey", [2000]),
    ]


@given(st.lists(statuses, max_size=8), st.integers(0, 10**9), st.integers(1, 500))
def test_snapshots_in_chunks_of_any_size(
    found: list[Status], end_offset: int, chunk_max_bytes: int
) -> None:
    snapshot = StatusSnapshot(end_offset, {status.key: status for status in found})
    chunks = list(codec.encode_snapshot(snapshot, chunk_max_bytes))
    assert [chunk.complete for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    for chunk in chunks:
        assert chunk.ByteSize() <= chunk_max_bytes + 32 or len(chunk.statuses) == 1
    assert codec.decode_snapshot(chunks) == snapshot


def test_what_is_wrong_is_named_with_its_place() -> None:
    unset_key = pb.StatusWrite(status=pb.StatusEntry(state=pb.RUN_STATE_RUNNING))
    with pytest.raises(InvalidArgumentError) as caught:
        codec.decode_write(unset_key, "writes[3]")
    assert caught.value.violations[0].field == "writes[3].status.key"
    unset_state = pb.StatusWrite(status=pb.StatusEntry(key=pb.StatusKey(connector="a")))
    with pytest.raises(InvalidArgumentError) as caught:
        codec.decode_write(unset_state, "writes[3]")
    assert caught.value.violations[0].field == "writes[3].status.state"
