import itertools
from collections.abc import Iterable, Sequence

import structlog
from hypothesis import given
from hypothesis import strategies as st

from drover.api.config_store.v1 import config_store_service_pb2 as pb
from drover.codec import config_store as codec
from drover.model.config import (
    ConfigEvent,
    ConfigSnapshot,
    ConfigVersion,
    ConnectorConfigRemoved,
    ConnectorConfigUpdated,
    ConnectorEntry,
    HistoryEntry,
    LoggerLevelSet,
    RestartRequested,
    SessionKey,
    SessionKeyUpdated,
    TargetState,
    TargetStateChanged,
    TaskConfigsUpdated,
)
from drover.model.ids import TaskId

#: Field 2000, a varint.
UNKNOWN_FIELD = b"\x80\x7d\x01"

text = st.text(max_size=20)
configs = st.dictionaries(text, text, max_size=4)
int64 = st.integers(-1, 2**63 - 1)
tasks = st.builds(TaskId, text, st.integers(0, 10))
entries = st.builds(
    ConnectorEntry,
    name=text,
    config=st.none() | configs,
    config_revision=int64,
    target_state=st.sampled_from(TargetState),
    task_count=st.integers(-1, 100),
    task_config_generation=int64,
    inconsistent=st.booleans(),
    applied_config=st.none() | configs,
    fenced_task_count=st.none() | st.integers(0, 2**31 - 1),
    fencing_pending=st.booleans(),
)
times = st.integers(0, 253_402_300_799_999)
session_keys = st.builds(SessionKey, st.binary(max_size=40), text, times)
task_configs = st.dictionaries(tasks, configs, max_size=5)
changes = st.one_of(
    st.builds(ConnectorConfigUpdated, entries),
    st.builds(ConnectorConfigRemoved, text),
    st.builds(TaskConfigsUpdated, entries, task_configs),
    st.builds(TargetStateChanged, text, st.sampled_from(TargetState)),
    st.builds(RestartRequested, text, st.booleans(), st.booleans()),
    st.builds(SessionKeyUpdated, session_keys),
    st.builds(LoggerLevelSet, text, text),
)
history_changes = st.one_of(
    st.builds(ConfigVersion, int64, configs),
    st.builds(ConnectorConfigRemoved, text),
    st.builds(TargetStateChanged, text, st.sampled_from(TargetState)),
    st.builds(RestartRequested, text, st.booleans(), st.booleans()),
)


def over_the_wire(messages: Iterable[pb.WatchConfigsResponse]) -> list[pb.WatchConfigsResponse]:
    return [pb.WatchConfigsResponse.FromString(m.SerializeToString()) for m in messages]


def read_events(
    messages: Sequence[pb.WatchConfigsResponse],
) -> list[tuple[ConfigEvent | None, int]]:
    """Every event with the end offset of the message that completes it."""
    pending: list[pb.ConfigEvent] = []
    found: list[tuple[ConfigEvent | None, int]] = []
    for message in messages:
        pending = codec.join_fragments(pending, message)
        if not message.fragment:
            found.extend((codec.decode_event(event), message.end_offset) for event in pending)
            pending = []
    assert pending == []
    return found


@given(entries)
def test_connectors(entry: ConnectorEntry) -> None:
    assert codec.decode_connector(codec.encode_connector(entry)) == entry


@given(st.integers(0, 2**63 - 1), changes)
def test_events(offset: int, change: object) -> None:
    event = ConfigEvent(offset, change)  # type: ignore[arg-type]
    assert codec.decode_event(codec.encode_event(event)) == event


def test_an_event_of_a_newer_server_is_ignored() -> None:
    assert codec.decode_event(pb.ConfigEvent(offset=3)) is None


def test_an_entry_of_a_newer_server_is_ignored() -> None:
    assert codec.decode_history_entry(pb.ConnectorHistoryEntry(offset=3)) is None


@given(st.builds(HistoryEntry, int64, times, text, history_changes))
def test_history_entries(entry: HistoryEntry) -> None:
    assert codec.decode_history_entry(codec.encode_history_entry(entry)) == entry


