"""``drover logger …``."""

import json

from google.protobuf.timestamp_pb2 import Timestamp

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.errors import InvalidArgumentError, Violation
from tests.support.fake_cluster import FakeCluster, Run

LOGGERS = pb.ListLoggersResponse(
    loggers=[
        pb.Logger(name="drover.worker", level="DEBUG", last_change_time=Timestamp(seconds=1)),
        pb.Logger(name="root", level="INFO"),
    ]
)


def test_list(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["ListLoggers"] = LOGGERS
    code, out, _ = drover("logger", "list")
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    assert rows == [
        ["LOGGER", "LEVEL", "SET"],
        ["drover.worker", "DEBUG", "1970-01-01T00:00:01+00:00"],
        ["root", "INFO"],
    ]
    documents = json.loads(drover("logger", "list", "-o", "json")[1])
    assert documents[1] == {"name": "root", "level": "INFO", "set": None}


def test_list_of_all_workers(cluster: FakeCluster, drover: Run) -> None:
    levels = [pb.WorkerLevel(worker_id="w:1", level="INFO")]
    differing = [*levels, pb.WorkerLevel(worker_id="w:2", level="DEBUG")]
    cluster.answers["ListLoggers"] = pb.ListLoggersResponse(
        loggers=[
            pb.Logger(name="a", worker_levels=differing),
            pb.Logger(name="b", level="INFO", worker_levels=levels),
        ],
        silent_worker_ids=["w:3"],
    )
    code, out, _ = drover("logger", "list", "--cluster")
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [
        ["LOGGER", "LEVEL", "WORKERS", "SET"],
        ["a", "DEBUG", "w:2"],
        ["a", "INFO", "w:1"],
        ["b", "INFO", "all"],
        ["w:3", "did", "not", "answer"],
    ]
    assert cluster.requests[-1].cluster_scope
    document = json.loads(drover("logger", "list", "--cluster", "-o", "json")[1])
    assert document["loggers"][0]["levels"] == {"w:1": "INFO", "w:2": "DEBUG"}
    assert document["silent_workers"] == ["w:3"]


def test_set(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["SetLoggerLevel"] = pb.SetLoggerLevelResponse(names=["a", "a.b"])
    code, out, _ = drover("logger", "set", "a", "debug")
    assert (code, out) == (0, "set to DEBUG: a, a.b\n")
    assert cluster.requests[-1] == pb.SetLoggerLevelRequest(name="a", level="debug")


def test_set_on_every_worker(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["SetLoggerLevel"] = pb.SetLoggerLevelResponse()
    code, out, _ = drover("logger", "set", "a", "DEBUG", "--cluster")
    assert (code, out) == (0, "a is being set to DEBUG on every worker\n")
    assert cluster.requests[-1].cluster_scope
    assert "drover-author" in cluster.metadata[-1]


def test_a_refusal_is_told(cluster: FakeCluster, drover: Run) -> None:
    refusal = InvalidArgumentError.listing([Violation("name", "there is no logger 'x' here")])
    cluster.answers["SetLoggerLevel"] = refusal
    code, _, err = drover("logger", "set", "x", "DEBUG")
    assert code == 1
    assert err.splitlines() == ["drover: name: there is no logger 'x' here (INVALID_REQUEST)"]
