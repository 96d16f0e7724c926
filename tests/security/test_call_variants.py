"""Calls through which a caller could change, read or stop what belongs to others."""

import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from mcp import Client, StdioServerParameters

from drover.api.common.v1.topics_pb2 import ProduceFormat, ProduceOptions
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.errors import (
    DroverError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
)
from tests.support import deadly_plugins
from tests.support import plugins_for_tests as plugins
from tests.support.attacks import (
    TIMEOUT_S,
    Attack,
    audit_lines,
    check_rejection,
    named,
    state_of,
    violations,
)
from tests.support.certificates import Authority, issue
from tests.support.plugins_for_tests import plugin
from tests.support.secure_cluster import SECRET, SecureCluster
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.faults("security"),
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.asyncio(loop_scope="session"),
]

ONLY_OF_A = ("operator-of-a", "admin-of-a")
ASK = "ask an administrator to grant it in the access file"


def datagen(name: str) -> dict[str, str]:
    return {
        "name": name,
        "connector.class": "DatagenSource",
        "quickstart": "orders",
        "topic": "t",
        "max.records": "1",
    }


async def check_line(secure: SecureCluster, user: str, call: str, outcome: str) -> None:
    """Wait until the audit log has a call of a user with this outcome."""

    def is_there() -> bool:
        return any(
            (each["call"], each["principal"], each["outcome"]) == (call, user, outcome)
            for each in audit_lines(secure)
        )

    await wait_until_async(is_there, describe=f"{call} of {user} is in the audit log")


async def check_denied(call: Any, role: str) -> None:
    """Check that a call is rejected with the role that it needs, and who can grant it."""
    with pytest.raises(PermissionDeniedError) as caught:
        await call
    assert f"needs the role {role}" in str(caught.value)
    assert ASK in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest_asyncio.fixture(loop_scope="session")
async def of_others(secure: SecureCluster) -> AsyncIterator[str]:
    """A connector that users of ``a-*`` must not reach, with two revisions."""
    async with secure.client("admin") as client:
        await client.put_connector_config("b-x", datagen("b-x"))
        await client.put_connector_config("b-x", {**datagen("b-x"), "topic": "u"})
        yield "b-x"
        await client.delete_connector("b-x")


# RollbackConnector


async def test_a_rollback_needs_the_rights_of_a_put(secure: SecureCluster, of_others: str) -> None:
    before = await state_of(secure)
    for user in (*ONLY_OF_A, "viewer"):
        async with secure.client(user) as client:
            await check_denied(client.rollback_connector(of_others, 1), "admin")
    async with secure.client("operator-of-a") as client:
        await check_denied(client.rollback_connector("a-x", 1), "admin")
    assert await state_of(secure) == before
    await check_line(secure, "operator-of-a", "RollbackConnector", "PERMISSION_DENIED")


@pytest.mark.parametrize("revision", [0, -1, 2**62, 999])
async def test_a_rollback_to_no_revision_changes_nothing(
    secure: SecureCluster, of_others: str, revision: int
) -> None:
    before = await state_of(secure)
    async with secure.client("admin") as client:
        with pytest.raises((InvalidArgumentError, NotFoundError, FailedPreconditionError)):
            await client.rollback_connector(of_others, revision)
    assert await state_of(secure) == before


async def test_a_rollback_meets_the_present_rules(secure: SecureCluster) -> None:
    file = secure.cluster.directory / "files" / "once.txt"
    file.parent.mkdir(exist_ok=True)
    file.write_text("a\n")
    source = {"connector.class": "FileStreamSource", "file": str(file), "topic": "t"}
    async with secure.client("admin-of-a") as client:
        await client.create_connector("a-roll", source, timeout_s=TIMEOUT_S)
        first = (await client.get_connector("a-roll")).revision
        await client.put_connector_config("a-roll", datagen("a-roll"), timeout_s=TIMEOUT_S)
        before = await state_of(secure)
        for target in ("/etc/passwd", "/proc/self/environ", str(secure.certificates / "ca.pem")):
            file.unlink()
            file.symlink_to(target)
            with pytest.raises(InvalidArgumentError) as caught:
                await client.rollback_connector("a-roll", first, timeout_s=TIMEOUT_S)
            told = str([each.description for each in caught.value.violations])
            assert "DROVER_FILE_ROOTS" in told
            assert await state_of(secure) == before
        await check_line(secure, "admin-of-a", "RollbackConnector", "INVALID_ARGUMENT")
        await client.delete_connector("a-roll")
    file.unlink()


# ReplayDeadLetters


