"""A connector's history in responses to callers."""

import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.errors import InvalidArgumentError
from drover.model.config import (
    ConfigMap,
    ConfigVersion,
    ConnectorConfigRemoved,
    ConnectorEntry,
    HistoryEntry,
    RestartRequested,
    TargetState,
    TargetStateChanged,
)
from drover.model.secrets import MASK
from drover_worker.admin.history import class_names, history_page

FIRST = {"connector.class": "Old", "topic": "a", "db.login": "s3cret"}
SECOND = {"connector.class": "New", "topic": "a", "db.login": "0ther", "batch": "5"}


def masked(config: ConfigMap) -> ConfigMap:
    return {key: MASK if key == "db.login" else value for key, value in config.items()}


def version(offset: int, config: ConfigMap) -> HistoryEntry:
    return HistoryEntry(offset, 1_700_000_000_000, "ann@host", ConfigVersion(offset + 1, config))


def present(
    *entries: HistoryEntry, page_token: str = "", current: ConnectorEntry | None = None
) -> pb.GetConnectorHistoryResponse:
    return history_page(entries, page_token, current=current, masked=masked)


def test_the_newest_comes_first_with_what_it_changed() -> None:
    now = ConnectorEntry("c", config=SECOND, config_revision=8)
    newest, oldest = present(version(3, FIRST), version(7, SECOND), current=now).changes
    assert (oldest.revision, newest.revision) == (4, 8)
    assert list(newest.config_version.added_keys) == ["batch"]
    assert list(newest.config_version.changed_keys) == ["connector.class", "db.login"]
    assert not newest.config_version.removed_keys
    assert list(oldest.config_version.added_keys) == sorted(FIRST)


def test_secrets_are_masked_though_it_is_told_that_they_changed() -> None:
    changes = present(version(3, FIRST), version(7, SECOND)).changes
    assert [each.config_version.config["db.login"] for each in changes] == [MASK] * 2
    assert "s3cret" not in str(changes)
    assert "0ther" not in str(changes)


def test_it_tells_what_a_rollback_would_change() -> None:
    now = ConnectorEntry("c", config=SECOND, config_revision=8)
    newest, oldest = present(version(3, FIRST), version(7, SECOND), current=now).changes
    assert list(oldest.config_version.differing_keys) == ["batch", "connector.class", "db.login"]
    assert not oldest.config_version.current
    assert newest.config_version.current
    assert not newest.config_version.differing_keys


def test_after_a_deletion_a_config_is_a_first_one() -> None:
    gone = HistoryEntry(5, 0, "", ConnectorConfigRemoved("c"))
    newest, deletion, _ = present(version(3, FIRST), gone, version(7, SECOND)).changes
    assert deletion.WhichOneof("change") == "deletion"
    assert list(newest.config_version.added_keys) == sorted(SECOND)


def test_other_changes_who_did_them_and_when() -> None:
    stop = HistoryEntry(4, 1_700_000_000_000, "", TargetStateChanged("c", TargetState.STOPPED))
    restart = HistoryEntry(6, 0, "ben@host", RestartRequested("c", True, False))
    newest, oldest = present(stop, restart).changes
    assert oldest.target_state == pb.TARGET_STATE_STOPPED
    assert oldest.change_time.ToMilliseconds() == 1_700_000_000_000
    assert oldest.author == ""
    assert (newest.restart.only_failed, newest.restart.include_tasks) == (True, False)
    assert newest.author == "ben@host"
    assert not newest.HasField("change_time")


def test_a_long_history_comes_in_pages_which_later_changes_do_not_disturb() -> None:
    large = [version(n, {"connector.class": "x" * 600_000, "n": str(n)}) for n in range(4)]
    first = present(*large)
    assert [c.revision for c in first.changes] == [4]
    again = present(*large, version(9, FIRST), page_token=first.next_page_token)
    assert [c.revision for c in again.changes] == [3]
    last = present(*large, page_token="2")
    assert [c.revision for c in last.changes] == [1]
    assert not last.next_page_token


def test_a_token_that_is_none_of_ours() -> None:
    with pytest.raises(InvalidArgumentError):
        present(version(3, FIRST), page_token="x")


def test_every_class_is_asked_for_what_to_mask() -> None:
    gone = HistoryEntry(5, 0, "", ConnectorConfigRemoved("c"))
    assert class_names([version(3, FIRST), gone, version(7, SECOND)]) == {"Old", "New"}
