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
    assert "there is no logger 'x' here" in err
