"""What the config machine is asked to do, and what it answers.

Every request has an ``author``: who asked for it, empty if unknown.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from drover.model.config import ConfigMap, TargetState
from drover.model.ids import TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class PutConnectorConfig:
    """Write a connector's config. With ``expected_revision`` only if that is its revision, 0 for
    "must not exist"; ``initial_state`` is written before the config, for a new connector only.
    """

    call_id: str
    request_id: str
    writer_epoch: int
    name: str
    config: ConfigMap
    initial_state: TargetState | None = None
    expected_revision: int | None = None
    author: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteConnector:
    """Remove a connector's config and target state."""

    call_id: str
    request_id: str
    writer_epoch: int
    name: str
    author: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PutTaskConfigs:
    """Write a connector's whole set of task configs, tasks 0 to n-1, and its commit marker."""

    call_id: str
    request_id: str
    writer_epoch: int
    connector: str
    task_configs: Sequence[tuple[TaskId, ConfigMap]]
    author: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PutTargetState:
    """Write what a connector should be doing; any worker may."""

    call_id: str
    request_id: str
    name: str
    target_state: TargetState
    author: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PutRestartRequest:
    """Ask every worker to restart its share of a connector."""

    call_id: str
    request_id: str
    writer_epoch: int
    name: str
    only_failed: bool
    include_tasks: bool
    author: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PutTaskCount:
    """Record how many tasks may hold transactional ids, once the earlier ones were fenced."""

    call_id: str
    request_id: str
    writer_epoch: int
    name: str
    task_count: int
    author: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PutSessionKey:
    """Write the key that signs calls between workers."""

    call_id: str
    request_id: str
    writer_epoch: int
    key: bytes = field(repr=False)
    algorithm: str
    author: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PutLoggerLevel:
    """Set a logger's level on every worker; any worker may."""

    call_id: str
    request_id: str
    logger: str
    level: str
    author: str = ""


ConfigRequest = (
    PutConnectorConfig
    | DeleteConnector
    | PutTaskConfigs
    | PutTargetState
    | PutRestartRequest
    | PutTaskCount
    | PutSessionKey
    | PutLoggerLevel
)
#: What any worker may write, leader or not.
UNPRIVILEGED = (PutTargetState, PutLoggerLevel)


@dataclass(frozen=True, slots=True)
class WriteAnswer:
    """A write is durable: the log's end after it, and after a connector config its revision."""

    end_offset: int
    revision: int = 0
