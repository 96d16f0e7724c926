"""The fold of the config log: the state after each record, and the changes for watchers."""

import json

from drover.model.config import (
    ConfigChange,
    ConfigSnapshot,
    ConnectorConfigRemoved,
    ConnectorConfigUpdated,
    ConnectorEntry,
    LoggerLevelSet,
    RestartRequested,
    SessionKey,
    SessionKeyUpdated,
    TargetState,
    TargetStateChanged,
    TaskConfigsUpdated,
)
from drover.model.ids import TaskId
from drover_config_store.core.config_state import ConfigState
from drover_config_store.core.records import decode

Written = tuple[str, str | None]


class Fold:
    """A state and the changes it returned, in order."""

    def __init__(self) -> None:
        self.state = ConfigState()
        self.changes: list[ConfigChange | None] = []

    def read(self, *records: Written) -> "Fold":
        for key, value in records:
            record = decode(key.encode(), None if value is None else value.encode())
            self.changes.append(self.state.apply(len(self.changes), record))
            self.state.validate()
        return self

    def snapshot(self) -> ConfigSnapshot:
        return self.state.snapshot(len(self.changes))

    def entry(self, name: str = "c") -> ConnectorEntry:
        return self.snapshot().connectors[name]


def connector(version: str = "1", name: str = "c") -> Written:
    return f"connector-{name}", json.dumps({"properties": {"version": version}})


def task(index: int, version: str = "1", name: str = "c") -> Written:
    return f"task-{name}-{index}", json.dumps({"properties": {"task": f"{index}v{version}"}})


def commit(count: int, name: str = "c") -> Written:
    return f"commit-{name}", json.dumps({"tasks": count})


def target(state: str, name: str = "c") -> Written:
    return f"target-state-{name}", json.dumps({"state": state})


def fenced(count: int, name: str = "c") -> Written:
    return f"tasks-fencing-{name}", json.dumps({"task-count": count})


def session_key(key: str, created_ms: int) -> Written:
    fields = {"key": key, "algorithm": "HmacSHA256", "creation-timestamp": created_ms}
    return "session-key", json.dumps(fields)


def level(logger: str, name: str) -> Written:
    return f"logger-cluster-{logger}", json.dumps({"level": name})


REMOVED: Written = ("connector-c", None)
RESTART: Written = ("restart-connector-c", '{"include-tasks":true,"only-failed":false}')


def configs(*versions: str) -> dict[TaskId, dict[str, str]]:
    return {
        TaskId("c", index): {"task": f"{index}v{version}"} for index, version in enumerate(versions)
    }


def test_an_empty_log_is_an_empty_state() -> None:
    assert Fold().snapshot() == ConfigSnapshot(0, {}, {})


def test_a_connector_starts_by_default_and_has_no_tasks() -> None:
    fold = Fold().read(connector())
    entry = ConnectorEntry("c", {"version": "1"}, config_revision=1)
    assert entry.target_state is TargetState.STARTED
    assert fold.snapshot() == ConfigSnapshot(1, {"c": entry}, {})
    assert fold.changes == [ConnectorConfigUpdated(entry)]


def test_the_last_config_wins_and_an_identical_one_is_told_too() -> None:
    fold = Fold().read(connector("1"), connector("2"), connector("2"))
    assert fold.entry().config == {"version": "2"}
    assert fold.entry().config_revision == 3
    assert all(isinstance(change, ConnectorConfigUpdated) for change in fold.changes)


def test_a_target_state_written_before_the_config_is_that_of_the_connector() -> None:
    fold = Fold().read(target("PAUSED"), connector())
    assert fold.entry().target_state is TargetState.PAUSED
    assert fold.changes[0] is None
    assert isinstance(fold.changes[1], ConnectorConfigUpdated)
    assert fold.changes[1].connector.target_state is TargetState.PAUSED


def test_task_configs_show_only_once_committed() -> None:
    fold = Fold().read(connector(), task(0), task(1))
    assert fold.snapshot().task_configs == {}
    assert fold.changes[1:] == [None, None]
    fold.read(commit(2))
    entry = fold.entry()
    assert (entry.task_count, entry.task_config_generation, entry.inconsistent) == (2, 4, False)
    assert entry.applied_config == {"version": "1"}
    assert fold.snapshot().task_configs == configs("1", "1")
    assert fold.changes[3] == TaskConfigsUpdated(entry, configs("1", "1"))


def test_the_generation_is_the_place_of_the_last_complete_set_in_the_log() -> None:
    fold = Fold().read(connector(), task(0), commit(1))
    assert fold.entry().task_config_generation == 3
    fold.read(task(0, "2"), commit(1))
    assert fold.entry().task_config_generation == 5
    assert fold.snapshot().task_configs == configs("2")


def test_a_set_of_no_tasks_is_complete() -> None:
    fold = Fold().read(connector(), task(0), commit(1), commit(0))
    assert fold.entry().task_count == 0
    assert fold.entry().task_config_generation == 4
    assert not fold.entry().inconsistent
    assert fold.snapshot().task_configs == {}
    assert fold.changes[3] == TaskConfigsUpdated(fold.entry(), {})


