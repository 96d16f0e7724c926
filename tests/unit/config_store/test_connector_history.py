"""The history of each connector: which configs it keeps, how long, also after a reload."""

from collections.abc import Collection, Sequence
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from drover.model.config import (
    ConfigVersion,
    ConnectorConfigRemoved,
    DeadLettersChanged,
    HistoryEntry,
    RestartRequested,
    TargetState,
    TargetStateChanged,
)
from drover.model.ids import TaskId
from drover_config_store.core import connector_history
from drover_config_store.core.connector_history import FORGOTTEN_AFTER_RECORDS, ConnectorHistory
from drover_config_store.core.records import (
    CommitRecord,
    ConfigRecord,
    ConnectorRecord,
    DeadLettersRecord,
    RestartRecord,
    TargetStateRecord,
    TaskRecord,
    encode,
)


def history_of(*written: ConfigRecord, entries_max: int = 3) -> ConnectorHistory:
    made = ConnectorHistory(entries_max)
    for offset, record in enumerate(written):
        made.add(offset, offset * 10, "anna", record)
        made.validate()
    return made


def config(version: str, name: str = "c") -> ConnectorRecord:
    return ConnectorRecord(name, {"version": version})


REMOVED = ConnectorRecord("c", None)
PAUSED = TargetStateRecord("c", TargetState.PAUSED)
NO_STATE = TargetStateRecord("c", None)
RESTART = RestartRecord("c", only_failed=True, include_tasks=False)
DISCARDED = DeadLettersRecord(
    "c", "[]", DeadLettersChanged("c", "dead", "0:0-2", discarded=True, reason="a test")
)


def test_an_entry_says_who_wrote_what_when() -> None:
    assert history_of(config("1"), PAUSED, RESTART, REMOVED).of("c") == (
        HistoryEntry(0, 0, "anna", ConfigVersion(1, {"version": "1"})),
        HistoryEntry(1, 10, "anna", TargetStateChanged("c", TargetState.PAUSED)),
        HistoryEntry(2, 20, "anna", RestartRequested("c", only_failed=True, include_tasks=False)),
        HistoryEntry(3, 30, "anna", ConnectorConfigRemoved("c")),
    )


def test_discarded_dead_letters_are_an_entry_with_the_reason() -> None:
    _, entry = history_of(config("1"), DISCARDED).of("c")
    assert entry == HistoryEntry(1, 10, "anna", DISCARDED.change)


def test_names_are_apart_and_an_unknown_one_has_no_history() -> None:
    made = history_of(config("1", "a"), config("2", "b"))
    assert [entry.offset for entry in made.of("b")] == [1]
    assert made.of("c") == ()


def test_task_configs_are_no_part_of_it() -> None:
    made = history_of(config("1"), TaskRecord(TaskId("c", 0), {}), CommitRecord("c", 1))
    assert [entry.offset for entry in made.of("c")] == [0]


def test_the_last_configs_are_kept_and_pauses_do_not_push_them_out() -> None:
    made = history_of(*(config(str(number)) for number in range(5)), *[PAUSED] * 5)
    assert [entry.offset for entry in made.of("c")] == [2, 3, 4, 7, 8, 9]


def test_configs_that_are_pushed_out_take_with_them_what_came_before_the_next() -> None:
    made = history_of(config("1"), PAUSED, config("2"), config("3"), config("4"))
    assert [entry.offset for entry in made.of("c")] == [2, 3, 4]


def test_what_comes_before_a_config_or_after_a_removal_is_about_no_connector() -> None:
    made = history_of(PAUSED, config("1"), RESTART, REMOVED, NO_STATE, RESTART)
    assert [entry.offset for entry in made.of("c")] == [1, 2, 3]


def test_a_target_state_that_is_taken_away_means_started() -> None:
    (*_, last) = history_of(config("1"), PAUSED, NO_STATE).of("c")
    assert last.change == TargetStateChanged("c", TargetState.STARTED)


def test_a_connector_that_is_gone_is_forgotten_after_many_records() -> None:
    made = history_of(config("1"), REMOVED, NO_STATE, config("1", "stays"))
    made.advance(1 + FORGOTTEN_AFTER_RECORDS)
    assert len(made.of("c")) == 2
    made.advance(2 + FORGOTTEN_AFTER_RECORDS)
    assert made.of("c") == ()
    assert list(made.offsets()) == [3]
    made.validate()


def test_a_connector_that_comes_back_late_begins_anew() -> None:
    made = history_of(config("1"), REMOVED)
    made.add(2 + FORGOTTEN_AFTER_RECORDS, 0, "", config("2"))
    assert [entry.offset for entry in made.of("c")] == [2 + FORGOTTEN_AFTER_RECORDS]
    made = history_of(config("1"), REMOVED)
    made.add(1 + FORGOTTEN_AFTER_RECORDS, 0, "", config("2"))
    assert [entry.offset for entry in made.of("c")] == [0, 1, 1 + FORGOTTEN_AFTER_RECORDS]


names = st.sampled_from("ab")
written = st.one_of(
    st.builds(config, st.just("v"), names),
    st.builds(ConnectorRecord, names, st.none()),
    st.builds(TargetStateRecord, names, st.none() | st.sampled_from(TargetState)),
    st.builds(RestartRecord, names, st.booleans(), st.booleans()),
)


def key(record: ConfigRecord) -> bytes:
    return encode(record)[0]


def left(
    log: Sequence[tuple[int, ConfigRecord]], needed: Collection[int], end_offset: int, tail: int
) -> list[tuple[int, ConfigRecord]]:
    """The log after compaction: the last record of each key, the tail, and needed records."""
    last = {key(record): offset for offset, record in log}
    return [
        (offset, record)
        for offset, record in log
        if offset in needed or offset >= end_offset - tail or last[key(record)] == offset
    ]


@given(
    st.lists(st.tuples(written, st.integers(0, 6), st.none() | st.integers(0, 20)), max_size=40),
    st.integers(1, 3),
)
def test_it_comes_out_the_same_from_a_compacted_log(
    steps: list[tuple[ConfigRecord, int, int | None]], entries_max: int
) -> None:
    """An offset gap may precede each record, and a compaction that spares the tail may follow."""
    with patch.object(connector_history, "FORGOTTEN_AFTER_RECORDS", 8):
        live = ConnectorHistory(entries_max)
        log: list[tuple[int, ConfigRecord]] = []
        end_offset = 0
        for record, gap, tail in steps:
            offset = end_offset + gap
            end_offset = offset + 1
            live.add(offset, 0, "", record)
            log.append((offset, record))
            live.validate()
            if tail is not None:
                log = left(log, set(live.offsets()), end_offset, tail)
            loaded = ConnectorHistory(entries_max)
            for at, each in log:
                loaded.add(at, 0, "", each)
            for pasts_of_names in (live, loaded):
                pasts_of_names.advance(end_offset)
            assert [loaded.of(name) for name in "ab"] == [live.of(name) for name in "ab"]
