"""A command whose config is refused shows the warnings of the config beside its faults."""

import json
from pathlib import Path

import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    Reason,
    UnavailableError,
    Violation,
)
from tests.support.fake_cluster import FakeCluster, Run

CONFIG = {"connector.class": "JdbcSource", "connection.ur": "x"}
FAULT = ("connection.url", "is required")
WARNING = ("connection.ur", "has no effect here; did you mean connection.url?")


@pytest.fixture(autouse=True)
def answers(cluster: FakeCluster) -> None:
    refusal = InvalidArgumentError(
        Reason.INVALID_CONFIG, "the config has 1 fault", violations=[Violation(*FAULT)]
    )
    for name in ("CreateConnector", "PatchConnectorConfig", "PutConnectorConfig"):
        cluster.answers[name] = refusal
    cluster.answers["PlanConnectorConfig"] = refusal
    cluster.answers["ListConnectors"] = pb.ListConnectorsResponse()
    stored = pb.Connector(name="c", config={"connector.class": "JdbcSource", "mode": "bulk"})
    cluster.answers["GetConnector"] = pb.GetConnectorResponse(connector=stored)
    warning = pb.ConfigViolation(field=WARNING[0], description=WARNING[1])
    cluster.answers["ValidateConfig"] = pb.ValidateConfigResponse(warnings=[warning])
    Path("c.json").write_text(json.dumps({"name": "c", "config": CONFIG}))


COMMANDS = [
    ("connector", "create", "-f", "c.json"),
    ("connector", "patch", "c", "connection.ur=x", "-r", "mode"),
    ("connector", "plan", "c.json"),
    ("connector", "apply", "-f", "c.json"),
    ("apply", "-f", "c.json", "--dry-run"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_misspelt_setting_is_named_beside_the_fault_that_it_causes(
    cluster: FakeCluster, drover: Run, command: tuple[str, ...]
) -> None:
    code, out, err = drover(*command)
    assert (code, out) == (1, "")
    lines = [" ".join(line.split()) for line in err.splitlines()]
    at = lines.index("SETTING FAULT")
    assert lines[at + 1 : at + 4] == [" ".join(FAULT), "SETTING WARNING", " ".join(WARNING)]
    asked = cluster.requests[-1]
    assert asked.skip_systems
    assert dict(asked.config) == CONFIG | ({"name": "c"} if "patch" in command else {})


def test_a_document_has_the_warnings_too(drover: Run) -> None:
    code, out, err = drover("connector", "create", "-f", "c.json", "-o", "json")
    assert (code, out) == (1, "")
    error = json.loads(err)["error"]
    assert error["violations"] == [{"field": FAULT[0], "description": FAULT[1]}]
    assert error["warnings"] == [{"field": WARNING[0], "description": WARNING[1]}]


def test_the_faults_are_shown_if_the_config_cannot_be_validated_again(
    cluster: FakeCluster, drover: Run
) -> None:
    cluster.answers["ValidateConfig"] = UnavailableError(Reason.ENGINE_UNAVAILABLE, "starting")
    code, _, err = drover("connector", "create", "-f", "c.json")
    assert code == 1
    assert "is required" in err
    assert "WARNING" not in err


def test_another_refusal_asks_for_no_validation(cluster: FakeCluster, drover: Run) -> None:
    exists = AlreadyExistsError(Reason.CONNECTOR_ALREADY_EXISTS, "c exists")
    cluster.answers["CreateConnector"] = exists
    code, _, err = drover("connector", "create", "-f", "c.json")
    assert (code, err) == (1, "drover: c exists (CONNECTOR_ALREADY_EXISTS)\n")
    assert len(cluster.requests) == 1
