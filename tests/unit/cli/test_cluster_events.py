"""``drover cluster rebalances`` and ``drover cluster audit``."""

import json

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.errors import PermissionDeniedError, Reason
from tests.support.fake_cluster import FakeCluster, Run

REBALANCE = pb.Rebalance(
    begin_time=Timestamp(seconds=1),
    duration=Duration(nanos=12_000_000),
    generation=7,
    reason="w:2 joined",
    moved_connector_count=1,
    moved_task_count=2,
    moves=[
        pb.RebalanceMove(connector="c", to_worker_id="w:2"),
        pb.RebalanceMove(connector="c", task=0, from_worker_id="w:1", to_worker_id="w:2"),
        pb.RebalanceMove(connector="c", task=1, from_worker_id="w:1"),
    ],
)
EVENT = pb.AuditEvent(
    event_time=Timestamp(seconds=1),
    principal="ann\x1b[2J",
    call="PauseConnector",
    connector="c",
    outcome="PERMISSION_DENIED",
    reason="MISSING_ROLE",
)


def test_rebalances(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["ListRebalances"] = pb.ListRebalancesResponse(
        rebalances=[REBALANCE, pb.Rebalance(generation=6)], silent_worker_ids=["w:3"]
    )
    code, out, err = drover("cluster", "rebalances")
    assert code == 0
    rows = out.splitlines()
    assert rows[1].split("  ")[0] == "1970-01-01T00:00:01.000+00:00"
    assert "12 ms" in rows[1]
    assert "1 connector, 2 tasks" in rows[1]
    assert "w:2 joined" in rows[1]
    assert "not finished" in rows[2]
    assert "w:3" in err
    document = json.loads(drover("cluster", "rebalances", "-o", "json")[1])[0]
    assert document["duration_ms"] == 12
    assert document["moves"] == ["c: started on w:2", "c-0: w:1 → w:2", "c-1: stopped on w:1"]


def test_all_pages_are_read_up_to_the_number(cluster: FakeCluster, drover: Run) -> None:
    page = pb.ListRebalancesResponse(rebalances=[REBALANCE] * 2, next_page_token="2")
    cluster.answers["ListRebalances"] = [page, page]
    assert len(json.loads(drover("cluster", "rebalances", "--last", "3", "-o", "json")[1])) == 3
    assert [each.page_token for each in cluster.requests] == ["", "2"]


def test_audit(cluster: FakeCluster, drover: Run) -> None:
    cluster.answers["ListAuditEvents"] = pb.ListAuditEventsResponse(events=[EVENT])
    options = ("--caller", "ann", "--call", "PauseConnector", "--outcome", "permission_denied")
    code, out, _ = drover("cluster", "audit", *options, "--since", "5")
    assert code == 0
    assert "PERMISSION_DENIED MISSING_ROLE" in out
    assert "\x1b" not in out
    request = cluster.requests[-1]
    assert (request.principal, request.call) == ("ann", "PauseConnector")
    assert request.outcome == "PERMISSION_DENIED"
    assert request.HasField("since_time")
    document = json.loads(drover("cluster", "audit", "-o", "json")[1])[0]
    assert document["connector"] == "c"
    assert not cluster.requests[-1].HasField("since_time")


def test_a_caller_who_may_not_read_the_audit_log_is_refused(
    cluster: FakeCluster, drover: Run
) -> None:
    text = "ListAuditEvents needs the role admin for the whole cluster"
    cluster.answers["ListAuditEvents"] = PermissionDeniedError(Reason.MISSING_ROLE, text)
    code, _, err = drover("cluster", "audit")
    assert code == 1
    assert text in err