def test_applied_config_is_the_one_under_which_tasks_were_committed() -> None:
    fold = Fold().read(connector("1"), task(0), commit(1), connector("2"))
    assert fold.entry().config == {"version": "2"}
    assert fold.entry().applied_config == {"version": "1"}
    assert fold.snapshot().task_configs == configs("1")


def test_half_a_set_makes_the_connector_inconsistent_and_shows_no_tasks() -> None:
    fold = Fold().read(connector(), task(0), task(2), commit(3))
    entry = fold.entry()
    assert (entry.task_count, entry.task_config_generation, entry.inconsistent) == (3, -1, True)
    assert entry.applied_config is None
    assert fold.snapshot().task_configs == {}
    assert fold.changes[3] == TaskConfigsUpdated(entry, {})


def test_an_inconsistent_connector_heals_by_a_full_set_only() -> None:
    fold = Fold().read(connector(), task(0), task(1), commit(2), task(0, "2"), commit(2))
    assert fold.entry().inconsistent
    assert fold.snapshot().task_configs == {}
    # the failed marker cleared the buffer, so the missing task alone does not complete the set
    fold.read(task(1, "2"), commit(2))
    assert fold.entry().inconsistent
    fold.read(task(0, "3"), task(1, "3"), commit(2))
    assert not fold.entry().inconsistent
    assert fold.entry().task_config_generation == 11
    assert fold.snapshot().task_configs == configs("3", "3")


def test_half_a_set_comes_out_the_same_when_compaction_took_the_set_before() -> None:
    fold = Fold().read(connector("1"), commit(0), task(0), commit(2))
    # compaction removed offset 1, a superseded marker
    compacted = ConfigState()
    for offset, (key, value) in ((0, connector("1")), (2, task(0)), (3, commit(2))):
        assert value is not None
        compacted.apply(offset, decode(key.encode(), value.encode()))
    assert fold.snapshot() == compacted.snapshot(4)


def test_extra_task_records_do_not_spoil_a_set() -> None:
    fold = Fold().read(connector(), task(0), task(1), task(2), commit(1))
    assert not fold.entry().inconsistent
    assert fold.snapshot().task_configs == configs("1")


def test_a_shrunk_set_shows_no_more_than_its_count() -> None:
    fold = Fold().read(connector(), task(0), task(1), commit(2), task(0, "2"), commit(1))
    assert fold.snapshot().task_configs == configs("2")


def test_only_the_connector_that_was_written_hears_of_its_tasks() -> None:
    fold = Fold().read(connector(name="a"), task(0, name="a"), commit(1, name="a"))
    fold.read(connector(), task(0), commit(1))
    change = fold.changes[-1]
    assert isinstance(change, TaskConfigsUpdated)
    assert list(change.task_configs) == [TaskId("c", 0)]


def test_names_that_look_like_each_others_records_are_kept_apart() -> None:
    fold = Fold().read(
        connector(name="a"), connector(name="a-1"), task(0, name="a-1"), commit(1, name="a-1")
    )
    fold.read(task(1, name="a"), task(0, name="a"), commit(2, name="a"))
    assert sorted(fold.snapshot().task_configs) == [
        TaskId("a", 0),
        TaskId("a", 1),
        TaskId("a-1", 0),
    ]


def test_removal_takes_the_config_and_all_of_its_tasks() -> None:
    fold = Fold().read(connector(), task(0), commit(1), task(0, "2"), REMOVED, target("PAUSED"))
    assert fold.changes[4] == ConnectorConfigRemoved("c")
    entry = fold.entry()
    assert (entry.config, entry.config_revision, entry.task_count) == (None, 0, -1)
    assert entry.applied_config is None
    assert fold.snapshot().task_configs == {}


def test_removal_keeps_the_target_state_until_that_is_removed_too() -> None:
    fold = Fold().read(target("PAUSED"), connector(), REMOVED)
    assert fold.entry().target_state is TargetState.PAUSED
    fold.read(("target-state-c", None))
    assert fold.snapshot().connectors == {}


def test_removal_takes_the_generation_and_the_inconsistent_mark() -> None:
    """Kafka Connect keeps both until compaction. Generations are offsets here: none is reused."""
    fold = Fold().read(connector(), task(0), commit(1), task(1), commit(2), REMOVED, connector())
    assert fold.entry().task_config_generation == -1
    assert not fold.entry().inconsistent
    assert fold.entry().task_count == -1


def test_buffered_task_configs_do_not_outlive_the_connector() -> None:
    fold = Fold().read(connector(), task(0), REMOVED, connector(), commit(1))
    assert fold.entry().inconsistent
    assert fold.snapshot().task_configs == {}


def test_removal_of_an_unknown_connector_is_told() -> None:
    fold = Fold().read(REMOVED)
    assert fold.changes == [ConnectorConfigRemoved("c")]
    assert fold.snapshot().connectors == {}


