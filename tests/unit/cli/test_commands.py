"""The drover command against a server that answers what the test wants."""

import json
import os
from pathlib import Path

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from drover.api.common.v1.preview_pb2 import Preview, PreviewedRow
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.api.coordinator.v1 import coordinator_service_pb2 as group_pb
from drover.codec.common import encode_figures
from drover.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    Reason,
    Violation,
)
from drover.local.state import ClusterState, ProcessState, write_state
from tests.support.fake_cluster import FakeCluster, Run

WORKER = "127.0.0.1:7411"
STATUS = pb.ConnectorStatus(
    name="flights",
    type=pb.CONNECTOR_TYPE_SINK,
    connector=pb.ConnectorState(state=pb.RUN_STATE_RUNNING, worker_id=WORKER),
    tasks=[
        pb.TaskState(task=0, state=pb.RUN_STATE_RUNNING, worker_id=WORKER),
        pb.TaskState(
            task=1,
            state=pb.RUN_STATE_FAILED,
            worker_id=WORKER,
            trace="Traceback:\n  File x\nOSError: no space\n",
        ),
    ],
)
CONNECTOR = pb.Connector(
    name="flights",
    config={"name": "flights", "connector.class": "FileStreamSink"},
    type=pb.CONNECTOR_TYPE_SINK,
    target_state=pb.TARGET_STATE_STARTED,
    task_indexes=[0, 1],
    revision=7,
)
DEFINITION = '{"name": "flights", "config": {"connector.class": "FileStreamSink", "tasks.max": 1}}'


def definition_file(tmp_path: Path, text: str = DEFINITION) -> str:
    path = tmp_path / "flights.json"
    path.write_text(text)
    return str(path)


def test_list_shows_every_connector(cluster: FakeCluster, drover: Run) -> None:
    entry = pb.ListConnectorsResponse.Entry(name="flights", connector=CONNECTOR, status=STATUS)
    cluster.answers["ListConnectors"] = pb.ListConnectorsResponse(connectors=[entry])
    code, out, _ = drover("connector", "list")
    assert code == 0
    assert "flights  sink  FileStreamSink  RUNNING  1 RUNNING, 1 FAILED" in " ".join(
        out.splitlines()[1].split("   ")
    )
    code, out, _ = drover("connector", "list", "-o", "json")
    (document,) = json.loads(out)
    assert document["config"]["connector.class"] == "FileStreamSink"
    assert document["status"]["tasks"][0] == {"task": 0, "state": "RUNNING", "worker_id": WORKER}


