"""The tools as a part of the gateway: each request acts with the credential of its caller."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from drover_gateway.identity.credentials import caller_of
from drover_gateway.mcp.app import PATH as PATH
from drover_gateway.mcp.app import McpServer, request_access
from drover_gateway.mcp.plans import PlanSeal
from drover_gateway.mcp.tools import CallerAccess
from drover_gateway.server import Application, Receive, Scope, Send
from drover_gateway.settings import GatewaySettings
from drover_gateway.workers import Workers

_REST_AUTHOR = "rest:"


@asynccontextmanager
async def tools_over_http(
    workers: Workers, settings: GatewaySettings
) -> AsyncIterator[Application]:
    """The ASGI application of the tools."""

    def find(headers: Sequence[tuple[bytes, bytes]], host: str) -> CallerAccess:
        caller = caller_of(headers, host)
        author = f"mcp:{caller.author.removeprefix(_REST_AUTHOR)}"
        # the seal needs no token, only what differs between callers
        identity = hashlib.sha256((caller.token or author).encode()).hexdigest()
        return CallerAccess(workers.client(replace(caller, author=author)), identity)

    server = McpServer(
        request_access(find),
        PlanSeal.from_setting(settings.gateway_session_keys),
        with_writes=settings.gateway_mcp == "write",
    )
    async with server.application() as application:
        yield only_posts(application)


def only_posts(application: Application) -> Application:
    """The application for POST. The protocol's GET opens a stream of events from the server, which
    has none: such a stream would hold a place of a request until the client ends it.
    """

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            await application(scope, receive, send)
            return
        headers = [(b"allow", b"POST"), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 405, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    return serve