def test_the_marker_of_a_deleted_connector_is_ignored() -> None:
    """Compaction can leave task records and their marker without a connector config."""
    fold = Fold().read(task(0), commit(1))
    assert fold.changes == [None, None]
    assert fold.snapshot() == ConfigSnapshot(2, {}, {})
    fold.read(connector())
    assert fold.entry().task_count == -1
    assert fold.snapshot().task_configs == {}


def test_a_target_state_is_told_only_when_it_changes() -> None:
    fold = Fold().read(connector(), target("STARTED"), target("PAUSED"), target("PAUSED"))
    assert fold.changes[1:] == [None, TargetStateChanged("c", TargetState.PAUSED), None]


def test_a_forgotten_target_state_means_started_and_is_not_told() -> None:
    fold = Fold().read(connector(), target("PAUSED"), ("target-state-c", None))
    assert fold.entry().target_state is TargetState.STARTED
    assert fold.changes[2] is None


def test_a_target_state_without_a_connector_is_kept_and_not_told() -> None:
    fold = Fold().read(target("PAUSED"))
    assert fold.changes == [None]
    assert fold.entry() == ConnectorEntry("c", target_state=TargetState.PAUSED)


def test_restart_requests_are_told_whatever_the_state() -> None:
    fold = Fold().read(RESTART, connector(), RESTART)
    told = RestartRequested("c", only_failed=False, include_tasks=True)
    assert (fold.changes[0], fold.changes[2]) == (told, told)


def test_a_marker_makes_fencing_pending_and_a_task_count_ends_that() -> None:
    fold = Fold().read(connector())
    assert (fold.entry().fenced_task_count, fold.entry().fencing_pending) == (None, False)
    fold.read(task(0), commit(1))
    assert (fold.entry().fenced_task_count, fold.entry().fencing_pending) == (None, True)
    fold.read(fenced(1))
    assert (fold.entry().fenced_task_count, fold.entry().fencing_pending) == (1, False)
    assert fold.changes[-1] is None
    fold.read(task(0), commit(2))
    assert fold.entry().inconsistent
    assert (fold.entry().fenced_task_count, fold.entry().fencing_pending) == (1, True)
    assert fold.changes[-1] == TaskConfigsUpdated(fold.entry(), {})


def test_what_is_known_of_fencing_outlives_the_connector() -> None:
    fold = Fold().read(connector(), task(0), commit(1), fenced(1), task(0), commit(1), REMOVED)
    assert fold.snapshot().connectors == {}
    fold.read(connector())
    assert (fold.entry().fenced_task_count, fold.entry().fencing_pending) == (1, True)
    # compaction removed every superseded record
    compacted = Fold().read(fenced(1), task(0), commit(1), connector())
    assert (compacted.entry().fenced_task_count, compacted.entry().fencing_pending) == (1, True)


def test_the_last_session_key_and_logger_levels_are_in_the_snapshot_and_are_told() -> None:
    one = SessionKey(b"magic", "HmacSHA256", 1)
    other = SessionKey(b"other", "HmacSHA256", 2)
    fold = Fold().read(session_key("bWFnaWM=", 1), level("a", "DEBUG"), level("a", "INFO"))
    assert fold.snapshot().session_key == one
    fold.read(session_key("b3RoZXI=", 2))
    assert fold.snapshot().session_key == other
    assert fold.snapshot().logger_levels == {"a": "INFO"}
    assert fold.changes == [
        SessionKeyUpdated(one),
        LoggerLevelSet("a", "DEBUG"),
        LoggerLevelSet("a", "INFO"),
        SessionKeyUpdated(other),
    ]
    assert fold.snapshot().connectors == {}


def test_nothing_is_held_of_a_name_that_nothing_is_known_of() -> None:
    fold = Fold().read(connector(), target("PAUSED"), REMOVED, ("target-state-c", None))
    fold.read(("connector-never", None), ("target-state-never", None))
    assert fold.state.name_count == 0


def test_a_snapshot_stays_as_it_was() -> None:
    fold = Fold().read(connector(), task(0), commit(1))
    before = fold.snapshot()
    fold.read(connector("2"), task(0, "2"), task(1, "2"), commit(2), REMOVED)
    assert before.end_offset == 3
    assert before.connectors["c"].config == {"version": "1"}
    assert before.task_configs == configs("1")


def test_changing_a_snapshot_changes_nothing() -> None:
    fold = Fold().read(connector(), task(0), commit(1))
    taken = fold.snapshot()
    assert isinstance(taken.connectors, dict)
    assert isinstance(taken.task_configs, dict)
    taken.connectors.clear()
    taken.task_configs.clear()
    assert fold.entry().task_count == 1
    assert fold.snapshot().task_configs == configs("1")


def test_compaction_must_spare_the_config_of_the_committed_tasks() -> None:
    fold = Fold().read(connector("1"), task(0), commit(1), connector("2"))
    assert list(fold.state.needed_offsets()) == [0]
    fold.read(task(0, "2"), commit(1))
    assert list(fold.state.needed_offsets()) == [3]
    fold.read(REMOVED)
    assert list(fold.state.needed_offsets()) == []