async def test_dead_letters_of_a_shared_queue_are_shown_to_their_connector_only(
    secure: SecureCluster,
) -> None:
    queue = {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "letters",
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
        "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    files = secure.cluster.directory / "files"
    files.mkdir(exist_ok=True)
    canary = "not json CANARY-OF-B"
    async with secure.client("admin") as client:
        for name in ("a-sink", "b-sink"):
            source = files / f"{name}.txt"
            source.write_text(f"{canary if name == 'b-sink' else 'not json of a'}\n")
            await client.create_connector(
                name.replace("sink", "source"),
                {
                    "connector.class": "FileStreamSource",
                    "file": str(source),
                    "topic": f"{name}-in",
                    "value.converter": "StringConverter",
                },
                timeout_s=TIMEOUT_S,
            )
            await client.create_connector(
                name,
                {
                    "connector.class": "FileStreamSink",
                    "file": str(files / f"{name}.out"),
                    "topics": f"{name}-in",
                    **queue,
                },
                timeout_s=TIMEOUT_S,
            )

        async def has_both() -> bool:
            try:
                found = await client.get_topic_record_count(topic_query("letters"))
            except NotFoundError:
                return False
            return int(found.record_count) >= 2

        await wait_until_async(has_both, timeout_s=120, describe="both letters are in the queue")
        forged = ProduceOptions(
            topic="letters", format=ProduceFormat.PRODUCE_FORMAT_LINES, value_converter="string"
        )
        await client.produce_records(forged, f"{canary} without a header\n".encode())
    selections = (
        pb.ReplayDeadLettersRequest(),
        pb.ReplayDeadLettersRequest(conditions=["value ~ CANARY"]),
        pb.ReplayDeadLettersRequest(conditions=["header.__connect.errors.connector.name=b-sink"]),
        pb.ReplayDeadLettersRequest(start_offset=0, end_offset=1_000, row_count=100),
        pb.ReplayDeadLettersRequest(force=True, row_count=1_000),
    )
    async with secure.client("operator-of-a") as client:
        for selection in selections:
            selection.name, selection.dry_run = "a-sink", True
            try:
                found = str(await client.replay_dead_letters(selection, timeout_s=TIMEOUT_S))
            except DroverError as error:
                found = f"{error} {getattr(error, 'violations', '')}"
            assert "CANARY" not in found, selection
            selection.name = "b-sink"
            await check_denied(client.replay_dead_letters(selection), "operator")
    await check_line(secure, "operator-of-a", "ReplayDeadLetters", "PERMISSION_DENIED")
    async with secure.client("admin") as client:
        for name in ("a-sink", "b-sink", "a-source", "b-source"):
            await client.delete_connector(name)


def topic_query(topic: str) -> Any:
    from drover.api.common.v1.topics_pb2 import RecordQuery

    return RecordQuery(topic=topic)


# ProduceRecords


async def test_records_are_produced_by_admins_of_the_cluster_only(secure: SecureCluster) -> None:
    before = await state_of(secure)
    options = ProduceOptions(topic="t", format=ProduceFormat.PRODUCE_FORMAT_LINES)
    for user in (*ONLY_OF_A, "viewer", "stranger"):
        async with secure.client(user) as client:
            await check_denied(client.produce_records(options, b"x\n"), "admin")
            options.connector = "a-x"
            await check_denied(client.produce_records(options, b"x\n"), "admin")
            options.connector = ""
    await check_line(secure, "admin-of-a", "ProduceRecords", "PERMISSION_DENIED")
    assert await state_of(secure) == before


REGISTRY = "value.converter.schema.registry"


@pytest.mark.parametrize(
    "settings",
    [
        {f"{REGISTRY}.url": "http://169.254.169.254/"},
        {f"{REGISTRY}.url": "http://[::ffff:a9fe:a9fe]/"},
        {f"{REGISTRY}.url": "http://127.0.0.1:1", f"{REGISTRY}.ssl.truststore.location": "/etc"},
        {f"{REGISTRY}.url": "${env:CANARY}"},
        {f"{REGISTRY}.url": "file:///etc/passwd"},
    ],
)
async def test_the_converter_of_produced_records_follows_the_rules(
    secure: SecureCluster, settings: Mapping[str, str]
) -> None:
    options = ProduceOptions(
        topic="t",
        format=ProduceFormat.PRODUCE_FORMAT_LINES,
        value_converter="avro",
        config=settings,
    )
    async with secure.client("admin") as client:
        with pytest.raises(DroverError) as caught:
            await client.produce_records(options, b'{"a": 1}\n', timeout_s=TIMEOUT_S)
    told = f"{caught.value} {getattr(caught.value, 'violations', '')}"
    assert SECRET not in told
    assert "Traceback" not in told


@pytest.mark.parametrize("topic", ["../x", "drover-configs", "a\0b", "", "x" * 300, "__offsets"])
async def test_records_reach_no_internal_or_missing_topic(
    secure: SecureCluster, topic: str
) -> None:
    options = ProduceOptions(topic=topic, format=ProduceFormat.PRODUCE_FORMAT_LINES)
    async with secure.client("admin") as client:
        with pytest.raises((InvalidArgumentError, NotFoundError, FailedPreconditionError)):
            await client.produce_records(options, b"x\n", timeout_s=TIMEOUT_S)


# ReloadPlugins and quarantine


async def test_plugins_are_reloaded_by_operators_of_the_cluster_only(
    secure: SecureCluster,
) -> None:
    replaced = secure.cluster.log("worker-1").count("replacing the engine")
    async with secure.client("admin") as client:
        worker = (await client.get_cluster_info()).worker_id
    for user in (*ONLY_OF_A, "viewer", "stranger"):
        async with secure.client(user) as client:
            for worker_id in ("", worker, "127.0.0.1:1", "../x"):
                for everything in (False, True):
                    call = client.reload_plugins(worker_id, everything=everything)
                    await check_denied(call, "operator")
    async with secure.client("admin") as client:
        for worker_id in ("127.0.0.1:1", "169.254.169.254:80", "../x", "a\nb"):
            with pytest.raises(DroverError) as caught:
                await client.reload_plugins(worker_id)
            assert "Traceback" not in str(caught.value)
    assert secure.cluster.log("worker-1").count("replacing the engine") == replaced
    await check_line(secure, "admin-of-a", "ReloadPlugins", "PERMISSION_DENIED")


BAD_PLUGINS = (
    plugins.HangsInStart,
    plugins.TaskHangsInStart,
    plugins.RaisesInTaskConfigs,
    plugins.RaisesInPoll,
    plugins.HangsInPoll,
)


async def test_a_bad_plugin_of_one_caller_stops_no_other_connector(
    secure: SecureCluster, of_others: str
) -> None:
    async with secure.client("admin") as admin:
        async with secure.client("admin-of-a") as client:
            for number, kind in enumerate(BAD_PLUGINS):
                config = {"connector.class": plugin(kind), "topic": "t"}
                await client.create_connector(f"a-bad-{number}", config, timeout_s=TIMEOUT_S)
            config = {
                "connector.class": plugin(deadly_plugins.DeadlySource),
                "topic": "t",
                "how": "segfault",
            }
            await client.create_connector("a-deadly", config, timeout_s=TIMEOUT_S)

            async def is_told() -> bool:
                status = await client.get_connector_status("a-deadly")
                return "RUNNING" not in state_text(status)

            await wait_until_async(is_told, timeout_s=120, describe="the deadly one has failed")
            await check_denied(client.restart_connector(of_others), "operator")
            found = await client.validate_config({**datagen("a-x")}, timeout_s=TIMEOUT_S)
            assert found.error_count == 0

        async def runs() -> bool:
            return "RUNNING" in state_text(await admin.get_connector_status(of_others))

        await wait_until_async(runs, timeout_s=120, describe="the others' connector runs")
        for name in ("a-deadly", *(f"a-bad-{n}" for n in range(len(BAD_PLUGINS)))):
            await admin.delete_connector(name)


def state_text(status: Any) -> str:
    tasks = [pb.RunState.Name(each.state) for each in status.tasks]
    return " ".join([pb.RunState.Name(status.connector.state), *tasks])


# Hard links, and host names


def hard_links(secure: SecureCluster) -> dict[str, Path]:
    """Hard links below the roots to files that no connector may read."""
    files = secure.cluster.directory / "files"
    files.mkdir(exist_ok=True)
    data = next((secure.cluster.directory).rglob("config.db"))
    targets = {
        "key": next(secure.certificates.glob("service*key.pem")),
        "access": secure.certificates / "access.yaml",
        "store": data,
        "audit": secure.audit_log,
    }
    found = {}
    for name, target in targets.items():
        link = files / f"hard-{name}.txt"
        link.unlink(missing_ok=True)
        link.hardlink_to(target)
        found[name] = link
    return found


async def test_hard_links_to_files_of_the_worker_are_rejected(secure: SecureCluster) -> None:
    links = hard_links(secure)
    before = await state_of(secure)
    async with secure.client("admin-of-a") as client:
        for link in links.values():
            configs: tuple[Mapping[str, str], ...] = (
                {"connector.class": "FileStreamSource", "file": str(link), "topic": "t"},
                {"connector.class": "FileStreamSink", "file": str(link), "topics": "t"},
                {
                    "connector.class": "FilesSource",
                    "path": str(link),
                    "topic": "t",
                    "format": "text",
                },
                {
                    "connector.class": "JdbcSource",
                    "connection.url": f"jdbc:sqlite:{link}",
                    "mode": "bulk",
                    "topic.prefix": "t-",
                },
                {
                    "connector.class": "HttpSource",
                    "http.url": "http://127.0.0.1:1/",
                    "topic": "t",
                    "value.converter": "AvroConverter",
                    "value.converter.schema.registry.url": "http://127.0.0.1:1",
                    "value.converter.schema.registry.ssl.truststore.location": str(link),
                },
            )
            for config in configs:
                found = await violations(client, "validate", config)
                check_rejection(Attack(config, "", "belongs to the worker"), found)
                with pytest.raises(InvalidArgumentError):
                    await client.create_connector(
                        "a-x", {"name": "a-x", **config}, timeout_s=TIMEOUT_S
                    )
            glob = {
                "name": "a-x",
                "connector.class": "FilesSource",
                "path": f"{link.parent}/hard-*.txt",
                "topic": "t",
                "format": "text",
            }
            shown = ""
            try:
                shown = str(await client.preview_connector(glob, timeout_s=TIMEOUT_S))
            except DroverError as error:
                shown = str(error)
            assert "PRIVATE KEY" not in shown
            assert "grants" not in shown
            assert "belongs to the worker" in shown
    assert await state_of(secure) == before
    await check_line(secure, "admin-of-a", "CreateConnector", "INVALID_ARGUMENT")
    for link in links.values():
        link.unlink()


# Tools of agents


@asynccontextmanager
async def agent_of(secure: SecureCluster, user: str) -> AsyncIterator[Client]:
    """The tools with the rights of a user."""
    files = issue(
        secure.certificates / f"mcp-{user}", Authority.read(secure.certificates), name=user
    )
    server = StdioServerParameters(
        command=sys.executable,
        args=[
            *("-P", "-m", "drover.cli.main", "mcp", "--write"),
            *("--address", secure.cluster.process("worker-1").spec.address),
        ],
        env={
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "DROVER_TLS_CA": files.ca,
            "DROVER_TLS_CERT": files.cert,
            "DROVER_TLS_KEY": files.key,
        },
    )
    async with Client(server) as client:
        yield client


async def told_by(client: Client, tool: str, **arguments: Any) -> str:
    found = await client.call_tool(tool, arguments)
    assert found.is_error, found
    text: str = found.content[0].text  # type: ignore[union-attr]
    assert "Traceback" not in text
    assert SECRET not in text
    return text


def actions_on(name: str) -> list[dict[str, Any]]:
    return [
        {"kind": "put", "name": name, "config": datagen(name)},
        {"kind": "patch", "name": name, "settings": {"topic": "x"}},
        *({"kind": kind, "name": name} for kind in ("delete", "pause", "stop", "restart")),
        {"kind": "reset_offsets", "name": name},
        {"kind": "replay", "name": name},
    ]


@pytest.mark.parametrize("user", ["operator-of-a"])
async def test_an_agent_has_the_rights_of_its_user(
    secure: SecureCluster, of_others: str, user: str
) -> None:
    before = await state_of(secure)
    async with agent_of(secure, user) as client:
        for action in actions_on(of_others):
            told = await told_by(client, "apply", action=action, plan_hash="0" * 64)
            assert json.loads(told)["code"] in (
                "PERMISSION_DENIED",
                "FAILED_PRECONDITION",
                "INVALID_ARGUMENT",
            ), told
        config = datagen(of_others)
        for tool in ("preview", "validate_config"):
            told = await told_by(client, tool, config=config)
            assert "needs the role" in told, told
            assert ASK in told, told
        told = await told_by(client, "read_topic", topic="u")
        assert "needs the role" in told, told
    assert await state_of(secure) == before
    await check_line(secure, user, "ValidateConfig", "PERMISSION_DENIED")


@pytest.mark.parametrize(
    "setting",
    [
        {"connector.class": "FileStreamSource", "file": "/proc/self/environ", "topic": "t"},
        {"connector.class": "HttpSource", "http.url": "http://169.254.169.254/", "topic": "t"},
        {"connector.class": "os.system", "topic": "t"},
    ],
)
async def test_an_agents_config_follows_the_rules(
    secure: SecureCluster, setting: dict[str, str]
) -> None:
    before = await state_of(secure)
    config = {**setting, "name": "a-x"}
    async with agent_of(secure, "admin-of-a") as client:
        found = await client.call_tool("validate_config", {"config": config})
        assert found.structured_content is not None
        assert found.structured_content["error_count"] >= 1
        await told_by(client, "preview", config=config)
        action = {"kind": "put", "name": "a-x", "config": config}
        await told_by(client, "plan", action=action)
        await told_by(client, "apply", action=action, plan_hash="0" * 64)
    assert await state_of(secure) == before
    lines = [each for each in audit_lines(secure) if named(each["request"]) == "a-x"]
    assert any(each["call"] == "ValidateConfig" for each in lines)
