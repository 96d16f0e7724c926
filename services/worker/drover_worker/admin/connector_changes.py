"""Changes of connectors: each validates its request, submits it to the herder, and responds."""

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

from google.protobuf.message import Message

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client.calls import new_request_id
from drover.codec.common import invalid_field
from drover.codec.connect import decode_initial_state, encode_connector_type, encode_run_state
from drover.connector.offsets import parse_sink_offsets
from drover.errors import AbortedError, InvalidArgumentError, Reason
from drover.model.config import ConfigMap, TargetState
from drover.model.ids import TaskId
from drover.model.offsets import CommittedOffset
from drover.model.status import RunState
from drover_worker.admin.call import AdminCall
from drover_worker.admin.config_checks import FindFaults, check_config, check_patch, checked_name
from drover_worker.admin.config_difference import ConfigDifference
from drover_worker.admin.forwarding import ForwardedMethod, RequestForwarder, answer_of
from drover_worker.admin.masking import kept_values
from drover_worker.admin.plans import ConnectorPlans
from drover_worker.admin.reads import Reads
from drover_worker.admin.views import ConnectorViews
from drover_worker.core import requests
from drover_worker.core.config.checks import config_error, sink_group_violations
from drover_worker.core.config.offset_checks import offset_violations
from drover_worker.core.lifecycle.restart_plan import RestartPlan

CREATE = ForwardedMethod("CreateConnector", pb.CreateConnectorRequest, pb.CreateConnectorResponse)
PUT = ForwardedMethod(
    "PutConnectorConfig", pb.PutConnectorConfigRequest, pb.PutConnectorConfigResponse
)
ROLLBACK = ForwardedMethod(
    "RollbackConnector", pb.RollbackConnectorRequest, pb.RollbackConnectorResponse
)
DELETE = ForwardedMethod("DeleteConnector", pb.DeleteConnectorRequest, pb.DeleteConnectorResponse)
PAUSE = ForwardedMethod("PauseConnector", pb.PauseConnectorRequest, pb.PauseConnectorResponse)
RESUME = ForwardedMethod("ResumeConnector", pb.ResumeConnectorRequest, pb.ResumeConnectorResponse)
STOP = ForwardedMethod("StopConnector", pb.StopConnectorRequest, pb.StopConnectorResponse)
ALTER_OFFSETS = ForwardedMethod(
    "AlterConnectorOffsets", pb.AlterConnectorOffsetsRequest, pb.AlterConnectorOffsetsResponse
)
RESET_OFFSETS = ForwardedMethod(
    "ResetConnectorOffsets", pb.ResetConnectorOffsetsRequest, pb.ResetConnectorOffsetsResponse
)
RESTART = ForwardedMethod(
    "RestartConnector", pb.RestartConnectorRequest, pb.RestartConnectorResponse
)
RESTART_TASK = ForwardedMethod("RestartTask", pb.RestartTaskRequest, pb.RestartTaskResponse)

#: Topic partitions that are listed in one message.
_NAMED_MAX = 20

