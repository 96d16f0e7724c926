"""The requests of callers to the herder, and the responses.

Each docstring names the response, and the worker that handles the request: the leader, the owner of
the connector or task, or any worker.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from drover.model.config import ConfigMap, TargetState
from drover.model.ids import TaskId
from drover.model.offsets import CommittedOffset
from drover_worker.core.lifecycle.restart_plan import RestartPlan


@dataclass(frozen=True, slots=True)
class CreateConnector:
    """Write the config of a connector that does not exist: ConfigStored. Leader."""

    name: str
    config: ConfigMap
    initial_state: TargetState
    request_id: str


@dataclass(frozen=True, slots=True)
class PutConnectorConfig:
    """Write a connector's whole config: ConfigStored. Leader.

    ``expected_revision`` is the revision that the caller read; 0 means that the connector must not
    exist, None skips the check.
    """

    name: str
    config: ConfigMap
    expected_revision: int | None
    request_id: str


@dataclass(frozen=True, slots=True)
class RollbackConnector:
    """Write an earlier config of the connector again: ConfigStored. Leader.

    ``expected_revision`` is as in PutConnectorConfig.
    """

    name: str
    revision: int
    request_id: str
    expected_revision: int | None = None


@dataclass(frozen=True, slots=True)
class DeleteConnector:
    """Remove a connector: Accomplished. Leader."""

    name: str
    request_id: str


@dataclass(frozen=True, slots=True)
class SetTargetState:
    """Write a connector's target state: Accomplished. Any worker.

    Only the leader writes STOPPED, because it removes the task configs first; any worker writes the
    other states.
    """

    name: str
    target_state: TargetState
    request_id: str


@dataclass(frozen=True, slots=True)
class RestartConnector:
    """Restart a connector.

    Without flags the owner restarts the connector object: Accomplished. With a flag the leader
    writes a restart request, which every worker carries out: RestartPlanned.
    """

    name: str
    include_tasks: bool
    only_failed: bool
    request_id: str


@dataclass(frozen=True, slots=True)
class RestartTask:
    """Restart one task: Accomplished. Owner."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class SubmitTaskConfigs:
    """Write the task configs that an owner generated: Accomplished. Leader."""

    connector: str
    configs: Sequence[ConfigMap]
    request_id: str


@dataclass(frozen=True, slots=True)
class AlterOffsets:
    """Write offsets of a stopped connector, or remove them all: OffsetsChanged. Leader.

    ``offsets`` are valid JSON with unique partitions; None removes all. ``connector_type`` is
    "source" or "sink", and empty until the engine has returned it. ``adopts``: write the offsets
    behind the output of a sink instead.
    """

    name: str
    offsets: Sequence[CommittedOffset] | None
    connector_type: str = ""
    adopts: bool = False


@dataclass(frozen=True, slots=True)
class DrainWorker:
    """Drain a worker, or let it accept work again (``draining`` false): Accomplished.

    The response is sent after the worker has rejoined with the change. Handled by that worker; the
    leader forwards it.
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
    """The name of a request's connector; empty for a request without one."""
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
    """The request was carried out."""


@dataclass(frozen=True, slots=True)
class RestartPlanned:
    """The restart request is durable; ``plan`` has the parts that restart."""

    plan: RestartPlan


@dataclass(frozen=True, slots=True)
class ForwardTo:
    """Another worker has to handle the call: forward it to ``worker_url``."""

    worker_url: str


@dataclass(frozen=True, slots=True)
class OffsetsChanged:
    """The offsets are durable.

    ``complete`` is true if the plugin also changed offsets in external systems, or keeps none.
    ``adopted`` are the offsets that were found in the output.
    """

    complete: bool
    adopted: Sequence[CommittedOffset] = ()


Response = ConfigStored | Accomplished | OffsetsChanged | RestartPlanned | ForwardTo
