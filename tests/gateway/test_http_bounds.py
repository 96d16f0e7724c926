"""The HTTP server against clients that send too much, too slowly, or nothing."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from drover.security.development_ca import GATEWAY, files_of, init_certificates
from drover_gateway.bounds import HttpBounds
from drover_gateway.server import HttpServer, Receive, Scope, Send
from drover_gateway.settings import GatewaySettings
from tests.support.raw_http import ask, connected
from tests.support.waiting import pause, wait_until_async

GET = b"GET /connectors HTTP/1.1\r\nHost: localhost\r\n\r\n"
#: Limits of time that a test waits for, and others that no test reaches.
SHORT_S, LONG_S = 0.2, 60.0


class Application:
    """Reads the body, and responds with its size.

    ``/slow`` waits for ``go``, ``/later`` waits for it between the head and the body.
    """

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.seen: list[Scope] = []
        self.disconnected = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.seen.append(scope)
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.disconnected += 1
                return
            size += len(message["body"])
            if size > 1_000_000 or not message["more_body"]:
                break
        if scope["path"] == "/slow":
            await self.go.wait()
        body = b"x" * 50_000_000 if scope["path"] == "/large" else b"%d" % size
        headers = [(b"content-length", b"%d" % len(body))]
        if size > 1_000_000:
            headers.append((b"connection", b"close"))
        status = 413 if size > 1_000_000 else 200
        await send({"type": "http.response.start", "status": status, "headers": headers})
        if scope["path"] == "/later":
            await self.go.wait()
        await send({"type": "http.response.body", "body": body})


Serve = Callable[..., Awaitable[str]]


@pytest.fixture
def application() -> Application:
    return Application()


@pytest.fixture
async def servers() -> list[HttpServer]:
    return []


@pytest.fixture
async def serve(application: Application, servers: list[HttpServer]) -> AsyncIterator[Serve]:
    async with AsyncExitStack() as stack:

        async def start(**bounds: float) -> str:
            given = {"head_max_s": LONG_S, "body_max_s": LONG_S, **bounds}
            server = HttpServer(application, bounds=HttpBounds(**given))  # type: ignore[arg-type]
            servers.append(server)
            stack.push_async_callback(server.close, 0.0)
            return await server.listen("127.0.0.1:0")

        yield start


def refused(server: HttpServer) -> dict[str, float]:
    """What the server refused, by reason."""
    samples = [each for each in server.samples() if each.metric.name == "drover_http_refused_total"]
    return {each.labels[0]: float(each.value) for each in samples}  # type: ignore[arg-type]


async def test_requests_on_one_connection_are_served(serve: Serve) -> None:
    address = await serve()
    async with connected(address) as client:
        for _ in range(3):
            await client.send(GET)
            assert (await client.response()).status == 200
        # two at once
        await client.send(GET + b"PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc")
        assert (await client.response()).body == b"0"
        assert (await client.response()).body == b"3"


async def test_a_head_arrives_before_a_body_that_is_written_later(
    serve: Serve, application: Application
) -> None:
    async with connected(await serve()) as client:
        await client.send(b"GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = await client.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        application.go.set()
        assert await client.reader.readexactly(1) == b"0"


async def test_a_response_without_a_body_is_followed_by_the_next_one(serve: Serve) -> None:
    async with connected(await serve()) as client:
        for _ in range(2):
            await client.send(GET.replace(b"GET", b"HEAD"))
            head = await client.reader.readuntil(b"\r\n\r\n")
            assert b"content-length: 1\r\n" in head
        await client.send(GET)
        assert (await client.response()).body == b"0"


async def test_a_client_that_waits_for_100_continue_gets_it(serve: Serve) -> None:
    async with connected(await serve()) as client:
        for _ in range(2):
            head = b"PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n"
            await client.send(head + b"\r\n")
            interim = await client.reader.readuntil(b"\r\n\r\n")
            assert interim == b"HTTP/1.1 100 Continue\r\n\r\n"
            await client.send(b"abc")
            assert (await client.response()).body == b"3"


async def test_the_head_of_a_further_request_has_a_limit_of_time_too(
    serve: Serve, servers: list[HttpServer]
) -> None:
    address = await serve(head_max_s=5 * SHORT_S)
    async with connected(address) as client:
        await client.send(GET)
        assert (await client.response()).status == 200
        await client.send(GET[:20])
        assert (await client.response()).status == 408
        assert await client.is_closed()
    assert refused(servers[0]) == {"head_time": 1}


@pytest.mark.parametrize("sent", [b"", b"GET /connec", b"GET / HTTP/1.1\r\nHost: localhost\r\nX"])
async def test_a_connection_without_a_whole_head_is_closed(
    serve: Serve, servers: list[HttpServer], sent: bytes
) -> None:
    address = await serve(head_max_s=SHORT_S)
    async with connected(address) as client:
        await client.send(sent)
        if sent:
            assert (await client.response()).status == 408
        assert await client.is_closed()
    assert refused(servers[0]) == {"head_time": 1}


async def test_a_head_that_drips_is_not_served(serve: Serve, application: Application) -> None:
    address = await serve(head_max_s=SHORT_S)
    async with connected(address) as client:
        response = asyncio.create_task(client.response())
        await client.send(b"GET / HTTP/1.1\r\n")
        while not response.done():
            await client.send(b"X-A: b\r\n")
            await pause(SHORT_S / 5)
        assert response.result().status == 408
    assert not application.seen


async def test_a_body_that_does_not_arrive_ends_the_request(
    serve: Serve, application: Application, servers: list[HttpServer]
) -> None:
    address = await serve(body_max_s=SHORT_S)
    async with connected(address) as client:
        await client.send(b"PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc")
        assert (await client.response()).status == 408
        assert await client.is_closed()
    await wait_until_async(lambda: application.disconnected == 1)
    assert refused(servers[0]) == {"body_time": 1}


async def test_a_slow_response_is_not_a_slow_request(
    serve: Serve, application: Application
) -> None:
    address = await serve(head_max_s=SHORT_S, body_max_s=SHORT_S)
    async with connected(address) as client:
        await client.send(GET.replace(b"/connectors", b"/slow"))
        await wait_until_async(lambda: bool(application.seen))
        await pause(3 * SHORT_S)
        application.go.set()
        assert (await client.response()).status == 200


@pytest.mark.parametrize(
    "head",
    [
        b"X-Long: " + b"a" * 20_000 + b"\r\n",
        b"".join(b"X-%d: y\r\n" % number for number in range(101)),
        b"".join(b"X-%d: y\r\n" % number for number in range(50_000)),
    ],
)
async def test_a_head_that_is_too_large_is_431(
    serve: Serve, application: Application, head: bytes
) -> None:
    address = await serve()
    for first in (b"GET / HTTP/1.1\r\nHost: h\r\n", b"PUT / HTTP/1.1\r\nContent-Length: 5\r\n"):
        response = await ask(address, first + head + b"\r\nhello")
        assert response.status == 431
    assert (await ask(address, b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n")).status == 431
    assert not application.seen


async def test_a_body_beside_a_small_head_does_not_count_as_head(serve: Serve) -> None:
    address = await serve()
    body = b"z" * 100_000
    head = b"PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n" % len(body)
    async with connected(address) as client:
        for parts in ([head + b"\r\n" + body], [head, b"\r\n" + body], [head + b"\r\n", body]):
            for part in parts:
                await client.send(part)
                await pause(0.01)
            assert (await client.response()).body == b"%d" % len(body)


async def test_who_sends_100_megabytes_reads_why_it_was_refused(serve: Serve) -> None:
    address = await serve()
    async with connected(address) as client:
        await client.send(b"PUT /x HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000\r\n\r\n")
        sending = asyncio.create_task(client.send(b"z" * 100_000_000))
        assert (await client.response()).status == 413
        sending.cancel()


async def test_a_client_that_reads_no_response_is_disconnected(
    serve: Serve, servers: list[HttpServer]
) -> None:
    address = await serve(write_max_s=SHORT_S)
    async with connected(address) as client:
        await client.send(GET.replace(b"/connectors", b"/large"))
        await wait_until_async(lambda: refused(servers[0]) == {"write_time": 1})


async def test_bytes_that_are_no_request_are_400(serve: Serve, application: Application) -> None:
    address = await serve()
    for sent in (b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"):
        assert (await ask(address, sent)).status == 400
    assert not application.seen


async def test_one_address_gets_a_part_of_the_connections(
    serve: Serve, servers: list[HttpServer]
) -> None:
    address = await serve(per_host=2)
    async with connected(address) as first, connected(address) as second:
        for client in (first, second):
            await client.send(GET)
            assert (await client.response()).status == 200
        async with connected(address) as third:
            response = await third.response()
            assert response.status == 503
            assert response.headers["retry-after"] == "1"
        assert refused(servers[0]) == {"connections": 1}
        # the others are served as before
        await first.send(GET)
        assert (await first.response()).status == 200
        first.writer.close()
        await wait_until_async(lambda: servers[0].samples()[0].value == 1)
    assert (await ask(address, GET)).status == 200


async def test_a_java_client_that_offers_http_2_is_served(serve: Serve) -> None:
    """Java's HttpClient offers it in each first request, with and without a body."""
    address = await serve()
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n"
    async with connected(address) as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: h\r\n" + offer + b"\r\n")
        assert (await client.response()).status == 200
        body = b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n" + offer + b"\r\nhello"
        await client.send(body)
        assert (await client.response()).body == b"5"
        await client.send(GET)
        assert (await client.response()).status == 200
        await client.send(body + body.replace(b"PUT", b"POST") + GET)
        assert [(await client.response()).body for _ in range(3)] == [b"5", b"5", b"0"]
        chunked = body.replace(b"Content-Length: 5", b"Transfer-Encoding: chunked")
        await client.send(chunked.replace(b"hello", b"3\r\nabc\r\n0\r\n\r\n"))
        assert (await client.response()).body == b"3"
    assert (await ask(address, b"CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n")).status == 400


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Content-Length: 5\r\nContent-Length: 5\r\n",
        b"Content-Length: 5, 6\r\n",
        b"Content-Length: +5\r\n",
        b"Content-Length: 5 5\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 99999999999999999999999\r\n",
        b"Content-Length : 5\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Transfer-Encoding: identity\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        b"X: a\r\n Content-Length: 5\r\n",
        b"X: a\0b\r\n",
        b"X: a\rContent-Length: 5\r\n",
        b"X y: a\r\n",
        b": a\r\n",
    ],
)
async def test_a_head_that_servers_read_in_different_ways_is_400(
    serve: Serve, application: Application, head: bytes
) -> None:
    """Otherwise a proxy could take a part of a body for a request, or the other way round."""
    address = await serve()
    async with connected(address) as client:
        await client.send(b"POST /first HTTP/1.1\r\nHost: h\r\n" + head + b"\r\nhello" + GET)
        assert (await client.response()).status == 400
        assert await client.is_closed()
    assert not [each for each in application.seen if each["path"] == "/connectors"]