MessageT = TypeVar("MessageT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)
TargetRequestT = TypeVar(
    "TargetRequestT",
    pb.PauseConnectorRequest,
    pb.ResumeConnectorRequest,
    pb.StopConnectorRequest,
)


class ConnectorChanges:
    """Validates each change and lets the responsible worker execute it.

    Errors of all: INVALID_CONFIG with every violation, TOO_LARGE, CONNECTOR_NOT_FOUND,
    DEADLINE_EXCEEDED. The ``.proto`` documents the other errors of each call.
    """

    def __init__(
        self,
        forwarder: RequestForwarder,
        reads: Reads,
        views: ConnectorViews,
        find_faults: FindFaults,
        plans: ConnectorPlans,
        *,
        group_id: str,
    ) -> None:
        self._group_id = group_id
        self._forwarder = forwarder
        self._reads = reads
        self._views = views
        self._find_faults = find_faults
        self._plans = plans

    async def create(
        self, request: pb.CreateConnectorRequest, call: AdminCall
    ) -> pb.CreateConnectorResponse:
        """Create a connector."""
        message = _copy(request)
        message.name = request.name or request.config.get("name", "").strip()
        await self._prepare_config(message, call)
        message.request_id = request.request_id or new_request_id()
        ask = requests.CreateConnector(
            name=message.name,
            config=dict(message.config),
            initial_state=decode_initial_state(message.initial_state),
            request_id=message.request_id,
        )

        def respond(answer: requests.Response) -> pb.CreateConnectorResponse:
            stored = answer_of(requests.ConfigStored, answer)
            return pb.CreateConnectorResponse(connector=self._stored(message, stored))

        return await self._forwarder.answer(CREATE, message, ask, respond, call)

    async def put(
        self, request: pb.PutConnectorConfigRequest, call: AdminCall
    ) -> pb.PutConnectorConfigResponse:
        """Create a connector or replace its config."""
        if request.keep_masked:
            return await self._put_with_kept_values(request, call)
        message = _copy(request)
        await self._prepare_config(message, call)
        message.request_id = request.request_id or new_request_id()
        if message.plan_hash:
            return await self._put_planned(message, call)
        if not (message.dry_run or message.skip_unchanged):
            return await self._put(message, call)
        while True:
            planned = await self._plan_put(message, call)
            if message.dry_run or not _changes_of(planned):
                return planned
            write = pb.PutConnectorConfigRequest(
                name=message.name,
                config=message.config,
                expected_revision=planned.connector.revision,
                request_id=message.request_id,
            )
            with _retry_on_mismatch(call):
                response = await self._put(write, call)
                response.added_keys.extend(planned.added_keys)
                response.changed_keys.extend(planned.changed_keys)
                response.removed_keys.extend(planned.removed_keys)
                return response

    async def _put_with_kept_values(
        self, request: pb.PutConnectorConfigRequest, call: AdminCall
    ) -> pb.PutConnectorConfigResponse:
        """Put a config with the stored values of masked settings; retry it if the config changed
        between read and put.
        """
        request_id = request.request_id or new_request_id()
        while True:
            message = _copy(request)
            message.keep_masked = False
            message.request_id = request_id
            await self._reads.prepare(call.deadline)
            entry = self._reads.view.connectors.get(request.name)
            kept = kept_values(dict(request.config), (entry and entry.config) or {})
            message.config.update(kept)
            if entry is None or not kept or request.HasField("expected_revision"):
                return await self.put(message, call)
            message.expected_revision = entry.config_revision
            with _retry_on_mismatch(call):
                return await self.put(message, call)

    async def _put_planned(
        self, message: pb.PutConnectorConfigRequest, call: AdminCall
    ) -> pb.PutConnectorConfigResponse:
        """Put a config under a plan hash, if the plan is unchanged."""
        planned = await self._plans.check(message, call)
        message.plan_hash = ""
        if message.dry_run or not planned.changes:
            message.dry_run = True
            return await self._plan_put(message, call)
        message.expected_revision = planned.revision
        message.skip_unchanged = False
        return await self._put(message, call)

    async def _plan_put(
        self, message: pb.PutConnectorConfigRequest, call: AdminCall
    ) -> pb.PutConnectorConfigResponse:
        """The response to a put, computed from the present state without a write."""
        await self._reads.prepare(call.deadline)
        entry = self._reads.view.connectors.get(message.name)
        config = dict(message.config)
        revision = entry.config_revision if entry else 0
        difference = ConfigDifference.between((entry and entry.config) or {}, config)
        expects = message.expected_revision if message.HasField("expected_revision") else revision
        if difference and expects != revision:
            text = f"connector {message.name!r} has revision {revision}, not {expects}: read it"
            raise AbortedError(Reason.REVISION_MISMATCH, text)
        if message.dry_run:
            faults = list(await self._find_faults(config, call.principal.name))
            if self._views.type_of(config) == "sink":
                faults += sink_group_violations(message.name, config, self._group_id)
            if faults:
                raise config_error(message.name, faults)
        return pb.PutConnectorConfigResponse(
            connector=self._written(config, revision),
            created=entry is None,
            added_keys=difference.added,
            changed_keys=difference.changed,
            removed_keys=difference.removed,
        )

    async def _put(
        self, message: pb.PutConnectorConfigRequest, call: AdminCall
    ) -> pb.PutConnectorConfigResponse:
        ask = requests.PutConnectorConfig(
            name=message.name,
            config=dict(message.config),
            expected_revision=(
                message.expected_revision if message.HasField("expected_revision") else None
            ),
            request_id=message.request_id,
        )

        def respond(answer: requests.Response) -> pb.PutConnectorConfigResponse:
            stored = answer_of(requests.ConfigStored, answer)
            return pb.PutConnectorConfigResponse(
                connector=self._stored(message, stored), created=stored.created
            )

        return await self._forwarder.answer(PUT, message, ask, respond, call)

    async def patch(
        self, request: pb.PatchConnectorConfigRequest, call: AdminCall
    ) -> pb.PatchConnectorConfigResponse:
        """Change some settings by a put; retry it if the config changed between read and put."""
        check_patch(dict(request.set), request.remove)
        request_id = request.request_id or new_request_id()
        while True:
            name = await self._reads.existing(checked_name(request.name), call.deadline)
            entry = self._reads.view.connectors[name]
            stored = entry.config or {}
            config = {**stored, **request.set}
            if request.keep_masked:
                config |= kept_values(request.set, stored)
            for setting in request.remove:
                config.pop(setting, None)
            put = pb.PutConnectorConfigRequest(
                name=name,
                config=config,
                expected_revision=entry.config_revision,
                request_id=request_id,
            )
            with _retry_on_mismatch(call):
                response = await self.put(put, call)
                return pb.PatchConnectorConfigResponse(connector=response.connector)

    async def alter_offsets(
        self, request: pb.AlterConnectorOffsetsRequest, call: AdminCall
    ) -> pb.AlterConnectorOffsetsResponse:
        """Change some of a stopped connector's offsets."""
        message = _copy(request)
        message.name = checked_name(request.name)
        offsets = [
            CommittedOffset(
                each.partition_json, each.offset_json if each.HasField("offset_json") else None
            )
            for each in request.offsets
        ]
        if request.adopt:
            if offsets:
                raise invalid_field("offsets", "must be empty with adopt")
            ask = requests.AlterOffsets(message.name, None, adopts=True)
            return await self._forwarder.answer(ALTER_OFFSETS, message, ask, _adopted, call)
        faults = offset_violations(offsets)
        if faults:
            raise InvalidArgumentError.listing(faults)
        ask = requests.AlterOffsets(message.name, offsets)
        what = f"{len(offsets)} offset{'s' if len(offsets) > 1 else ''}"
        respond = _offsets_changed(pb.AlterConnectorOffsetsResponse, what)
        return await self._forwarder.answer(ALTER_OFFSETS, message, ask, respond, call)

    async def reset_offsets(
        self, request: pb.ResetConnectorOffsetsRequest, call: AdminCall
    ) -> pb.ResetConnectorOffsetsResponse:
        """Remove a stopped connector's offsets."""
        message = _copy(request)
        message.name = checked_name(request.name)
        ask = requests.AlterOffsets(message.name, None)
        respond = _offsets_changed(pb.ResetConnectorOffsetsResponse, "all offsets removed")
        return await self._forwarder.answer(RESET_OFFSETS, message, ask, respond, call)

    async def rollback(
        self, request: pb.RollbackConnectorRequest, call: AdminCall
    ) -> pb.RollbackConnectorResponse:
        """Write a connector's old config as its new one."""
        message = _copy(request)
        message.name = checked_name(request.name)
        message.request_id = request.request_id or new_request_id()
        if message.revision <= 0:
            raise invalid_field("revision", "must be a revision of the connector's history")
        ask = requests.RollbackConnector(
            message.name,
            message.revision,
            message.request_id,
            message.expected_revision if message.HasField("expected_revision") else None,
        )

        def respond(answer: requests.Response) -> pb.RollbackConnectorResponse:
            stored = answer_of(requests.ConfigStored, answer)
            # the present state: the connector may have changed again, or been deleted
            connector = self._views.find_connector(message.name)
            return pb.RollbackConnectorResponse(
                connector=connector or pb.Connector(name=message.name, revision=stored.revision),
                created=stored.created,
            )

        return await self._forwarder.answer(ROLLBACK, message, ask, respond, call)

    async def delete(
        self, request: pb.DeleteConnectorRequest, call: AdminCall
    ) -> pb.DeleteConnectorResponse:
        """Remove a connector."""
        message = _copy(request)
        message.name = checked_name(request.name)
        message.request_id = request.request_id or new_request_id()
        ask = requests.DeleteConnector(message.name, message.request_id)
        respond = _accomplished(pb.DeleteConnectorResponse)
        return await self._forwarder.answer(DELETE, message, ask, respond, call)

    async def pause(
        self, request: pb.PauseConnectorRequest, call: AdminCall
    ) -> pb.PauseConnectorResponse:
        """Pause a connector."""
        return await self._set_target_state(PAUSE, request, TargetState.PAUSED, call)

    async def resume(
        self, request: pb.ResumeConnectorRequest, call: AdminCall
    ) -> pb.ResumeConnectorResponse:
        """Resume a connector."""
        return await self._set_target_state(RESUME, request, TargetState.STARTED, call)

    async def stop(
        self, request: pb.StopConnectorRequest, call: AdminCall
    ) -> pb.StopConnectorResponse:
        """Stop a connector."""
        return await self._set_target_state(STOP, request, TargetState.STOPPED, call)

    async def restart(
        self, request: pb.RestartConnectorRequest, call: AdminCall
    ) -> pb.RestartConnectorResponse:
        """Restart a connector, and its tasks if requested."""
        message = _copy(request)
        message.name = await self._reads.existing(checked_name(request.name), call.deadline)
        ask = requests.RestartConnector(
            message.name, message.include_tasks, message.only_failed, new_request_id()
        )

        def respond(answer: requests.Response) -> pb.RestartConnectorResponse:
            response = pb.RestartConnectorResponse()
            status = self._views.find_status(message.name)
            if isinstance(answer, requests.RestartPlanned) and status is not None:
                response.planned_status.CopyFrom(_planned(status, answer.plan))
            return response

        return await self._forwarder.answer(RESTART, message, ask, respond, call)

    async def restart_task(
        self, request: pb.RestartTaskRequest, call: AdminCall
    ) -> pb.RestartTaskResponse:
        """Restart a task."""
        message = _copy(request)
        message.name = await self._reads.existing(checked_name(request.name), call.deadline)
        ask = requests.RestartTask(TaskId(message.name, message.task))
        respond = _accomplished(pb.RestartTaskResponse)
        return await self._forwarder.answer(RESTART_TASK, message, ask, respond, call)

    async def _prepare_config(
        self, message: pb.CreateConnectorRequest | pb.PutConnectorConfigRequest, call: AdminCall
    ) -> None:
        config, caller = dict(message.config), call.principal.name
        await check_config(message.name, config, self._find_faults, caller)
        message.config["name"] = message.name

    async def _set_target_state(
        self,
        method: ForwardedMethod[TargetRequestT, ResponseT],
        request: TargetRequestT,
        target_state: TargetState,
        call: AdminCall,
    ) -> ResponseT:
        message = _copy(request)
        message.name = checked_name(request.name)
        ask = requests.SetTargetState(message.name, target_state, new_request_id())
        respond = _accomplished(method.response_type)
        return await self._forwarder.answer(method, message, ask, respond, call)

    def _stored(
        self,
        message: pb.CreateConnectorRequest | pb.PutConnectorConfigRequest,
        stored: requests.ConfigStored,
    ) -> pb.Connector:
        connector = self._views.find_connector(message.name)
        if connector is None or connector.revision != stored.revision:
            # the connector has changed again; respond with the config that the caller wrote
            connector = self._written(dict(message.config), stored.revision)
        return connector

    def _written(self, config: ConfigMap, revision: int) -> pb.Connector:
        return pb.Connector(
            name=config["name"],
            config=self._views.masked(config, config, show_undefined=True),
            type=encode_connector_type(self._views.type_of(config)),
            revision=revision,
        )


@contextlib.contextmanager
def _retry_on_mismatch(call: AdminCall) -> Iterator[None]:
    """Suppress REVISION_MISMATCH before the deadline, so that the caller's loop retries."""
    try:
        yield
    except AbortedError as error:
        if error.reason is not Reason.REVISION_MISMATCH or not call.deadline.remaining_s():
            raise


def _changes_of(planned: pb.PutConnectorConfigResponse) -> bool:
    return bool(planned.added_keys or planned.changed_keys or planned.removed_keys)


def _copy(message: MessageT) -> MessageT:
    """Copy the request, to fill in defaults without changing the caller's message."""
    copied = type(message)()
    copied.CopyFrom(message)
    return copied


def _accomplished(response_type: type[ResponseT]) -> Callable[[requests.Response], ResponseT]:
    """Turns Accomplished into an empty response."""

    def respond(answer: requests.Response) -> ResponseT:
        answer_of(requests.Accomplished, answer)
        return response_type()

    return respond


def _offsets_changed(
    response_type: Callable[..., ResponseT], message: str
) -> Callable[[requests.Response], ResponseT]:
    """Turns OffsetsChanged into a response with a message."""

    def respond(answer: requests.Response) -> ResponseT:
        if answer_of(requests.OffsetsChanged, answer).complete:
            return response_type(message=message)
        rest = "offsets that the connector keeps in external systems, if any, are unchanged"
        return response_type(message=f"{message}; {rest}")

    return respond


def _adopted(answer: requests.Response) -> pb.AlterConnectorOffsetsResponse:
    """The response with the adopted offsets."""
    adopted = answer_of(requests.OffsetsChanged, answer).adopted
    named = [
        f"{key.topic}-{key.partition} at {each.offset}"
        for key, each in sorted(parse_sink_offsets(adopted).items())
    ]
    more = f" and {len(named) - _NAMED_MAX} more" if len(named) > _NAMED_MAX else ""
    what = f"{len(named)} offset{'s' if len(named) > 1 else ''}"
    text = f"{what} adopted from the output: {', '.join(named[:_NAMED_MAX])}{more}"
    return pb.AlterConnectorOffsetsResponse(message=text)


def _planned(status: pb.ConnectorStatus, plan: RestartPlan) -> pb.ConnectorStatus:
    """The status after the planned restart."""
    restarting = encode_run_state(RunState.RESTARTING)
    if plan.restart_connector:
        status.connector.state = restarting
        status.connector.trace = ""
    planned = {task.task for task in plan.tasks}
    for task in status.tasks:
        if task.task in planned:
            task.state = restarting
            task.trace = ""
    return status
