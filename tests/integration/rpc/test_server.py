import asyncio
import json
import logging
from collections import Counter
from typing import Any

import grpc
import grpc.aio
import pytest
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from drover.api.status_store.v1 import status_store_service_pb2 as pb
from drover.client import channel
from drover.errors import (
    DeadlineExceededError,
    DroverError,
    InternalError,
    InvalidArgumentError,
    Reason,
    ResourceExhaustedError,
    UnavailableError,
    Violation,
)
from drover.rpc import WHY_NOT_SERVING_KEY, interceptors
from drover.rpc import server as rpc_server
from drover.rpc.logs import configure_logging, current_request_id
from drover.rpc.server import ListenError, RpcServer
from drover.rpc.status import from_rpc_error
from tests.support import scripted_store
from tests.support.waiting import wait_until_async

SERVICE = "drover.api.status_store.v1.StatusStoreService"
#: By default gRPC cancels some calls above 1,000 pending ones, and all above 3,000.
BURST = 4_000


async def error_of(call: Any) -> DroverError:
    with pytest.raises(grpc.RpcError) as caught:
        await call
    return from_rpc_error(caught.value)


async def collect(stream: Any) -> list[Any]:
    return [message async for message in stream]


async def health(running: Any, service: str) -> int:
    async with grpc.aio.insecure_channel(running.address) as own:
        stub: Any = health_pb2_grpc.HealthStub(own)
        response = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
        return int(response.status)


async def test_an_internal_call_without_deadline_is_refused(internal: Any) -> None:
    error = await error_of(internal.stub.PutStatuses(pb.PutStatusesRequest()))
    assert isinstance(error, InvalidArgumentError)
    assert error.reason is Reason.MISSING_DEADLINE
    assert internal.store.calls == []
    await internal.stub.PutStatuses(pb.PutStatusesRequest(), timeout=10)
    assert internal.store.calls == ["PutStatuses"]


