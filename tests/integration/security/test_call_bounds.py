"""Bounds on calls: a caller without a grant cannot take the places of the others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from drover.api.status_store.v1 import status_store_service_pb2 as pb
from drover.api.status_store.v1 import status_store_service_pb2_grpc as pb_grpc
from drover.client.calls import channel
from drover.rpc.bounds import Bounds, Limit
from drover.rpc.status import from_rpc_error
from drover.security.certificates import TlsFiles
from drover.security.development_ca import Authority
from tests.integration.security.test_tls_server import NAME, flush, serving
from tests.support.certificates import issue
from tests.support.scripted_store import Running, start, stop
from tests.support.waiting import wait_until_async

CHECK = health_pb2.HealthCheckRequest()
SERVING = health_pb2.HealthCheckResponse.SERVING
FLUSH = f"/{pb.DESCRIPTOR.services_by_name['StatusStoreService'].full_name}/Flush"
#: Large enough for each test's other limits, and small enough to be reached.
FEW = Bounds(unknown_streams=Limit(6, 3), unknown_calls=Limit(4, 2), streams=Limit(8, 8))
Code = grpc.StatusCode


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.make()


def connect(running: Running, files: TlsFiles, *, certificate: bool = True) -> grpc.aio.Channel:
    pems = [Path(path).read_bytes() for path in (files.ca, files.key, files.cert)]
    credentials = grpc.ssl_channel_credentials(*pems if certificate else pems[:1])
    return channel(running.address, credentials)


def reflection_stub(connection: Any) -> Any:
    return reflection_pb2_grpc.ServerReflectionStub(connection)


async def code_of(call: Any) -> grpc.StatusCode:
    code: grpc.StatusCode = await call.code()
    return code


async def watches(connection: grpc.aio.Channel, count: int) -> list[Any]:
    """Open health watches one by one; a refused one has ended."""
    stub: Any = health_pb2_grpc.HealthStub(connection)
    calls = [stub.Watch(CHECK) for _ in range(count)]
    await asyncio.gather(*(call.read() for call in calls), return_exceptions=True)
    return calls


def is_open(call: Any) -> bool:
    return not call.done()


@pytest.mark.parametrize("certificate", [True, False], ids=["no grant", "no certificate"])
async def test_watches_of_an_unknown_caller_leave_the_others_served(
    tmp_path: Path, authority: Authority, certificate: bool
) -> None:
    files = issue(tmp_path / "s", authority, name=NAME)
    stranger = issue(tmp_path / "x", authority, name="stranger", hosts=())
    options: dict[str, Any] = {"internal": False, "bounds": FEW}
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(
            serving(tmp_path, files, client_certificates=certificate, **options)
        )
        unknown = connect(running, stranger, certificate=certificate)
        await stack.enter_async_context(unknown)
        flood = await watches(unknown, 20)
        assert sum(map(is_open, flood)) == FEW.unknown_streams.per_host
        refused = next(call for call in flood if not is_open(call))
        assert await code_of(refused) is Code.RESOURCE_EXHAUSTED
        assert "health watches and reflection streams without credentials from 127.0.0.1" in str(
            await refused.details()
        )
        stub: Any = health_pb2_grpc.HealthStub(unknown)
        assert (await stub.Check(CHECK, timeout=20)).status == SERVING
        if certificate:
            known = await stack.enter_async_context(connect(running, files))
            await flush(known)
            assert all(map(is_open, await watches(known, 8)))
        # an ended watch leaves its place
        next(call for call in flood if is_open(call)).cancel()

        async def has_place() -> bool:
            return is_open((await watches(unknown, 1))[0])

        await wait_until_async(has_place)


async def test_a_certificate_without_a_grant_watches_nothing_at_a_port_of_services(
    tmp_path: Path, authority: Authority
) -> None:
    files = issue(tmp_path / "s", authority, name=NAME)
    stranger = issue(tmp_path / "x", authority, name="stranger", hosts=())
    async with serving(tmp_path, files, bounds=FEW) as running:
        async with connect(running, stranger) as unknown:
            (watch,) = await watches(unknown, 1)
            assert await code_of(watch) is Code.PERMISSION_DENIED
            assert "Watch needs a role at this port, and 'stranger' has none" in str(
                await watch.details()
            )
            reflect = reflection_stub(unknown)
            assert await code_of(reflect.ServerReflectionInfo()) is Code.PERMISSION_DENIED
            stub: Any = health_pb2_grpc.HealthStub(unknown)
            assert (await stub.Check(CHECK, timeout=20)).status == SERVING
        async with connect(running, files) as known:
            assert is_open((await watches(known, 1))[0])


async def test_calls_without_a_request_of_an_unknown_caller_leave_the_others_served(
    tmp_path: Path, authority: Authority
) -> None:
    files = issue(tmp_path / "s", authority, name=NAME)
    stranger = issue(tmp_path / "x", authority, name="stranger", hosts=())
    async with (
        serving(tmp_path, files, bounds=FEW) as running,
        connect(running, stranger) as unknown,
        connect(running, files) as known,
    ):
        calls: list[Any] = [unknown.stream_unary(FLUSH)() for _ in range(10)]
        await wait_until_async(lambda: sum(map(is_open, calls)) == FEW.unknown_calls.per_host)
        refused = next(call for call in calls if not is_open(call))
        assert await code_of(refused) is Code.RESOURCE_EXHAUSTED
        await flush(known)
        assert is_open((await watches(known, 1))[0])


@asynccontextmanager
async def plaintext(**options: Any) -> AsyncIterator[Running]:
    running = await start(**options)
    try:
        yield running
    finally:
        await stop(running)


@pytest.mark.parametrize("method", [FLUSH, "/grpc.health.v1.Health/Check"])
async def test_a_call_whose_request_never_arrives_is_ended(method: str) -> None:
    async with plaintext(bounds=replace(Bounds(), request_max_s=0.05)) as running:
        call: Any = running.channel.stream_unary(method)()
        assert await code_of(call) is Code.DEADLINE_EXCEEDED
        assert "did not arrive within 0.05 s" in str(await call.details())
        await flush(running.channel)


@pytest.mark.parametrize("method", [FLUSH, "/grpc.health.v1.Health/Watch"])
async def test_a_call_that_ends_without_a_request_gets_an_answer(method: str) -> None:
    async with plaintext() as running:
        call: Any = running.channel.stream_stream(method)()
        await call.done_writing()
        assert await code_of(call) is Code.INVALID_ARGUMENT
        assert "has no request message" in str(await call.details())


async def test_a_request_with_a_deadline_ends_by_it() -> None:
    async with plaintext() as running:
        call: Any = running.channel.stream_unary(FLUSH)(timeout=0.05)
        assert await code_of(call) is Code.DEADLINE_EXCEEDED
        await flush(running.channel)


async def test_health_watches_and_reflection_streams_end_at_their_maximum_age() -> None:
    async with plaintext(watch_max_age_s=0.05) as running:
        (watch,) = await watches(running.channel, 1)
        reflect = reflection_stub(running.channel)
        for call in (watch, reflect.ServerReflectionInfo()):
            assert await code_of(call) is Code.UNAVAILABLE
            assert "open the stream again" in str(await call.details())


async def test_reflection_streams_hold_no_threads() -> None:
    async with plaintext() as running:
        stub = reflection_stub(running.channel)
        calls = [stub.ServerReflectionInfo() for _ in range(50)]
        for call in calls:
            await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
            assert (await call.read()).list_services_response.service
        assert await asyncio.to_thread(lambda: "free") == "free"
        for call in calls:
            call.cancel()


async def test_the_watches_of_many_herders_fit_into_one_connection_of_a_service() -> None:
    async with plaintext() as running:
        calls = [running.stub.WatchStatuses(pb.WatchStatusesRequest()) for _ in range(300)]
        await wait_until_async(lambda: running.store.watching == 300)
        await flush(running.channel)
        for call in calls:
            call.cancel()


async def test_calls_above_the_maximum_of_a_connection_wait_in_the_client() -> None:
    async with plaintext(bounds=Bounds(streams_per_connection_max=2)) as running:
        stub = running.stub
        parked = [stub.WatchStatuses(pb.WatchStatusesRequest()) for _ in range(2)]
        await wait_until_async(lambda: running.store.watching == 2)
        waiting = asyncio.ensure_future(stub.Flush(pb.FlushRequest(), timeout=60))
        async with grpc.aio.insecure_channel(
            running.address, options=(("grpc.use_local_subchannel_pool", 1),)
        ) as other:
            await pb_grpc.StatusStoreServiceStub(other).Flush(pb.FlushRequest(), timeout=60)
        assert not waiting.done()
        parked[0].cancel()
        assert await waiting == pb.FlushResponse()


async def test_a_refused_stream_is_retryable_by_its_reason() -> None:
    async with plaintext(bounds=replace(Bounds(), streams=Limit(1, 1))) as running:
        first, second = await watches(running.channel, 2)
        refused = second if is_open(first) else first
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await refused.read()
        assert from_rpc_error(caught.value).reason == "QUEUE_FULL"
