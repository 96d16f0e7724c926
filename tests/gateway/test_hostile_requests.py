"""Requests of an attacker to the whole gateway, over workers with engines that run no plugin."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from drover.security import renewed
from drover.security.development_ca import init_certificates
from drover_gateway.rest.table import RESOURCES
from tests.support.fake_engine import SOURCE
from tests.support.gateways import RunningGateway, grant_tokens, running_gateway
from tests.support.raw_http import ask, connected
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import WorkerCluster

CONFIG = {"connector.class": SOURCE, "tasks.max": "1"}
JSON = {"Content-Type": "application/json"}
#: Every answer to a request that a caller got wrong, or that is unusual but correct.
ANSWERS = {200, 201, 202, 204, 400, 404, 405, 406, 409, 413, 415}
DEPTH = 100_000


def nested(depth: int, inside: str = "1") -> str:
    return '{"a":' * depth + inside + "}" * depth


def offsets(partition: str, offset: str) -> bytes:
    return f'{{"offsets":[{{"partition":{partition},"offset":{offset}}}]}}'.encode()


BODIES: Mapping[str, bytes] = {
    "deep list": b"[" * DEPTH,
    "deep object": nested(DEPTH).encode(),
    "deep setting": b'{"topic":' + nested(500).encode() + b"}",
    "many settings": json.dumps({f"s{number}": "1" for number in range(50_000)}).encode(),
    "long number": b'{"topic":1' + b"0" * 100_000 + b"}",
    "large exponent": b'{"topic":1e999999999,"name":-0.0e-999999999}',
    "repeated keys": b'{"topic":"a","topic":"b","connector.class":"x","connector.class":"y"}',
    "lone surrogate": b'{"topic":"\\ud800","\\udfff":"a"}',
    "bytes of a surrogate": b'{"topic":"\xed\xa0\x80"}',
    "overlong UTF-8": b'{"topic":"\xc0\xaf"}',
    "byte order mark": b'\xef\xbb\xbf{"topic":"a"}',
    "UTF-16": json.dumps({"topic": "a"}).encode("utf-16"),
    "NaN": b'{"topic":NaN,"a":Infinity,"b":-Infinity}',
    "null characters": b'{"topic":"a\\u0000b","\\u0000":"c"}',
    "raw control character": b'{"topic":"a\nb"}',
    "comment": b'{/* a */"topic":"b"}',
    "prototype": b'{"__proto__":{"a":1},"constructor":"x"}',
    "text behind": b'{"topic":"a"}{"topic":"b"}',
    "long name": json.dumps({"name": "n" * 100_000, "config": CONFIG}).encode(),
    "name with a line break": json.dumps({"name": "a\r\nX: y", "config": CONFIG}).encode(),
    "name with a path": json.dumps({"name": "../../etc", "config": CONFIG}).encode(),
    "deep offset": offsets('{"p":1}', nested(900)),
    "deeper offset": offsets(nested(DEPTH), "null"),
    "long offset": offsets('{"p":1}', '{"o":' + "9" * 20_000 + "}"),
    "offset with a null character": offsets('{"p":"\\u0000"}', '{"o":"\\ud800"}'),
    "large exponent of an offset": offsets('{"p":1e400}', '{"o":1e999999999}'),
    "many offsets": json.dumps(
        {"offsets": [{"partition": {"p": at}, "offset": {"o": at}} for at in range(20_000)]}
    ).encode(),
    "deep level": b'{"level":' + nested(500).encode() + b"}",
}


async def test_no_body_makes_a_500(tmp_path: Path) -> None:
    async with WorkerCluster(tmp_path) as cluster:
        addresses = [each.address for each in await cluster.settled_workers(1)]
        async with running_gateway(addresses) as gateway:
            made = {"name": "connector", "config": CONFIG, "initial_state": "STOPPED"}
            assert (await gateway.ask("POST", "/connectors", json=made)).status_code == 201
            for resource in RESOURCES:
                path = resource.path.replace("{task}", "0").replace("{", "").replace("}", "")
                for operation in resource.operations:
                    if not operation.body:
                        continue
                    for name, body in BODIES.items():
                        found = await gateway.ask(operation.method, path, data=body, headers=JSON)
                        told = f"{operation.method} {path} {name}: {found.text[:300]}"
                        assert found.status_code in ANSWERS, told
                        assert "Traceback" not in found.text, told
                        assert found.status_code < 400 or len(found.content) < 100_000, told


async def test_headers_that_change_the_meaning_of_a_request_have_no_effect(tmp_path: Path) -> None:
    async with WorkerCluster(tmp_path) as cluster:
        addresses = [each.address for each in await cluster.settled_workers(1)]
        async with running_gateway(addresses) as gateway:
            await gateway.ask("PUT", "/connectors/a/config", json=CONFIG)
            for headers in (
                {"X-HTTP-Method-Override": "DELETE"},
                {"X-HTTP-Method": "DELETE", "X-Method-Override": "DELETE"},
                {"X-Original-URL": "/connectors/a/stop", "X-Rewrite-URL": "/admin/loggers"},
                {"X-Forwarded-Host": "other.example", "Forwarded": "host=other.example"},
                {"X-Forwarded-Prefix": "/connectors/a", "X-Forwarded-Proto": "https"},
                {"Cookie": "drover-session=abc; Authorization=Bearer x"},
                {"Content-Encoding": "gzip", "TE": "trailers"},
                {"Range": "bytes=0-1", "If-None-Match": "*", "If-Match": "x"},
            ):
                found = await gateway.ask("GET", "/connectors/a", headers=headers)
                assert (found.status_code, found.json()["name"]) == (200, "a"), headers
                made = await gateway.ask(
                    "PUT", "/connectors/b/config", json=CONFIG, headers=headers
                )
                assert made.headers["location"] == f"{gateway.url}/connectors/b"
                await gateway.ask("DELETE", "/connectors/b")
            posted = {"_method": "DELETE"}
            for method in ("POST", "GET"):
                await gateway.ask(method, "/connectors/a?_method=DELETE", data=posted)
            assert (await gateway.ask("GET", "/connectors")).json() == ["a"]


async def test_the_host_is_checked_whatever_the_request_looks_like(tmp_path: Path) -> None:
    async with running_gateway(["127.0.0.1:1"], gateway_hosts="connect.example") as gateway:
        ask_for = b"GET %b HTTP/1.1\r\n%b\r\n"
        for target, headers, status in (
            (b"/openapi.json", b"Host: connect.example\r\n", 200),
            (b"/openapi.json", b"Host: CONNECT.example:80\r\n", 200),
            (b"http://connect.example/openapi.json", b"Host: connect.example\r\n", 200),
            # the address of the connection, for health checks
            (b"/openapi.json", b"Host: 127.0.0.1:8083\r\n", 200),
            (b"/openapi.json", b"Host: localhost\r\n", 421),
            (b"/openapi.json", b"Host: other.example\r\n", 421),
            (b"/openapi.json", b"", 400),
            (b"/openapi.json", b"Host: connect.example\r\nHost: other.example\r\n", 400),
            (b"/openapi.json", b"Host: connect.example, other.example\r\n", 400),
            (b"http://other.example/openapi.json", b"Host: connect.example\r\n", 400),
            (b"//other.example/openapi.json", b"Host: connect.example\r\n", 400),
        ):
            found = await ask(gateway.address, ask_for % (target, headers))
            assert found.status == status, (target, headers, found.body)
        # without a Host header, as health checks of load balancers
        old = await ask(gateway.address, b"GET /openapi.json HTTP/1.0\r\n\r\n")
        assert old.status == 200
        foreign = b"GET /openapi.json HTTP/1.0\r\nHost: other.example\r\n\r\n"
        assert (await ask(gateway.address, foreign)).status == 421


@pytest.mark.parametrize(
    "path",
    [
        b"/connectors/..%2f..%2fadmin",
        b"/connectors/%2e%2e/admin/loggers",
        b"/connectors/../admin/loggers",
        b"/connectors/a%00b",
        b"/connectors/%ff",
        b"/connectors/%",
        b"/connectors/%zz",
        b"/connectors//status",
        b"/connectors/;a=b/status",
        b"/connectors/a;x=y/status",
        b"/%63onnectors",
        b"/connectors/" + b"a" * 10_000,
        b"/connectors/%F0%9F%98%80",
        b"/connectors/a?expand=status&expand=%00%ff",
        b"/connectors?" + b"expand=status&" * 500,
        b"/connectors/a/tasks/99999999999999999999/status",
        b"/connectors/a/tasks/%31/status",
        b"/connectors/a/tasks/-0/status",
        b"/connectors#/a",
        b"/connectors\\a",
        b"/connectors/<script>",
    ],
)
async def test_an_unusual_path_is_answered(tmp_path: Path, path: bytes) -> None:
    async with WorkerCluster(tmp_path) as cluster:
        addresses = [each.address for each in await cluster.settled_workers(1)]
        async with running_gateway(addresses) as gateway:
            for method in (b"GET", b"OPTIONS", b"DELETE"):
                head = b"%b %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % (method, path)
                found = await ask(gateway.address, head)
                assert found.status in ANSWERS, found.body
                assert found.headers.get("content-type") in ("application/json", "text/plain", None)


async def test_a_token_that_is_revoked_while_a_request_waits_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewed, "CHECK_EVERY_S", 0.0)
    certs = tmp_path / "certs"
    init_certificates(certs)
    grant_tokens(certs)
    async with WorkerCluster(tmp_path, certificates=certs) as cluster:
        (worker,) = await cluster.settled_workers(1)
        async with running_gateway([worker.address], certificates=certs) as gateway:
            worker.engine.die()
            waiting = [
                asyncio.create_task(
                    gateway.ask("PUT", f"/connectors/{name}/config", role="admin", json=CONFIG)
                )
                for name in ("a", "b")
            ]
            await wait_until_async(lambda: in_progress(gateway) == 2)
            grant_tokens(certs, roles=False)
            worker.engine.come_back()
            for each in await asyncio.gather(*waiting):
                # a call may have started before the token was revoked
                assert each.status_code in (201, 401)
            refused = await gateway.ask("GET", "/connectors/a", role="admin")
            assert (refused.status_code, refused.text) == (
                401,
                "User cannot access the resource.",
            )


def in_progress(gateway: RunningGateway) -> int:
    """The requests in progress of a gateway in this process."""
    return sum("run_asgi" in str(each.get_coro()) for each in asyncio.all_tasks())


async def test_a_slow_caller_and_a_silent_one_leave_no_request_behind(tmp_path: Path) -> None:
    """A client that closes the connection while its request waits ends the request."""
    async with running_gateway(["127.0.0.1:1"]) as gateway:
        head = b"PUT /connectors/a/config HTTP/1.1\r\nHost: localhost\r\n"
        head += b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        async with connected(gateway.address) as client:
            await client.send(head)
            await wait_until_async(lambda: in_progress(gateway) == 1)
        await wait_until_async(lambda: in_progress(gateway) == 0)