def test_an_empty_list_says_so(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["ListConnectors"] = pb.ListConnectorsResponse()
    assert drover("connector", "list")[:2] == (0, "no connectors\n")
    assert drover("connector", "list", "--output", "json")[:2] == (0, "[]\n")


def test_get_shows_the_config(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["GetConnector"] = pb.GetConnectorResponse(connector=CONNECTOR)
    code, out, _ = drover("connector", "get", "flights", "-o", "json")
    assert code == 0
    assert json.loads(out) == {
        "name": "flights",
        "type": "sink",
        "target_state": "STARTED",
        "revision": 7,
        "tasks": [0, 1],
        "config": {"connector.class": "FileStreamSink", "name": "flights"},
    }
    assert "flights: sink, STARTED, 2 tasks, revision 7" in drover("connector", "get", "flights")[1]


def test_create_sends_the_definition(cluster: FakeCluster, drover: Run, tmp_path: Path) -> None:
    cluster.answers["CreateConnector"] = pb.CreateConnectorResponse(connector=CONNECTOR)
    assert drover("connector", "create", "-f", definition_file(tmp_path))[:2] == (
        0,
        "created flights\n",
    )
    request = cluster.requests[0]
    assert request.name == "flights"
    assert dict(request.config) == {"connector.class": "FileStreamSink", "tasks.max": "1"}
    assert request.initial_state == pb.TARGET_STATE_UNSPECIFIED


def test_writes_show_the_warnings_of_a_validation(
    cluster: FakeCluster, drover: Run, tmp_path: Path
) -> None:
    cluster.answers["CreateConnector"] = pb.CreateConnectorResponse(connector=CONNECTOR)
    cluster.answers["PatchConnectorConfig"] = pb.PatchConnectorConfigResponse(connector=CONNECTOR)
    cluster.answers["RollbackConnector"] = pb.RollbackConnectorResponse(connector=CONNECTOR)
    warning = pb.ConfigViolation(field="batch.sise", description="has no effect here")
    cluster.answers["ValidateConfig"] = pb.ValidateConfigResponse(warnings=[warning])
    for command in (
        ("create", "-f", definition_file(tmp_path)),
        ("patch", "flights", "a=b"),
        ("rollback", "flights", "1", "--yes"),
    ):
        code, out, err = drover("connector", *command)
        assert code == 0
        assert err == "warning: batch.sise has no effect here\n"
        assert "batch.sise" not in out
        assert cluster.requests[-1].skip_systems


def test_create_takes_an_initial_state(cluster: FakeCluster, drover: Run, tmp_path: Path) -> None:
    cluster.answers["CreateConnector"] = pb.CreateConnectorResponse(connector=CONNECTOR)
    text = '{"name": "a", "config": {}, "initial_state": "paused"}'
    assert drover("connector", "create", "-f", definition_file(tmp_path, text))[0] == 0
    assert cluster.requests[0].initial_state == pb.TARGET_STATE_PAUSED
    text = '{"name": "a", "config": {}, "initial_state": "asleep"}'
    code, _, err = drover("connector", "create", "-f", definition_file(tmp_path, text))
    assert code == 2
    assert "must be one of STARTED, PAUSED, STOPPED" in err


@pytest.mark.parametrize(
    ("verb", "rpc", "said"),
    [
        ("pause", "PauseConnector", "paused"),
        ("resume", "ResumeConnector", "resumed"),
        ("stop", "StopConnector", "stopped"),
        ("delete", "DeleteConnector", "deleted"),
    ],
)
def test_verbs_call_their_rpc(
    cluster: FakeCluster, drover: Run, verb: str, rpc: str, said: str
) -> None:
    cluster.answers[rpc] = getattr(pb, f"{rpc}Response")()
    assert drover("connector", verb, "flights")[:2] == (0, f"{said} flights\n")
    assert cluster.requests[0].name == "flights"
    _, out, _ = drover("connector", verb, "flights", "-o", "json")
    assert json.loads(out) == {"name": "flights", "result": said}


def test_restart_of_one_task_and_of_all(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["RestartTask"] = pb.RestartTaskResponse()
    cluster.answers["RestartConnector"] = pb.RestartConnectorResponse(planned_status=STATUS)
    assert drover("connector", "restart", "flights", "--task", "1")[:2] == (
        0,
        "restarted flights-1\n",
    )
    code, out, _ = drover("connector", "restart", "flights", "--include-tasks", "-o", "json")
    assert code == 0
    assert json.loads(out)["name"] == "flights"
    assert cluster.requests[1].include_tasks
    assert drover("connector", "restart", "flights", "--task", "1", "--only-failed")[0] == 2


def test_status_shows_the_cause_and_the_trace(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["GetConnectorStatus"] = pb.GetConnectorStatusResponse(status=STATUS)
    code, out, _ = drover("connector", "status", "flights")
    assert code == 0
    assert "OSError: no space" in out
    assert "task 1 failed:" in out
    document = json.loads(drover("connector", "status", "flights", "-o", "json")[1])
    assert document["tasks"][1]["trace"].startswith("Traceback:")
    assert "trace" not in document["tasks"][0]


def counted() -> pb.ConnectorStatus:
    status = pb.ConnectorStatus()
    status.CopyFrom(STATUS)
    status.tasks.add(task=2, state=pb.RUN_STATE_UNASSIGNED)
    for counts in (status.tasks[0].counts, status.counts):
        counts.read_count, counts.written_count = 1234567, 1234500
        counts.filtered_count, counts.dead_lettered_count, counts.skipped_count = 60, 5, 2
    status.tasks[1].counts.SetInParent()
    return status


def test_describe_shows_what_became_of_records(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["GetConnectorStatus"] = pb.GetConnectorStatusResponse(status=counted())
    code, out, _ = drover("connector", "describe", "flights")
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [
        ["flights:", "sink,", "RUNNING"],
        [
            *("TASK", "STATE", "WORKER", "READ", "WRITTEN", "FILTERED", "DEAD", "LETTERS"),
            *("SKIPPED", "RECORDS/S", "LAG"),
        ],
        f"task 0 RUNNING {WORKER} 1234567 1234500 60 5 2".split(),
        f"task 1 FAILED {WORKER} 0 0 0 0 0".split(),
        ["task", "2", "UNASSIGNED", "-", "-", "-", "-", "-"],
        ["total", "1234567", "1234500", "60", "5", "2"],
        ["task", "1:", "OSError:", "no", "space"],
    ]
    document = json.loads(drover("connector", "describe", "flights", "-o", "json")[1])
    counts = {
        "read_count": 1234567,
        "written_count": 1234500,
        "filtered_count": 60,
        "dead_lettered_count": 5,
        "skipped_count": 2,
    }
    assert document["counts"] == document["tasks"][0]["counts"] == counts
    assert document["tasks"][1]["counts"]["read_count"] == 0
    assert "counts" not in document["tasks"][2]


def test_describe_shows_what_a_connector_tells_of_itself(cluster: FakeCluster, drover: Run) -> None:
    status = counted()
    status.tasks[0].figures.extend(encode_figures({"slot_lag_bytes": 4096, "behind_ms": 12}))
    cluster.answers["GetConnectorStatus"] = pb.GetConnectorStatusResponse(status=status)
    lines = [line.split() for line in drover("connector", "describe", "flights")[1].splitlines()]
    start = lines.index(["FIGURES", "OF", "FIGURE", "VALUE"])
    assert lines[start + 1 : start + 3] == [
        ["task", "0", "behind_ms", "12"],
        ["task", "0", "slot_lag_bytes", "4096"],
    ]
    document = json.loads(drover("connector", "describe", "flights", "-o", "json")[1])
    assert document["tasks"][0]["figures"] == {"behind_ms": 12, "slot_lag_bytes": 4096}
    assert "figures" not in document["tasks"][1]


def test_status_shows_records_where_tasks_told_of_them(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["GetConnectorStatus"] = pb.GetConnectorStatusResponse(status=STATUS)
    assert "READ" not in drover("connector", "status", "flights")[1]
    cluster.answers["GetConnectorStatus"] = pb.GetConnectorStatusResponse(status=counted())
    lines = drover("connector", "status", "flights")[1].splitlines()
    assert [line.split() for line in lines[:5]] == [
        ["FLIGHTS", "STATE", "WORKER", "READ", "WRITTEN", "CAUSE"],
        f"connector RUNNING {WORKER}".split(),
        f"task 0 RUNNING {WORKER} 1234567 1234500".split(),
        f"task 1 FAILED {WORKER} 0 0 OSError: no space".split(),
        ["task", "2", "UNASSIGNED", "-", "-"],
    ]


def test_watch_prints_no_line_for_counts(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["WatchStatuses"] = [
        pb.WatchStatusesResponse(status=STATUS),
        pb.WatchStatusesResponse(synced=True),
        pb.WatchStatusesResponse(status=counted()),
    ]
    _, out, _ = drover("connector", "watch", "flights")
    assert [line.split("  ", 1)[1] for line in out.splitlines()][3:] == [
        "flights  task 2  UNASSIGNED"
    ]


def test_watch_prints_what_changed(cluster: FakeCluster, drover: Run) -> None:
    moved = pb.ConnectorStatus()
    moved.CopyFrom(STATUS)
    moved.tasks[0].worker_id = "127.0.0.1:7412"
    gone = pb.ConnectorStatus(name="flights")
    cluster.answers["WatchStatuses"] = [
        pb.WatchStatusesResponse(status=STATUS),
        pb.WatchStatusesResponse(synced=True),
        pb.WatchStatusesResponse(status=moved),
        pb.WatchStatusesResponse(status=gone, removed=True),
    ]
    code, out, _ = drover("connector", "watch", "flights")
    assert code == 1
    assert [line.split("  ", 1)[1] for line in out.splitlines()] == [
        f"flights  connector  RUNNING  {WORKER}",
        f"flights  task 0  RUNNING  {WORKER}",
        f"flights  task 1  FAILED  {WORKER}  OSError: no space",
        "flights  task 0  RUNNING  127.0.0.1:7412",
        "flights  removed",
    ]
    lines = drover("connector", "watch", "-o", "json")[1].splitlines()
    assert [json.loads(line)["removed"] for line in lines] == [False, False, True]


def test_validate_shows_every_fault_and_fails(
    cluster: FakeCluster, drover: Run, tmp_path: Path
) -> None:
    faults = [
        pb.ConfigViolation(field='config["tasks.max"]', description="must be at least 1, not 0"),
        pb.ConfigViolation(field='config["file"]', description="is required"),
    ]
    cluster.answers["ValidateConfig"] = pb.ValidateConfigResponse(error_count=2, violations=faults)
    code, out, _ = drover("config", "validate", "-f", definition_file(tmp_path))
    assert code == 1
    assert "must be at least 1, not 0" in out
    assert "is required" in out
    assert cluster.requests[0].config["name"] == "flights"
    code, out, _ = drover("config", "validate", "-f", definition_file(tmp_path), "-o", "json")
    assert (code, json.loads(out)["error_count"]) == (1, 2)
    cluster.answers["ValidateConfig"] = pb.ValidateConfigResponse()
    assert drover("config", "validate", "-f", definition_file(tmp_path))[:2] == (0, "no faults\n")


def test_a_preview_is_a_table_for_each_step_with_what_fails_in_place(
    cluster: FakeCluster, drover: Run, tmp_path: Path
) -> None:
    good = PreviewedRow(place="a.csv:2")
    good.records.add(value='{"id": 1, "email": "a@x"}')
    good.records.add(value='{"id": 1, "email": ""}')
    good.records.add(topic="t", key="1", value='{"schema": {}, "payload": {"id": 1}}')
    bad = PreviewedRow(place="a.csv:3", failed_step="read", error="has 1 columns, not 2")
    gone = PreviewedRow(place="a.csv:4", dropped_by="transforms.mask (MaskField$Value)")
    gone.records.add(value='{"id": 4, "email": null}')
    preview = Preview(
        steps=["read", "transforms.mask (MaskField$Value)", "write"],
        rows=[good, bad, gone],
        notes=["a note"],
    )
    cluster.answers["PreviewConnector"] = pb.PreviewConnectorResponse(preview=preview)
    code, out, _ = drover("connector", "preview", definition_file(tmp_path), "--rows", "3")
    assert code == 0
    assert (cluster.requests[0].row_count, cluster.requests[0].config["name"]) == (3, "flights")
    read, rest = out.split("transforms.mask")
    masked, written = rest.split("\nwrite\n")
    assert read.splitlines()[1].split() == ["FROM", "id", "email"]
    assert "a@x" in read
    assert "failed: has 1 columns, not 2" in read
    assert "dropped" in masked
    assert "a@x" not in masked
    assert "a.csv:3" not in masked + written
    assert '"payload"' in written
    assert out.endswith("a note\n")
    code, out, _ = drover("connector", "preview", definition_file(tmp_path), "-o", "json")
    assert json.loads(out)["rows"][1]["error"] == "has 1 columns, not 2"


def test_a_warning_is_shown_and_refuses_nothing(
    cluster: FakeCluster, drover: Run, tmp_path: Path
) -> None:
    warning = pb.ConfigViolation(field='config["topic"]', description="did you mean topics?")
    cluster.answers["ValidateConfig"] = pb.ValidateConfigResponse(warnings=[warning])
    code, out, _ = drover("config", "validate", "-f", definition_file(tmp_path))
    assert code == 0
    assert "did you mean topics?" in out
    assert out.endswith("no faults, 1 warning\n")
    code, out, _ = drover("config", "validate", "-f", definition_file(tmp_path), "-o", "json")
    assert code == 0
    assert json.loads(out)["warnings"] == [
        {"field": 'config["topic"]', "description": "did you mean topics?"}
    ]


def test_a_groups_offsets_are_shown(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["FetchGroupOffsets"] = group_pb.FetchGroupOffsetsResponse(
        offsets=[
            group_pb.GroupOffset(
                topic="flights",
                partition=3,
                offset=42,
                metadata="here\x1b[0m",
                commit_time=Timestamp(seconds=1_700_000_000),
            )
        ]
    )
    code, out, _ = drover("group", "offsets", "readers")
    assert code == 0
    cells = ["flights", "3", "42", "2023-11-14 22:13:20 UTC", "here\ufffd[0m"]
    assert " ".join(out.splitlines()[1].split()) == " ".join(cells)
    assert cluster.requests[-1].group_id == "readers"
    assert json.loads(drover("group", "offsets", "readers", "-o", "json")[1]) == [
        {
            "topic": "flights",
            "partition": 3,
            "offset": 42,
            "leader_epoch": None,
            "metadata": "here\x1b[0m",
            "commit_time_ms": 1_700_000_000_000,
            "expire_time_ms": None,
        }
    ]


def test_a_group_without_offsets_is_told_from_one_that_is_not_there(
    cluster: FakeCluster, drover: Run
) -> None:
    cluster.answers["FetchGroupOffsets"] = group_pb.FetchGroupOffsetsResponse()
    for state, answer in (
        (group_pb.GROUP_STATE_EMPTY, (0, "no offsets\n", "")),
        (
            group_pb.GROUP_STATE_DEAD,
            (1, "", "drover: there is no group 'g'; `drover group list` shows them\n"),
        ),
    ):
        cluster.answers["DescribeGroup"] = group_pb.DescribeGroupResponse(state=state)
        assert drover("group", "offsets", "g") == answer


def test_a_group_is_deleted(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["DeleteGroup"] = group_pb.DeleteGroupResponse()
    assert drover("group", "delete", "readers") == (0, "deleted readers\n", "")
    assert cluster.requests[-1].group_id == "readers"
    code, out, _ = drover("group", "delete", "readers", "-o", "json")
    assert (code, json.loads(out)) == (0, {"group_id": "readers", "result": "deleted"})
    cluster.answers["DeleteGroup"] = FailedPreconditionError(
        Reason.NON_EMPTY_GROUP, "group 'readers' has 2 members: stop them first"
    )
    code, out, err = drover("group", "delete", "readers")
    assert (code, out) == (1, "")
    assert err == "drover: group 'readers' has 2 members: stop them first (NON_EMPTY_GROUP)\n"


def test_groups_are_listed_and_described(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["ListGroups"] = group_pb.ListGroupsResponse(
        groups=[
            group_pb.ListGroupsResponse.Group(
                group_id="drover", state=group_pb.GROUP_STATE_STABLE, member_count=2
            )
        ]
    )
    member = group_pb.GroupMember(member_id="m-1", instance_id="place-1", client_id="worker")
    cluster.answers["DescribeGroup"] = group_pb.DescribeGroupResponse(
        group_id="drover", state=group_pb.GROUP_STATE_STABLE, leader_id="m-1", members=[member]
    )
    address = os.environ["DROVER_COORDINATOR_ADDRESS"]
    cluster.answers["FindCoordinator"] = group_pb.FindCoordinatorResponse(address=address)
    assert "STABLE" in drover("group", "list")[1]
    assert "drover: STABLE" in drover("group", "describe", "drover")[1]
    assert f"served by {address}" in drover("group", "describe", "drover")[1]
    document = json.loads(drover("group", "describe", "drover", "-o", "json")[1])
    assert document["coordinator"] == address
    assert document["members"][0]["member_id"] == "m-1"
    assert document["members"][0]["instance_id"] == "place-1"
    assert "place-1" in drover("group", "describe", "drover")[1]
    cluster.answers["DescribeGroup"] = group_pb.DescribeGroupResponse(
        group_id="x", state=group_pb.GROUP_STATE_DEAD
    )
    code, _, err = drover("group", "describe", "x")
    assert (code, err) == (
        1,
        "drover: there is no group 'x'; `drover group list` shows them\n",
    )


def test_groups_are_filtered_by_state_in_any_case_and_by_type(
    cluster: FakeCluster, drover: Run
) -> None:
    cluster.answers["ListGroups"] = group_pb.ListGroupsResponse()
    states = ("--state", "stable", "--state", "Preparing_Rebalance")
    assert drover("group", "list", *states, "--type", "connect") == (0, "no groups\n", "")
    asked = cluster.requests[-1]
    assert list(asked.states) == [
        group_pb.GROUP_STATE_STABLE,
        group_pb.GROUP_STATE_PREPARING_REBALANCE,
    ]
    assert list(asked.protocol_types) == ["connect"]
    code, _, err = drover("group", "list", "--state", "asleep")
    assert code == 2
    assert "'asleep' is not one of" in err


def test_cluster_info_shows_who_runs_what(cluster: FakeCluster, drover: Run) -> None:
    worker = pb.WorkerInfo(worker_id=WORKER, leader=True, tasks=["flights-0"])
    frozen = pb.WorkerInfo(worker_id="127.0.0.1:9", health=pb.WORKER_HEALTH_UNREACHABLE)
    cluster.answers["GetClusterInfo"] = pb.GetClusterInfoResponse(
        version="1", group_id="drover", generation=3, workers=[worker, frozen]
    )
    out = drover("cluster", "info")[1]
    assert "generation 3" in out
    assert "flights-0" in out
    assert out.splitlines()[-1].split() == [
        *("127.0.0.1:9", "ACTIVE", "UNREACHABLE", "none", "none"),
    ]
    workers = json.loads(drover("cluster", "info", "-o", "json")[1])["workers"]
    assert [each["leader"] for each in workers] == [True, False]
    assert [each["health"] for each in workers] == ["UNKNOWN", "UNREACHABLE"]


def test_a_refusal_shows_its_reason_and_every_violation(
    cluster: FakeCluster, drover: Run, tmp_path: Path
) -> None:
    cluster.answers["CreateConnector"] = InvalidArgumentError(
        Reason.INVALID_CONFIG,
        "the config has 2 faults",
        violations=[Violation("tasks.max", "must be 1"), Violation("file", "is required")],
    )
    code, out, err = drover("connector", "create", "-f", definition_file(tmp_path))
    assert (code, out) == (1, "")
    lines = err.splitlines()
    assert lines[0] == "drover: the config has 2 faults (INVALID_CONFIG)"
    assert lines[2].split() == ["tasks.max", "must", "be", "1"]
    assert lines[3].split() == ["file", "is", "required"]
    cluster.answers["CreateConnector"] = AlreadyExistsError(
        Reason.CONNECTOR_ALREADY_EXISTS, "flights exists"
    )
    code, _, err = drover("connector", "create", "-f", definition_file(tmp_path))
    assert (code, err) == (1, "drover: flights exists (CONNECTOR_ALREADY_EXISTS)\n")


def test_text_from_the_server_cannot_steer_the_terminal(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["GetConnector"] = NotFoundError(
        Reason.CONNECTOR_NOT_FOUND, "no connector \x1b[2J[bold]x[/bold]"
    )
    _, _, err = drover("connector", "get", "x")
    assert "\x1b" not in err
    assert "[bold]x[/bold]" in err


@pytest.mark.parametrize("text", ["[]", '{"name": "a", "name": "b"}', '{"config": {}}', "{"])
def test_a_bad_file_is_misuse(cluster: FakeCluster, drover: Run, tmp_path: Path, text: str) -> None:
    for verb in ("create", "apply"):
        code, out, err = drover("connector", verb, "-f", definition_file(tmp_path, text))
        assert (code, out) == (2, "")
        assert "flights.json" in err
        assert len(err.splitlines()) == 1
    assert cluster.requests == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["bogus"],
        ["connector", "get"],
        ["connector", "get", "x", "-o", "xml"],
        ["connector", "restart", "x", "--task", "-1"],
        ["connector", "list", "--address", "nowhere"],
    ],
)
def test_misuse_exits_with_2(drover: Run, arguments: list[str]) -> None:
    code, out, err = drover(*arguments)
    assert (code, out) == (2, "")
    assert err


def test_a_server_that_cannot_be_reached_is_one_line_with_its_address(drover: Run) -> None:
    code, _, err = drover("connector", "list", "-a", "127.0.0.1:1")
    assert (code, err) == (
        1,
        "drover: no worker answers at 127.0.0.1:1; `drover up` starts a cluster here; "
        "for another cluster set DROVER_ADDRESS, --address or --dir\n",
    )


def test_the_cluster_of_this_directory_is_found(
    cluster: FakeCluster, drover: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = os.environ["DROVER_ADDRESS"]
    monkeypatch.delenv("DROVER_ADDRESS")
    directory = tmp_path / ".drover" / "up"
    directory.mkdir(parents=True)
    processes = {
        # the first worker does not answer, the second one does
        "worker-1": ProcessState(1, "127.0.0.1:1", "x"),
        "worker-2": ProcessState(2, address, "x"),
    }
    write_state(directory, ClusterState(1, 1.0, processes))
    cluster.answers["ListConnectors"] = pb.ListConnectorsResponse()
    assert drover("connector", "list")[:2] == (0, "no connectors\n")


def test_up_refuses_file_roots_that_do_not_exist(
    drover: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    code, out, err = drover("up", "--file-roots", "a, b")
    assert (code, out) == (2, "")
    assert err == f"drover: --file-roots: {tmp_path}/b is not a directory: create it\n"
    assert not (tmp_path / ".drover").exists()


def test_topics_shows_what_was_seen(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["GetConnectorTopics"] = pb.GetConnectorTopicsResponse(topics=["a", "b"])
    assert drover("connector", "topics", "c")[1].split() == ["TOPIC", "a", "b"]
    assert json.loads(drover("connector", "topics", "c", "-o", "json")[1]) == {
        "name": "c",
        "topics": ["a", "b"],
    }
    cluster.answers["GetConnectorTopics"] = pb.GetConnectorTopicsResponse()
    assert drover("connector", "topics", "c")[1] == "none yet\n"


def test_topics_can_be_forgotten(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["ResetConnectorTopics"] = pb.ResetConnectorTopicsResponse()
    assert drover("connector", "topics", "c", "--reset")[:2] == (0, "cleared the topics of c\n")
    assert cluster.requests == [pb.ResetConnectorTopicsRequest(name="c")]


def test_version(drover: Run) -> None:
    assert drover("version")[:2] == (0, "drover 0.1.0\n")
    assert json.loads(drover("version", "-o", "json")[1]) == {"version": "0.1.0"}
