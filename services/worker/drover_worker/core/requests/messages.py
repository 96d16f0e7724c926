"""The requests of callers to the herder, and the responses."""

from collections.abc import Sequence
from dataclasses import dataclass

from drover.model.config import ConfigMap, TargetState
from drover.model.ids import TaskId
from drover.model.offsets import CommittedOffset
from drover_worker.core.lifecycle.restart_plan import RestartPlan


@dataclass(frozen=True, slots=True)
class CreateConnector:
    """Write the config of a connector that does not exist; answered by ConfigStored. Leader."""

    name: str
    config: ConfigMap
    initial_state: TargetState
    request_id: str


@dataclass(frozen=True, slots=True)
class PutConnectorConfig:
    """Write a connector's whole config; answered by ConfigStored. Leader.

    ``expected_revision`` is the revision that the caller read; 0: must not exist; None: any.
    """

    name: str
    config: ConfigMap
    expected_revision: int | None
    request_id: str


@dataclass(frozen=True, slots=True)
class RollbackConnector:
    """Write an earlier config of the connector again; answered by ConfigStored. Leader."""

    name: str
    revision: int
    request_id: str


@dataclass(frozen=True, slots=True)
class DeleteConnector:
    """Remove a connector; answered by Accomplished. Leader."""

    name: str
    request_id: str


@dataclass(frozen=True, slots=True)
class SetTargetState:
    """Write a connector's target state; answered by Accomplished.

    Only the leader writes STOPPED, because it removes the task configs first; any worker writes the
    other states.
    """

    name: str
    target_state: TargetState
    request_id: str


@dataclass(frozen=True, slots=True)
class RestartConnector:
    """Restart a connector.

    With neither flag its owner restarts the connector object (Accomplished); with one the leader
    writes a restart request that every worker acts on (RestartPlanned).
    """

    name: str
    include_tasks: bool
    only_failed: bool
    request_id: str


@dataclass(frozen=True, slots=True)
class RestartTask:
    """Restart one task; answered by Accomplished. Owner."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class SubmitTaskConfigs:
    """Write the task configs that an owner generated; answered by Accomplished. Leader."""

    connector: str
    configs: Sequence[ConfigMap]
    request_id: str


@dataclass(frozen=True, slots=True)
class AlterOffsets:
    """Write offsets of a stopped connector, or remove them all; answered by OffsetsChanged. Leader.

    ``offsets`` has a fault neither as JSON nor by naming a partition twice; None removes all.
    ``connector_type`` is "source" or "sink", and empty until the engine has told it.
    """

    name: str
    offsets: Sequence[CommittedOffset] | None
    connector_type: str = ""


@dataclass(frozen=True, slots=True)
class DrainWorker:
    """Have a worker hand its work over and take none, or (``draining`` false) take work again.

    Answered by Accomplished once the group knows. That worker, by way of the leader.
    """

    worker_id: str
    draining: bool


Request = (
    CreateConnector
    | PutConnectorConfig
    | RollbackConnector
    | DeleteConnector
    | SetTargetState
    | RestartConnector
    | RestartTask
    | SubmitTaskConfigs
    | AlterOffsets
    | DrainWorker
)


def connector_of(request: Request) -> str:
    """The name of the connector that a request is about; empty if it is about none."""
    match request:
        case DrainWorker():
            return ""
        case RestartTask(task):
            return task.connector
        case SubmitTaskConfigs(connector):
            return connector
        case _:
            return request.name


@dataclass(frozen=True, slots=True)
class ConfigStored:
    """The config is durable under ``revision``, and this worker has read it back."""

    revision: int
    created: bool


@dataclass(frozen=True, slots=True)
class Accomplished:
    """It is done."""


@dataclass(frozen=True, slots=True)
class RestartPlanned:
    """The restart request is durable; this is what it will restart."""

    plan: RestartPlan


@dataclass(frozen=True, slots=True)
class ForwardTo:
    """Another worker has to answer: forward the call to where it is called."""

    worker_url: str


@dataclass(frozen=True, slots=True)
class OffsetsChanged:
    """The offsets are durable; ``complete``: nothing is left to change outside of Drover."""

    complete: bool


Response = ConfigStored | Accomplished | OffsetsChanged | RestartPlanned | ForwardTo
