"""``drover connector history`` and ``rollback``."""

import io
import json
import socket

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.errors import NotFoundError, Reason
from tests.support.fake_cluster import FakeCluster, Run

NEW = pb.ConnectorChange(
    revision=9,
    change_time=Timestamp(seconds=1_700_000_000),
    author="ann@host",
    config_version=pb.ConfigVersion(
        config={"topic": "b", "db.password": "********"},
        added_keys=["batch"],
        removed_keys=["old"],
        changed_keys=["db.password", "topic"],
        current=True,
    ),
)
STOP = pb.ConnectorChange(revision=6, author="10.0.0.1", target_state=pb.TARGET_STATE_STOPPED)
RESTART = pb.ConnectorChange(revision=5, restart=pb.RestartDemand(include_tasks=True))
OLD = pb.ConnectorChange(
    revision=3,
    config_version=pb.ConfigVersion(
        config={"topic": "a", "db.password": "********"},
        added_keys=["db.password", "topic"],
        differing_keys=["db.password", "topic"],
    ),
)
DELETION = pb.ConnectorChange(revision=2, deletion=pb.ConnectorDeletion())
HISTORY = pb.GetConnectorHistoryResponse(changes=[NEW, STOP, RESTART, OLD, DELETION])
ROLLED_BACK = pb.RollbackConnectorResponse(connector=pb.Connector(name="c", revision=12))


@pytest.fixture(autouse=True)
def answers(cluster: FakeCluster) -> None:
    cluster.answers["GetConnectorHistory"] = HISTORY
    cluster.answers["RollbackConnector"] = ROLLED_BACK


def rollbacks(cluster: FakeCluster) -> list[pb.RollbackConnectorRequest]:
    return [r for r in cluster.requests if isinstance(r, pb.RollbackConnectorRequest)]


def confirm(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{answer}\n"))


def test_history_tells_version_time_author_and_change(drover: Run) -> None:
    code, out, _ = drover("connector", "history", "c")
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["VERSION", "WHEN", "WHO", "WHAT"]
    changed = ["config:", "+batch", "-old", "~db.password", "~topic", "(current)"]
    assert rows[1][0] == "9"
    assert rows[1][3:] == ["ann@host", *changed]
    assert rows[2] == ["6", "unknown", "10.0.0.1", "target", "state", "STOPPED"]
    assert rows[3] == ["5", "unknown", "unknown", "restart", "with", "tasks"]
    assert rows[5] == ["2", "unknown", "unknown", "deleted"]


def test_history_shows_the_values_before_and_after(drover: Run) -> None:
    out = drover("connector", "history", "c")[1]
    changed = ["version 9", "  + batch: ", "  - old: ", "  ~ db.password: ******** -> ********"]
    assert out.splitlines()[-6:] == ["", *changed, "  ~ topic: a -> b"]


def test_values_before_a_deletion_are_not_compared(cluster: FakeCluster, drover: Run) -> None:
    again = pb.ConnectorChange(
        revision=12,
        config_version=pb.ConfigVersion(config={"topic": "z"}, added_keys=["topic"], current=True),
    )
    deletion = pb.ConnectorChange(revision=11, deletion=pb.ConnectorDeletion())
    cluster.answers["GetConnectorHistory"] = pb.GetConnectorHistoryResponse(
        changes=[again, deletion, OLD]
    )
    assert " -> " not in drover("connector", "history", "c")[1]


def test_history_as_json(drover: Run) -> None:
    code, out, _ = drover("connector", "history", "c", "-o", "json")
    assert code == 0
    documents = json.loads(out)
    assert documents[0] == {
        "version": 9,
        "time": "2023-11-14T22:13:20Z",
        "author": "ann@host",
        "change": "config",
        "current": True,
        "added": ["batch"],
        "removed": ["old"],
        "changed": ["db.password", "topic"],
        "config": {"db.password": "********", "topic": "b"},
    }
    assert [each["change"] for each in documents[1:]] == [
        *("target_state", "restart", "config", "deleted")
    ]
    assert documents[1]["time"] is None


def test_rollback_shows_what_it_changes_and_asks(
    cluster: FakeCluster, drover: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirm(monkeypatch, "y")
    code, out, _ = drover("connector", "rollback", "c", "3")
    assert code == 0
    assert ["topic", "b", "a"] in [line.split() for line in out.splitlines()]
    assert "its config is now version 12, equal to version 3" in out
    (request,) = rollbacks(cluster)
    assert (request.name, request.revision) == ("c", 3)
    assert request.request_id


def test_rollback_does_nothing_without_a_yes(
    cluster: FakeCluster, drover: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirm(monkeypatch, "n")
    code, _, _ = drover("connector", "rollback", "c", "3")
    assert code == 1
    assert not rollbacks(cluster)


def test_rollback_with_yes_asks_nobody(cluster: FakeCluster, drover: Run) -> None:
    code, out, _ = drover("connector", "rollback", "c", "3", "--yes", "-o", "json")
    assert code == 0
    assert json.loads(out)["revision"] == 12
    assert len(rollbacks(cluster)) == 1


@pytest.mark.parametrize("version", ["4", "6"])
def test_a_version_that_is_no_config_is_told_with_those_that_are(
    cluster: FakeCluster, drover: Run, version: str
) -> None:
    code, _, err = drover("connector", "rollback", "c", version)
    assert code == 1
    assert f"no config version {version}; it has: 3, 9" in err
    assert not rollbacks(cluster)


def test_what_the_cluster_refuses_is_told(cluster: FakeCluster, drover: Run) -> None:
    refusal = NotFoundError(Reason.REVISION_NOT_FOUND, "no config of revision 4; it has 3, 9")
    cluster.answers["RollbackConnector"] = refusal
    code, _, err = drover("connector", "rollback", "c", "4", "--yes")
    assert code == 1
    assert "it has 3, 9 (REVISION_NOT_FOUND)" in err


def test_a_version_is_a_number_above_0(cluster: FakeCluster, drover: Run) -> None:
    assert drover("connector", "rollback", "c", "0", "--yes")[0] == 2
    assert drover("connector", "rollback", "c", "x", "--yes")[0] == 2
    assert not cluster.requests


def test_the_cluster_is_told_who_asks(
    cluster: FakeCluster, drover: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    drover("connector", "rollback", "c", "3", "--yes")
    assert cluster.metadata[-1]["drover-author"] == f"ann@{socket.gethostname()}"
    monkeypatch.setenv("DROVER_AUTHOR", "zoë")
    drover("connector", "rollback", "c", "3", "--yes")
    assert cluster.metadata[-1]["drover-author"] == "zo\\xeb"


def test_a_user_without_a_name_is_told_by_number(
    cluster: FakeCluster, drover: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr("getpass.getuser", nobody)
    drover("connector", "rollback", "c", "3", "--yes")
    assert cluster.metadata[-1]["drover-author"].partition("@")[0].isdecimal()
