"""The whole gateway over real workers: who is answered, and what happens when workers are not."""

import asyncio
import base64
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import pytest
import requests
from google.protobuf.message_factory import GetMessageClass

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client.secure import connect_by
from drover.metrics.table import CERTIFICATE_END
from drover.security import renewed
from drover.security.certificates import read_certificate, renewed_certificate
from drover.security.development_ca import GATEWAY, SERVICE, files_of, init_certificates
from drover.security.grants import token_sha256
from drover_gateway.identity.credentials import Caller, caller_of
from drover_gateway.workers import Workers, _CallerChannel
from tests.support.addresses import free_address
from tests.support.fake_engine import SOURCE
from tests.support.gateways import (
    TOKENS,
    RunningGateway,
    grant_tokens,
    running_gateway,
    shown_certificate,
)
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import WorkerCluster

CONFIG = {"connector.class": SOURCE, "tasks.max": "1"}


@pytest.fixture
def certs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(renewed, "CHECK_EVERY_S", 0.0)
    init_certificates(tmp_path / "certs")
    grant_tokens(tmp_path / "certs")
    return tmp_path / "certs"


@asynccontextmanager
async def plain(directory: Path, **settings: Any) -> AsyncIterator[RunningGateway]:
    async with WorkerCluster(directory) as cluster:
        await cluster.settled_workers(1)
        addresses = [each.address for each in cluster.workers]
        async with running_gateway(addresses, **settings) as gateway:
            yield gateway


@asynccontextmanager
async def secured(directory: Path, certs: Path, **settings: Any) -> AsyncIterator[RunningGateway]:
    async with WorkerCluster(directory, certificates=certs) as cluster:
        await cluster.settled_workers(1)
        addresses = [each.address for each in cluster.workers]
        async with running_gateway(addresses, certificates=certs, **settings) as gateway:
            yield gateway


@pytest.mark.parametrize("certificate", [GATEWAY, SERVICE])
async def test_no_rpc_is_made_for_a_caller_without_a_token(
    tmp_path: Path, certs: Path, certificate: str
) -> None:
    """Even with a certificate whose role is internal."""
    service = pb.DESCRIPTOR.services_by_name["ConnectService"]
    async with WorkerCluster(tmp_path, certificates=certs) as cluster:
        (worker,) = await cluster.settled_workers(1)
        connect = connect_by(renewed_certificate(files_of(certs, certificate)))
        workers = Workers([worker.address], connect=connect)
        for headers in ([], [(b"authorization", b"Bearer no-such-token")]):
            channel = cast("Any", _CallerChannel(workers, caller_of(headers, "10.0.0.7")))
            for method in service.methods:
                assert await code_of(channel, method) is grpc.StatusCode.UNAUTHENTICATED, (
                    method.name
                )
        known = Caller(TOKENS["viewer"], "")
        channel = cast("Any", _CallerChannel(workers, known))
        assert await code_of(channel, service.methods_by_name["ListConnectors"]) is None
        await workers.close()


async def code_of(channel: Any, method: Any) -> grpc.StatusCode | None:
    """The status code of a call with an empty request; None for success."""
    path = "/" + "/".join(method.full_name.rsplit(".", 1))
    request = GetMessageClass(method.input_type)().SerializeToString()
    try:
        if method.server_streaming:
            async for _ in channel.unary_stream(path)(request, timeout=20, metadata=()):
                break
        elif method.client_streaming:
            await channel.stream_unary(path)(iter([request]), timeout=20, metadata=())
        else:
            await channel.unary_unary(path)(request, timeout=20, metadata=())
    except grpc.aio.AioRpcError as error:
        return error.code()
    return None


