"""A cluster over TLS: each principal may make the calls that its grants allow, and no others."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import yaml
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from drover.api.common.v1.repairs_pb2 import DeadLetterRepair
from drover.api.common.v1.topics_pb2 import PRODUCE_FORMAT_LINES, ProduceOptions
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.api.connect.v1.connect_service_pb2_grpc import ConnectServiceStub
from drover.client.calls import channel
from drover.client.secure import channel_credentials
from drover.dataplane.store import EmbeddedStore
from drover.errors import (
    DroverError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    Reason,
    UnauthenticatedError,
    UnavailableError,
)
from drover.model.dead_letters import DEAD_LETTER_TOPIC, REPLAY_WHERE
from drover.model.secrets import MASK
from drover.rpc.roles import access_of
from drover.rpc.status import from_rpc_error
from drover.security import renewed
from drover.security.certificates import TlsFiles, read_certificate
from drover.security.development_ca import ACCESS_FILE, ROLES, files_of, init_certificates
from drover.security.grants import token_sha256
from drover.security.principal import Role
from tests.contract.test_roles import methods
from tests.support.fake_engine import SINK, SOURCE
from tests.support.stored_topics import store_records
from tests.support.waiting import wait_until_async
from tests.support.web_tokens import KEY, jwks, signed, unsigned
from tests.support.worker_cluster import RunningWorker, WorkerCluster

TOKEN = "a token of the team that has the orders"
#: The deadline for streams and parked calls.
TIMEOUT_S = 0.5
PLACES = {
    "CoordinatorService": "coordinator",
    "ConfigStoreService": "config_store",
    "StatusStoreService": "status_store",
}


@pytest.fixture
def certs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(renewed, "CHECK_EVERY_S", 0.0)
    init_certificates(tmp_path / "certs")
    return tmp_path / "certs"


def grant(certs: Path, *more: dict[str, object]) -> None:
    """Write an access file with the default role of each certificate, and ``more`` grants."""
    grants = [{"certificate": f"drover-{name}", "role": role} for name, role in ROLES.items()]
    (certs / ACCESS_FILE).write_text(yaml.safe_dump({"grants": [*grants, *more]}))


@asynccontextmanager
async def secured(directory: Path, certs: Path, workers: int = 1) -> AsyncIterator[Any]:
    async with WorkerCluster(directory, certificates=certs) as cluster:
        for _ in range(workers):
            await cluster.add_worker(gateway_secrets="admin")
        await cluster.settled(*cluster.workers)
        yield cluster


def as_role(certs: Path, name: str, address: str) -> grpc.aio.Channel:
    return channel(address, channel_credentials(read_certificate(files_of(certs, name))))


def with_token(certs: Path, token: str, address: str) -> grpc.aio.Channel:
    ca = read_certificate(TlsFiles(str(certs / "ca.pem")))
    return channel(address, channel_credentials(ca, token))


async def error_of(call: Any) -> DroverError:
    with pytest.raises(grpc.RpcError) as caught:
        await call
    return from_rpc_error(caught.value)


def audited(directory: Path, service: str = "ConnectService") -> list[dict[str, Any]]:
    """The lines of one service in the audit log."""
    lines = map(json.loads, (directory / "audit.log").read_text().splitlines())
    return [line for line in lines if line["service"].endswith(f".{service}")]


async def code_of(connection: grpc.aio.Channel, method: MethodDescriptor) -> grpc.StatusCode:
    path = "/" + "/".join(method.full_name.rsplit(".", 1))
    request = GetMessageClass(method.input_type)().SerializeToString()
    call: Any
    if method.server_streaming:
        call = connection.unary_stream(path)(request, timeout=TIMEOUT_S)  # type: ignore[arg-type]
        try:
            async for _ in call:
                break
        except grpc.aio.AioRpcError:
            pass
        else:
            call.cancel()
            return grpc.StatusCode.OK
    else:
        call = connection.unary_unary(path)(request, timeout=TIMEOUT_S)  # type: ignore[arg-type]
    code: grpc.StatusCode = await call.code()
    return code


async def test_every_rpc_lets_in_who_has_its_role_and_nobody_else(
    tmp_path: Path, certs: Path
) -> None:
    grant(certs)
    async with secured(tmp_path, certs) as cluster:
        (worker,) = cluster.workers

        def address_of(service: str) -> str:
            if service in PLACES:
                return str(cluster.addresses[f"{PLACES[service]}_address"])
            internal = service == "WorkerService"
            return str(worker.internal_address if internal else worker.address)

        for method in methods():
            service = method.containing_service.name
            needed = access_of("/" + "/".join(method.full_name.rsplit(".", 1))).role
            for name, role in ROLES.items():
                async with as_role(certs, name, address_of(service)) as connection:
                    code = await code_of(connection, method)
                refused = code is grpc.StatusCode.PERMISSION_DENIED
                assert refused is (Role[role.upper()] < needed), (method.full_name, name, code)


async def test_who_does_not_say_who_it_is_may_do_nothing(tmp_path: Path, certs: Path) -> None:
    grant(certs)
    async with WorkerCluster(tmp_path, certificates=certs) as cluster:
        worker = await cluster.add_worker(tls_client_auth="none")
        credentials = grpc.ssl_channel_credentials((certs / "ca.pem").read_bytes())
        async with channel(worker.address, credentials) as connection:
            for method in methods():
                if method.containing_service.name == "ConnectService":
                    code = await code_of(connection, method)
                    assert code is grpc.StatusCode.UNAUTHENTICATED, method.full_name
            stub: Any = ConnectServiceStub(connection)
            error = await error_of(stub.GetClusterInfo(pb.GetClusterInfoRequest(), timeout=10))
            assert isinstance(error, UnauthenticatedError)
            assert error.reason is Reason.MISSING_CREDENTIALS
            assert "authorization: Bearer" in error.message


async def create(worker: RunningWorker, stub: Any, name: str) -> None:
    del worker
    config = {"connector.class": SOURCE, "db.login": "hunter2", "topic": "t"}
    await stub.CreateConnector(pb.CreateConnectorRequest(name=name, config=config), timeout=20)


async def test_a_forwarded_change_keeps_its_principal_and_is_audited_once(
    tmp_path: Path, certs: Path
) -> None:
    grant(certs, {"token_sha256": token_sha256(TOKEN), "name": "team-orders", "role": "admin"})
    async with secured(tmp_path, certs, workers=2) as cluster:
        follower = next(worker for worker in cluster.workers if not worker.leads)
        async with as_role(certs, "viewer", follower.address) as connection:
            viewer: Any = ConnectServiceStub(connection)
            error = await error_of(
                viewer.DeleteConnector(pb.DeleteConnectorRequest(name="orders"), timeout=20)
            )
            assert isinstance(error, PermissionDeniedError)
            assert error.message.startswith(
                "DeleteConnector needs the role admin for connector 'orders', which"
                " 'drover-viewer' does not have"
            )
        await create(follower, follower.stub, "orders")
        request = pb.GetConnectorHistoryRequest(name="orders")
        (change,) = (await follower.stub.GetConnectorHistory(request, timeout=20)).changes
        assert change.author == "drover-admin"
        for worker in cluster.workers:
            events: list[pb.AuditEvent] = []

            async def are_listed(at: RunningWorker = worker, seen: list[Any] = events) -> bool:
                listing = pb.ListAuditEventsRequest()
                seen[:] = (await at.stub.ListAuditEvents(listing, timeout=20)).events
                return [(each.call, each.principal, each.outcome) for each in seen] == [
                    ("CreateConnector", "drover-admin", "OK"),
                    ("DeleteConnector", "drover-viewer", "PERMISSION_DENIED"),
                ]

            await wait_until_async(are_listed)
            assert "hunter2" not in str(events)
            assert {each.worker_id for each in events} == {follower.address}
    (put,) = (
        line
        for line in audited(tmp_path, "ConfigStoreService")
        if line["call"] == "PutConnectorConfig"
    )
    assert (put["principal"], put["request"]["author"]) == ("drover-service", "drover-admin")
    lines = audited(tmp_path)
    assert [(line["call"], line["principal"], line["outcome"]) for line in lines] == [
        ("DeleteConnector", "drover-viewer", "PERMISSION_DENIED"),
        ("CreateConnector", "drover-admin", "OK"),
    ]
    assert lines[0]["reason"] == "MISSING_ROLE"
    assert lines[1]["request"] == {
        "name": "orders",
        "config": {"connector.class": SOURCE, "db.login": MASK, "topic": "t"},
    }


async def test_validations_reads_of_records_and_rejected_calls_are_audited(
    tmp_path: Path, certs: Path
) -> None:
    grant(certs)
    config = {"name": "a", "connector.class": SOURCE, "db.login": "hunter2", "topic": "t"}
    async with secured(tmp_path, certs) as cluster:
        (worker,) = cluster.workers
        await worker.stub.ValidateConfig(pb.ValidateConfigRequest(config=config), timeout=20)
        await error_of(anext(aiter(worker.stub.WatchTopic(pb.WatchTopicRequest(), timeout=20))))
        for path, address in (
            ("connect.v1.ConnectService/WatchTopic", worker.address),
            ("worker.v1.WorkerService/Forward", worker.internal_address),
            ("status_store.v1.StatusStoreService/Flush", cluster.addresses["status_store_address"]),
            (
                "coordinator.v1.CoordinatorService/Heartbeat",
                cluster.addresses["coordinator_address"],
            ),
        ):
            async with as_role(certs, "viewer", address) as connection:
                start: Any = connection.stream_unary(f"/drover.api.{path}")
                call = start(iter([b""]), timeout=20)
                assert await call.code() is grpc.StatusCode.PERMISSION_DENIED
        unguarded = await cluster.add_worker(tls_client_auth="none")
        async with with_token(certs, "no-token", unguarded.address) as connection:
            stub: Any = ConnectServiceStub(connection)
            await error_of(stub.ListConnectors(pb.ListConnectorsRequest(), timeout=20))
    seen = [
        (line["call"], line["principal"], line["outcome"])
        for service in ("ConnectService", "WorkerService", "StatusStoreService")
        for line in audited(tmp_path, service)
    ]
    admin, viewer, denied = "drover-admin", "drover-viewer", "PERMISSION_DENIED"
    assert seen == [
        ("ValidateConfig", admin, "OK"),
        ("WatchTopic", admin, "OPENED"),
        ("WatchTopic", viewer, denied),
        ("ListConnectors", "", "UNAUTHENTICATED"),
        ("Forward", viewer, denied),
        ("Flush", viewer, denied),
    ]
    (beat,) = audited(tmp_path, "CoordinatorService")
    assert (beat["call"], beat["principal"], beat["outcome"]) == ("Heartbeat", viewer, denied)


async def test_an_operator_replays_only_the_dead_letters_of_the_connector(
    tmp_path: Path, certs: Path
) -> None:
    grant(certs)
    config = {"connector.class": SINK, "topics": "t", DEAD_LETTER_TOPIC: "dead"}
    async with secured(tmp_path, certs) as cluster:
        (worker,) = cluster.workers
        created = pb.CreateConnectorRequest(name="c", config=config)
        await worker.stub.CreateConnector(created, timeout=20)
        store_records(EmbeddedStore(tmp_path / "data.db"), "dead", [{"value": b"x"}])
        wheres = {}
        for role in ("operator", "admin"):
            async with as_role(certs, role, worker.address) as connection:
                stub: Any = ConnectServiceStub(connection)
                request = pb.ReplayDeadLettersRequest(name="c", conditions=["value!=1"])
                await stub.ReplayDeadLetters(request, timeout=20)
            found = await worker.stub.GetConnector(pb.GetConnectorRequest(name="c"), timeout=20)
            wheres[role] = found.connector.config[REPLAY_WHERE].splitlines()
    assert wheres == {
        "operator": ["value!=1", "headers.__connect.errors.connector.name='c'"],
        "admin": ["value!=1"],
    }


async def test_a_repair_shows_an_operator_no_schema_of_another_connectors_dead_letter(
    tmp_path: Path, certs: Path
) -> None:
    """The queue is shared by two connectors."""
    grant(certs)
    config = {"connector.class": SINK, "topics": "t", DEAD_LETTER_TOPIC: "dead"}
    schema = {"type": "struct", "fields": [{"field": "salary", "type": "int32"}]}
    value = json.dumps({"schema": schema, "payload": {"salary": 7}}).encode()
    letters = [
        {"value": value, "headers": [("__connect.errors.connector.name", name)]}
        for name in (b"other", b"c")
    ]
    async with secured(tmp_path, certs) as cluster:
        (worker,) = cluster.workers
        created = pb.CreateConnectorRequest(name="c", config=config)
        await worker.stub.CreateConnector(created, timeout=20)
        store_records(EmbeddedStore(tmp_path / "data.db"), "dead", letters)
        shown = {}
        for role in ("operator", "admin"):
            async with as_role(certs, role, worker.address) as connection:
                stub: Any = ConnectServiceStub(connection)
                for offset in (0, 1):
                    request = pb.ReplayDeadLettersRequest(
                        name="c",
                        letters=[pb.DeadLetterPlace(partition=0, offset=offset)],
                        repairs=[DeadLetterRepair(partition=0, offset=offset, value='{"a": 1}')],
                        dry_run=True,
                    )
                    error = await error_of(stub.ReplayDeadLetters(request, timeout=20))
                    assert isinstance(error, InvalidArgumentError)
                    assert {each.field.split(".")[0] for each in error.violations} == {"repairs[0]"}
                    shown[role, offset] = "salary" in str(error.violations)
    assert shown == {
        ("operator", 0): False,
        ("operator", 1): True,
        ("admin", 0): True,
        ("admin", 1): True,
    }


async def test_a_required_audit_log_that_cannot_be_written_stops_changes_but_no_reads(
    tmp_path: Path, certs: Path
) -> None:
    grant(certs)
    async with WorkerCluster(tmp_path, certificates=certs) as cluster:
        worker = await cluster.add_worker(audit_log="/dev/full", audit_required=True)
        await cluster.settled(worker)
        error = await error_of(create(worker, worker.stub, "orders"))
        assert isinstance(error, UnavailableError)
        assert "DROVER_AUDIT_REQUIRED=true rejects calls" in error.message
        listed = await worker.stub.ListConnectors(pb.ListConnectorsRequest(), timeout=20)
        assert not listed.connectors


async def test_a_required_audit_log_names_a_change_before_it_starts(
    tmp_path: Path, certs: Path
) -> None:
    grant(certs)
    async with WorkerCluster(tmp_path, certificates=certs) as cluster:
        worker = await cluster.add_worker(audit_required=True)
        await cluster.settled(worker)
        await create(worker, worker.stub, "orders")
        options = ProduceOptions(
            topic="t", format=PRODUCE_FORMAT_LINES, config={"value.converter.x.password": "hidden"}
        )
        parts = [pb.ProduceRecordsRequest(options=options, data=b"secret")]
        error = await error_of(worker.stub.ProduceRecords(iter(parts), timeout=20))
        assert isinstance(error, InvalidArgumentError | NotFoundError)
    lines = audited(tmp_path)
    assert [(line["call"], line["outcome"]) for line in lines] == [
        ("CreateConnector", "STARTED"),
        ("CreateConnector", "OK"),
        ("ProduceRecords", "STARTED"),
        ("ProduceRecords", error.code),
    ]
    assert lines[-1]["request"]["options"]["topic"] == "t"
    assert "secret" not in str(lines[-1])
    assert "hidden" not in str(lines[-1])


async def test_a_token_for_some_connectors_sees_and_changes_those_alone_until_it_is_revoked(
    tmp_path: Path, certs: Path
) -> None:
    team = {"token_sha256": token_sha256(TOKEN), "name": "team", "role": "admin"}
    grant(certs, {**team, "connectors": ["orders-*"]})
    async with WorkerCluster(tmp_path, certificates=certs) as cluster:
        worker = await cluster.add_worker(tls_client_auth="none")
        await cluster.settled(worker)
        async with with_token(certs, TOKEN, worker.address) as connection:
            stub: Any = ConnectServiceStub(connection)
            await create(worker, stub, "orders-1")
            error = await error_of(create(worker, stub, "other"))
            assert isinstance(error, PermissionDeniedError)
            assert "for connector 'other', which 'team' does not have" in error.message
            # the name may be in the config only
            nameless = pb.CreateConnectorRequest(
                config={"name": " other ", "connector.class": SOURCE}
            )
            assert isinstance(
                await error_of(stub.CreateConnector(nameless, timeout=20)), PermissionDeniedError
            )
            level = pb.SetLoggerLevelRequest(name="drover", level="DEBUG")
            error = await error_of(stub.SetLoggerLevel(level, timeout=20))
            assert "needs the role admin for the whole cluster" in error.message
            grant(certs, {**team})
            await create(worker, stub, "other")
            grant(certs, {**team, "connectors": ["orders-*"]})
            listed = await stub.ListConnectors(pb.ListConnectorsRequest(), timeout=20)
            assert [entry.name for entry in listed.connectors] == ["orders-1"]
            info = await stub.GetClusterInfo(pb.GetClusterInfoRequest(), timeout=20)
            assert {name for w in info.workers for name in w.connectors} <= {"orders-1"}
            caller = await stub.GetCaller(pb.GetCallerRequest(), timeout=20)
            own = pb.CallerGrant(role=pb.ROLE_ADMIN, connectors=["orders-*"])
            assert (caller.name, list(caller.grants)) == ("team", [own])
            topics = await stub.ListConnectorTopics(pb.ListConnectorTopicsRequest(), timeout=20)
            assert [each.name for each in topics.connectors] == ["orders-1"]
            rebalances = await stub.ListRebalances(pb.ListRebalancesRequest(), timeout=20)
            moved = {m.connector for each in rebalances.rebalances for m in each.moves}
            assert moved <= {"orders-1"}
            assert all(each.moved_connector_count <= 1 for each in rebalances.rebalances)
            error = await error_of(stub.ListAuditEvents(pb.ListAuditEventsRequest(), timeout=20))
            assert "needs the role admin for the whole cluster" in error.message
            seen = []
            async for message in stub.WatchConnectors(pb.WatchConnectorsRequest(), timeout=20):
                if message.synced:
                    break
                seen.append(message.connector.name)
            async for message in stub.WatchStatuses(pb.WatchStatusesRequest(), timeout=20):
                if message.synced:
                    break
                seen.append(message.status.name)
            assert set(seen) == {"orders-1"}
            grant(certs)
            error = await error_of(stub.ListConnectors(pb.ListConnectorsRequest(), timeout=20))
            assert isinstance(error, UnauthenticatedError)
            assert error.reason is Reason.INVALID_CREDENTIALS
            assert TOKEN not in error.message


async def test_a_user_of_a_json_web_token_has_the_roles_of_its_groups(
    tmp_path: Path, certs: Path
) -> None:
    grant(certs, {"group": "data", "role": "viewer"}, {"subject": "ann", "role": "operator"})
    (certs / "jwks.json").write_text(jwks(one=KEY))
    rules = {
        "jwks": str(certs / "jwks.json"),
        "jwt_audience": "drover",
        "jwt_issuer": "https://id.example.com",
    }
    async with WorkerCluster(tmp_path, certificates=certs) as cluster:
        worker = await cluster.add_worker(tls_client_auth="none", **rules)
        await cluster.settled(worker)

        async def list_by(token: str) -> None:
            async with with_token(certs, token, worker.address) as connection:
                stub: Any = ConnectServiceStub(connection)
                await stub.ListConnectors(pb.ListConnectorsRequest(), timeout=20)

        await list_by(signed(sub="bob", groups=["data"]))
        await list_by(signed(sub="ann", groups=[]))
        error = await error_of(list_by(signed(sub="bob\n", groups=["other"])))
        assert isinstance(error, PermissionDeniedError)
        assert error.metadata == {"role": "viewer", "principal": "bob"}
        for bad, why in (
            (signed(exp=1), "it has expired"),
            (signed(aud="other"), "it is for another audience"),
            (unsigned(), "it is not signed with a key pair"),
            ("no-token", "it is not in the access file"),
        ):
            error = await error_of(list_by(bad))
            assert isinstance(error, UnauthenticatedError)
            assert error.reason is Reason.INVALID_CREDENTIALS
            assert error.message.startswith(f"the token is rejected: {why}")
