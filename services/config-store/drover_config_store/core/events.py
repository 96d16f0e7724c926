"""What the config machine is asked to do, and what it answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from drover.model.config import ConfigMap, TargetState
from drover.model.ids import TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """What every write has.

    Attributes:
        call_id: The call that waits for the answer.
        request_id: Made by the caller; the same when the write is repeated.
        author: Who asked for the write; empty if unknown.
    """

    call_id: str
    request_id: str
    author: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivilegedWrite(Write):
    """A write of the leader alone, under the epoch that it got with its claim of the log."""

    writer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PutConnectorConfig(PrivilegedWrite):
    """Write a connector's config. With ``expected_revision`` only if that is its revision, 0 for
    "must not exist"; ``initial_state`` is written before the config, for a new connector only.
    """

    name: str
    config: ConfigMap
    initial_state: TargetState | None = None
    expected_revision: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteConnector(PrivilegedWrite):
    """Remove a connector's config and target state."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PutTaskConfigs(PrivilegedWrite):
    """Write a connector's whole set of task configs, tasks 0 to n-1, and its commit marker."""

    connector: str
    task_configs: Sequence[tuple[TaskId, ConfigMap]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PutTargetState(Write):
    """Write what a connector should be doing; any worker may."""

    name: str
    target_state: TargetState


@dataclass(frozen=True, slots=True, kw_only=True)
class PutRestartRequest(PrivilegedWrite):
    """Ask every worker to restart its share of a connector."""

    name: str
    only_failed: bool
    include_tasks: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PutTaskCount(PrivilegedWrite):
    """Record how many tasks may hold transactional ids, once the earlier ones were fenced."""

    name: str
    task_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PutSessionKey(PrivilegedWrite):
    """Write the key that signs calls between workers."""

    key: bytes = field(repr=False)
    algorithm: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PutLoggerLevel(Write):
    """Set a logger's level on every worker; any worker may."""

    logger: str
    level: str


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


@dataclass(frozen=True, slots=True)
class WriteAnswer:
    """A write is durable: the log's end after it, and after a connector config its revision."""

    end_offset: int
    revision: int = 0