async def test_a_token_has_its_role_as_bearer_and_as_a_password(
    tmp_path: Path, certs: Path
) -> None:
    async with secured(tmp_path, certs) as gateway:
        path = "/connectors/a/config"
        assert (await gateway.ask("PUT", path, role="viewer", json=CONFIG)).status_code == 403
        assert (await gateway.ask("PUT", path, role="admin", json=CONFIG)).status_code == 201
        basic = base64.b64encode(f"any:{TOKENS['viewer']}".encode()).decode()
        for _ in range(5):
            found = await gateway.ask(
                "GET", "/connectors", headers={"Authorization": f"Basic {basic}"}
            )
            assert found.json() == ["a"]
        for headers in ({}, {"Authorization": "Bearer no"}, {"Cookie": "drover-session=abc"}):
            refused = await gateway.ask("GET", "/connectors", headers=headers)
            assert refused.status_code == 401
            assert "www-authenticate" not in refused.headers
        assert (await gateway.ask("GET", "/health")).status_code == 200


async def test_a_token_that_is_revoked_loses_its_view(tmp_path: Path, certs: Path) -> None:
    async with secured(tmp_path, certs) as gateway:
        for _ in range(10):
            assert (await gateway.ask("GET", "/connectors", role="viewer")).status_code == 200
        grant_tokens(certs, roles=False)

        async def is_refused() -> bool:
            return bool((await gateway.ask("GET", "/connectors", role="viewer")).status_code == 401)

        await wait_until_async(is_refused)
        # and with the grant again it is served
        grant_tokens(certs)
        assert (await gateway.ask("GET", "/connectors", role="viewer")).status_code == 200


async def test_a_view_has_what_its_caller_may_see(tmp_path: Path, certs: Path) -> None:
    of_a = {"token_sha256": token_sha256("of-a"), "name": "a", "role": "viewer"}
    grant_tokens(certs, {**of_a, "connectors": ["a-*"]})
    async with secured(tmp_path, certs) as gateway:
        for name in ("a-1", "b-1"):
            await gateway.ask("PUT", f"/connectors/{name}/config", role="admin", json=CONFIG)
        for _ in range(10):
            found = await gateway.ask(
                "GET", "/connectors", headers={"Authorization": "Bearer of-a"}
            )
            assert found.json() == ["a-1"]
            expanded = await gateway.ask(
                "GET", "/connectors?expand=status", headers={"Authorization": "Bearer of-a"}
            )
            assert list(expanded.json()) == ["a-1"]
            found = await gateway.ask("GET", "/connectors", role="viewer")
            assert found.json() == ["a-1", "b-1"]


async def test_reads_from_memory_are_the_same_as_by_calls(tmp_path: Path) -> None:
    async with plain(tmp_path) as gateway:
        secret = {**CONFIG, "db.login": "hidden"}
        for name in ("a", "b"):
            await gateway.ask("PUT", f"/connectors/{name}/config", json=secret)
        paths = [
            *("/connectors", "/connectors/a", "/connectors/a/status", "/connectors?expand=status"),
            *("/connectors?expand=info", "/connectors?expand=info&expand=status"),
        ]

        async def is_running() -> bool:
            status = (await gateway.ask("GET", "/connectors/b/status")).json()
            return [each["state"] for each in status["tasks"]] == ["RUNNING"]

        await wait_until_async(is_running)
        # a caller of another name, who has no view yet
        found = {path: (await gateway.ask("GET", path)).json() for path in paths}
        for _ in range(5):
            for path in paths:
                assert (await gateway.ask("GET", path)).json() == found[path]
        assert "hidden" not in json.dumps(found)
        # what was written is read at once
        await gateway.ask("DELETE", "/connectors/a")
        assert (await gateway.ask("GET", "/connectors")).json() == ["b"]


async def test_pages_of_other_sites_and_foreign_hosts_are_refused(tmp_path: Path) -> None:
    async with plain(tmp_path) as gateway:
        await gateway.ask("PUT", "/connectors/a/config", json=CONFIG)
        foreign: list[tuple[str, dict[str, str], int]] = [
            ("POST", {"Origin": "https://attacker.example"}, 403),
            ("PUT", {"Sec-Fetch-Site": "cross-site"}, 403),
            ("POST", {"Host": "attacker.example"}, 421),
            ("GET", {"Host": "attacker.example:8083"}, 421),
        ]
        for method, headers, status in foreign:
            path = "/connectors/a/restart" if method != "GET" else "/connectors"
            refused = await gateway.ask(method, path, headers=headers)
            assert refused.status_code == status
            assert refused.json()["error_code"] == status
        own = {"Origin": gateway.url, "Sec-Fetch-Site": "same-origin"}
        assert (await gateway.ask("PUT", "/connectors/a/pause", headers=own)).status_code == 202


