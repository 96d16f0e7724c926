"""What should run, as the config store holds it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from drover.model.ids import TaskId

ConfigMap = Mapping[str, str]

#: The setting of a sink that names its consumer group on Kafka.
CONSUMER_GROUP_SETTING = "consumer.override.group.id"
#: Names a topic on Kafka in which a source's offsets are as well.
OFFSETS_TOPIC_SETTING = "offsets.storage.topic"


class TargetState(StrEnum):
    """What a connector should be doing (KIP-875 for STOPPED)."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True)
class ConnectorEntry:
    """A connector as the config store holds it.

    ``config`` is None when the connector was removed but records of it remain; ``config_revision``
    is the log's end after the config's record, 0 without a config. ``task_count`` is -1 before the
    first commit marker. ``task_config_generation`` names the set of task configs that applies: the
    log's end after its commit marker, the same for every reader, -1 where there is none.
    ``applied_config`` is the connector config under which the task configs were made. While
    ``inconsistent``, no set applies and no tasks run until the whole set is written again.
    ``fenced_task_count`` is how many tasks may hold transactional ids, as recorded last, and
    ``fencing_pending`` says that task configs were committed after that record. No event tells of
    that record: read a snapshot before acting on the two.
    """

    name: str
    config: ConfigMap | None = None
    config_revision: int = 0
    target_state: TargetState = TargetState.STARTED
    task_count: int = -1
    task_config_generation: int = -1
    inconsistent: bool = False
    applied_config: ConfigMap | None = None
    fenced_task_count: int | None = None
    fencing_pending: bool = False


@dataclass(frozen=True, slots=True)
class SessionKey:
    """The key that signs calls between workers (KIP-507), made at ``creation_ms``."""

    key: bytes = field(repr=False)
    algorithm: str
    creation_ms: int


@dataclass(frozen=True, slots=True)
class ConnectorConfigUpdated:
    """A connector's config was written."""

    connector: ConnectorEntry


@dataclass(frozen=True, slots=True)
class ConnectorConfigRemoved:
    """A connector's config was removed."""

    name: str


@dataclass(frozen=True, slots=True)
class TaskConfigsUpdated:
    """A commit marker was read; ``task_configs`` is the whole set (empty if inconsistent)."""

    connector: ConnectorEntry
    task_configs: Mapping[TaskId, ConfigMap]


@dataclass(frozen=True, slots=True)
class TargetStateChanged:
    """A connector should do something else."""

    name: str
    target_state: TargetState


@dataclass(frozen=True, slots=True)
class RestartRequested:
    """A restart of a connector was asked for."""

    name: str
    only_failed: bool
    include_tasks: bool


@dataclass(frozen=True, slots=True)
class SessionKeyUpdated:
    """Calls between workers are signed with another key."""

    session_key: SessionKey


@dataclass(frozen=True, slots=True)
class LoggerLevelSet:
    """A logger shall have another level on every worker."""

    logger: str
    level: str


ConfigChange = (
    ConnectorConfigUpdated
    | ConnectorConfigRemoved
    | TaskConfigsUpdated
    | TargetStateChanged
    | RestartRequested
    | SessionKeyUpdated
    | LoggerLevelSet
)


@dataclass(frozen=True, slots=True)
class ConfigEvent:
    """One change, as the record at ``offset`` caused it."""

    offset: int
    change: ConfigChange


@dataclass(frozen=True, slots=True)
class ConfigSnapshot:
    """The whole state at ``end_offset`` (the last record's offset + 1; 0 for an empty log).

    ``log_id`` names the sequence that offsets count in, empty if unknown. ``logger_levels`` are
    those that were ever set for all workers.
    """

    end_offset: int
    connectors: Mapping[str, ConnectorEntry]
    task_configs: Mapping[TaskId, ConfigMap]
    session_key: SessionKey | None = None
    logger_levels: Mapping[str, str] = field(default_factory=dict)
    log_id: str = ""


@dataclass(frozen=True, slots=True)
class ConfigVersion:
    """A config that a connector has or had; ``revision`` names it."""

    revision: int
    config: ConfigMap


HistoryChange = ConfigVersion | ConnectorConfigRemoved | TargetStateChanged | RestartRequested


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One thing that was written about a connector: by the record at ``offset``, at ``time_ms``.

    ``author`` asked for it; empty if unknown, as for what Kafka Connect wrote.
    """

    offset: int
    time_ms: int
    author: str
    change: HistoryChange
