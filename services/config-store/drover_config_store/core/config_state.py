"""The fold of the config log: the effect of each record, and the change that watchers get."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from drover.model.config import (
    ConfigChange,
    ConfigMap,
    ConfigSnapshot,
    ConnectorConfigRemoved,
    ConnectorConfigUpdated,
    ConnectorEntry,
    LoggerLevelSet,
    RestartRequested,
    SessionKey,
    SessionKeyUpdated,
    TargetState,
    TargetStateChanged,
    TaskConfigsUpdated,
)
from drover.model.ids import TaskId
from drover_config_store.core.records import (
    CommitRecord,
    ConfigRecord,
    ConnectorRecord,
    DeadLettersRecord,
    IgnoredRecord,
    LoggerLevelRecord,
    RestartRecord,
    SessionKeyRecord,
    TargetStateRecord,
    TaskCountRecord,
    TaskRecord,
)


@dataclass(slots=True)
class _Connector:
    """The state of one name; a target state may exist without a config.

    A removal resets everything but the target state and the two fencing fields. These depend on
    the last target state, task count and commit marker alone, which compaction always keeps.
    """

    name: str
    config: ConfigMap | None = None
    #: the offset of the config's record + 1, so that it is never 0; 0 without a config
    revision: int = 0
    target_state: TargetState | None = None
    task_count: int = -1
    #: the offset after the last commit marker; -1 if its set is incomplete
    generation: int = -1
    inconsistent: bool = False
    applied_config: ConfigMap | None = None
    #: the applied set, replaced as a whole; events share it
    task_configs: dict[TaskId, ConfigMap] = field(default_factory=dict)
    #: task records without a commit marker yet, by index
    deferred: dict[int, TaskRecord] = field(default_factory=dict)
    #: the config's revision when the last commit marker was read; 0 before
    committed_revision: int = 0
    fenced_task_count: int | None = None
    #: whether a commit marker follows the last task count, even one of a removed connector
    fencing_pending: bool = False

    def effective_state(self) -> TargetState:
        return TargetState.STARTED if self.target_state is None else self.target_state

    def entry(self) -> ConnectorEntry:
        return ConnectorEntry(
            name=self.name,
            config=self.config,
            config_revision=self.revision,
            target_state=self.effective_state(),
            task_count=self.task_count,
            task_config_generation=self.generation,
            inconsistent=self.inconsistent,
            applied_config=self.applied_config,
            fenced_task_count=self.fenced_task_count,
            fencing_pending=self.fencing_pending,
        )

    def is_visible(self) -> bool:
        """Whether a snapshot lists it."""
        return self.config is not None or self.target_state is not None


class ConfigState:
    """Connector configs, task configs and target states, folded from the records applied so far.

    Configs are never changed in place, so snapshots and events share them.
    """

    def __init__(self) -> None:
        self._connectors: dict[str, _Connector] = {}
        self._session_key: SessionKey | None = None
        self._logger_levels: dict[str, str] = {}

    def apply(self, offset: int, record: ConfigRecord) -> ConfigChange | None:
        """Apply the record at ``offset``; return the change for watchers, if any."""
        match record:
            case TaskRecord():
                self._get(record.task.connector).deferred[record.task.task] = record
                return None
            case ConnectorRecord():
                return self._apply_connector(offset, record)
            case CommitRecord():
                return self._apply_commit(offset, record)
            case TargetStateRecord():
                return self._apply_target_state(record)
            case RestartRecord(name, only_failed, include_tasks):
                return RestartRequested(name, only_failed, include_tasks)
            case TaskCountRecord(name, task_count):
                connector = self._get(name)
                connector.fenced_task_count = task_count
                connector.fencing_pending = False
                return None
            case SessionKeyRecord(session_key):
                self._session_key = session_key
                return SessionKeyUpdated(session_key)
            case LoggerLevelRecord(logger, level):
                self._logger_levels[logger] = level
                return LoggerLevelSet(logger, level)
            case DeadLettersRecord() | IgnoredRecord():
                return None

    @property
    def name_count(self) -> int:
        """How many names have state."""
        return len(self._connectors)

    def connector(self, name: str) -> ConnectorEntry | None:
        """The connector ``name``, or None if it has no config."""
        connector = self._connectors.get(name)
        return None if connector is None or connector.config is None else connector.entry()

    def counts(self) -> tuple[Mapping[TargetState, int], int]:
        """The number of connectors by target state, and the number of tasks."""
        present = [each for each in self._connectors.values() if each.config is not None]
        targets = Counter(each.target_state or TargetState.STARTED for each in present)
        return targets, sum(len(each.task_configs) for each in present)

    def snapshot(self, end_offset: int) -> ConfigSnapshot:
        """A copy of the whole state, ordered by name and task."""
        connectors: dict[str, ConnectorEntry] = {}
        task_configs: dict[TaskId, ConfigMap] = {}
        for name in sorted(self._connectors):
            connector = self._connectors[name]
            if connector.is_visible():
                connectors[name] = connector.entry()
                task_configs.update(connector.task_configs)
        return ConfigSnapshot(
            end_offset,
            connectors,
            task_configs,
            session_key=self._session_key,
            logger_levels=dict(sorted(self._logger_levels.items())),
        )

    def needed_offsets(self) -> Collection[int]:
        """Offsets of the configs under which task configs were committed.

        A commit marker has an effect only after a config of its connector, so this config is
        needed even when a later one supersedes it.
        """
        return [
            connector.committed_revision - 1
            for connector in self._connectors.values()
            if connector.committed_revision
        ]

    def validate(self) -> None:
        """Raise AssertionError when an invariant is broken."""
        for name, connector in self._connectors.items():
            assert connector.name == name
            assert (connector.config is None) == (connector.revision == 0), connector
            assert connector.committed_revision <= connector.revision, connector
            expected = 0 if connector.inconsistent else max(0, connector.task_count)
            assert list(connector.task_configs) == [
                TaskId(name, task) for task in range(expected)
            ], connector
            if connector.inconsistent:
                assert connector.applied_config is None, connector
                assert connector.generation == -1, connector
            if connector.config is None:
                assert connector.applied_config is None, connector
                assert connector.task_count == connector.generation == -1, connector
                assert not connector.inconsistent, connector

    def _get(self, name: str) -> _Connector:
        connector = self._connectors.get(name)
        if connector is None:
            connector = self._connectors[name] = _Connector(name)
        return connector

    def _forget_if_empty(self, connector: _Connector) -> None:
        if connector == _Connector(connector.name):
            del self._connectors[connector.name]

    def _apply_connector(self, offset: int, record: ConnectorRecord) -> ConfigChange:
        connector = self._get(record.name)
        if record.config is not None:
            connector.config = record.config
            connector.revision = offset + 1
            return ConnectorConfigUpdated(connector.entry())
        self._connectors[record.name] = connector = _Connector(
            record.name,
            target_state=connector.target_state,
            fenced_task_count=connector.fenced_task_count,
            fencing_pending=connector.fencing_pending,
        )
        self._forget_if_empty(connector)
        return ConnectorConfigRemoved(record.name)

    def _apply_commit(self, offset: int, record: CommitRecord) -> ConfigChange | None:
        connector = self._get(record.connector)
        deferred, connector.deferred = connector.deferred, {}
        connector.fencing_pending = True
        if connector.config is None:
            # the connector was deleted, and compaction has removed its config
            return None
        count = record.task_count
        connector.task_count = count
        connector.committed_revision = connector.revision
        connector.inconsistent = count > len(deferred) or not deferred.keys() >= set(range(count))
        if connector.inconsistent:
            connector.task_configs = {}
            connector.applied_config = None
            connector.generation = -1
        else:
            complete = map(deferred.__getitem__, range(count))
            connector.task_configs = {record.task: record.config for record in complete}
            connector.applied_config = connector.config
            connector.generation = offset + 1
        return TaskConfigsUpdated(connector.entry(), connector.task_configs)

    def _apply_target_state(self, record: TargetStateRecord) -> ConfigChange | None:
        connector = self._get(record.name)
        before = connector.effective_state()
        connector.target_state = record.state
        self._forget_if_empty(connector)
        if record.state is None or record.state is before or connector.config is None:
            return None
        return TargetStateChanged(record.name, record.state)
