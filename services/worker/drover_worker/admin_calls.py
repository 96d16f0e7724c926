"""The admin calls that change something: what each checks, asks of the herder, and answers."""

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client.calls import new_request_id
from drover.codec.common import invalid_field
from drover.codec.connect import decode_initial_state, encode_connector_type, encode_run_state
from drover.errors import DroverError, InvalidArgumentError, Reason, Violation
from drover.model.config import TargetState
from drover.model.ids import TaskId
from drover.model.names import connector_name_violations
from drover.model.status import RunState
from drover_worker.carrier import CarriedMethod
from drover_worker.core import requests
from drover_worker.core.config.checks import (
    CONFIG_MAX_BYTES,
    config_error,
    config_name_violations,
    config_size_bytes,
    connector_not_found,
)
from drover_worker.core.lifecycle.restart_plan import RestartPlan
from drover_worker.presenter import MASK, Presenter

#: Every fault the plugin finds in a config.
FindFaults = Callable[[dict[str, str]], Awaitable[list[Violation]]]


class CarriedCalls:
    """Every such call, as the worker that answers it does it."""

    def __init__(self, presenter: Presenter, find_faults: FindFaults) -> None:
        self._presenter = presenter
        self._find_faults = find_faults

    async def prepare(self, request: Any) -> Any:
        """The request as it is carried: checked, its name trimmed, with a request id.

        Raises:
            InvalidArgumentError: INVALID_CONFIG with every fault; TOO_LARGE.
            NotFoundError: CONNECTOR_NOT_FOUND, the name is none that a connector can have.
        """
        prepared = type(request)()
        prepared.CopyFrom(request)
        fields = prepared.DESCRIPTOR.fields_by_name
        if "config" in fields:
            await self._prepare_config(prepared)
        else:
            prepared.name = prepared.name.strip()
            if connector_name_violations(prepared.name):
                # no connector can have it, and no store would take it as a key
                raise connector_not_found(prepared.name)
        if "request_id" in fields and not prepared.request_id:
            # so that it can be repeated towards the leader without being done twice
            prepared.request_id = new_request_id()
        if isinstance(prepared, pb.CreateConnectorRequest):
            decode_initial_state(prepared.initial_state)
        if isinstance(prepared, pb.RollbackConnectorRequest) and prepared.revision <= 0:
            raise invalid_field("revision", "must be above 0: one of the connector's history")
        return prepared

    async def _prepare_config(self, prepared: Any) -> None:
        config = dict(prepared.config)
        size_bytes = config_size_bytes(config)
        if size_bytes > CONFIG_MAX_BYTES:
            text = f"the config has {size_bytes} bytes: at most {CONFIG_MAX_BYTES} (1 MiB)"
            raise InvalidArgumentError(Reason.TOO_LARGE, text)
        creates = isinstance(prepared, pb.CreateConnectorRequest)
        name = prepared.name.strip() or (config.get("name", "").strip() if creates else "")
        found = [*connector_name_violations(name), *config_name_violations(name, config)]
        found += [
            Violation(f'config["{key}"]', "is the mask shown in place of a secret: give the secret")
            for key, value in config.items()
            if value == MASK
        ]
        if found:
            # the plugin's own faults belong in the same answer, if it can be asked now
            with contextlib.suppress(DroverError):
                plugin_faults = await self._find_faults({**config, "name": name})
                # the faults of the name are told already
                found += [fault for fault in plugin_faults if fault.field != 'config["name"]']
            raise config_error(name, found)
        prepared.name = name
        prepared.config["name"] = name

    def methods(self) -> list[CarriedMethod]:
        """Each call, for the Carrier."""
        return [
            CarriedMethod(
                "CreateConnector",
                pb.CreateConnectorRequest,
                pb.CreateConnectorResponse,
                _create_request,
                self._created,
            ),
            CarriedMethod(
                "PutConnectorConfig",
                pb.PutConnectorConfigRequest,
                pb.PutConnectorConfigResponse,
                _put_request,
                self._put,
            ),
            CarriedMethod(
                "RollbackConnector",
                pb.RollbackConnectorRequest,
                pb.RollbackConnectorResponse,
                lambda call: requests.RollbackConnector(call.name, call.revision, call.request_id),
                self._rolled_back,
            ),
            CarriedMethod(
                "DeleteConnector",
                pb.DeleteConnectorRequest,
                pb.DeleteConnectorResponse,
                lambda call: requests.DeleteConnector(call.name, call.request_id),
                _answer_with(pb.DeleteConnectorResponse),
            ),
            _target_state_method("Pause", TargetState.PAUSED),
            _target_state_method("Resume", TargetState.STARTED),
            _target_state_method("Stop", TargetState.STOPPED),
            CarriedMethod(
                "RestartConnector",
                pb.RestartConnectorRequest,
                pb.RestartConnectorResponse,
                lambda call: requests.RestartConnector(
                    call.name, call.include_tasks, call.only_failed, new_request_id()
                ),
                self._restarted,
            ),
            CarriedMethod(
                "RestartTask",
                pb.RestartTaskRequest,
                pb.RestartTaskResponse,
                lambda call: requests.RestartTask(TaskId(call.name, call.task)),
                _answer_with(pb.RestartTaskResponse),
            ),
        ]

    def _created(
        self, call: pb.CreateConnectorRequest, answer: requests.ConfigStored
    ) -> pb.CreateConnectorResponse:
        return pb.CreateConnectorResponse(connector=self._stored(call, answer))

    def _put(
        self, call: pb.PutConnectorConfigRequest, answer: requests.ConfigStored
    ) -> pb.PutConnectorConfigResponse:
        return pb.PutConnectorConfigResponse(
            connector=self._stored(call, answer), created=answer.created
        )

    def _stored(
        self,
        call: pb.CreateConnectorRequest | pb.PutConnectorConfigRequest,
        answer: requests.ConfigStored,
    ) -> pb.Connector:
        connector = self._presenter.find_connector(call.name)
        if connector is None or connector.revision != answer.revision:
            # it went on changing meanwhile; the caller gets what it wrote
            config = dict(call.config)
            connector = pb.Connector(
                name=call.name,
                config=self._presenter.masked(config, config),
                type=encode_connector_type(self._presenter.type_of(config)),
                revision=answer.revision,
            )
        return connector

    def _rolled_back(
        self, call: pb.RollbackConnectorRequest, answer: requests.ConfigStored
    ) -> pb.RollbackConnectorResponse:
        # as it is by now: it may have gone on changing, or be deleted again
        connector = self._presenter.find_connector(call.name)
        return pb.RollbackConnectorResponse(
            connector=connector or pb.Connector(name=call.name, revision=answer.revision),
            created=answer.created,
        )

    def _restarted(
        self,
        call: pb.RestartConnectorRequest,
        answer: requests.RestartPlanned | requests.Accomplished,
    ) -> pb.RestartConnectorResponse:
        response = pb.RestartConnectorResponse()
        status = self._presenter.find_status(call.name)
        if isinstance(answer, requests.RestartPlanned) and status is not None:
            response.planned_status.CopyFrom(_planned(status, answer.plan))
        return response


def _create_request(call: pb.CreateConnectorRequest) -> requests.Request:
    return requests.CreateConnector(
        name=call.name,
        config=dict(call.config),
        initial_state=decode_initial_state(call.initial_state),
        request_id=call.request_id,
    )


def _put_request(call: pb.PutConnectorConfigRequest) -> requests.Request:
    return requests.PutConnectorConfig(
        name=call.name,
        config=dict(call.config),
        expected_revision=call.expected_revision if call.HasField("expected_revision") else None,
        request_id=call.request_id,
    )


def _target_state_method(verb: str, target_state: TargetState) -> CarriedMethod:
    name = f"{verb}Connector"
    response_type = getattr(pb, f"{name}Response")
    return CarriedMethod(
        name,
        getattr(pb, f"{name}Request"),
        response_type,
        lambda call: requests.SetTargetState(call.name, target_state, new_request_id()),
        _answer_with(response_type),
    )


def _answer_with(response_type: Callable[[], Any]) -> Callable[[Any, Any], Any]:
    return lambda _call, _answer: response_type()


def _planned(status: pb.ConnectorStatus, plan: RestartPlan) -> pb.ConnectorStatus:
    """The status as the restart will leave it."""
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
