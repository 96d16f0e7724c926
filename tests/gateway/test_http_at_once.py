"""Requests that the HTTP server answers without a task, beside others on the same connection."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from drover_gateway.app import GatewayApplication
from drover_gateway.bounds import HttpBounds
from drover_gateway.server import Answer, HttpServer, Receive, Scope, Send
from tests.support.fake_engine import SOURCE
from tests.support.gateways import running_gateway
from tests.support.raw_http import RawResponse, connected
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import WorkerCluster

NOW = b"GET /now HTTP/1.1\r\nHost: localhost\r\n\r\n"
SLOW = b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n"
LATER = b"GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE = b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"
#: More than sockets keep.
LARGE_BYTES = 50_000_000
SHORT_S = 0.2

Serve = Callable[..., Awaitable[str]]


class Application:
    """Responds with the path; ``/slow`` waits for ``go``, ``/now`` is answered at once."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.paths: list[str] = []
        self.is_large_sent = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.paths.append(scope["path"])
        message = await receive()
        if scope["path"] == "/slow":
            await self.go.wait()
        body = scope["path"].encode() + message["body"]
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def at_once(self, scope: Scope) -> Answer | None:
        if scope["method"] != "GET" or scope["raw_path"] not in (b"/now", b"/large"):
            return None
        self.is_large_sent = scope["raw_path"] == b"/large"
        body = b"x" * LARGE_BYTES if self.is_large_sent else b"at once"
        return [(b"content-length", b"%d" % len(body))], body


@pytest.fixture
def application() -> Application:
    return Application()


@pytest.fixture
async def serve(application: Application) -> AsyncIterator[Serve]:
    async with AsyncExitStack() as stack:

        async def start(**bounds: float) -> str:
            given = HttpBounds(**bounds)  # type: ignore[arg-type]
            server = HttpServer(application, bounds=given, at_once=application.at_once)
            stack.push_async_callback(server.close, 0.0)
            return await server.listen("127.0.0.1:0")

        yield start


async def test_both_kinds_of_requests_follow_each_other_on_a_connection(
    serve: Serve, application: Application
) -> None:
    async with connected(await serve()) as client:
        for request, body in (
            *((NOW, b"at once"), (NOW, b"at once"), (LATER, b"/later"), (NOW, b"at once")),
            (b"PUT /now HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", b"/nowabc"),
            (NOW, b"at once"),
        ):
            await client.send(request)
            response = await client.response()
            assert (response.status, response.body) == (200, body)
            assert response.headers["date"].endswith(" GMT")
    assert application.paths == ["/later", "/now"]


async def test_a_head_in_parts_is_answered(serve: Serve) -> None:
    async with connected(await serve()) as client:
        for _ in range(2):
            for at in range(0, len(NOW), 7):
                await client.send(NOW[at : at + 7])
                await asyncio.sleep(0)
            assert (await client.response()).body == b"at once"


async def test_responses_have_the_order_of_the_requests(
    serve: Serve, application: Application
) -> None:
    async with connected(await serve()) as client:
        await client.send(NOW + SLOW + NOW + LATER + NOW)
        assert (await client.response()).body == b"at once"
        await wait_until_async(lambda: application.paths == ["/slow"])
        # it waits for the slow one, also if it arrives later
        await client.send(NOW)
        application.go.set()
        bodies = [(await client.response()).body for _ in range(5)]
    assert bodies[0] == b"/slow"
    assert bodies[2] == b"/later"
    assert {bodies[1], bodies[3], bodies[4]} <= {b"at once", b"/now"}


async def test_requests_in_one_packet_are_answered_in_order(serve: Serve) -> None:
    async with connected(await serve()) as client:
        await client.send(NOW * 50)
        for _ in range(50):
            assert (await client.response()).status == 200


@pytest.mark.parametrize(
    "request_", [NOW.replace(b"1.1", b"1.0"), NOW[:-2] + b"Connection: close\r\n\r\n"]
)
async def test_a_connection_without_a_next_request_is_closed(serve: Serve, request_: bytes) -> None:
    async with connected(await serve()) as client:
        await client.send(request_)
        assert (await client.response()).status == 200
        assert await client.is_closed()


