"""Invalid requests of every kind; none affects the cluster."""

import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from drover.api.config_store.v1 import config_store_service_pb2 as config_pb
from drover.api.config_store.v1.config_store_service_pb2_grpc import ConfigStoreServiceStub
from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.api.connect.v1.connect_service_pb2_grpc import ConnectServiceStub
from drover.api.coordinator.v1 import coordinator_service_pb2 as coordinator_pb
from drover.api.coordinator.v1.coordinator_service_pb2_grpc import CoordinatorServiceStub
from drover.api.status_store.v1 import status_store_service_pb2 as status_pb
from drover.api.status_store.v1.status_store_service_pb2_grpc import StatusStoreServiceStub
from drover.client import ConnectClient, channel
from drover.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    Reason,
    ResourceExhaustedError,
)
from drover.rpc.status import from_rpc_error
from tests.support import plugins_for_tests as plugins
from tests.support.shared_cluster import SharedCluster, assert_readable

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.usefixtures("unharmed"),
]

SOURCE = {"connector.class": "FileStreamSource", "file": "/nowhere/in.txt", "topic": "nowhere"}
SINK = {"connector.class": "FileStreamSink", "file": "/tmp/never-made.txt", "topics": "nowhere"}
MIB = 1024 * 1024


def fields(error: object) -> list[str]:
    assert isinstance(error, InvalidArgumentError)
    return sorted(violation.field for violation in error.violations)


async def faults(shared: SharedCluster, name: str, config: Mapping[str, str]) -> list[str]:
    """The invalid fields, which create and validate report alike."""
    created = await shared.refusal(shared.client.create_connector(name, config))
    assert created.reason is Reason.INVALID_CONFIG
    found = fields(created)
    validated = await shared.client.validate_config({**config, "name": name})
    assert sorted(violation.field for violation in validated.violations) == found
    assert validated.error_count == len(found)
    return found


# Configs


async def test_a_class_that_is_not_there_is_named(shared: SharedCluster) -> None:
    config = {**SOURCE, "connector.class": "org.example.NoSuchConnector"}
    error = await shared.refusal(shared.client.create_connector("a", config))
    assert fields(error) == ['config["connector.class"]']
    assert isinstance(error, InvalidArgumentError)
    assert "org.example.NoSuchConnector" in error.violations[0].description
    validated = await shared.client.validate_config({**config, "name": "a"})
    assert [each.field for each in validated.violations] == ['config["connector.class"]']


@pytest.mark.parametrize("config", [{}, {"connector.class": ""}, {"connector.class": " \t"}])
async def test_without_a_class_the_class_is_what_is_missing(
    shared: SharedCluster, config: dict[str, str]
) -> None:
    assert await faults(shared, "a", config) == ['config["connector.class"]']


async def test_three_faults_are_three_violations_from_create_and_validate_alike(
    shared: SharedCluster,
) -> None:
    config = {"connector.class": "FileStreamSource", "file": "not/absolute", "tasks.max": "many"}
    assert await faults(shared, "a", config) == [
        'config["file"]',
        'config["tasks.max"]',
        'config["topic"]',
    ]


@pytest.mark.parametrize("value", ["0", "-1", "many", "", "1.5", "99999999999", "1e3", "\u0663x"])
async def test_a_wrong_tasks_max_is_one_fault(shared: SharedCluster, value: str) -> None:
    assert await faults(shared, "a", {**SOURCE, "tasks.max": value}) == ['config["tasks.max"]']


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({**SINK, "tasks.max": "2"}, "tasks.max"),
        ({**SINK, "topics": ""}, "topics"),
        ({**SINK, "topics": "a,a"}, "topics"),
        ({**SINK, "topics": "a/b"}, "topics"),
        ({**SINK, "file": "relative.txt"}, "file"),
        ({**SINK, "file": "/tmp/"}, "file"),
        ({**SINK, "file": "/tmp/\0"}, "file"),
        ({**SOURCE, "topic": ".."}, "topic"),
        ({**SOURCE, "topic": "t" * 300}, "topic"),
        ({**SOURCE, "topic.partitions": "0"}, "topic.partitions"),
        ({**SOURCE, "batch.max.bytes": "lots"}, "batch.max.bytes"),
        ({**SOURCE, "partitioner.keyless": "anywhere"}, "partitioner.keyless"),
    ],
)
async def test_a_malformed_setting_is_named(
    shared: SharedCluster, config: dict[str, str], field: str
) -> None:
    assert await faults(shared, "a", config) == [f'config["{field}"]']


