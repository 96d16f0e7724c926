"""The desired state, as the config store keeps it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from drover.model.ids import TaskId

ConfigMap = Mapping[str, str]

#: The characters that Java's String.trim() removes.
JAVA_SPACE = "".join(map(chr, range(0x21)))
#: The setting with a sink's consumer group on Kafka.
CONSUMER_GROUP_SETTING = "consumer.override.group.id"
#: The setting with a second topic on Kafka that also stores a source's offsets.
OFFSETS_TOPIC_SETTING = "offsets.storage.topic"


def setting_text(config: ConfigMap, name: str) -> str:
    """A setting's text, trimmed as its definition does; empty if it is not set."""
    return config.get(name, "").strip(JAVA_SPACE)


class TargetState(StrEnum):
    """The desired state of a connector (KIP-875 for STOPPED)."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


@dataclass(frozen=True, slots=True)
class ConnectorEntry:
    """A connector in the config store.

    Attributes:
        name: Its name.
        config: Its raw config; None if the connector was removed but records of it remain.
        config_revision: The log's end offset after the config's record; 0 without a config.
        target_state: The desired state.
        task_count: The number of tasks in the last commit marker; -1 before the first.
        task_config_generation: Identifies the set of task configs that is in effect: the log's end
            offset after its commit marker, the same for every reader; -1 if there is none.
        inconsistent: Whether task configs are missing from the log. No set is in effect, and no
            tasks run until the whole set is written again.
        applied_config: The connector config from which the task configs were generated.
        fenced_task_count: The last recorded number of tasks that may hold transactional ids.
        fencing_pending: Whether task configs were committed after that record. The record of
            ``fenced_task_count`` is not an event: read a snapshot before acting on both fields.
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
    """The key that signs calls between workers (KIP-507); it was generated at ``creation_ms``."""

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
    """A commit marker was written; ``task_configs`` is the whole set (empty if inconsistent)."""

    connector: ConnectorEntry
    task_configs: Mapping[TaskId, ConfigMap]


@dataclass(frozen=True, slots=True)
class TargetStateChanged:
    """A connector's target state changed."""

    name: str
    target_state: TargetState


@dataclass(frozen=True, slots=True)
class RestartRequested:
    """A user requested the restart of a connector."""

    name: str
    only_failed: bool
    include_tasks: bool


@dataclass(frozen=True, slots=True)
class DeadLettersChanged:
    """A user discarded dead letters, or requested their replay.

    Attributes:
        name: The connector.
        topic: The dead letter queue.
        ranges: The dead letters, as ``drover.model.dead_letters.ranges_text``.
        discarded: False for a replay.
        reason: Why they were discarded; empty for a replay.
    """

    name: str
    topic: str
    ranges: str
    discarded: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SessionKeyUpdated:
    """The session key was rotated."""

    session_key: SessionKey


@dataclass(frozen=True, slots=True)
class LoggerLevelSet:
    """A logger's level was set on every worker."""

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
    """The change that the record at ``offset`` made."""

    offset: int
    change: ConfigChange


@dataclass(frozen=True, slots=True)
class ConfigSnapshot:
    """The whole state at ``end_offset`` (the last record's offset + 1; 0 for an empty log).

    ``log_id`` identifies the log that offsets refer to; empty if unknown. ``logger_levels`` are all
    levels that were set for the cluster.
    """

    end_offset: int
    connectors: Mapping[str, ConnectorEntry]
    task_configs: Mapping[TaskId, ConfigMap]
    session_key: SessionKey | None = None
    logger_levels: Mapping[str, str] = field(default_factory=dict)
    log_id: str = ""


@dataclass(frozen=True, slots=True)
class ConfigVersion:
    """A current or earlier config of a connector; ``revision`` identifies it."""

    revision: int
    config: ConfigMap


HistoryChange = (
    ConfigVersion
    | ConnectorConfigRemoved
    | TargetStateChanged
    | RestartRequested
    | DeadLettersChanged
)


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One write for a connector: the record at ``offset``, written at ``time_ms``.

    ``author`` is the user who requested it; empty if unknown, as in records that Kafka Connect
    wrote.
    """

    offset: int
    time_ms: int
    author: str
    change: HistoryChange
