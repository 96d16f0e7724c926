"""A server over TLS: handshakes, missing roles and certificate rotation."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import structlog
import yaml
from cryptography.hazmat.primitives import serialization
from grpc_health.v1 import health_pb2, health_pb2_grpc

from drover.api.status_store.v1 import status_store_service_pb2 as pb
from drover.api.status_store.v1 import status_store_service_pb2_grpc as pb_grpc
from drover.client.calls import channel, server_stream, unary
from drover.client.secure import connect_by
from drover.errors import PermissionDeniedError, Reason, UnavailableError
from drover.local import health
from drover.metrics.table import CERTIFICATE_END
from drover.rpc import WHY_NOT_SERVING_KEY, interceptors
from drover.rpc.callers import Callers
from drover.rpc.guard import CallGuard
from drover.rpc.security import Security
from drover.security import renewed
from drover.security.certificates import (
    TlsFiles,
    is_for,
    read_certificate,
    renewed_certificate,
)
from drover.security.development_ca import Authority
from drover.security.grants import renewed_grants
from tests.support.certificates import DAY, issue
from tests.support.scripted_store import Running, start, stop

NAME = "drover-service"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.make()


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[structlog.typing.EventDict]]:
    monkeypatch.setattr(renewed, "CHECK_EVERY_S", 0.0)
    with structlog.testing.capture_logs() as events:
        yield events


@asynccontextmanager
async def serving(
    directory: Path, files: TlsFiles, *, client_certificates: bool = True, **options: Any
) -> AsyncIterator[Running]:
    access = directory / "access.yaml"
    grants = [{"certificate": NAME, "role": "internal"}, {"certificate": "ann", "role": "viewer"}]
    access.write_text(yaml.safe_dump({"grants": grants}))
    certificate = renewed_certificate(files)
    callers = Callers(renewed_grants(str(access)), own=certificate)
    security = Security(certificate, CallGuard(callers))
    running = await start(security=security, client_certificates=client_certificates, **options)
    try:
        yield running
    finally:
        await stop(running)


async def call(running: Running, files: TlsFiles | None) -> None:
    """Make one call as a client with these files; without files in plaintext."""
    credentials = None
    if files is not None:
        pems = [Path(path).read_bytes() if path else None for path in (files.key, files.cert)]
        credentials = grpc.ssl_channel_credentials(Path(files.ca).read_bytes(), *pems)
    async with channel(running.address, credentials) as connection:
        await flush(connection)


async def flush(connection: grpc.aio.Channel) -> None:
    stub: Any = pb_grpc.StatusStoreServiceStub(connection)
    await unary(stub.Flush, pb.FlushRequest(), timeout_s=20, retry=False)


async def refusal(running: Running, files: TlsFiles | None) -> str:
    with pytest.raises(UnavailableError) as caught:
        await call(running, files)
    assert caught.value.reason is Reason.SERVICE_UNREACHABLE
    return caught.value.message


async def test_a_client_that_proves_nothing_does_not_get_in(
    tmp_path: Path, authority: Authority
) -> None:
    async with serving(tmp_path, issue(tmp_path / "s", authority, name=NAME)) as running:
        good = issue(tmp_path / "good", authority, name=NAME)
        await call(running, good)
        await refusal(running, None)
        await refusal(running, TlsFiles(good.ca))
        for name, files in {
            "foreign": issue(tmp_path / "f", Authority.make(), name=NAME, trusted=authority),
            "expired": issue(tmp_path / "e", authority, name=NAME, begins=-2 * DAY, ends=-DAY),
            "not yet valid": issue(tmp_path / "n", authority, name=NAME, begins=DAY, ends=2 * DAY),
        }.items():
            assert await refusal(running, files), name
        await call(running, good)
        assert running.store.calls == ["Flush", "Flush"]


async def test_a_server_tells_when_its_certificate_ends(
    tmp_path: Path, authority: Authority, said: object
) -> None:
    del said  # its fixture disables the interval between file checks

    def told(running: Running) -> list[Any]:
        samples = running.server.health_samples()
        return [each.value for each in samples if each.metric is CERTIFICATE_END]

    async with serving(tmp_path, issue(tmp_path / "s", authority, name=NAME)) as running:
        (ends,) = told(running)
        issue(tmp_path / "s", authority, name=NAME, ends=80 * DAY)
        (later,) = told(running)
        assert later - ends == pytest.approx(20 * DAY.total_seconds(), abs=3600)
    plain = await start()
    try:
        assert told(plain) == []
    finally:
        await stop(plain)


async def test_a_server_that_proves_nothing_is_not_called(
    tmp_path: Path, authority: Authority
) -> None:
    """A service would refuse some of these certificates at start; this server does not check."""
    client = issue(tmp_path / "c", authority, name=NAME)
    foreign = issue(tmp_path / "f", Authority.make(), name=NAME)
    elsewhere = issue(tmp_path / "e", authority, name=NAME, hosts=("other.example.com",))
    for fault, files in {
        "unable to get local issuer certificate": foreign,
        "Hostname Verification Check failed": elsewhere,
    }.items():
        async with serving(tmp_path, files) as running:
            assert fault in await refusal(running, client)
            assert running.store.calls == []


@pytest.mark.parametrize("server_name", ["w.example.com", "w.internal", "a.w.example.com", NAME])
async def test_a_certificate_is_for_the_hosts_for_which_clients_take_it(
    tmp_path: Path, authority: Authority, server_name: str
) -> None:
    files = issue(tmp_path / "s", authority, name=NAME, hosts=("*.example.com", "*.internal"))
    connect = connect_by(renewed_certificate(files), server_name=server_name)
    async with serving(tmp_path, files) as running, connect(running.address) as connection:
        if is_for(read_certificate(files), server_name):
            await flush(connection)
        else:
            with pytest.raises(UnavailableError, match="Hostname Verification Check failed"):
                await flush(connection)


async def test_a_plaintext_server_is_not_called_over_tls(
    tmp_path: Path, authority: Authority
) -> None:
    running = await start()
    try:
        assert "handshake failed" in await refusal(running, issue(tmp_path, authority, name=NAME))
    finally:
        await stop(running)


async def test_a_known_client_without_the_role_is_told_which_it_needs(
    tmp_path: Path, authority: Authority
) -> None:
    async with serving(tmp_path, issue(tmp_path / "s", authority, name=NAME)) as running:
        for name in ("ann", "nobody"):
            with pytest.raises(PermissionDeniedError) as caught:
                await call(running, issue(tmp_path / name, authority, name=name, hosts=()))
            assert caught.value.reason is Reason.MISSING_ROLE
            assert caught.value.metadata == {"role": "internal", "principal": name}
            assert "Flush needs the role internal for the whole cluster" in caught.value.message
        assert running.store.calls == []


async def test_the_authority_of_users_grants_no_name_of_a_service(
    tmp_path: Path, authority: Authority
) -> None:
    of_users = Authority.make()
    user = issue(tmp_path / "user", of_users, name="ann", hosts=(), trusted=authority)
    forger = issue(tmp_path / "forger", of_users, name=NAME, trusted=authority)
    files = issue(tmp_path / "s", authority, name=NAME)
    client_ca = tmp_path / "client-ca.pem"
    client_ca.write_bytes(of_users.certificate.public_bytes(serialization.Encoding.PEM))
    async with serving(tmp_path, replace(files, client_ca=str(client_ca))) as running:
        await call(running, issue(tmp_path / "service", authority, name=NAME))
        for client, name in ((user, "ann"), (forger, NAME)):
            with pytest.raises(PermissionDeniedError) as caught:
                await call(running, client)
            assert caught.value.metadata == {"role": "internal", "principal": name}
        # the name of a user keeps its grant: only a caller with a grant may watch health here
        for client, code in (
            (user, grpc.StatusCode.OK),
            (forger, grpc.StatusCode.PERMISSION_DENIED),
        ):
            pems = [Path(path).read_bytes() for path in (client.ca, client.key, client.cert)]
            async with channel(running.address, grpc.ssl_channel_credentials(*pems)) as connection:
                stub: Any = health_pb2_grpc.HealthStub(connection)
                watch = stub.Watch(health_pb2.HealthCheckRequest())
                if code is grpc.StatusCode.OK:
                    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
                else:
                    assert await watch.code() is code
        # a server with a certificate for users is no server of the cluster
    async with serving(tmp_path, issue(tmp_path / "fake", of_users, name=NAME)) as running:
        fault = await refusal(running, issue(tmp_path / "service", authority, name=NAME))
        assert "certificate" in fault


async def test_both_sides_use_a_renewed_certificate_and_keep_the_old_one_for_a_broken_one(
    tmp_path: Path, authority: Authority, said: list[structlog.typing.EventDict]
) -> None:
    files = issue(tmp_path / "s", authority, name=NAME, ends=60 * DAY)
    mine = issue(tmp_path / "c", authority, name=NAME, ends=60 * DAY)
    async with serving(tmp_path, files) as running:
        peers: list[str] = []

        async def note_peer(_request: Any, context: Any) -> Any:
            peers.append(context.peer())
            return pb.FlushResponse()

        running.store.behaviors["Flush"] = note_peer
        connect = connect_by(renewed_certificate(mine))
        async with connect(running.address) as connection:
            stub: Any = pb_grpc.StatusStoreServiceStub(connection)
            watch = server_stream(stub.WatchStatuses, pb.WatchStatusesRequest())
            await anext(watch)
            await flush(connection)
            # rotate the server, later the client, to another CA, the only one that they then trust
            other = Authority.make()
            issue(tmp_path / "s", other, name=NAME, ends=60 * DAY)
            await refusal(running, issue(tmp_path / "old", authority, name=NAME))
            await flush(connection)
            issue(tmp_path / "c", other, name=NAME, ends=60 * DAY)
            await flush(connection)
            assert peers[0] == peers[1] != peers[2], "its new calls get a connection of their own"
            # rotate to invalid files
            Path(files.cert).write_text("half of a certific")
            Path(mine.key).write_text("")
            await flush(connection)
            assert peers[3] == peers[2]
            await call(running, issue(tmp_path / "new", other, name=NAME))
            assert running.store.watching == 1, "calls under way keep their connection"
            await watch.aclose()
    warnings = {event["event"] for event in said if event["log_level"] == "warning"}
    assert warnings == {"the changed certificate cannot be used: the previous one stays"}


async def test_a_service_is_asked_for_its_health_by_its_own_certificate(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = issue(tmp_path / "s", authority, name=NAME, hosts=("w.example.com",))
    async with serving(tmp_path, files) as running:
        assert await asyncio.to_thread(health.main, [running.address]) == 1
        for name in ("ca", "cert", "key"):
            monkeypatch.setenv(f"DROVER_TLS_{name.upper()}", getattr(files, name))
        assert await asyncio.to_thread(health.main, [running.address]) == 0


@pytest.mark.parametrize("client_certificates", [True, False])
async def test_why_a_server_does_not_serve_is_for_those_with_a_certificate(
    tmp_path: Path, authority: Authority, client_certificates: bool
) -> None:
    files = issue(tmp_path / "s", authority, name=NAME)
    own = read_certificate(files) if client_certificates else None
    async with serving(tmp_path, files, client_certificates=client_certificates) as running:
        running.server.explain_health(lambda: "store-1.internal is away")
        await running.server.set_serving(False)
        ca = Path(files.ca).read_bytes()
        pair = (own.key_pem, own.cert_pem) if own else (None, None)
        async with channel(running.address, grpc.ssl_channel_credentials(ca, *pair)) as connection:
            stub: Any = health_pb2_grpc.HealthStub(connection)
            call = stub.Check(health_pb2.HealthCheckRequest(), timeout=20)
            assert (await call).status == health_pb2.HealthCheckResponse.NOT_SERVING
            told = [v for k, v in await call.trailing_metadata() if k == WHY_NOT_SERVING_KEY]
        assert told == (["store-1.internal is away"] if client_certificates else [])


async def test_a_stream_ends_once_its_caller_has_no_right_to_it(
    tmp_path: Path, authority: Authority, said: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    del said  # its fixture disables the interval between file checks
    monkeypatch.setattr(interceptors, "RIGHTS_CHECK_S", 0.01)
    async with serving(tmp_path, issue(tmp_path / "s", authority, name=NAME)) as running:
        own = issue(tmp_path / "own", authority, name=NAME, hosts=())
        pems = [Path(path).read_bytes() for path in (own.ca, own.key, own.cert)]
        async with channel(running.address, grpc.ssl_channel_credentials(*pems)) as connection:
            stub: Any = pb_grpc.StatusStoreServiceStub(connection)
            stream = stub.WatchStatuses(pb.WatchStatusesRequest())
            assert (await stream.read()).created
            await flush(connection)
            assert not stream.done()
            (tmp_path / "access.yaml").write_text("grants: []\n")
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stream.read()
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
            assert "needs the role internal" in str(refused.value.details())
