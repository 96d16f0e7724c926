"""Conventions of every command: several names, documents, completion."""

import json
import os
import socket

import pytest
import typer
import yaml

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.main import cli
from drover.cli.names import complete_name
from drover.errors import InvalidArgumentError, NotFoundError, Reason, Violation
from tests.support.fake_cluster import FakeCluster, Run

CONNECTOR = pb.Connector(
    name="flights",
    config={"name": "flights", "connector.class": "FileStreamSink"},
    type=pb.CONNECTOR_TYPE_SINK,
    target_state=pb.TARGET_STATE_STARTED,
    revision=7,
)
STATUS = pb.ConnectorStatus(
    name="flights",
    connector=pb.ConnectorState(state=pb.RUN_STATE_RUNNING),
    tasks=[
        pb.TaskState(task=0, state=pb.RUN_STATE_RUNNING),
        pb.TaskState(task=1, state=pb.RUN_STATE_FAILED),
    ],
)


def test_verbs_take_several_names_and_go_on_after_a_refusal(
    cluster: FakeCluster, drover: Run
) -> None:
    cluster.answers["PauseConnector"] = pb.PauseConnectorResponse()
    assert drover("connector", "pause", "a", "b", "a")[:2] == (0, "paused a\npaused b\n")
    _, out, _ = drover("connector", "pause", "a", "b", "-o", "json")
    assert [each["name"] for each in json.loads(out)] == ["a", "b"]
    cluster.answers["DeleteConnector"] = NotFoundError(Reason.CONNECTOR_NOT_FOUND, "not there")
    code, out, err = drover("connector", "delete", "a", "b")
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        "drover: a: not there (CONNECTOR_NOT_FOUND)",
        "drover: b: not there (CONNECTOR_NOT_FOUND)",
    ]


@pytest.mark.parametrize(
    ("rpc", "command"),
    [
        ("GetConnector", ["connector", "get"]),
        ("GetConnectorStatus", ["connector", "status"]),
        ("PauseConnector", ["connector", "pause"]),
        ("StopConnector", ["connector", "stop"]),
        ("DeleteConnector", ["connector", "delete"]),
        ("GetConnectorOffsets", ["connector", "offsets"]),
        ("GetConnectorHistory", ["connector", "history"]),
        ("DescribeTopic", ["topic", "describe"]),
        ("GetPlugin", ["plugin", "describe"]),
    ],
)
def test_names_with_blanks_around_them_are_those_names(
    cluster: FakeCluster, drover: Run, rpc: str, command: list[str]
) -> None:
    cluster.answers[rpc] = NotFoundError(Reason.CONNECTOR_NOT_FOUND, "not there")
    drover(*command, " pasted\u00a0\n")
    asked = cluster.requests[-1]
    assert getattr(asked, "name", "") + getattr(asked, "class_name", "") == "pasted"


def test_errors_are_documents_for_machines_too(cluster: FakeCluster, drover: Run) -> None:
    fault = Violation('config["a"]', "is wrong")
    cluster.answers["GetConnector"] = InvalidArgumentError(
        Reason.INVALID_CONFIG, "1 fault", violations=[fault]
    )
    code, out, err = drover("connector", "get", "x", "-o", "json")
    assert (code, out) == (1, "")
    assert json.loads(err) == {
        "error": {
            "message": "1 fault",
            "code": "INVALID_ARGUMENT",
            "reason": "INVALID_CONFIG",
            "violations": [{"field": 'config["a"]', "description": "is wrong"}],
        }
    }
    _, _, err = drover("connector", "list", "--address", "nowhere", "-o", "yaml")
    assert "nowhere" in json.loads(err)["error"]["message"]
    assert drover("connector", "get", "x")[2].startswith("drover: 1 fault")


def test_documents_come_as_yaml_too(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["GetConnector"] = pb.GetConnectorResponse(connector=CONNECTOR)
    _, as_json, _ = drover("connector", "get", "flights", "-o", "json")
    _, as_yaml, _ = drover("connector", "get", "flights", "-o", "yaml")
    assert yaml.safe_load(as_yaml) == json.loads(as_json)
    assert as_yaml.startswith("name: flights\n")


def test_the_first_of_several_workers_that_answers_is_asked(
    cluster: FakeCluster, drover: Run
) -> None:
    cluster.answers["GetConnector"] = pb.GetConnectorResponse(connector=CONNECTOR)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        gone = f"127.0.0.1:{unused.getsockname()[1]}"
    both = f"{gone}, {os.environ['DROVER_ADDRESS']}"
    assert drover("connector", "get", "flights", "--address", both)[0] == 0


def test_the_shell_completes_names(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [pb.ListConnectorsResponse.Entry(name=each) for each in ("ab", "ac", "b")]
    cluster.answers["ListConnectors"] = pb.ListConnectorsResponse(connectors=entries)
    context = typer.Context(typer.main.get_command(cli))
    context.params = {}
    assert complete_name(context, "a") == ["ab", "ac"]
    monkeypatch.setenv("DROVER_ADDRESS", "127.0.0.1:1")
    context.params = {"address": "127.0.0.1:1"}
    assert complete_name(context, "a") == []


def test_version_is_an_option_too(drover: Run) -> None:
    assert drover("--version") == drover("version")


def test_restart_says_what_has_failed_still(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["RestartConnector"] = pb.RestartConnectorResponse()
    cluster.answers["GetConnectorStatus"] = pb.GetConnectorStatusResponse(status=STATUS)
    code, out, _ = drover("connector", "restart", "flights")
    assert (code, out.splitlines()) == (
        0,
        [
            "restarted the connector object of flights, not its tasks",
            "task 1 is still FAILED; to restart: drover connector restart flights --include-tasks "
            "--only-failed",
        ],
    )
    _, out, _ = drover("connector", "restart", "flights", "-o", "json")
    assert json.loads(out)["failed_tasks"] == [1]