async def test_an_idle_connection_is_closed_and_one_in_use_is_not(
    serve: Serve, application: Application
) -> None:
    address = await serve(keep_alive_s=SHORT_S)
    async with connected(address) as busy:
        await busy.send(NOW)
        assert (await busy.response()).body == b"at once"
        await busy.send(SLOW)
        async with connected(address) as idle:
            for _ in range(3):
                await idle.send(NOW)
                assert (await idle.response()).body == b"at once"
            # the idle one ends, while the other one waits for a response
            assert await idle.is_closed()
        application.go.set()
        assert (await busy.response()).body == b"/slow"
        assert await busy.is_closed()


async def test_while_the_client_does_not_read_requests_wait(
    serve: Serve, application: Application
) -> None:
    async with connected(await serve()) as client:
        await client.send(LARGE)
        await wait_until_async(lambda: application.is_large_sent)
        await client.send(NOW)
        await wait_until_async(lambda: application.paths == ["/now"])
        assert len((await client.response()).body) == LARGE_BYTES
        assert (await client.response()).body == b"/now"


async def test_the_gateway_answers_statuses_from_memory_in_the_same_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that says `Connection: close` is served by the application in any case."""
    served: list[bytes] = []
    serve = GatewayApplication.__call__

    async def recorded(self: GatewayApplication, scope: Scope, *others: object) -> None:
        served.append(scope["raw_path"])
        await serve(self, scope, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(GatewayApplication, "__call__", recorded)
    rule = "set X-Frame-Options: DENY"
    async with WorkerCluster(tmp_path) as cluster:
        (worker,) = await cluster.settled_workers(1)
        async with running_gateway([worker.address], gateway_response_headers=rule) as gateway:
            config = {"connector.class": SOURCE, "topic": "é"}
            body = {"name": "a b", "config": config, "initial_state": "STOPPED"}
            made = await gateway.ask("POST", "/connectors", json=body)
            assert made.status_code == 201

            async def both(path: str, *headers: str) -> tuple[RawResponse, RawResponse]:
                """The response on a connection that stays, and on one that does not."""
                lines = [f"GET {path} HTTP/1.1", "Host: localhost", *headers]
                request = "\r\n".join(lines).encode() + b"\r\n"
                async with connected(gateway.address) as client:
                    await client.send(request + b"\r\n")
                    kept = await client.response()
                    await client.send(request + b"Connection: close\r\n\r\n")
                    return kept, await client.response()

            async def in_memory() -> bool:
                served.clear()
                kept, _ = await both("/connectors/a%20b/status")
                return len(served) == 1 and b"STOPPED" in kept.body

            await wait_until_async(in_memory)
            for path, headers, is_at_once in (
                ("/connectors/a%20b/status", (), True),
                ("/connectors/a%20b", (), True),
                ("/connectors/a%20b/status", ("Accept: */*", "Accept-Encoding: gzip"), True),
                ("/connectors/a%20b/status", ("Origin: https://other.example",), True),
                ("/connectors/a%20b/status?x=y", (), False),
                ("/connectors/none/status", (), False),
                ("/connectors/a%20b/status", ("Accept: text/html",), False),
                ("/connectors/a%20b/status", ("Content-Type: text/plain",), False),
                ("/connectors/a%20b/status", ("Authorization: Basic !",), False),
                ("/connectors/a%20b/config", (), False),
                ("/connectors", (), False),
            ):
                await both(path)  # the first request to a path is served by the application
                served.clear()
                kept, closed = await both(path, *headers)
                assert (kept.status, kept.body) == (closed.status, closed.body), path
                for each in (kept, closed):
                    each.headers.pop("date")
                assert closed.headers == {**kept.headers, "connection": "close"}, path
                assert len(served) == (1 if is_at_once else 2), (path, headers)
            # a page of another host
            async with connected(gateway.address) as client:
                await client.send(b"GET /connectors/a%20b/status HTTP/1.1\r\nHost: x\r\n\r\n")
                assert (await client.response()).status == 421
