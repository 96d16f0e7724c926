"""ConnectService over real gRPC: bad input, waiting calls, watches and secrets."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable
from typing import TYPE_CHECKING, TypeVar

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from structlog.testing import capture_logs

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.api.connect.v1.connect_service_pb2_grpc import ConnectServiceStub
from drover.api.worker.v1 import worker_service_pb2 as worker_pb
from drover.api.worker.v1.worker_service_pb2_grpc import WorkerServiceStub
from drover.codec.common import decode_counts, decode_figures
from drover.errors import InternalError
from drover.model.config import ConfigSnapshot
from drover.model.ids import TaskId
from drover.model.secrets import MASK
from drover.model.status import RecordCounts
from drover_worker.core import events
from tests.support.fake_engine import SINK, SOURCE
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import RunningWorker, WorkerCluster

if TYPE_CHECKING:
    from drover.api.worker.v1.worker_service_pb2_grpc import WorkerServiceAsyncStub

MessageT = TypeVar("MessageT")


def create(name: str, /, **settings: str) -> pb.CreateConnectorRequest:
    return pb.CreateConnectorRequest(name=name, config={"connector.class": SOURCE, **settings})


async def collect(watch: AsyncIterable[MessageT], messages: list[MessageT]) -> None:
    async for message in watch:
        messages.append(message)  # noqa: PERF401 - tests read the list during the watch


def reason(error: grpc.aio.AioRpcError) -> str:
    status = rpc_status.from_call(error)  # type: ignore[arg-type]
    info = error_details_pb2.ErrorInfo()
    assert status is not None
    assert status.details[0].Unpack(info)
    return str(info.reason)


def fields(error: grpc.aio.AioRpcError) -> list[str]:
    status = rpc_status.from_call(error)  # type: ignore[arg-type]
    assert status is not None
    bad = error_details_pb2.BadRequest()
    for detail in status.details:
        if detail.Unpack(bad):
            return [violation.field for violation in bad.field_violations]
    return []


async def test_every_fault_of_a_config_is_told(worker: RunningWorker) -> None:
    source = {"tasks.max": "-1", "unknown": "1", "db.login": MASK, "name": "b"}
    sink = {"connector.class": SINK, "consumer.override.group.id": "drover"}
    for request, expected in (
        (create(""), ["name"]),
        (create("a\x07", **source), ["name", *(f'config["{each}"]' for each in source)]),
        (pb.CreateConnectorRequest(name="a"), ['config["connector.class"]']),
        (
            pb.CreateConnectorRequest(name="a", config=sink),
            ['config["consumer.override.group.id"]'] * 2,
        ),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await worker.stub.CreateConnector(request, timeout=20)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert reason(caught.value) == "INVALID_CONFIG"
        assert sorted(fields(caught.value)) == sorted(expected)


@pytest.mark.parametrize(
    "config",
    [
        {"connector.class": SINK, "consumer.override.group.id": "drover", "topics": "t"},
        {"connector.class": SINK, "consumer.override.group.id": "connect-other", "topics": "t"},
        {"connector.class": SOURCE, "topic": "t", "db.login": MASK},
        {"connector.class": SINK, "topics": "t", "db.login": MASK, "unknown.1": "x"},
    ],
)
async def test_validate_preview_and_create_tell_the_same_faults(
    worker: RunningWorker, config: dict[str, str]
) -> None:
    config = {**config, "name": "a"}
    validated = await worker.stub.ValidateConfig(
        pb.ValidateConfigRequest(config=config), timeout=20
    )
    expected = sorted(each.field for each in validated.violations)
    assert len(expected) == validated.error_count > 0
    for call in (
        worker.stub.CreateConnector(pb.CreateConnectorRequest(name="a", config=config), timeout=20),
        worker.stub.PreviewConnector(pb.PreviewConnectorRequest(config=config), timeout=20),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert reason(caught.value) == "INVALID_CONFIG"
        assert sorted(fields(caught.value)) == expected


async def test_a_config_over_one_mebibyte_is_refused(worker: RunningWorker) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await worker.stub.CreateConnector(create("a", topic="x" * 1024 * 1024), timeout=20)
    assert reason(caught.value) == "TOO_LARGE"


async def test_a_config_with_200_faults_is_told_within_the_limits(worker: RunningWorker) -> None:
    faults = {f"unknown.{index:03}": "x" for index in range(200)}
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await worker.stub.CreateConnector(create("a", **faults), timeout=20)
    assert "200 faults" in str(caught.value.details())
    request = pb.ValidateConfigRequest(config={"connector.class": SOURCE, **faults})
    validation = await worker.stub.ValidateConfig(request, timeout=20)
    assert validation.error_count == len(validation.violations) == 200


async def test_a_preview_needs_no_name_and_has_ten_rows(worker: RunningWorker) -> None:
    request = pb.PreviewConnectorRequest(config={"connector.class": SOURCE, "topic": "t"})
    answer = await worker.stub.PreviewConnector(request, timeout=20)
    assert [row.place for row in answer.preview.rows] == [f"preview:{n}" for n in range(10)]
    assert not answer.preview.truncated


async def test_a_preview_is_checked_as_a_config_that_is_written(worker: RunningWorker) -> None:
    for row_count, config, expected, code in (
        (-1, {}, "row_count", "INVALID_REQUEST"),
        (1001, {}, "row_count", "INVALID_REQUEST"),
        (1, {"topic": MASK}, 'config["topic"]', "INVALID_CONFIG"),
        (1, {"name": "a\nb"}, "name", "INVALID_CONFIG"),
    ):
        whole = {"connector.class": SOURCE, "topic": "t", **config}
        request = pb.PreviewConnectorRequest(config=whole, row_count=row_count)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await worker.stub.PreviewConnector(request, timeout=20)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert reason(caught.value) == code
        assert fields(caught.value) == [expected]


async def test_a_connector_that_cannot_be_previewed_says_why(worker: RunningWorker) -> None:
    config = {"connector.class": SOURCE, "topic": "refused"}
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await worker.stub.PreviewConnector(pb.PreviewConnectorRequest(config=config), timeout=20)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert reason(caught.value) == "PREVIEW_FAILED"
    assert caught.value.details() == "reading has effects"


async def test_a_preview_has_as_many_rows_as_an_answer_holds(worker: RunningWorker) -> None:
    config = {"connector.class": SOURCE, "topic": "large"}
    request = pb.PreviewConnectorRequest(config=config, row_count=1000)
    answer = await worker.stub.PreviewConnector(request, timeout=20)
    assert answer.preview.truncated
    assert 10 < len(answer.preview.rows) < 1000


async def test_names_are_trimmed_and_taken_from_the_config(worker: RunningWorker) -> None:
    created = await worker.stub.CreateConnector(create("  a  "), timeout=20)
    assert created.connector.name == "a"
    created = await worker.stub.CreateConnector(create("", name=" b "), timeout=20)
    assert created.connector.name == "b"
    assert created.connector.config["name"] == "b"


async def test_writes_with_the_same_request_id_are_done_once(worker: RunningWorker) -> None:
    request = create("a")
    request.request_id = "mine"
    first = await worker.stub.CreateConnector(request, timeout=20)
    again = await worker.stub.CreateConnector(request, timeout=20)
    assert first.connector.revision == again.connector.revision
    delete = pb.DeleteConnectorRequest(name="a", request_id="mine too")
    await worker.stub.DeleteConnector(delete, timeout=20)
    await worker.stub.DeleteConnector(delete, timeout=20)


async def test_put_replaces_the_whole_config_under_the_expected_revision(
    worker: RunningWorker,
) -> None:
    created = await worker.stub.CreateConnector(create("a", topic="t"), timeout=20)
    request = pb.PutConnectorConfigRequest(
        name="a",
        config={"connector.class": SOURCE},
        expected_revision=created.connector.revision,
    )
    changed = await worker.stub.PutConnectorConfig(request, timeout=20)
    assert not changed.created
    assert "topic" not in changed.connector.config
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await worker.stub.PutConnectorConfig(request, timeout=20)
    assert caught.value.code() is grpc.StatusCode.ABORTED


async def test_unknown_connectors_are_not_found(worker: RunningWorker) -> None:
    stub = worker.stub
    calls: list[Awaitable[object]] = [
        stub.GetConnector(pb.GetConnectorRequest(name="x"), timeout=20),
        stub.GetConnectorStatus(pb.GetConnectorStatusRequest(name="x"), timeout=20),
        stub.ListTasks(pb.ListTasksRequest(name="x"), timeout=20),
        stub.GetConnectorOffsets(pb.GetConnectorOffsetsRequest(name="x"), timeout=20),
        stub.DeleteConnector(pb.DeleteConnectorRequest(name="x"), timeout=20),
        stub.PauseConnector(pb.PauseConnectorRequest(name="x"), timeout=20),
        stub.ResumeConnector(pb.ResumeConnectorRequest(name="x"), timeout=20),
        stub.StopConnector(pb.StopConnectorRequest(name="x"), timeout=20),
        stub.PatchConnectorConfig(
            pb.PatchConnectorConfigRequest(name="x", remove=["y"]), timeout=20
        ),
        stub.AlterConnectorOffsets(
            pb.AlterConnectorOffsetsRequest(
                name="x", offsets=[pb.ConnectorOffset(partition_json="{}")]
            ),
            timeout=20,
        ),
        stub.ResetConnectorOffsets(pb.ResetConnectorOffsetsRequest(name="x"), timeout=20),
        stub.RestartConnector(pb.RestartConnectorRequest(name="x"), timeout=20),
        stub.RestartTask(pb.RestartTaskRequest(name="x"), timeout=20),
    ]
    for call in calls:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        assert reason(caught.value) == "CONNECTOR_NOT_FOUND"


async def test_an_initial_state_is_honoured(cluster: WorkerCluster, worker: RunningWorker) -> None:
    request = create("a", tasks="2", **{"tasks.max": "2"})
    request.initial_state = pb.TARGET_STATE_STOPPED
    await worker.stub.CreateConnector(request, timeout=20)
    await cluster.state(worker, "a", "STOPPED", "", 0)
    await worker.stub.ResumeConnector(pb.ResumeConnectorRequest(name="a"), timeout=20)
    await cluster.state(worker, "a", "RUNNING", "RUNNING", 2)


@pytest.mark.parametrize(
    "name",
    [
        "n" * 255,
        "n" * 200,
        "\U0001f4a5" * 255,
        "no\u00a0break",
        "wide\u3000space",
        "private\ue000use",
        "a%2Fb",
        "--help",
        "'quoted' \"*\"",
    ],
)
async def test_a_connector_with_any_valid_name_runs(
    cluster: WorkerCluster, worker: RunningWorker, name: str
) -> None:
    await worker.stub.CreateConnector(create(name), timeout=20)
    await cluster.state(worker, name, "RUNNING", "RUNNING", 1)
    request = pb.GetConnectorOffsetsRequest(name=name)
    assert not (await worker.stub.GetConnectorOffsets(request, timeout=20)).offsets
    await worker.stub.StopConnector(pb.StopConnectorRequest(name=name), timeout=20)
    await cluster.state(worker, name, "STOPPED", "", 0)


@pytest.mark.parametrize("name", ["n" * 256, "a\x00b", "a\u200bb", "a\u2028b", "\ud800"])
async def test_a_name_that_cannot_run_is_refused_at_once(worker: RunningWorker, name: str) -> None:
    with pytest.raises((grpc.aio.AioRpcError, ValueError)) as caught:
        await worker.stub.CreateConnector(create(name), timeout=20)
    if isinstance(caught.value, grpc.aio.AioRpcError):
        assert fields(caught.value) == ["name"]


async def test_a_put_of_a_name_with_blanks_changes_the_connector_of_that_name(
    cluster: WorkerCluster, worker: RunningWorker
) -> None:
    await worker.stub.CreateConnector(create("a"), timeout=20)
    put = pb.PutConnectorConfigRequest(name=" a\u00a0", config={"connector.class": SOURCE})
    answer = await worker.stub.PutConnectorConfig(put, timeout=20)
    assert (answer.connector.name, answer.created) == ("a", False)
    await cluster.state(worker, "a", "RUNNING", "RUNNING", 1)


async def test_a_task_that_cannot_start_shows_its_trace(
    cluster: WorkerCluster, worker: RunningWorker
) -> None:
    failing = create("bad", **{"fail.start": "Traceback: x"})
    with capture_logs() as logs:
        await worker.stub.CreateConnector(failing, timeout=20)
        await worker.stub.CreateConnector(create("good"), timeout=20)
        await cluster.state(worker, "good", "RUNNING", "RUNNING", 1)
        status = await cluster.state(worker, "bad", "RUNNING", "FAILED", 1)
    assert status.tasks[0].trace == "Traceback: x"
    (line,) = [each for each in logs if each["log_level"] == "error"]
    assert line["exception"] == "Traceback: x"
    assert (line["connector"], line["task"], line["worker"]) == ("bad", 0, worker.address)


async def test_secrets_are_masked_in_every_answer(worker: RunningWorker) -> None:
    request = create("a", **{"db.login": "s3cret"})
    answers: list[object] = [await worker.stub.CreateConnector(request, timeout=20)]
    listing = pb.ListConnectorsRequest(include_config=True, include_status=True)
    answers += [
        await worker.stub.GetConnector(pb.GetConnectorRequest(name="a"), timeout=20),
        await worker.stub.ListConnectors(listing, timeout=20),
        await worker.stub.ValidateConfig(
            pb.ValidateConfigRequest(config=request.config), timeout=20
        ),
    ]
    for answer in answers:
        assert "s3cret" not in str(answer)
        assert MASK in str(answer)


async def test_connectors_are_listed_by_page(worker: RunningWorker) -> None:
    for name in ("c", "a", "b"):
        await worker.stub.CreateConnector(create(name), timeout=20)
    names, token = [], ""
    for _ in range(2):
        page = await worker.stub.ListConnectors(
            pb.ListConnectorsRequest(page_size=2, page_token=token), timeout=20
        )
        names.append([entry.name for entry in page.connectors])
        token = page.next_page_token
    assert names == [["a", "b"], ["c"]]
    assert token == ""


async def test_plugins_are_listed_and_described(worker: RunningWorker) -> None:
    listed = await worker.stub.ListPlugins(pb.ListPluginsRequest(), timeout=20)
    assert [plugin.class_name for plugin in listed.plugins] == [SINK, SOURCE]
    plugin = await worker.stub.GetPlugin(pb.GetPluginRequest(class_name="IdleSink"), timeout=20)
    assert plugin.plugin.type == pb.CONNECTOR_TYPE_SINK
    assert plugin.plugin.guarantee_embedded == pb.GUARANTEE_EXACTLY_ONCE
    assert plugin.plugin.guarantee_kafka == pb.GUARANTEE_AT_LEAST_ONCE
    assert listed.plugins[1].guarantee_kafka == pb.GUARANTEE_UNSPECIFIED
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await worker.stub.GetPlugin(pb.GetPluginRequest(class_name="Nope"), timeout=20)
    assert reason(caught.value) == "PLUGIN_NOT_FOUND"
    with pytest.raises(grpc.RpcError, match=r"did you mean 'IdleSource'\?"):
        await worker.stub.GetPlugin(pb.GetPluginRequest(class_name="IdleSorce"), timeout=20)


async def test_a_call_before_the_worker_is_settled_waits_and_its_error_names_the_stage(
    cluster: WorkerCluster,
) -> None:
    await cluster.coordinator.kill()
    worker = await cluster.add_worker()
    for _ in range(5):  # on a busy machine the answer may come after the deadline
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await worker.stub.CreateConnector(create("a"), timeout=1.5)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        if "the worker is" in str(caught.value.details()):
            break
    assert "the worker is" in str(caught.value.details())
    waiting = asyncio.ensure_future(worker.stub.CreateConnector(create("a"), timeout=30))
    cluster.coordinator.start()
    assert (await waiting).connector.name == "a"


async def test_cluster_info_is_the_same_through_every_worker(
    cluster: WorkerCluster, worker: RunningWorker
) -> None:
    other = await cluster.add_worker()
    await cluster.settled(worker, other)
    await worker.stub.CreateConnector(create("a"), timeout=20)
    await cluster.state(worker, "a", "RUNNING", "RUNNING", 1)
    await cluster.settled(worker, other)
    infos = [
        await each.stub.GetClusterInfo(pb.GetClusterInfoRequest(), timeout=20)
        for each in (worker, other)
    ]
    assert [info.worker_id for info in infos] == [worker.address, other.address]
    assert len({info.leader_worker_id for info in infos}) == 1
    for info in infos:
        assert info.stage == "the worker is running its assignment"
        assert [w.worker_id for w in info.workers] == sorted((worker.address, other.address))
        assert [task for w in info.workers for task in w.tasks] == ["a-0"]
        assert [w.worker_id for w in info.workers if w.leader] == [info.leader_worker_id]


async def test_watched_statuses_come_present_ones_first_then_changes(
    cluster: WorkerCluster, worker: RunningWorker
) -> None:
    await worker.stub.CreateConnector(create("a"), timeout=20)
    await cluster.state(worker, "a", "RUNNING", "RUNNING", 1)
    watch = worker.stub.WatchStatuses(pb.WatchStatusesRequest())
    messages: list[pb.WatchStatusesResponse] = []
    following = asyncio.create_task(collect(watch, messages))
    await wait_until_async(lambda: any(message.synced for message in messages))
    assert [message.status.name for message in messages] == ["a", ""]
    await worker.stub.PauseConnector(pb.PauseConnectorRequest(name="a"), timeout=20)
    await wait_until_async(
        lambda: any(m.status.connector.state == pb.RUN_STATE_PAUSED for m in messages)
    )
    await worker.stub.DeleteConnector(pb.DeleteConnectorRequest(name="a"), timeout=20)
    await wait_until_async(lambda: any(m.removed and m.status.name == "a" for m in messages))
    watch.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_what_became_of_records_is_shown_through_every_worker(
    cluster: WorkerCluster,
) -> None:
    workers = [await cluster.add_worker(counts_interval_ms=50) for _ in range(2)]
    await cluster.settled(*workers)
    tasks = [TaskId("a", 0), TaskId("a", 1)]
    await workers[0].stub.CreateConnector(create("a", tasks="2", **{"tasks.max": "2"}), timeout=20)
    await cluster.running("a", 2, *workers)
    owners = {task: worker for worker in workers for task in worker.tasks}

    def count(task: TaskId, counts: RecordCounts, **figures: int) -> None:
        engine = owners[task].engine
        assert engine is not None
        engine.count(task, counts, **figures)

    async def shown(*expected: RecordCounts | None, total: RecordCounts) -> None:
        async def is_shown() -> bool:
            request = pb.GetConnectorStatusRequest(name="a")
            for worker in workers:
                status = (await worker.stub.GetConnectorStatus(request, timeout=20)).status
                told = [
                    decode_counts(task.counts) if task.HasField("counts") else None
                    for task in status.tasks
                ]
                if told != list(expected) or decode_counts(status.counts) != total:
                    return False
            return True

        await wait_until_async(is_shown)

    count(tasks[0], RecordCounts(10, 6, 2, 1, 1))
    await shown(RecordCounts(10, 6, 2, 1, 1), None, total=RecordCounts(10, 6, 2, 1, 1))
    count(tasks[1], RecordCounts(5, 5), slot_lag_bytes=7)
    count(tasks[0], RecordCounts(20, 16, 2, 1, 1))
    await shown(
        RecordCounts(20, 16, 2, 1, 1), RecordCounts(5, 5), total=RecordCounts(25, 21, 2, 1, 1)
    )
    request = pb.GetConnectorStatusRequest(name="a")
    for worker in workers:
        status = (await worker.stub.GetConnectorStatus(request, timeout=20)).status
        assert [decode_figures(task.figures) for task in status.tasks] == [
            {},
            {"slot_lag_bytes": 7},
        ]


async def test_watched_connectors_come_present_ones_first_then_changes(
    worker: RunningWorker,
) -> None:
    await worker.stub.CreateConnector(create("a"), timeout=20)
    watch = worker.stub.WatchConnectors(pb.WatchConnectorsRequest())
    messages: list[pb.WatchConnectorsResponse] = []
    following = asyncio.create_task(collect(watch, messages))
    await wait_until_async(lambda: any(message.synced for message in messages))
    await worker.stub.CreateConnector(create("b"), timeout=20)
    await wait_until_async(lambda: any(m.connector.name == "b" for m in messages))
    await worker.stub.DeleteConnector(pb.DeleteConnectorRequest(name="a"), timeout=20)
    await wait_until_async(lambda: any(m.removed and m.connector.name == "a" for m in messages))
    watch.cancel()
    await asyncio.gather(following, return_exceptions=True)


@pytest.fixture
async def internal(worker: RunningWorker) -> AsyncIterator["WorkerServiceAsyncStub"]:
    """A client of WorkerService, at the worker's internal port."""
    async with await worker.internal_channel() as channel:
        yield WorkerServiceStub(channel)


