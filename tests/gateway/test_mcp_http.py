"""The tools for agents in the gateway: who may call them, over real workers."""

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from drover.security.development_ca import init_certificates
from tests.support.fake_engine import SOURCE
from tests.support.gateways import TOKENS, RunningGateway, grant_tokens, running_gateway
from tests.support.worker_cluster import WorkerCluster

CONFIG = {"connector.class": SOURCE, "tasks.max": "1"}
PUT = {"kind": "put", "name": "a", "config": CONFIG}
ACCEPT = {"accept": "application/json, text/event-stream"}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


@asynccontextmanager
async def agent(gateway: RunningGateway, role: str = "") -> AsyncIterator[Client]:
    """A client of the gateway's tools."""
    headers = {"authorization": f"Bearer {TOKENS[role]}"} if role else {}
    tls = ssl.create_default_context(cafile=gateway.ca or None)
    async with httpx2.AsyncClient(headers=headers, verify=tls) as http:
        transport = streamable_http_client(f"{gateway.url}/mcp", http_client=http)
        async with Client(transport) as client:
            yield client


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The result of a call; that of a failed call has ``reason``."""
    found = await client.call_tool(tool, arguments)
    document: dict[str, Any] = json.loads(found.content[0].text)  # type: ignore[union-attr]
    assert found.is_error == ("code" in document), document
    return document


async def test_each_request_has_the_rights_of_its_caller(tmp_path: Path) -> None:
    certs = tmp_path / "certs"
    init_certificates(certs)
    grant_tokens(certs)
    settings = {"gateway_mcp": "write", "gateway_session_keys": "k" * 32}
    async with WorkerCluster(tmp_path, certificates=certs) as cluster:
        addresses = [each.address for each in await cluster.settled_workers(1)]
        async with (
            running_gateway(addresses, certificates=certs, **settings) as gateway,
            running_gateway(addresses, certificates=certs, **settings) as other,
        ):
            async with agent(gateway) as nobody:
                for tool in ("list_connectors", "cluster_info", "list_topics"):
                    assert (await call(nobody, tool))["code"] == "UNAUTHENTICATED"
                plan = await call(nobody, "plan", action=PUT)
                assert plan["code"] == "UNAUTHENTICATED"
            async with agent(gateway, "viewer") as viewer:
                assert (await call(viewer, "list_connectors"))["connectors"] == []
                refused = await call(viewer, "plan", action=PUT)
                assert refused["reason"] == "MISSING_ROLE"
            async with agent(gateway, "admin") as admin:
                plan_hash = (await call(admin, "plan", action=PUT))["plan_hash"]
            # the other copy has the same keys, and no session
            async with agent(other, "admin") as admin:
                done = await call(admin, "apply", action=PUT, plan_hash=plan_hash)
                assert done["message"] == "created"
                delete = {"kind": "delete", "name": "a"}
                stolen = (await call(admin, "plan", action=delete))["plan_hash"]
            async with agent(gateway, "operator") as operator:
                refused = await call(operator, "apply", action=delete, plan_hash=stolen)
                assert refused["reason"] == "PLAN_CHANGED"
                pause = {"kind": "pause", "name": "a"}
                plan_hash = (await call(operator, "plan", action=pause))["plan_hash"]
                await call(operator, "apply", action=pause, plan_hash=plan_hash)
                shown = await call(operator, "get_connector", name="a")
                assert shown["target_state"] == "PAUSED"


@pytest.mark.parametrize(("mode", "has_apply"), [("read", False), ("write", True)])
async def test_the_gateway_serves_the_tools_that_its_setting_allows(
    mode: str, *, has_apply: bool, tmp_path: Path
) -> None:
    async with WorkerCluster(tmp_path) as cluster:
        addresses = [each.address for each in await cluster.settled_workers(1)]
        async with running_gateway(addresses, gateway_mcp=mode) as gateway:
            async with agent(gateway) as client:
                names = {each.name for each in (await client.list_tools()).tools}
                assert ("apply" in names) == has_apply
                assert client.server_capabilities.prompts is None
                assert client.server_capabilities.resources is None
                info = await call(client, "cluster_info")
                assert [each["worker_id"] for each in info["workers"]] == addresses
            assert (await gateway.ask("GET", "/connectors")).json() == []
            for header in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
                answer = await gateway.ask("POST", "/mcp", json=PING, headers=ACCEPT | header)
                assert answer.status_code in (403, 421)
            large = await gateway.ask("POST", "/mcp", data=b"x" * 2_000_000, headers=ACCEPT)
            assert large.status_code in (400, 413, 415)


async def test_a_client_can_open_no_stream_and_no_session(tmp_path: Path) -> None:
    """A stream would take a place of the requests in progress until the client ends it."""
    async with WorkerCluster(tmp_path) as cluster:
        addresses = [each.address for each in await cluster.settled_workers(1)]
        async with running_gateway(addresses, gateway_mcp="write") as gateway:
            session = {"mcp-session-id": "0" * 32}
            for method in ("GET", "DELETE", "PUT", "PATCH", "OPTIONS", "HEAD"):
                for version in ({}, {"mcp-protocol-version": "2026-07-28"}, session):
                    headers = {**ACCEPT, **version}
                    answer = await gateway.ask(method, "/mcp", headers=headers)
                    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
            answer = await gateway.ask("POST", "/mcp", json=PING, headers=ACCEPT | session)
            assert answer.status_code == 200
            assert "mcp-session-id" not in answer.headers


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"[" * 100_000,
        b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": ' + b'{"a":' * 5_000,
        json.dumps([PING, PING]).encode(),
        json.dumps({**PING, "jsonrpc": "1.0"}).encode(),
        json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}}).encode(),
        b'{"jsonrpc": "2.0", "id": 1' + b"0" * 10_000 + b', "method": "ping"}',
        b'{"jsonrpc": "2.0", "id": NaN, "method": "ping"}',
        b'{"jsonrpc": "2.0", "id": "\\ud800", "method": "ping"}',
        b'\xef\xbb\xbf{"jsonrpc": "2.0", "id": 1, "method": "ping"}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen"}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "resources/list"}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "no/such"}',
    ],
    ids=lambda each: each[:40].decode("latin-1"),
)
async def test_a_malformed_message_is_an_error_and_no_500(tmp_path: Path, body: bytes) -> None:
    async with (
        running_gateway(["127.0.0.1:1"], gateway_mcp="read") as gateway,
    ):
        for version in ({}, {"mcp-protocol-version": "2026-07-28"}):
            headers = {**ACCEPT, "content-type": "application/json", **version}
            answer = await gateway.ask("POST", "/mcp", data=body, headers=headers)
            assert answer.status_code in (200, 202, 400, 404, 406), answer.text[:500]
            assert "Traceback" not in answer.text
            if answer.status_code == 200:
                assert "error" in answer.json(), answer.text[:500]


async def test_the_tools_are_off_by_default(tmp_path: Path) -> None:
    async with WorkerCluster(tmp_path) as cluster:
        addresses = [each.address for each in await cluster.settled_workers(1)]
        async with running_gateway(addresses) as gateway:
            answer = await gateway.ask("POST", "/mcp", json=PING, headers=ACCEPT)
            assert answer.status_code == 404