async def test_of_two_hundred_faults_some_are_shown_and_the_rest_counted(
    shared: SharedCluster,
) -> None:
    config = {
        "connector.class": plugins.plugin(plugins.ManySettings),
        **{f"setting.{number:03}": "no number " * 5 for number in range(plugins.SETTING_COUNT)},
    }
    error = await shared.refusal(shared.client.create_connector("a", config))
    assert isinstance(error, InvalidArgumentError)
    assert error.reason is Reason.INVALID_CONFIG
    assert "200 faults" in error.message
    *shown, last = error.violations
    assert len(shown) > 10
    assert last.description == f"+{200 - len(shown)} more"
    validated = await shared.client.validate_config({**config, "name": "a"})
    assert (validated.error_count, len(validated.violations)) == (200, 200)


async def test_over_a_mebibyte_a_config_is_too_large(shared: SharedCluster) -> None:
    config = {**SOURCE, "comment": "x" * MIB}
    for call in (
        shared.client.create_connector("a", config),
        shared.client.put_connector_config("a", config),
        shared.client.validate_config(config),
    ):
        error = await shared.refusal(call)
        assert error.reason is Reason.TOO_LARGE
        assert "1 MiB" in error.message


async def test_just_below_a_mebibyte_a_config_works(shared: SharedCluster) -> None:
    config = {**SOURCE, "comment": "x" * (MIB - 1024)}
    async with shared.connector("large", config):
        await shared.cluster.wait_for_task("large")
        assert (await shared.client.get_connector("large")).config["comment"] == config["comment"]


async def test_a_request_of_five_mebibytes_is_refused_by_the_transport(
    shared: SharedCluster,
) -> None:
    config = {**SOURCE, "comment": "x" * (5 * MIB)}
    error = await shared.refusal(shared.client.create_connector("a", config))
    assert isinstance(error, ResourceExhaustedError)
    assert error.reason is Reason.TOO_LARGE


# Names


@pytest.mark.parametrize(
    "name",
    ["", "   ", "a\nb", "a\x00b", "\x1b[31m", "a/\x07b", "..\x1b\\..", "n" * 300, "x" * 5000],
)
async def test_a_bad_name_is_told_by_every_call_that_makes_one(
    shared: SharedCluster, name: str
) -> None:
    for call in (
        shared.client.create_connector(name, SOURCE),
        shared.client.put_connector_config(name, SOURCE),
    ):
        error = await shared.refusal(call)
        assert error.reason is Reason.INVALID_CONFIG
        assert set(fields(error)) == {"name"}


async def test_a_config_of_another_connectors_name_is_refused(shared: SharedCluster) -> None:
    config = {**SOURCE, "name": shared.flow.source}
    for call in (
        shared.client.create_connector("other", config),
        shared.client.put_connector_config("other", config),
    ):
        error = await shared.refusal(call)
        assert fields(error) == ['config["name"]']


async def test_creating_twice_is_refused_and_changes_nothing(shared: SharedCluster) -> None:
    name = shared.flow.source
    before = await shared.client.get_connector(name)
    error = await shared.refusal(shared.client.create_connector(name, SOURCE))
    assert isinstance(error, AlreadyExistsError)
    assert error.reason is Reason.CONNECTOR_ALREADY_EXISTS
    assert await shared.client.get_connector(name) == before


Ask = Callable[[ConnectClient], Awaitable[object]]


@pytest.mark.parametrize("name", ["ghost", "", "a/b", "a\nb", "g" * 5000])
async def test_every_call_on_an_unknown_connector_says_that_it_is_not_there(
    shared: SharedCluster, name: str
) -> None:
    asks: list[Ask] = [
        lambda c: c.get_connector(name),
        lambda c: c.get_connector_status(name),
        lambda c: c.delete_connector(name),
        lambda c: c.pause_connector(name),
        lambda c: c.resume_connector(name),
        lambda c: c.stop_connector(name),
        lambda c: c.restart_connector(name),
        lambda c: c.restart_connector(name, include_tasks=True, only_failed=True),
        lambda c: c.restart_task(name, 0),
        lambda c: c.list_tasks(name),
        lambda c: c.get_connector_offsets(name),
    ]
    for ask in asks:
        error = await shared.refusal(ask(shared.client))
        assert isinstance(error, NotFoundError)
        assert error.reason is Reason.CONNECTOR_NOT_FOUND


@pytest.mark.parametrize("task", [1, 77, -1, 2**31 - 1])
async def test_a_task_that_is_not_there_cannot_be_restarted(
    shared: SharedCluster, task: int
) -> None:
    error = await shared.refusal(shared.client.restart_task(shared.flow.source, task))
    assert error.reason is Reason.TASK_NOT_FOUND