async def test_forwarded_calls_are_checked(internal: "WorkerServiceAsyncStub") -> None:
    for request in (
        worker_pb.ForwardRequest(method="Nope", hop_count=1),
        worker_pb.ForwardRequest(method="CreateConnector", hop_count=3),
        worker_pb.ForwardRequest(method="CreateConnector", hop_count=1, request=b"\xff"),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await internal.Forward(request, timeout=20)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await internal.Forward(worker_pb.ForwardRequest(method="GetClusterInfo", hop_count=1))
    assert reason(caught.value) == "MISSING_DEADLINE"


async def test_a_forwarded_config_is_checked_as_one_that_comes_from_a_client(
    internal: "WorkerServiceAsyncStub",
) -> None:
    config = {"connector.class": SOURCE, "name": "a", "db.login": MASK}
    request = pb.PutConnectorConfigRequest(name="a", config=config).SerializeToString()
    # their requests start with the same fields
    for method in ("CreateConnector", "PutConnectorConfig"):
        forward = worker_pb.ForwardRequest(method=method, request=request, hop_count=1)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await internal.Forward(forward, timeout=20)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert fields(caught.value) == ['config["db.login"]']


async def test_clients_and_workers_have_a_port_each(worker: RunningWorker) -> None:
    assert worker.channel is not None
    forward = worker_pb.ForwardRequest(method="GetClusterInfo", hop_count=1)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await WorkerServiceStub(worker.channel).Forward(forward, timeout=20)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    async with grpc.aio.insecure_channel(worker.internal_address) as internal:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ConnectServiceStub(internal).ListPlugins(pb.ListPluginsRequest(), timeout=20)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_watchers_hear_what_was_removed_while_the_config_log_was_not_followed(
    cluster: WorkerCluster, worker: RunningWorker
) -> None:
    await worker.stub.CreateConnector(create("a"), timeout=20)
    await cluster.state(worker, "a", "RUNNING", "RUNNING", 1)
    connectors: list[pb.WatchConnectorsResponse] = []
    statuses: list[pb.WatchStatusesResponse] = []
    watches = [
        asyncio.create_task(
            collect(worker.stub.WatchConnectors(pb.WatchConnectorsRequest()), connectors)
        ),
        asyncio.create_task(
            collect(worker.stub.WatchStatuses(pb.WatchStatusesRequest()), statuses)
        ),
    ]
    await wait_until_async(lambda: connectors and statuses and statuses[-1].synced)
    await wait_until_async(lambda: connectors[-1].synced)
    worker.loop.post(
        events.ConfigsLoaded(ConfigSnapshot(worker.herder.context.view.offset + 1, {}, {}))
    )
    await wait_until_async(lambda: any(m.removed and m.connector.name == "a" for m in connectors))
    await wait_until_async(lambda: any(m.removed and m.status.name == "a" for m in statuses))
    for watch in watches:
        watch.cancel()
    await asyncio.gather(*watches, return_exceptions=True)


async def test_a_worker_that_shuts_down_tells_waiting_callers_to_ask_another_one(
    cluster: WorkerCluster,
) -> None:
    await cluster.coordinator.kill()
    worker = await cluster.add_worker()
    waiting = asyncio.ensure_future(worker.stub.CreateConnector(create("a"), timeout=60))
    await wait_until_async(lambda: len(worker.herder.requests) == 1)
    await worker.service.stop()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await waiting
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert reason(caught.value) == "DRAINING"


async def test_a_worker_does_not_go_on_without_one_of_its_parts(
    worker: RunningWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_args: object, **_settings: object) -> object:
        raise ValueError("a defect")

    monkeypatch.setattr("drover.client.status_store.StatusStoreClient.put_statuses", broken)
    await worker.stub.CreateConnector(create("a"), timeout=20)
    assert worker.service.task is not None
    with pytest.raises(InternalError, match=r"the status writer failed: ValueError\('a defect'\)"):
        await worker.service.task