async def test_without_a_worker_a_request_is_503_with_the_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("drover_gateway.rest.call.UNAVAILABLE_TIMEOUT_S", 1.0)
    async with running_gateway(["127.0.0.1:1", "127.0.0.1:2"]) as gateway:
        found = await gateway.ask("GET", "/connectors")
        assert (found.status_code, found.headers["Retry-After"]) == (503, "1")
        assert "127.0.0.1:" in found.json()["message"] or "worker" in found.json()["message"]


async def test_another_worker_answers_for_one_that_is_gone(tmp_path: Path) -> None:
    async with WorkerCluster(tmp_path) as cluster:
        (worker,) = await cluster.settled_workers(1)
        async with running_gateway(["127.0.0.1:1", worker.address]) as gateway:
            for _ in range(6):
                assert (await gateway.ask("GET", "/connectors/none/status")).status_code == 404
            assert (await gateway.ask("GET", "/health")).status_code == 200


async def test_a_renewed_certificate_is_shown_to_new_connections(certs: Path) -> None:
    async with running_gateway(["127.0.0.1:1"], certificates=certs) as gateway:
        before = await asyncio.to_thread(shown_certificate, gateway.address)
        init_certificates(certs, renew=True)

        async def is_renewed() -> bool:
            return before != await asyncio.to_thread(shown_certificate, gateway.address)

        await wait_until_async(is_renewed)
        # files that cannot be used change nothing
        shutil.copy(files_of(certs, "viewer").key, files_of(certs, GATEWAY).key)
        shown = await asyncio.to_thread(shown_certificate, gateway.address)
        assert shown != before


async def test_the_end_of_the_certificate_is_a_metric(certs: Path) -> None:
    metrics = free_address()
    async with running_gateway(
        ["127.0.0.1:1"], certificates=certs, metrics_listen=metrics
    ) as gateway:
        text = (await asyncio.to_thread(requests.get, f"http://{metrics}/metrics", timeout=60)).text
        ends = read_certificate(files_of(certs, GATEWAY)).ends
        assert ends is not None
        (line,) = [each for each in text.splitlines() if each.startswith(CERTIFICATE_END.name)]
        assert float(line.split()[-1]) == ends.timestamp(), gateway.address


async def test_loggers_have_an_address_of_their_own_if_asked(tmp_path: Path) -> None:
    admin = free_address()
    async with plain(tmp_path, gateway_admin_listen=admin) as gateway:
        assert (await gateway.ask("GET", "/admin/loggers")).status_code == 404
        gateway.address, public = admin, gateway.address
        assert (await gateway.ask("GET", "/admin/loggers")).status_code == 200
        assert (await gateway.ask("GET", "/connectors")).status_code == 404
        gateway.address = public


async def test_metrics_show_requests_views_and_refusals(tmp_path: Path) -> None:
    metrics = free_address()
    async with plain(tmp_path, metrics_listen=metrics) as gateway:
        for _ in range(10):
            await gateway.ask("GET", "/connectors")
        await gateway.ask("GET", "/connectors", headers={"Host": "attacker.example"})
        gateway.address, own = metrics, gateway.address
        text = (await gateway.ask("GET", "/metrics")).text
        gateway.address = own
    assert 'drover_http_requests_total{code="200",method="GET"} 10.0' in text
    assert "drover_gateway_views 1.0" in text
    assert 'drover_http_refused_total{reason="host"} 1.0' in text
    assert 'drover_build_info{service="gateway"' in text