async def test_an_unknown_plugin_is_not_found(shared: SharedCluster) -> None:
    for name in ("org.example.NoSuchConnector", "", "a b", "os.path", "p" * 5000):
        error = await shared.refusal(shared.client.get_plugin(name))
        assert error.reason is Reason.PLUGIN_NOT_FOUND, name


# The wire


async def test_unknown_enum_values_and_bad_pages_are_refused(shared: SharedCluster) -> None:
    async with channel(shared.cluster.workers[0]) as connection:
        stub = ConnectServiceStub(connection)
        state = pb.CreateConnectorRequest(name="a", config=SOURCE)
        # a value that only a newer client knows
        state.MergeFromString(b"\x18\x63")
        for call in (
            stub.CreateConnector(state, timeout=20),
            stub.ListConnectors(pb.ListConnectorsRequest(page_size=-1), timeout=20),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert_readable(from_rpc_error(caught.value))


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\x0a\x04\xff\xfe\xfd\xfc"])
async def test_bytes_that_are_no_request_are_refused(shared: SharedCluster, data: bytes) -> None:
    async with channel(shared.cluster.workers[0]) as connection:
        call: Any = connection.unary_unary("/drover.api.connect.v1.ConnectService/CreateConnector")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(data, timeout=20)
        error = from_rpc_error(caught.value)
        assert error.reason is Reason.INVALID_REQUEST
        assert_readable(error)


async def test_a_method_that_is_not_there_is_unimplemented(shared: SharedCluster) -> None:
    for process in shared.cluster.supervisor.processes.values():
        async with channel(process.spec.address) as connection:
            call: Any = connection.unary_unary("/drover.api.connect.v1.ConnectService/MakeCoffee")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call(b"", timeout=20)
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_internal_services_refuse_calls_without_a_deadline(shared: SharedCluster) -> None:
    address = {name: p.spec.address for name, p in shared.cluster.supervisor.processes.items()}
    async with (
        channel(address["coordinator"]) as coordinator,
        channel(address["config-store"]) as config_store,
        channel(address["status-store"]) as status_store,
    ):
        for call in (
            CoordinatorServiceStub(coordinator).ListGroups(coordinator_pb.ListGroupsRequest()),
            ConfigStoreServiceStub(config_store).GetEndOffset(config_pb.GetEndOffsetRequest()),
            StatusStoreServiceStub(status_store).PutStatuses(status_pb.PutStatusesRequest()),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            error = from_rpc_error(caught.value)
            assert error.reason is Reason.MISSING_DEADLINE
            assert "deadline" in error.message


# The command


@pytest.mark.parametrize(
    ("suffix", "text", "said"),
    [  # other invalid definitions: tests/unit/cli/test_definitions.py
        (".json", '{"name": "a", "config": {"file": {}}}', "config.file"),
        (".json", '{"name": "a"', ":1:"),
        (".yaml", "name: a\nname: b\n", "duplicated"),
        (".yaml", "config: {connector.class: FileStreamSource}", 'no "name"'),
    ],
)
async def test_a_file_that_is_no_definition_is_one_line_with_its_name(
    shared: SharedCluster, tmp_path: Path, suffix: str, text: str, said: str
) -> None:
    file = tmp_path / f"definition{suffix}"
    file.write_text(text)
    done = await shared.drover("connector", "create", "-f", str(file))
    assert done.exit_code == 2
    assert len(done.err.splitlines()) == 1
    assert file.name in done.err
    assert said in done.err


async def test_what_the_cluster_refuses_the_command_tells_and_exits_with_1(
    shared: SharedCluster, tmp_path: Path
) -> None:
    faulty = {"connector.class": "FileStreamSink", "tasks.max": "many"}
    for command in (("connector", "create"), ("connector", "apply"), ("config", "validate")):
        definition = json.dumps({"name": "a\nb", "config": faulty})
        done = await shared.drover(*command, "-f", "-", stdin=definition.encode())
        assert done.exit_code == 1, command
        for setting in ("tasks.max", "file", "topics", "name"):
            assert setting in done.out + done.err, command
    large = tmp_path / "large.json"
    large.write_text(json.dumps({"name": "a", "config": {**SOURCE, "comment": "x" * 5 * MIB}}))
    done = await shared.drover("connector", "create", "-f", str(large))
    assert (done.exit_code, len(done.err.splitlines())) == (1, 1)
    for arguments in (
        ("connector", "status", "ghost"),
        ("connector", "delete", "ghost"),
        ("connector", "restart", "ghost", "--task", "3"),
        ("plugin", "describe", "org.example.NoSuchConnector"),
    ):
        done = await shared.drover(*arguments)
        assert (done.exit_code, len(done.err.splitlines())) == (1, 1), arguments