@given(
    st.lists(entries, max_size=6),
    task_configs,
    st.none() | session_keys,
    st.dictionaries(text, text, max_size=4),
    st.integers(0, 10**9),
    st.integers(1, 2000),
)
def test_snapshots_in_chunks_of_any_size(
    connectors: list[ConnectorEntry],
    configs_of_tasks: dict[TaskId, dict[str, str]],
    session_key: SessionKey | None,
    logger_levels: dict[str, str],
    end_offset: int,
    chunk_max_bytes: int,
) -> None:
    snapshot = ConfigSnapshot(
        end_offset,
        {c.name: c for c in connectors},
        configs_of_tasks,
        session_key,
        logger_levels,
        "this log",
    )
    chunks = list(codec.encode_snapshot(snapshot, chunk_max_bytes))
    assert [chunk.complete for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    for chunk in chunks:
        assert (
            chunk.ByteSize() <= chunk_max_bytes + 32
            or len(chunk.connectors) + len(chunk.task_configs) == 1
            or chunk is chunks[0]  # the session key and the logger levels stay together
        )
    assert codec.decode_snapshot(chunks) == snapshot


@given(st.lists(changes, max_size=8), st.integers(50, 1500))
def test_watch_messages_of_any_size(found: list[object], message_max_bytes: int) -> None:
    events = [ConfigEvent(10 + i, change) for i, change in enumerate(found)]  # type: ignore[arg-type]
    end_offset = 10 + len(events)
    messages = over_the_wire(
        codec.encode_watch_responses(
            events,
            end_offset,
            created=True,
            log_id="this log",
            message_max_bytes=message_max_bytes,
        )
    )
    assert {m.log_id for m in messages} == {"this log"}
    assert [m.created for m in messages] == [True] + [False] * (len(messages) - 1)
    read = read_events(messages)
    assert [event for event, _ in read] == events
    # a client that resumes at an end offset has read every event below it
    assert all(event is not None and event.offset < end for event, end in read)
    assert messages[-1].end_offset == end_offset
    for message, following in itertools.pairwise(messages):
        assert message.end_offset <= min(event.offset for event in following.events)


def test_a_large_set_of_task_configs_goes_on_in_fragments() -> None:
    whole = {TaskId("flights", i): {"file": "x" * 100} for i in range(50)}
    event = ConfigEvent(7, TaskConfigsUpdated(ConnectorEntry("flights"), whole))
    messages = over_the_wire(codec.encode_watch_responses([event], 8, message_max_bytes=1000))
    assert len(messages) > 5
    assert [m.fragment for m in messages] == [True] * (len(messages) - 1) + [False]
    assert all(m.ByteSize() < 1100 for m in messages)
    assert read_events(messages) == [(event, 8)]


def test_without_events_there_is_one_progress_mark() -> None:
    (message,) = codec.encode_watch_responses([], 5, created=True)
    assert (message.created, message.end_offset, len(message.events)) == (True, 5, 0)


def test_a_target_state_of_a_newer_store_is_no_order_to_run() -> None:
    message = pb.ConfigEvent(offset=1)
    message.target_state_changed.name = "a"
    message.target_state_changed.target_state = 9  # type: ignore[assignment]
    with structlog.testing.capture_logs() as told:
        for _ in range(2):
            event = codec.decode_event(message)
            assert event == ConfigEvent(1, TargetStateChanged("a", TargetState.PAUSED))
    assert [each["value"] for each in told] == ["TARGET_STATE_9"]
    chunk = pb.GetSnapshotResponse(end_offset=2, complete=True)
    chunk.connectors.add(name="a", target_state=9)
    (entry,) = codec.decode_snapshot([chunk]).connectors.values()
    assert entry.target_state is TargetState.PAUSED


def test_a_kind_of_event_of_a_newer_store_is_skipped_and_reported_once() -> None:
    newer = pb.ConfigEvent.FromString(pb.ConfigEvent(offset=3).SerializeToString() + UNKNOWN_FIELD)
    entry = pb.ConnectorHistoryEntry.FromString(UNKNOWN_FIELD)
    known = codec.encode_event(ConfigEvent(4, ConnectorConfigRemoved("a")))
    with structlog.testing.capture_logs() as reported:
        found = [codec.decode_event(message) for message in (newer, newer, known)]
        assert [codec.decode_history_entry(entry) for _ in range(2)] == [None, None]
    assert found == [None, None, ConfigEvent(4, ConnectorConfigRemoved("a"))]
    assert [(each["message"], each["fields"]) for each in reported] == [
        ("drover.api.config_store.v1.ConfigEvent", [2000]),
        ("drover.api.config_store.v1.ConnectorHistoryEntry", [2000]),
    ]
