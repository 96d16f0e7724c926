"""How the drover command shows failures."""

import json
import re

import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.clock import SystemClock
from drover.codec.failures import encode_failures
from drover.model.failures import Failure, FailureCause, FailureHistory
from tests.support.fake_cluster import FakeCluster, Run
from tests.unit.cli.test_commands import STATUS, WORKER

TIME = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00"


def failed(
    *, restart_in_s: int = 0, reason: str = "", cause: FailureCause = FailureCause.PLUGIN
) -> pb.ConnectorStatus:
    status = pb.ConnectorStatus()
    status.CopyFrom(STATUS)
    now_ms = SystemClock().now_ms()
    history = FailureHistory(
        3,
        (
            Failure(now_ms - 3_000_000, FailureCause.ENGINE, WORKER, "killed by signal 9"),
            Failure(now_ms - 30_500, cause, WORKER, "OSError: no space"),
        ),
        2,
        now_ms + 1_000 * restart_in_s + 500 if restart_in_s else 0,
        reason,
    )
    status.tasks[1].failures.CopyFrom(encode_failures(history))
    return status


@pytest.mark.parametrize(
    ("restart_in_s", "reason", "then"),
    [
        (1_000, "", "restarts in"),
        (0, "", "restarts now"),
        (0, "restart.policy=never", "no automatic restart (restart.policy=never)"),
    ],
)
def test_a_status_says_how_often_a_task_failed_and_when_it_is_tried_again(
    restart_in_s: int, reason: str, then: str, cluster: FakeCluster, drover: Run
) -> None:
    status = failed(restart_in_s=restart_in_s, reason=reason)
    cluster.answers["GetConnectorStatus"] = pb.GetConnectorStatusResponse(status=status)
    code, out, _ = drover("connector", "status", "flights")
    assert code == 0
    (note,) = [line for line in out.splitlines() if "times" in line]
    assert re.match(r"task 1 failed 2 times, last \d+ (s|min) ago; ", note)
    assert then in note


@pytest.mark.parametrize(
    ("cause", "restart_in_s", "then"),
    [
        (FailureCause.ENGINE, 0, f"waits since {TIME} for its engine, then restarts"),
        (FailureCause.ENGINE, -30, f"waits since {TIME} for its engine, then restarts"),
        (FailureCause.ENGINE, 30, f"waits since {TIME} for its engine, then restarts"),
        (FailureCause.PLUGIN, -30, f"restart due since {TIME}: it starts, or waits for its engine"),
        (FailureCause.PLUGIN, -3, "restarts now"),
        (FailureCause.OUTAGE, -30, f"restart due since {TIME}: it starts, or waits for its engine"),
    ],
)
def test_a_status_says_what_a_due_restart_waits_for_and_since_when(
    cause: FailureCause, restart_in_s: int, then: str, cluster: FakeCluster, drover: Run
) -> None:
    status = failed(restart_in_s=restart_in_s, cause=cause)
    cluster.answers["GetConnectorStatus"] = pb.GetConnectorStatusResponse(status=status)
    _, out, _ = drover("connector", "status", "flights")
    (note,) = [line for line in out.splitlines() if "times" in line]
    assert re.search(f"; {then}$", note), note


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (FailureCause.OUTAGE, "its system does not answer or is busy"),
        (FailureCause.CREDENTIALS, "its system rejects the credentials"),
    ],
)
def test_a_status_shows_that_the_system_is_the_cause(
    cause: FailureCause, text: str, cluster: FakeCluster, drover: Run
) -> None:
    status = failed(restart_in_s=60, cause=cause)
    cluster.answers["GetConnectorStatus"] = pb.GetConnectorStatusResponse(status=status)
    assert f"task 1 failed 2 times ({text}), last " in drover("connector", "status", "flights")[1]


def test_describe_and_json_have_every_failure_that_is_known(
    cluster: FakeCluster, drover: Run
) -> None:
    status = failed(reason="restart.policy=never")
    cluster.answers["GetConnectorStatus"] = pb.GetConnectorStatusResponse(status=status)
    out = drover("connector", "describe", "flights")[1]
    rows = [line for line in out.splitlines() if line.startswith("task 1") and "20" in line]
    assert [row.split()[-3:] for row in rows[-2:]] == [
        ["by", "signal", "9"],
        ["OSError:", "no", "space"],
    ]
    document = json.loads(drover("connector", "status", "flights", "-o", "json")[1])
    shown = document["tasks"][1]["failures"]
    assert (shown["count"], shown["no_restart_reason"]) == (2, "restart.policy=never")
    assert [each["cause"] for each in shown["last"]] == ["ENGINE", "PLUGIN"]
    assert "failures" not in document["tasks"][0]


def test_all_failed_ones_restart_in_one_command(cluster: FakeCluster, drover: Run) -> None:
    def entry(name: str, state: pb.RunState.ValueType) -> pb.ListConnectorsResponse.Entry:
        status = pb.ConnectorStatus(
            name=name,
            connector=pb.ConnectorState(state=pb.RUN_STATE_RUNNING),
            tasks=[pb.TaskState(state=state)],
        )
        return pb.ListConnectorsResponse.Entry(name=name, status=status)

    cluster.answers["ListConnectors"] = pb.ListConnectorsResponse(
        connectors=[entry("a", pb.RUN_STATE_FAILED), entry("b", pb.RUN_STATE_RUNNING)]
    )
    cluster.answers["RestartConnector"] = pb.RestartConnectorResponse()
    code, out, _ = drover("connector", "restart", "--all", "--only-failed")
    assert (code, out) == (0, "restarted a\n")
    code, out, _ = drover("connector", "restart", "--all")
    assert (code, out) == (0, "restarted a\nrestarted b\n")
    code, out, _ = drover("connector", "restart", "x", "y", "--include-tasks")
    assert (code, out) == (0, "restarted x\nrestarted y\n")
    for options in ([], ["x", "--all"], ["x", "y", "--task", "0"]):
        assert drover("connector", "restart", *options)[0] == 2


def test_a_status_says_why_a_running_connector_may_have_no_tasks(
    cluster: FakeCluster, drover: Run
) -> None:
    status = pb.ConnectorStatus(
        name="shop", connector=pb.ConnectorState(state=pb.RUN_STATE_RUNNING, worker_id=WORKER)
    )
    cluster.answers["GetConnectorStatus"] = pb.GetConnectorStatusResponse(status=status)
    assert (
        "it has no tasks: it is starting, or found nothing to read"
        in (drover("connector", "status", "shop")[1])
    )