@pytest.mark.parametrize("size", [b"5;x\n", b"-5", b"0x5", b"g", b"fffffffffffffffff", b" 5", b""])
async def test_a_chunk_whose_size_is_unclear_is_400(
    serve: Serve, application: Application, size: bytes
) -> None:
    address = await serve()
    head = b"POST /first HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with connected(address) as client:
        await client.send(head + size + b"\r\nhello\r\n0\r\n\r\n" + GET)
        assert (await client.response()).status == 400
        assert await client.is_closed()
    assert not [each for each in application.seen if each["path"] == "/connectors"]


async def test_trailers_are_no_headers(serve: Serve, application: Application) -> None:
    address = await serve()
    head = b"POST /first HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    trailers = b"Authorization: Bearer other\r\nOrigin: https://other.example\r\n\r\n"
    async with connected(address) as client:
        await client.send(head)
        await client.send(b"5\r\nhello\r\n0\r\n" + trailers + GET)
        assert [(await client.response()).body for _ in range(2)] == [b"5", b"0"]
    assert [name for name, _ in application.seen[0]["headers"]] == [b"host", b"transfer-encoding"]


@pytest.mark.parametrize("sent", [b"0\r\nX: ", b"0\r\n", b"5;"])
async def test_trailers_without_end_are_431(
    serve: Serve, servers: list[HttpServer], sent: bytes
) -> None:
    """Also one trailer alone, and the extension of a chunk."""
    address = await serve()
    head = b"POST /first HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    more = b"X: y\r\n" * 200_000 if sent == b"0\r\n" else b"a" * 1_000_000
    async with connected(address) as client:
        await client.send(head + sent)
        sending = asyncio.create_task(client.send(more))
        assert (await client.response()).status == 431
        assert await client.is_closed()
        await sending
    assert refused(servers[0]) == {"head_size": 1}


