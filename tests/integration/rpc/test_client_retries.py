"""Each client method against a server that is unavailable twice: the client retries only the calls
that the contract documents as safe to retry.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
import pytest

from drover.api.common.v1 import ids_pb2
from drover.api.common.v1.topics_pb2 import ProduceOptions, RecordQuery
from drover.api.connect.v1 import connect_service_pb2
from drover.api.coordinator.v1 import coordinator_service_pb2
from drover.client import (
    ConfigStoreClient,
    ConnectClient,
    CoordinatorClient,
    StatusStoreClient,
    WorkerClient,
    calls,
    channel,
)
from drover.errors import UnavailableError
from drover.model.claims import TaskSet
from drover.model.config import DeadLettersChanged, TargetState
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommittedOffset, GroupOffset, OffsetsChange, TopicPartition
from drover.model.status import RunState, Status, StatusWrite
from tests.support.descriptors import elements

FAILURES = 2
LIMIT_S = 30.0
TASK = TaskId("flights", 0)

Call = Callable[[grpc.aio.Channel], Awaitable[object]]


def _coordinator(call: Callable[[CoordinatorClient], Awaitable[object]]) -> Call:
    return lambda own: call(CoordinatorClient(own))


def _config(call: Callable[[ConfigStoreClient], Awaitable[object]]) -> Call:
    return lambda own: call(ConfigStoreClient(own))


def _connect(call: Callable[[ConnectClient], Awaitable[object]]) -> Call:
    return lambda own: call(ConnectClient(own))


def _worker(call: Callable[[WorkerClient], Awaitable[object]]) -> Call:
    return lambda own: call(WorkerClient(own))


def _join(member_id: str) -> Call:
    return _coordinator(
        lambda c: c.join(
            group_id="g",
            member_id=member_id,
            client_id="c",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="connect",
            protocols=(),
            timeout_s=LIMIT_S,
        )
    )


def _change_offsets(
    client: CoordinatorClient, offsets: Sequence[CommittedOffset] | None
) -> Awaitable[None]:
    change = OffsetsChange("flights", TaskSet(1, 0), offsets)
    return client.change_offsets(group_id="g", member_id="m", change=change)


STATUS = StatusWrite(Status(TASK, RunState.RUNNING, "w:1", 1))

#: One client call for each RPC.
CALLS: dict[str, Call] = {
    "CoordinatorService.FindCoordinator": _coordinator(lambda c: c.find_coordinator("g")),
    "CoordinatorService.JoinGroup": _join("member"),
    "CoordinatorService.SyncGroup": _coordinator(
        lambda c: c.sync(group_id="g", member_id="m", generation=1, timeout_s=LIMIT_S)
    ),
    "CoordinatorService.Heartbeat": _coordinator(
        lambda c: c.heartbeat(group_id="g", member_id="m", generation=1)
    ),
    "CoordinatorService.LeaveGroup": _coordinator(lambda c: c.leave(group_id="g", members=())),
    "CoordinatorService.DescribeGroup": _coordinator(lambda c: c.describe("g")),
    "CoordinatorService.ListGroups": _coordinator(lambda c: c.list_groups()),
    "CoordinatorService.ClaimTask": _coordinator(
        lambda c: c.claim_task(
            group_id="g", member_id="m", generation=1, task=TASK, task_config_generation=0
        )
    ),
    "CoordinatorService.CommitOffsets": _coordinator(
        lambda c: c.commit_offsets(group_id="g", tasks=())
    ),
    "CoordinatorService.FetchOffsets": _coordinator(
        lambda c: c.fetch_offsets(group_id="g", connector="flights")
    ),
    "CoordinatorService.AlterOffsets": _coordinator(lambda c: _change_offsets(c, [])),
    "CoordinatorService.DeleteOffsets": _coordinator(lambda c: _change_offsets(c, None)),
    "CoordinatorService.DeleteGroup": _coordinator(lambda c: c.delete_group("g")),
    "CoordinatorService.CommitGroupOffsets": _coordinator(
        lambda c: c.commit_group_offsets(group_id="g", offsets=[GroupOffset("t", 0, 1)])
    ),
    "CoordinatorService.FetchGroupOffsets": _coordinator(
        lambda c: c.fetch_group_offsets(group_id="g")
    ),
    "CoordinatorService.DeleteGroupOffsets": _coordinator(
        lambda c: c.delete_group_offsets(group_id="g", partitions=[TopicPartition("t", 0)])
    ),
    "ConfigStoreService.GetSnapshot": _config(lambda c: c.get_snapshot()),
    "ConfigStoreService.GetEndOffset": _config(lambda c: c.get_end_offset()),
    "ConfigStoreService.ClaimWriter": _config(lambda c: c.claim_writer(owner="w", term=Term(1, 1))),
    "ConfigStoreService.PutConnectorConfig": _config(
        lambda c: c.put_connector_config(name="flights", config={"a": "b"}, writer_epoch=1)
    ),
    "ConfigStoreService.DeleteConnector": _config(
        lambda c: c.delete_connector(name="flights", writer_epoch=1)
    ),
    "ConfigStoreService.PutTaskConfigs": _config(
        lambda c: c.put_task_configs(connector="flights", task_configs=[{}], writer_epoch=1)
    ),
    "ConfigStoreService.PutTargetState": _config(
        lambda c: c.put_target_state(name="flights", target_state=TargetState.PAUSED)
    ),
    "ConfigStoreService.PutRestartRequest": _config(
        lambda c: c.put_restart_request(
            name="flights", only_failed=True, include_tasks=True, writer_epoch=1
        )
    ),
    "ConfigStoreService.PutTaskCount": _config(
        lambda c: c.put_task_count(name="flights", task_count=1, writer_epoch=1)
    ),
    "ConfigStoreService.PutSessionKey": _config(
        lambda c: c.put_session_key(key=b"k", algorithm="HmacSHA256", writer_epoch=1)
    ),
    "ConfigStoreService.PutLoggerLevel": _config(
        lambda c: c.put_logger_level(logger="drover", level="DEBUG")
    ),
    "ConfigStoreService.PutDeadLetterStates": _config(
        lambda c: c.put_dead_letter_states(
            DeadLettersChanged("flights", "dead", "0:0-1", discarded=True, reason="r"),
            "",
            expected_revision=0,
        )
    ),
    "ConfigStoreService.GetDeadLetterStates": _config(
        lambda c: c.get_dead_letter_states("flights")
    ),
    "ConfigStoreService.GetConnectorHistory": _config(lambda c: c.connector_history("flights")),
    "StatusStoreService.PutStatuses": lambda own: StatusStoreClient(own).put_statuses([STATUS]),
    "StatusStoreService.GetSnapshot": lambda own: StatusStoreClient(own).get_snapshot(),
    "StatusStoreService.PutTopicStatuses": lambda own: StatusStoreClient(own).put_topic_statuses(
        "flights", ["t"], task=0
    ),
    "StatusStoreService.DeleteTopicStatuses": lambda own: StatusStoreClient(
        own
    ).delete_topic_statuses("flights"),
    "StatusStoreService.Flush": lambda own: StatusStoreClient(own).flush(),
    "WorkerService.SubmitTaskConfigs": _worker(
        lambda c: c.submit_task_configs(connector="flights", task_configs=[{}])
    ),
    "ConnectService.GetClusterInfo": _connect(lambda c: c.get_cluster_info()),
    "ConnectService.CreateConnector": _connect(lambda c: c.create_connector("flights", {})),
    "ConnectService.GetConnector": _connect(lambda c: c.get_connector("flights")),
    "ConnectService.GetConnectorSecrets": _connect(lambda c: c.get_connector_secrets("flights")),
    "ConnectService.ListConnectors": _connect(lambda c: c.list_connectors()),
    "ConnectService.PutConnectorConfig": _connect(lambda c: c.put_connector_config("flights", {})),
    "ConnectService.PatchConnectorConfig": _connect(
        lambda c: c.patch_connector_config("flights", settings={})
    ),
    "ConnectService.DeleteConnector": _connect(lambda c: c.delete_connector("flights")),
    "ConnectService.GetConnectorFigures": _connect(lambda c: c.get_connector_figures("flights")),
    "ConnectService.GetConnectorStatus": _connect(lambda c: c.get_connector_status("flights")),
    "ConnectService.PauseConnector": _connect(lambda c: c.pause_connector("flights")),
    "ConnectService.ResumeConnector": _connect(lambda c: c.resume_connector("flights")),
    "ConnectService.StopConnector": _connect(lambda c: c.stop_connector("flights")),
    "ConnectService.RestartConnector": _connect(lambda c: c.restart_connector("flights")),
    "ConnectService.ReloadPlugins": _connect(lambda c: c.reload_plugins()),
    "ConnectService.RestartTask": _connect(lambda c: c.restart_task("flights", 0)),
    "ConnectService.GetConnectorHistory": _connect(lambda c: c.get_connector_history("flights")),
    "ConnectService.RollbackConnector": _connect(lambda c: c.rollback_connector("flights", 1)),
    "ConnectService.ListTasks": _connect(lambda c: c.list_tasks("flights")),
    "ConnectService.ListPlugins": _connect(lambda c: c.list_plugins()),
    "ConnectService.GetPlugin": _connect(lambda c: c.get_plugin("FileStreamSource")),
    "ConnectService.DrainWorker": _connect(lambda c: c.drain_worker("w:1")),
    "ConnectService.ResumeWorker": _connect(lambda c: c.resume_worker("w:1")),
    "ConnectService.ListTopics": _connect(lambda c: c.list_topics()),
    "ConnectService.DescribeTopic": _connect(lambda c: c.describe_topic("t")),
    "ConnectService.GetTopicRecordCount": _connect(
        lambda c: c.get_topic_record_count(RecordQuery(topic="t"))
    ),
    "ConnectService.ProduceRecords": _connect(
        lambda c: c.produce_records(ProduceOptions(topic="t"), b'{"value":1}')
    ),
    "ConnectService.ReplayDeadLetters": _connect(
        lambda c: c.replay_dead_letters(
            connect_service_pb2.ReplayDeadLettersRequest(name="flights")
        )
    ),
    "ConnectService.DiscardDeadLetters": _connect(
        lambda c: c.discard_dead_letters(
            connect_service_pb2.DiscardDeadLettersRequest(name="flights", reason="r")
        )
    ),
    "ConnectService.GetDeadLetterStates": _connect(lambda c: c.dead_letter_states("flights")),
    "ConnectService.PlanConnectorConfig": _connect(
        lambda c: c.plan_connector_config("flights", {"a": "b"})
    ),
    "ConnectService.ValidateConfig": _connect(lambda c: c.validate_config({})),
    "ConnectService.PreviewConnector": _connect(lambda c: c.preview_connector({})),
    "ConnectService.GetConnectorOffsets": _connect(lambda c: c.get_connector_offsets("flights")),
    "ConnectService.FindConnectorOffsets": _connect(
        lambda c: c.find_connector_offsets("flights", 1_700_000_000_000)
    ),
    "ConnectService.AlterConnectorOffsets": _connect(
        lambda c: c.alter_connector_offsets(
            "flights", [connect_service_pb2.ConnectorOffset(partition_json="{}")]
        )
    ),
    "ConnectService.ResetConnectorOffsets": _connect(
        lambda c: c.reset_connector_offsets("flights")
    ),
    "ConnectService.GetConnectorTopics": _connect(lambda c: c.get_connector_topics("flights")),
    "ConnectService.ResetConnectorTopics": _connect(lambda c: c.reset_connector_topics("flights")),
    "ConnectService.ListLoggers": _connect(lambda c: c.list_loggers()),
    "ConnectService.ListConnectorTopics": _connect(lambda c: c.list_connector_topics()),
    "ConnectService.GetCaller": _connect(lambda c: c.get_caller()),
    "ConnectService.ListRebalances": _connect(lambda c: c.list_rebalances()),
    "ConnectService.ListAuditEvents": _connect(
        lambda c: c.list_audit_events(connect_service_pb2.ListAuditEventsRequest())
    ),
    "ConnectService.SetLoggerLevel": _connect(lambda c: c.set_logger_level("drover", "DEBUG")),
}

#: RPCs without a client method that retries: streams, and Forward, whose retry depends on the
#: forwarded call.
WITHOUT_CALL = {
    "CoordinatorService.WatchGroup",
    "ConfigStoreService.WatchConfigs",
    "StatusStoreService.WatchStatuses",
    "WorkerService.Forward",
    "ConnectService.WatchStatuses",
    "ConnectService.WatchConnectors",
    "ConnectService.WatchTopic",
}

#: Responses of methods for which an empty message is invalid.
ANSWERS = {
    "JoinGroup": coordinator_service_pb2.JoinGroupResponse(
        retry_join=coordinator_service_pb2.JoinGroupResponse.RetryJoin(member_id="m")
    ),
    "SyncGroup": coordinator_service_pb2.SyncGroupResponse(
        rebalance_in_progress=coordinator_service_pb2.SyncGroupResponse.RebalanceInProgress()
    ),
    "DescribeGroup": coordinator_service_pb2.DescribeGroupResponse(
        state=coordinator_service_pb2.GROUP_STATE_DEAD
    ),
    "ClaimTask": coordinator_service_pb2.ClaimTaskResponse(claim=ids_pb2.Term(generation=1)),
}
#: GetSnapshotResponse with `complete` set: field 4 in one service, field 3 in the other.
COMPLETE = {"ConfigStoreService": b"\x20\x01", "StatusStoreService": b"\x18\x01"}


@dataclass
class Moody(grpc.GenericRpcHandler):
    """Aborts the first calls of each method with UNAVAILABLE, then responds."""

    failures: int = FAILURES
    requests: dict[str, list[bytes]] = field(default_factory=dict)
    request_ids: dict[str, list[str]] = field(default_factory=dict)

    def service(self, handler_call_details: Any) -> Any:
        service, method = handler_call_details.method.split("/")[1:]
        name = f"{service.rpartition('.')[2]}.{method}"

        async def note(request: bytes, context: Any) -> None:
            self.requests.setdefault(name, []).append(request)
            metadata = dict(context.invocation_metadata())
            self.request_ids.setdefault(name, []).append(metadata["x-request-id"])
            if len(self.requests[name]) <= self.failures:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "in a mood")

        async def answer(request: bytes, context: Any) -> bytes:
            await note(request, context)
            message = ANSWERS.get(method)
            return message.SerializeToString() if message else b""

        async def stream(request: bytes, context: Any) -> AsyncIterator[bytes]:
            await note(request, context)
            yield COMPLETE[name.split(".")[0]]

        if method == "GetSnapshot":
            return grpc.unary_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(answer)


@pytest.fixture
async def moody(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Moody, grpc.aio.Channel]]:
    monkeypatch.setattr(calls, "RETRY_FIRST_S", 0.001)
    handler = Moody()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with channel(f"127.0.0.1:{port}") as own:
        yield handler, own
    await server.stop(None)


def contract() -> dict[str, str]:
    """The comments of all RPCs, by Service.Method."""
    return {
        ".".join(element.name.split(".")[-2:]): " ".join(element.comment.split())
        for element in elements()
        if element.kind == "rpc"
    }


def test_every_rpc_is_tried_or_left_out_knowingly() -> None:
    assert set(CALLS) | WITHOUT_CALL == set(contract())
    assert not set(CALLS) & WITHOUT_CALL


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_is_repeated_only_where_the_contract_allows(
    name: str, moody: tuple[Moody, grpc.aio.Channel]
) -> None:
    handler, own = moody
    if "safe to retry" in contract()[name].lower():
        await asyncio.wait_for(CALLS[name](own), LIMIT_S)
        assert len(handler.requests[name]) == FAILURES + 1
    else:
        with pytest.raises(UnavailableError, match="in a mood"):
            await CALLS[name](own)
        assert len(handler.requests[name]) == 1
    # a retry sends the same bytes, so the same request_id, with the same id for the logs
    assert len(set(handler.requests[name])) == 1
    assert len(set(handler.request_ids[name])) == 1


async def test_a_first_join_is_not_repeated(moody: tuple[Moody, grpc.aio.Channel]) -> None:
    handler, own = moody
    with pytest.raises(UnavailableError):
        await _join("")(own)
    assert len(handler.requests["CoordinatorService.JoinGroup"]) == 1


@pytest.mark.parametrize("retry", [True, False])
async def test_forward_is_repeated_as_the_forwarded_call_is(
    retry: bool, moody: tuple[Moody, grpc.aio.Channel]
) -> None:
    handler, own = moody
    call = WorkerClient(own).forward(method="X", request=b"", hop_count=0, retry=retry)
    if retry:
        assert await call == b""
    else:
        with pytest.raises(UnavailableError):
            await call
    assert len(handler.requests["WorkerService.Forward"]) == (FAILURES + 1 if retry else 1)


async def test_a_tool_may_want_no_retries(moody: tuple[Moody, grpc.aio.Channel]) -> None:
    handler, own = moody
    with pytest.raises(UnavailableError):
        await ConnectClient(own, retry=False).list_plugins()
    assert len(handler.requests["ConnectService.ListPlugins"]) == 1


async def test_writes_have_a_request_id_of_their_own(
    moody: tuple[Moody, grpc.aio.Channel],
) -> None:
    handler, own = moody
    handler.failures = 0
    client = ConfigStoreClient(own)
    for _ in range(2):
        await client.put_target_state(name="flights", target_state=TargetState.PAUSED)
    await client.put_target_state(
        name="flights", target_state=TargetState.PAUSED, request_id="mine"
    )
    first, second, third = handler.requests["ConfigStoreService.PutTargetState"]
    assert first != second
    assert b"mine" in third
