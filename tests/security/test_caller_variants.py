"""Names, messages and streams with which a caller could get more than its grant."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import grpc
import grpc.aio
import pytest
import pytest_asyncio

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.api.connect.v1 import connect_service_pb2_grpc as pb_grpc
from drover.client import ConnectClient
from drover.client.secure import channel_credentials
from drover.errors import (
    DroverError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from drover.rpc.audit import UNKNOWN_LINES_MAX
from drover.rpc.roles import ACCESS
from drover.security.certificates import read_certificate
from tests.support.attacks import audit_lines, named, state_of
from tests.support.certificates import Authority, issue
from tests.support.gateways import RunningGateway, running_gateway
from tests.support.secure_cluster import SECRET, SecureCluster, token_of
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.faults("security"),
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.asyncio(loop_scope="session"),
]

CONNECT = "drover.api.connect.v1.ConnectService"
#: Names that look like one of ``a-*``, or that a careless check would take for one.
NAMES = (
    *("b-x", "A-x", "\u0430-x", "\uff41-x", "a\u2010x", "a\u00adx", "\u200ba-x", "\ufeffa-x"),
    *("b-x\na-x", "b-x\0a-x", "b-a-x", "*", "?-x", "[a]-x", "ba-x", "b-x/../a-x", "%61-x", "a"),
)

Call = Callable[[ConnectClient, str], Awaitable[Any]]


def config(name: str) -> dict[str, str]:
    return {"name": name, "connector.class": "DatagenSource", "quickstart": "orders", "topic": "t"}


def replay(name: str) -> pb.ReplayDeadLettersRequest:
    return pb.ReplayDeadLettersRequest(name=name, dry_run=True)


#: Calls about one connector, each with the role that it needs.
CALLS: Mapping[str, Call] = {
    "ValidateConfig": lambda client, name: client.validate_config(config(name)),
    "PauseConnector": lambda client, name: client.pause_connector(name),
    "ResumeConnector": lambda client, name: client.resume_connector(name),
    "StopConnector": lambda client, name: client.stop_connector(name),
    "RestartConnector": lambda client, name: client.restart_connector(name),
    "RestartTask": lambda client, name: client.restart_task(name, 0),
    "ReplayDeadLetters": lambda client, name: client.replay_dead_letters(replay(name)),
    "DiscardDeadLetters": lambda client, name: client.discard_dead_letters(
        pb.DiscardDeadLettersRequest(name=name, reason="x")
    ),
    "CreateConnector": lambda client, name: client.create_connector(name, config(name)),
    "PutConnectorConfig": lambda client, name: client.put_connector_config(name, config(name)),
    "PatchConnectorConfig": lambda client, name: client.patch_connector_config(
        name, settings={"topic": "u"}
    ),
    "RollbackConnector": lambda client, name: client.rollback_connector(name, 1),
    "DeleteConnector": lambda client, name: client.delete_connector(name),
    "PlanConnectorConfig": lambda client, name: client.plan_connector_config(name, config(name)),
    "PreviewConnector": lambda client, name: client.preview_connector(config(name)),
    "GetConnectorSecrets": lambda client, name: client.get_connector_secrets(name),
}


async def rejection(call: Awaitable[Any], what: str) -> DroverError:
    """The error of a call that must fail."""
    try:
        await call
    except DroverError as error:
        return error
    pytest.fail(f"the call was allowed: {what}")


def unary(channel: grpc.aio.Channel, method: str) -> Any:
    """A call whose messages are bytes."""
    return channel.unary_unary(method)


@pytest_asyncio.fixture(loop_scope="session")
async def of_others(secure: SecureCluster) -> AsyncIterator[str]:
    """A connector that users of ``a-*`` must not reach."""
    async with secure.client("admin") as client:
        await client.put_connector_config("b-x", {**config("b-x"), "max.records": "1"})
        yield "b-x"
        await client.delete_connector("b-x")


@pytest.mark.parametrize("call", CALLS)
async def test_names_that_look_like_granted_ones_are_denied(
    secure: SecureCluster, of_others: str, call: str
) -> None:
    before = await state_of(secure)
    for user in ("operator-of-a", "admin-of-a"):
        async with secure.client(user) as client:
            for name in NAMES:
                error = await rejection(CALLS[call](client, name), f"{user} of {name!r}")
                assert isinstance(
                    error, PermissionDeniedError | InvalidArgumentError | NotFoundError
                ), error
                assert "Traceback" not in str(error)
                if isinstance(error, PermissionDeniedError):
                    assert "needs the role" in str(error)
                    assert "ask an administrator to grant it in the access file" in str(error)
    assert await state_of(secure) == before

    def has_lines() -> bool:
        denied = [
            named(each["request"])
            for each in audit_lines(secure)
            if each["call"] == call and each["outcome"] == "PERMISSION_DENIED"
        ]
        return {"b-x", "A-x", "*"} <= set(denied)

    await wait_until_async(has_lines, describe=f"rejected calls of {call} are in the audit log")


@pytest.mark.parametrize("user", ["viewer", "stranger"])
async def test_readers_and_strangers_change_nothing(
    secure: SecureCluster, of_others: str, user: str
) -> None:
    before = await state_of(secure)
    async with secure.client(user) as client:
        for name, call in CALLS.items():
            error = await rejection(call(client, of_others), name)
            assert isinstance(error, PermissionDeniedError | UnauthenticatedError), error
            assert SECRET not in str(error)
    assert await state_of(secure) == before


async def test_one_config_cannot_have_two_names(secure: SecureCluster, of_others: str) -> None:
    before = await state_of(secure)
    async with secure.client("admin-of-a") as client:
        for own, other in (("a-x", of_others), ("a-x", " b-x "), ("a-x", "b-x\n")):
            for call in (
                client.create_connector(own, config(other)),
                client.put_connector_config(own, config(other)),
                client.plan_connector_config(own, config(other)),
                client.patch_connector_config(own, settings={"name": other}),
            ):
                with pytest.raises((InvalidArgumentError, NotFoundError)):
                    await call
    assert await state_of(secure) == before


async def test_calls_without_a_table_entry_need_the_role_of_services(secure: SecureCluster) -> None:
    files = issue(secure.certificates / "x", Authority.read(secure.certificates), name="admin")
    address = secure.cluster.process("worker-1").spec.address
    methods = (
        f"/{CONNECT}/NoSuchCall",
        f"/{CONNECT}/validateconfig",
        f"/{CONNECT}/ValidateConfig/",
        f"//{CONNECT}/ValidateConfig",
        f"/{CONNECT.lower()}/ValidateConfig",
        "/drover.api.worker.v1.WorkerService/Forward",
        "/drover.api.config_store.v1.ConfigStoreService/GetSnapshot",
        "/grpc.health.v2.Health/Check",
        "/../ConnectService/ValidateConfig",
    )
    credentials = channel_credentials(read_certificate(files))
    async with grpc.aio.secure_channel(address, credentials) as channel:
        for method in methods:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await unary(channel, method)(b"", timeout=30)
            assert caught.value.code() in (
                grpc.StatusCode.UNIMPLEMENTED,
                grpc.StatusCode.PERMISSION_DENIED,
                grpc.StatusCode.INVALID_ARGUMENT,
            ), method


async def test_messages_that_are_no_requests_are_rejected(secure: SecureCluster) -> None:
    files = issue(secure.certificates / "y", Authority.read(secure.certificates), name="admin")
    address = secure.cluster.process("worker-1").spec.address
    credentials = channel_credentials(read_certificate(files))
    group = b"\x0b" * 100_000  # groups that open groups
    bodies = (
        b"\xff" * 100,
        b"\x0a\xff\xff\xff\xff\x0f",  # a text of four gigabytes
        b"\x12\x84\x80\x80\x80\x80\x80\x80\x80\x80\x01",
        group,
        b"\x0a\x02\xc3\x28",  # no UTF-8
        b"\0" * 1_000,
    )
    async with grpc.aio.secure_channel(address, credentials) as channel:
        for rpc in ("ValidateConfig", "CreateConnector", "WatchTopic", "AlterConnectorOffsets"):
            for body in bodies:
                open_call: Any = channel.unary_unary
                if rpc == "WatchTopic":
                    open_call = channel.unary_stream
                code = await open_call(f"/{CONNECT}/{rpc}")(body, timeout=30).code()
                assert code is grpc.StatusCode.INVALID_ARGUMENT, (rpc, body[:20])
        bomb = b"\x0a" + b"\x80\x80\x80\x10" + b"\0" * (32 * 1024 * 1024)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await unary(channel, f"/{CONNECT}/ValidateConfig")(
                bomb, timeout=60, compression=grpc.Compression.Gzip
            )
        assert caught.value.code() in (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            grpc.StatusCode.INVALID_ARGUMENT,
        )
        stub = pb_grpc.ConnectServiceStub(channel)
        assert (await stub.GetClusterInfo(pb.GetClusterInfoRequest(), timeout=60)).spark_version


async def test_metadata_cannot_name_another_caller(secure: SecureCluster) -> None:
    files = issue(secure.certificates / "z", Authority.read(secure.certificates), name="viewer")
    address = secure.cluster.process("worker-1").spec.address
    credentials = channel_credentials(read_certificate(files))
    claims = (
        ("authorization", "Bearer admin"),
        ("authorization", "Bearer "),
        ("authorization", "Basic YWRtaW46YWRtaW4="),
        ("x-forwarded-client-cert", "Subject=CN=admin"),
        ("x-forwarded-for", "127.0.0.1"),
        ("drover-author", "admin"),
        ("drover-principal", "admin"),
        ("x-drover-principal", "admin"),
        ("drover-signature", "none"),
        ("grpc-internal-role", "internal"),
    )
    async with grpc.aio.secure_channel(address, credentials) as channel:
        stub = pb_grpc.ConnectServiceStub(channel)
        request = pb.CreateConnectorRequest(name="a-x", config=config("a-x"))
        for claim in claims:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.CreateConnector(request, metadata=(claim,), timeout=30)
            assert caught.value.code() in (
                grpc.StatusCode.PERMISSION_DENIED,
                grpc.StatusCode.UNAUTHENTICATED,
            ), claim
    lines = [each for each in audit_lines(secure) if each["call"] == "CreateConnector"]
    assert {each["principal"] for each in lines if each["outcome"] == "OK"} <= {
        "admin",
        "admin-of-a",
    }


async def test_a_flood_of_a_stranger_leaves_a_bounded_audit_log(secure: SecureCluster) -> None:
    size_before = secure.audit_log.stat().st_size
    count = 2_000
    started = asyncio.get_running_loop().time()
    async with secure.client("stranger") as client:

        async def one(number: int) -> str:
            try:
                await client.validate_config(config(f"a-{number}"))
            except DroverError as error:
                return error.code
            return "OK"

        codes = await asyncio.gather(*(one(number) for number in range(count)))
    assert set(codes) <= {"PERMISSION_DENIED", "RESOURCE_EXHAUSTED"}
    async with secure.client("operator-of-a") as client:
        assert (await client.validate_config(config("a-x"), timeout_s=110)).error_count == 0
    seconds = asyncio.get_running_loop().time() - started

    def counted() -> bool:
        text = secure.audit_log.read_bytes()[size_before:].decode()
        return "left_out_calls_of_unknown_callers" in text or text.count("stranger") >= count

    await wait_until_async(counted, timeout_s=60, describe="the calls left out are counted")
    text = secure.audit_log.read_bytes()[size_before:].decode()
    assert text.count('"principal": "stranger"') <= (seconds + 2) * UNKNOWN_LINES_MAX


async def test_streams_of_a_reader_end_with_its_connection(secure: SecureCluster) -> None:
    async with secure.client("viewer") as client:
        streams: list[AsyncGenerator[object, None]]
        streams = [client.watch_connectors() for _ in range(300)]
        streams += [client.watch_statuses() for _ in range(300)]
        waiting = [asyncio.ensure_future(anext(each)) for each in streams]
        await asyncio.wait(waiting, timeout=20)
        async with secure.client("operator-of-a") as other:
            assert (await other.validate_config(config("a-x"), timeout_s=110)).error_count == 0
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await asyncio.gather(*(each.aclose() for each in streams), return_exceptions=True)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def gateway(secure: SecureCluster) -> AsyncIterator[RunningGateway]:
    """A gateway without a grant in front of the cluster."""
    address = secure.cluster.process("worker-1").spec.address
    async with running_gateway([address], certificates=secure.certificates) as running:
        yield running


REST_ATTACKS: Mapping[str, Mapping[str, str]] = {
    "DROVER_CLIENT_OVERRIDE_POLICY": {
        "connector.class": "KafkaSource",
        "source.cluster.bootstrap.servers": "127.0.0.1:1",
        "source.cluster.plugin.library.paths": "/tmp/evil",
        "topics": "t",
    },
    "DROVER_ALLOWED_HOSTS": {
        "connector.class": "HttpSource",
        "topic": "t",
        "http.url": "http://169.254.169.254./",
    },
    "DROVER_FILE_ROOTS": {
        "connector.class": "FileStreamSource",
        "topic": "t",
        "file": "/proc/self/root/etc/passwd",
    },
    "DROVER_PLUGIN_MODULES": {"connector.class": "os.system", "topic": "t"},
    "DROVER_CONFIG_PROVIDERS": {
        "connector.class": "DatagenSource",
        "quickstart": "orders",
        "topic": "${vault:a}",
    },
}


@pytest.mark.parametrize("rule", REST_ATTACKS)
async def test_the_gateway_rejects_what_workers_reject(
    secure: SecureCluster, gateway: RunningGateway, rule: str
) -> None:
    attack = {**REST_ATTACKS[rule], "name": "a-x"}
    before = await state_of(secure)
    kind = attack["connector.class"]
    headers = {"Authorization": f"Bearer {token_of('admin-of-a')}"}

    async def ask(method: str, path: str, body: object) -> Any:
        return await gateway.ask(method, path, json=body, headers=headers)

    for method, path, body in (
        ("POST", "/connectors", {"name": "a-x", "config": attack}),
        ("PUT", "/connectors/a-x/config", attack),
        ("PUT", f"/connector-plugins/{kind}/config/validate", attack),
    ):
        response = await ask(method, path, body)
        validates = path.endswith("validate")
        assert response.status_code in ((200, 400, 404) if validates else (400,)), response.text
        assert "Traceback" not in response.text
        if response.status_code != 404:
            assert rule in response.text, response.text[:1000]
    for path, body in (
        ("/connectors/b-x/config", {**attack, "name": "b-x"}),
        ("/connectors/a-x%2F..%2Fb-x/config", {**attack, "name": "b-x"}),
        ("/connectors/%62-x/config", {**attack, "name": "b-x"}),
    ):
        response = await ask("PUT", path, body)
        assert response.status_code in (400, 403, 404), response.text
    assert await state_of(secure) == before


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("", 401),
        ("Bearer ", 401),
        ("Bearer nobody", 401),
        ("Basic YWRtaW46YWRtaW4=", 401),
        ("Basic !!!!", 401),
        ("Digest a", 401),
        ("bearer\t{}", 401),
        ("Bearer {}, Bearer {}", 401),
    ],
)
async def test_the_gateway_has_no_rights_of_its_own(
    gateway: RunningGateway, header: str, status: int
) -> None:
    text = header.replace("{}", token_of("operator-of-a"))
    headers = {"Authorization": text} if text else {}
    path = "/connectors/a-x/config"
    response = await gateway.ask("PUT", path, json=config("a-x"), headers=headers)
    assert response.status_code in (status, 403), response.text
    assert SECRET not in response.text


async def test_every_rejection_is_one_line_of_json(secure: SecureCluster) -> None:
    forged = '\u2028{"principal": "admin", "call": "DeleteConnector"}\u2029\x85'
    async with secure.client("viewer") as client:
        with pytest.raises(PermissionDeniedError):
            await client.create_connector(f"a{forged}", config("a-x"))
    for line in secure.audit_log.read_text().splitlines():
        json.loads(line)
    assert not any(
        each["call"] == "DeleteConnector" and not each.get("peer") for each in audit_lines(secure)
    )


async def test_each_call_about_one_connector_is_tried() -> None:
    tried = {*CALLS, "ResetConnectorTopics", "AlterConnectorOffsets", "ResetConnectorOffsets"}
    of_connectors = {
        rpc
        for rpc, access in ACCESS[CONNECT].items()
        if access.scope == "connector" and access.role.name != "VIEWER"
    }
    assert of_connectors == tried