async def test_small_chunks_are_no_trailers(serve: Serve) -> None:
    address = await serve()
    async with connected(address) as client:
        await client.send(b"PUT /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
        await client.send(b"1\r\nx\r\n" * 50_000 + b"0\r\n\r\n")
        assert (await client.response()).body == b"50000"


async def test_a_client_may_not_send_thousands_of_requests_before_it_reads(
    serve: Serve, servers: list[HttpServer], application: Application
) -> None:
    """Each would be kept until the ones before it have their responses."""
    address = await serve()
    slow = GET.replace(b"/connectors", b"/slow")
    async with connected(address) as client:
        await client.send(slow)
        await wait_until_async(lambda: bool(application.seen))
        await client.send(GET * 5_000)
        assert await client.is_closed()
    assert refused(servers[0]) == {"pipelined": 1}
    async with connected(address) as client:
        await client.send(GET * 50)
        for _ in range(50):
            assert (await client.response()).status == 200


async def test_a_url_in_the_request_line_has_the_host_of_its_header(
    serve: Serve, application: Application
) -> None:
    """Checks of the Host header would otherwise apply to another host than the requested one."""
    address = await serve()
    for target in (b"http://h/connectors", b"HTTP://H/connectors?a=b", b"http://h/a%2Fb"):
        response = await ask(address, b"GET " + target + b" HTTP/1.1\r\nHost: h\r\n\r\n")
        assert response.status == 200
    seen = [each["raw_path"] for each in application.seen]
    assert seen == [b"/connectors", b"/connectors", b"/a%2Fb"]
    for target in (
        *(b"http://other.example/connectors", b"http://h@other.example/connectors"),
        *(b"http://h:1/connectors", b"http://h", b"http:/connectors", b"connectors", b"*"),
        b"other.example:443",
    ):
        response = await ask(address, b"GET " + target + b" HTTP/1.1\r\nHost: h\r\n\r\n")
        assert response.status == 400, target
    assert len(application.seen) == 3


async def test_other_versions_and_protocols(serve: Serve) -> None:
    address = await serve()
    async with connected(address) as client:
        await client.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        response = await client.response()
        assert (response.status, response.headers["connection"]) == (200, "close")
        assert await client.is_closed()
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\n\r\n"
    response = await ask(address, b"GET / HTTP/1.1\r\nHost: h\r\n" + upgrade)
    assert (response.status, "upgrade" in response.headers) == (200, False)
    for sent in (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /\r\n\r\n", b"GET / HTTP/2.0\r\n\r\n"):
        assert (await ask(address, sent)).status == 400
    async with connected(address) as client:
        expect = b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
        await client.send(expect)
        assert (await client.response()).status == 100
        await client.send(b"ab")
        assert (await client.response()).body == b"2"


async def test_a_stop_lets_requests_finish(
    serve: Serve, servers: list[HttpServer], application: Application
) -> None:
    address = await serve()
    async with connected(address) as busy, connected(address) as idle:
        await idle.send(GET)
        assert (await idle.response()).status == 200
        await busy.send(GET.replace(b"/connectors", b"/slow"))
        await wait_until_async(lambda: len(application.seen) == 2)
        closing = asyncio.create_task(servers[0].close(30.0))
        assert await idle.is_closed()
        with pytest.raises(OSError):
            async with connected(address):
                pass
        application.go.set()
        response = await busy.response()
        assert response.status == 200
        assert response.headers["connection"] == "close"
        await closing


async def test_a_date_is_in_each_response(serve: Serve) -> None:
    response = await ask(await serve(), GET)
    assert response.headers["date"].endswith(" GMT")
    assert "server" not in response.headers


async def test_a_client_that_begins_no_tls_handshake_is_disconnected(
    tmp_path: Path, application: Application
) -> None:
    init_certificates(tmp_path)
    files = files_of(tmp_path, GATEWAY)
    settings = GatewaySettings(tls_ca=files.ca, tls_cert=files.cert, tls_key=files.key)
    bounds = HttpBounds(head_max_s=SHORT_S)
    server = HttpServer(
        application, certificate=settings.https_certificate(), files=files, bounds=bounds
    )
    async with connected(await server.listen("127.0.0.1:0")) as client:
        assert await client.is_closed()
    await server.close(0.0)