async def test_an_admin_call_without_deadline_gets_one(
    admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []

    async def never(_request: Any, context: Any) -> Any:
        seen.append(interceptors.remaining_s(context))
        await asyncio.Event().wait()

    admin.store.behaviors["PutStatuses"] = never
    monkeypatch.setattr(interceptors, "ADMIN_DEADLINE_S", 2.0)
    error = await error_of(admin.stub.PutStatuses(pb.PutStatusesRequest()))
    assert isinstance(error, DeadlineExceededError)
    assert "PutStatuses" in error.message
    assert 0 < seen[0] <= 1.9 + 1e-6


@pytest.mark.parametrize(("timeout_s", "margin_s"), [(1, 0.1), (10, 0.5), (50, 1.0)])
async def test_the_handler_knows_how_long_it_may_work(
    internal: Any, timeout_s: float, margin_s: float
) -> None:
    seen: list[float] = []

    async def look(_request: Any, context: Any) -> Any:
        seen.append(interceptors.remaining_s(context))
        return pb.PutStatusesResponse()

    internal.store.behaviors["PutStatuses"] = look
    await internal.stub.PutStatuses(pb.PutStatusesRequest(), timeout=timeout_s)
    # gRPC rounds the timeout up to two or three digits, so by a hundredth at most
    assert seen[0] <= timeout_s * 1.011 - margin_s * 0.9 < timeout_s


async def test_200_violations_reach_the_client(internal: Any) -> None:
    violations = [Violation(f'config["{i}"]', "must be " + "long " * 200) for i in range(200)]

    async def refuse(_request: Any, _context: Any) -> Any:
        raise InvalidArgumentError(
            Reason.INVALID_CONFIG, "200 faults: " + "é%\n" * 5000, violations=violations
        )

    internal.store.behaviors["PutStatuses"] = refuse
    error = await error_of(internal.stub.PutStatuses(pb.PutStatusesRequest(), timeout=10))
    assert isinstance(error, InvalidArgumentError)
    *told, last = error.violations
    assert told[0].field == 'config["0"]'
    assert last.description == f"+{200 - len(told)} more"


async def test_a_defect_tells_the_client_nothing_but_the_request_id(
    internal: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fail(_request: Any, _context: Any) -> Any:
        raise KeyError("a secret of the inside")

    configure_logging("test", "INFO", "json")
    internal.store.behaviors["PutStatuses"] = fail
    try:
        metadata = (("x-request-id", "find-me"),)
        call = internal.stub.PutStatuses(pb.PutStatusesRequest(), timeout=10, metadata=metadata)
        error = await error_of(call)
    finally:
        logging.getLogger().handlers.clear()
        structlog.reset_defaults()
    assert isinstance(error, InternalError)
    assert "secret" not in error.message
    assert "find-me" in error.message
    (event,) = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert event["request_id"] == "find-me"
    assert "a secret of the inside" in event["exception"]


async def test_a_stream_that_fails_midway_tells_why(internal: Any) -> None:
    async def chunks(_request: Any, _context: Any) -> Any:
        yield pb.GetSnapshotResponse(end_offset=1)
        raise UnavailableError(Reason.STORAGE_UNAVAILABLE, "disk full")

    internal.store.behaviors["GetSnapshot"] = chunks
    error = await error_of(collect(internal.stub.GetSnapshot(pb.GetSnapshotRequest(), timeout=10)))
    assert error.reason is Reason.STORAGE_UNAVAILABLE


async def test_a_method_that_was_forgotten_is_a_defect(internal: Any) -> None:
    error = await error_of(internal.stub.PutTopicStatuses(pb.PutTopicStatusesRequest(), timeout=10))
    assert isinstance(error, InternalError)


@pytest.mark.parametrize("data", [b"\xff\xff\xff", b"\x0a\x05abc"])
async def test_bytes_that_are_no_request_are_refused_without_an_error_in_the_log(
    internal: Any, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    async with channel(internal.address) as connection:
        call: Any = connection.unary_unary(f"/{SERVICE}/PutStatuses")
        error = await error_of(call(data, timeout=10, wait_for_ready=True))
        stream: Any = connection.unary_stream(f"/{SERVICE}/WatchStatuses")
        with pytest.raises(grpc.RpcError) as caught:
            await collect(stream(data, timeout=10, wait_for_ready=True))
    for each in (error, from_rpc_error(caught.value)):
        assert isinstance(each, InvalidArgumentError)
        assert each.reason is Reason.INVALID_REQUEST
        assert "is not a valid request" in each.message
    assert internal.store.calls == []
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_message_over_4_mib_is_refused_by_the_transport(internal: Any) -> None:
    request = pb.PutTopicStatusesRequest(topics=["x" * (5 << 20)])
    error = await error_of(internal.stub.PutTopicStatuses(request, timeout=10))
    assert isinstance(error, ResourceExhaustedError)
    assert error.reason is Reason.TOO_LARGE


async def test_more_calls_at_once_than_a_server_takes_are_told_to_back_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rpc_server, "CONCURRENT_CALLS_MAX", 1)
    running = await scripted_store.start()
    go_on = asyncio.Event()

    async def wait(_request: Any, _context: Any) -> Any:
        await go_on.wait()
        return pb.FlushResponse()

    running.store.behaviors["Flush"] = wait
    stub: Any = running.stub
    first = asyncio.ensure_future(stub.Flush(pb.FlushRequest(), timeout=10))
    await wait_until_async(lambda: running.store.calls == ["Flush"])
    error = await error_of(stub.Flush(pb.FlushRequest(), timeout=10))
    assert isinstance(error, ResourceExhaustedError)
    assert error.reason is Reason.QUEUE_FULL
    go_on.set()
    await first
    await scripted_store.stop(running)


async def test_a_burst_of_calls_waits_for_the_server_instead_of_being_cancelled(
    internal: Any,
) -> None:
    burst = [internal.stub.Flush(pb.FlushRequest(), timeout=60) for _ in range(BURST)]
    answers = await asyncio.gather(*burst, return_exceptions=True)
    assert Counter(type(each) for each in answers) == {pb.FlushResponse: BURST}


async def test_the_request_id_goes_in_and_comes_back(internal: Any) -> None:
    seen: list[str] = []

    async def look(_request: Any, _context: Any) -> Any:
        seen.append(current_request_id())
        return pb.PutStatusesResponse()

    internal.store.behaviors["PutStatuses"] = look
    for metadata in ((("x-request-id", "abc-1"),), (), (("x-request-id", "two words"),)):
        call = internal.stub.PutStatuses(pb.PutStatusesRequest(), timeout=10, metadata=metadata)
        await call
        trailers = dict(await call.trailing_metadata())
        assert trailers["x-request-id"] == seen[-1]
    assert seen[0] == "abc-1"
    assert len(seen[1]) == 32
    assert len(seen[2]) == 32
    assert current_request_id() == ""


async def test_reflection_lists_the_services(internal: Any) -> None:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(internal.channel)
    requests = [reflection_pb2.ServerReflectionRequest(list_services="")]
    (response,) = await collect(stub.ServerReflectionInfo(iter(requests), timeout=10))
    names = {service.name for service in response.list_services_response.service}
    assert names == {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}


async def test_health_follows_set_serving_and_drain(internal: Any) -> None:
    serving = health_pb2.HealthCheckResponse.SERVING
    not_serving = health_pb2.HealthCheckResponse.NOT_SERVING
    for service in ("", SERVICE):
        assert await health(internal, service) == serving
    await internal.server.set_serving(False)
    for service in ("", SERVICE):
        assert await health(internal, service) == not_serving


async def test_health_is_not_serving_before_it_is_told_so() -> None:
    server = RpcServer(listen="127.0.0.1:0", internal=True)
    address = await server.start()
    async with channel(address) as own:
        stub: Any = health_pb2_grpc.HealthStub(own)
        response = await stub.Check(health_pb2.HealthCheckRequest(), timeout=10)
    assert response.status == health_pb2.HealthCheckResponse.NOT_SERVING
    await server.drain(0)


async def test_a_health_check_hears_why_not_on_one_line_of_ascii(internal: Any) -> None:
    async def told() -> tuple[str, ...]:
        stub: Any = health_pb2_grpc.HealthStub(internal.channel)
        call = stub.Check(health_pb2.HealthCheckRequest(), timeout=10)
        await call
        trailing = await call.trailing_metadata()
        return tuple(value for key, value in trailing if key == WHY_NOT_SERVING_KEY)

    internal.server.explain_health(lambda: "no\n caf\u00e9\x00 " + "x" * 10_000)
    assert await told() == ()
    await internal.server.set_serving(False)
    (why,) = await told()
    assert why.startswith("no caf?? xxx")
    assert len(why) == 500
    internal.server.explain_health(lambda: "")
    assert await told() == ()


async def test_drain_tells_health_watchers_before_the_server_stops(internal: Any) -> None:
    async with grpc.aio.insecure_channel(internal.address) as own:
        stub: Any = health_pb2_grpc.HealthStub(own)
        watch = stub.Watch(health_pb2.HealthCheckRequest())
        first = await watch.read()
        draining = asyncio.create_task(internal.server.drain(600))
        second = await watch.read()
        await draining  # the watch does not delay the drain until the end of the grace period
    assert first.status == health_pb2.HealthCheckResponse.SERVING
    assert second.status == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_drain_ends_watches_at_once_and_lets_calls_finish(internal: Any) -> None:
    finish = asyncio.Event()

    async def slow(_request: Any, _context: Any) -> Any:
        await finish.wait()
        return pb.PutStatusesResponse(end_offset=7)

    internal.store.behaviors["PutStatuses"] = slow
    watches = [
        asyncio.create_task(
            error_of(collect(internal.stub.WatchStatuses(pb.WatchStatusesRequest())))
        )
        for _ in range(20)
    ]
    call = asyncio.ensure_future(internal.stub.PutStatuses(pb.PutStatusesRequest(), timeout=60))
    await wait_until_async(lambda: internal.store.watching == 20)
    await wait_until_async(lambda: "PutStatuses" in internal.store.calls)
    draining = asyncio.create_task(internal.server.drain(60))
    errors = await asyncio.gather(*watches)
    assert {error.reason for error in errors} == {Reason.DRAINING}
    assert internal.store.watch_ends == [True] * 20
    assert not draining.done()
    finish.set()
    assert (await call).end_offset == 7
    await draining
    assert internal.server.draining
    await internal.server.drain(60)


async def test_a_watch_whose_client_goes_away_was_not_ended_by_the_server(internal: Any) -> None:
    call = internal.stub.WatchStatuses(pb.WatchStatusesRequest())
    await call.read()
    call.cancel()
    await wait_until_async(lambda: internal.store.watch_ends == [False])


async def test_a_watch_that_a_client_does_not_read_does_not_outlive_the_grace(
    internal: Any,
) -> None:
    sent = 0

    async def flood(_request: Any, _context: Any) -> Any:
        nonlocal sent
        while True:
            sent += 1
            yield pb.WatchStatusesResponse(
                events=[pb.StatusEvent(updated=pb.StatusEntry(trace="x" * 60_000))]
            )

    internal.store.behaviors["WatchStatuses"] = flood
    call = internal.stub.WatchStatuses(pb.WatchStatusesRequest())
    await call.read()
    # more than the flow-control window of an unread stream
    await wait_until_async(lambda: sent >= 3)
    await internal.server.drain(0.2)
    call.cancel()


async def test_a_watch_ends_cleanly_at_its_maximum_age(young_watches: Any) -> None:
    stream = young_watches.stub.WatchStatuses(pb.WatchStatusesRequest())
    messages = await collect(stream)
    assert [message.created for message in messages] == [True]
    assert young_watches.store.watch_ends == [True]


async def test_a_port_in_use_is_a_clear_error(internal: Any) -> None:
    second = RpcServer(listen=internal.address, internal=True)
    with pytest.raises(ListenError, match=f"{internal.address}: the port is in use"):
        await second.start()
    await second.drain(0)


async def test_an_address_of_another_machine_is_a_clear_error() -> None:
    server = RpcServer(listen="192.0.2.1:7401", internal=True)
    with pytest.raises(ListenError, match=r"cannot listen on 192.0.2.1:7401"):
        await server.start()
    await server.drain(0)


async def test_a_cancelled_call_is_cancelled_at_the_server(internal: Any) -> None:
    cancelled = asyncio.Event()

    async def wait(_request: Any, _context: Any) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    internal.store.behaviors["PutStatuses"] = wait
    call = internal.stub.PutStatuses(pb.PutStatusesRequest(), timeout=60)
    await wait_until_async(lambda: "PutStatuses" in internal.store.calls)
    call.cancel()
    await asyncio.wait_for(cancelled.wait(), 30)


async def test_a_call_whose_work_was_given_up_is_answered(internal: Any) -> None:
    async def give_up(_request: Any, _context: Any) -> Any:
        work: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        work.cancel()
        await work

    internal.store.behaviors["PutStatuses"] = give_up
    error = await error_of(internal.stub.PutStatuses(pb.PutStatusesRequest(), timeout=30))
    assert isinstance(error, UnavailableError)
    assert "was cancelled" in error.message
