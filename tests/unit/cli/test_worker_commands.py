"""``drover worker`` against a server that answers what the test wants."""

import json
import os
from pathlib import Path

import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.errors import FailedPreconditionError, Reason
from drover.local.state import DEFAULT_DIRECTORY, ClusterState, ProcessState, write_state
from tests.support.fake_cluster import FakeCluster, Run

A, B = "127.0.0.1:7411", "127.0.0.1:7412"


def shown(state: pb.WorkerState.ValueType, *tasks: str) -> pb.GetClusterInfoResponse:
    workers = [
        pb.WorkerInfo(worker_id=A, leader=True, tasks=["c-0"]),
        pb.WorkerInfo(worker_id=B, state=state, tasks=tasks),
    ]
    return pb.GetClusterInfoResponse(workers=workers)


def test_list_shows_which_workers_take_work(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["GetClusterInfo"] = shown(pb.WORKER_STATE_DRAINING, "c-1", "c-2")
    rows = [line.split() for line in drover("worker", "list")[1].splitlines()]
    assert rows[1:] == [[A, "ACTIVE", "yes", "0", "1"], [B, "DRAINING", "0", "2"]]
    document = json.loads(drover("worker", "list", "-o", "json")[1])
    assert [each["state"] for each in document["workers"]] == ["ACTIVE", "DRAINING"]
    assert "DRAINING" in drover("cluster", "info")[1]


def test_drain_waits_until_the_worker_holds_nothing(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["DrainWorker"] = pb.DrainWorkerResponse()
    cluster.answers["GetClusterInfo"] = [
        shown(pb.WORKER_STATE_DRAINING, "c-1"),
        shown(pb.WORKER_STATE_DRAINING, "c-1"),
        pb.GetClusterInfoResponse(),
        shown(pb.WORKER_STATE_DRAINED),
    ]
    code, out, _ = drover("worker", "drain", B, "-o", "json")
    assert code == 0
    assert [json.loads(line) for line in out.splitlines()] == [
        {"worker_id": B, "state": "DRAINING", "connectors": 0, "tasks": 1},
        {"worker_id": B, "state": "DRAINED", "connectors": 0, "tasks": 0},
    ]


@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [
        (pb.GetClusterInfoResponse(workers=[pb.WorkerInfo(worker_id=A)]), 0, "has left"),
        (shown(pb.WORKER_STATE_ACTIVE), 1, "resumed or restarted"),
        (shown(pb.WORKER_STATE_DRAINING, "c-1"), 1, "still has 0 connectors and 1 tasks"),
    ],
)
def test_drain_says_how_else_it_ended(
    cluster: FakeCluster, drover: Run, answer: pb.GetClusterInfoResponse, code: int, says: str
) -> None:
    cluster.answers["DrainWorker"] = pb.DrainWorkerResponse()
    cluster.answers["GetClusterInfo"] = answer
    found, out, err = drover("worker", "drain", B, "--timeout", "1")
    assert found == code
    assert says in out + err


def test_a_refused_drain_says_why(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["DrainWorker"] = FailedPreconditionError(
        Reason.NO_OTHER_WORKER, "no other worker takes the work"
    )
    code, _, err = drover("worker", "drain", B)
    assert (code, err) == (1, "drover: no other worker takes the work (NO_OTHER_WORKER)\n")


def test_a_worker_may_be_named_as_drover_up_does(
    cluster: FakeCluster, drover: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    DEFAULT_DIRECTORY.mkdir(parents=True)
    processes = {"worker-2": ProcessState(None, B, ""), "coordinator": ProcessState(None, A, "")}
    write_state(DEFAULT_DIRECTORY, ClusterState(os.getpid(), 0.0, processes))
    cluster.answers["ResumeWorker"] = pb.ResumeWorkerResponse()
    assert drover("worker", "resume", "worker-2")[1] == (
        f"{B} is ACTIVE: it can receive connectors and tasks\n"
    )
    code, _, err = drover("worker", "resume", "coordinator")
    assert code == 1
    assert "workers of the cluster here: worker-2" in err


def test_info_shows_the_engines_of_the_worker_and_what_limits_them(
    cluster: FakeCluster, drover: Run
) -> None:
    shared = pb.EngineInfo(name="shared", up=True, memory_limit=pb.ENGINE_LIMIT_NONE)
    own = pb.EngineInfo(
        name="own/orders",
        memory_bytes=2 << 30,
        cores=1,
        memory_limit=pb.ENGINE_LIMIT_RLIMIT,
        cores_limit=pb.ENGINE_LIMIT_SPARK,
    )
    cluster.answers["GetClusterInfo"] = pb.GetClusterInfoResponse(engines=[shared])
    assert "engines of" not in drover("cluster", "info")[1]
    cluster.answers["GetClusterInfo"] = pb.GetClusterInfoResponse(
        worker_id=A, engines=[shared, own]
    )
    rows = drover("cluster", "info")[1].splitlines()[-4:]
    assert rows[0] == f"engines of {A}"
    assert rows[2].split() == ["shared", "UP", "unlimited", "unlimited", "none"]
    assert rows[3].split(maxsplit=4) == [
        *("own/orders", "STARTING", "2", "GiB"),
        "1          memory: RLIMIT_DATA and heap, cores: spark.master",
    ]
    (_, document) = json.loads(drover("cluster", "info", "-o", "json")[1])["engines"]
    assert document == {
        "name": "own/orders",
        "up": False,
        "state": "STARTING",
        "memory_bytes": 2 << 30,
        "cores": 1,
        "limited_by": ["memory: RLIMIT_DATA and heap", "cores: spark.master"],
    }
    ended = pb.EngineInfo(name="own/orders")
    cluster.answers["GetClusterInfo"] = pb.GetClusterInfoResponse(engines=[shared, ended])
    assert drover("cluster", "info")[1].splitlines()[-1].split()[:2] == ["own/orders", "DOWN"]
