"""The audit events that a worker keeps, and how the ones of several workers are merged."""

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.codec.common import encode_timestamp
from drover.model.secrets import MASK
from drover.rpc.audit_trail import (
    EVENTS_MAX,
    REQUEST_MAX_CHARS,
    UNKNOWN_EVENTS_MAX,
    AuditTrail,
)
from drover_worker.admin.audit_events import merged


def add(
    trail: AuditTrail, request: pb.CreateConnectorRequest | None, *, known: bool = True
) -> None:
    trail.add(
        method="/drover.api.connect.v1.ConnectService/CreateConnector",
        principal="ann" if known else "",
        peer="ipv4:127.0.0.1:1",
        request_id="r1",
        request=request,
        outcome="OK",
        reason="",
        known=known,
    )


def test_an_event_has_the_request_with_secrets_masked() -> None:
    trail = AuditTrail()
    add(trail, pb.CreateConnectorRequest(name="c", config={"password": "hunter2"}))
    (event,) = trail.all()
    assert (event.call, event.principal, event.connector) == ("CreateConnector", "ann", "c")
    assert event.request == f'{{"name": "c", "config": {{"password": "{MASK}"}}}}'


def test_long_requests_are_cut() -> None:
    trail = AuditTrail()
    config = {f"key.{number}": "x" * 500 for number in range(500)}
    add(trail, pb.CreateConnectorRequest(name="c" * 100_000, config=config))
    (event,) = trail.all()
    assert len(event.connector) == 300
    assert len(event.request) == REQUEST_MAX_CHARS
    assert event.request.endswith("…")


def test_a_flood_of_unknown_callers_does_not_replace_the_events_of_others() -> None:
    trail = AuditTrail()
    add(trail, pb.CreateConnectorRequest(name="c"))
    for _ in range(3 * EVENTS_MAX):
        add(trail, None, known=False)
    found = trail.all()
    assert found[0].principal == "ann"
    assert len(found) == 1 + UNKNOWN_EVENTS_MAX
    for _ in range(2 * EVENTS_MAX):
        add(trail, None)
    assert len(trail.all()) == EVENTS_MAX + UNKNOWN_EVENTS_MAX


def event(time_ms: int, worker: str, sequence: int = 1) -> pb.AuditEvent:
    return pb.AuditEvent(event_time=encode_timestamp(time_ms), worker_id=worker, sequence=sequence)


def test_the_newest_events_of_all_workers_come_first() -> None:
    of_a = pb.ListAuditEventsResponse(events=[event(5, "a", 3), event(2, "a", 2), event(1, "a", 1)])
    of_b = pb.ListAuditEventsResponse(events=[event(4, "b"), event(3, "b")], next_page_token="x")
    found = merged({"a": of_a, "b": of_b, "c": None}, 3)
    assert [each.event_time.ToMilliseconds() for each in found.events] == [5, 4, 3]
    assert found.next_page_token == "3,1,b"
    assert found.silent_worker_ids == ["c"]


def test_the_last_page_has_no_token() -> None:
    of_a = pb.ListAuditEventsResponse(events=[event(1, "a")])
    assert merged({"a": of_a}, 3).next_page_token == ""
    assert merged({"a": pb.ListAuditEventsResponse()}, 3).next_page_token == ""
