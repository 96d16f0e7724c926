"""Commands that destroy something ask at a terminal, and show what remains elsewhere."""

import io
import json
import sys
from pathlib import Path

import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.api.coordinator.v1 import coordinator_service_pb2 as group_pb
from tests.support.fake_cluster import FakeCluster, Run
from tests.support.streams import Terminal

CAPTURE = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "database.hostname": "db",
    "database.dbname": "shop",
}
DELETIONS = (
    pb.DeleteConnectorRequest,
    group_pb.DeleteGroupRequest,
    pb.ResetConnectorOffsetsRequest,
)
COMMANDS = [
    ("connector", "delete", "shop-cdc"),
    ("group", "delete", "readers"),
    ("connector", "offsets", "shop-cdc", "--reset"),
    ("apply", "-f", "none.yaml", "--prune"),
]
NAMED = COMMANDS[:2]
OTHERS = COMMANDS[2:]


@pytest.fixture(autouse=True)
def answers(cluster: FakeCluster) -> None:
    capture(cluster)
    cluster.answers["DeleteConnector"] = pb.DeleteConnectorResponse()
    cluster.answers["DeleteGroup"] = group_pb.DeleteGroupResponse()
    cluster.answers["ResetConnectorOffsets"] = pb.ResetConnectorOffsetsResponse(message="removed")
    entries = [
        pb.ListConnectorsResponse.Entry(name=name, connector=pb.Connector(name=name))
        for name in ("kept", "shop-cdc")
    ]
    cluster.answers["ListConnectors"] = pb.ListConnectorsResponse(connectors=entries)
    cluster.answers["PutConnectorConfig"] = pb.PutConnectorConfigResponse()
    Path("none.yaml").write_text("name: kept\nconnector.class: X\n")


def capture(cluster: FakeCluster, name: str = "shop-cdc", **settings: str) -> None:
    config = CAPTURE | {key.replace("__", "."): value for key, value in settings.items()}
    connector = pb.Connector(name=name, type=pb.CONNECTOR_TYPE_SOURCE, config=config)
    cluster.answers["GetConnector"] = pb.GetConnectorResponse(connector=connector)


def destroyed(cluster: FakeCluster) -> bool:
    return any(isinstance(each, DELETIONS) for each in cluster.requests)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1), ("", 1)])
def test_a_terminal_is_asked(
    cluster: FakeCluster,
    drover: Run,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    typed: str,
    code: int,
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    found, _, err = drover(*command)
    assert (found, destroyed(cluster)) == (code, code == 0)
    assert ("nothing was changed" in err) == (code == 1)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_yes_prevents_the_question(
    cluster: FakeCluster, drover: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(""))
    assert drover(*command, "--yes")[0] == 0
    assert destroyed(cluster)


@pytest.mark.parametrize("command", NAMED, ids=" ".join)
def test_a_script_deletes_what_it_names(
    cluster: FakeCluster, drover: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert drover(*command)[0] == 0
    assert destroyed(cluster)


@pytest.mark.parametrize("command", OTHERS, ids=" ".join)
def test_a_script_has_to_confirm_what_it_does_not_name(
    cluster: FakeCluster, drover: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    code, _, err = drover(*command)
    assert (code, destroyed(cluster)) == (1, False)
    assert err.endswith("drover: nothing was changed; without a terminal give --yes\n")


def test_the_slot_that_remains_is_named_before_the_question(
    cluster: FakeCluster, drover: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    _, _, err = drover("connector", "delete", "shop-cdc")
    drop = "  SELECT pg_drop_replication_slot('drover_shop_cdc');\n"
    assert drop in err
    assert "  DROP PUBLICATION drover_shop_cdc;\n" in err
    assert "in the database shop" in err
    assert err.index(drop) < err.index("Delete shop-cdc?")
    assert not destroyed(cluster)


@pytest.mark.parametrize(
    ("settings", "statements"),
    [
        (
            {"slot__name": "own", "publication__name": "My Pub"},
            ["SELECT pg_drop_replication_slot('own');", 'DROP PUBLICATION "My Pub";'],
        ),
        (
            {"publication__autocreate__mode": "disabled"},
            ["SELECT pg_drop_replication_slot('drover_shop_cdc');"],
        ),
        ({"snapshot__mode": "initial_only"}, []),
        ({"connector__class": "JdbcSource"}, []),
        (
            {"connector__class": "drover.connectors.postgres:PostgresCdcSource"},
            [
                "SELECT pg_drop_replication_slot('drover_shop_cdc');",
                "DROP PUBLICATION drover_shop_cdc;",
            ],
        ),
    ],
)
def test_only_what_the_connector_created_remains(
    cluster: FakeCluster, drover: Run, settings: dict[str, str], statements: list[str]
) -> None:
    capture(cluster, **settings)
    code, out, err = drover("connector", "delete", "shop-cdc")
    assert (code, out) == (0, "deleted shop-cdc\n")
    assert [line.strip() for line in err.splitlines() if line.startswith("  ")] == statements


def test_a_connector_that_cannot_be_read_is_deleted(cluster: FakeCluster, drover: Run) -> None:
    del cluster.answers["GetConnector"]
    code, out, err = drover("connector", "delete", "gone", "-o", "json")
    assert (code, json.loads(out), err) == (0, {"name": "gone", "result": "deleted"}, "")
