"""The fold of the config log: which record changes what, and what a watcher hears about it."""

from collections.abc import Collection
from dataclasses import dataclass, field

from drover.model.config import (
    ConfigChange,
    ConfigMap,
    ConfigSnapshot,
    ConnectorConfigRemoved,
    ConnectorConfigUpdated,
    ConnectorEntry,
    RestartRequested,
    TargetState,
    TargetStateChanged,
    TaskConfigsUpdated,
)
from drover.model.ids import TaskId
from services.config_store.core.records import (
    CommitRecord,
    ConfigRecord,
    ConnectorRecord,
    IgnoredRecord,
    RestartRecord,
    TargetStateRecord,
    TaskRecord,
)


@dataclass(slots=True)
class _Connector:
    """All that is known under one name; there may be a target state without a connector."""

    name: str
    config: ConfigMap | None = None
    #: the offset of the config's record + 1, so that it is never 0; 0 without a config
    revision: int = 0
    target_state: TargetState | None = None
    task_count: int = -1
    #: the log's end after the last commit marker of a complete set, so that no load changes it
    generation: int = -1
    inconsistent: bool = False
    applied_config: ConfigMap | None = None
    #: the applied set, replaced as a whole; events share it
    task_configs: dict[TaskId, ConfigMap] = field(default_factory=dict)
    #: task records by index that no commit marker has followed yet
    deferred: dict[int, TaskRecord] = field(default_factory=dict)
    #: the config's revision when the last commit marker was read; 0 before
    committed_revision: int = 0

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
        )

    def is_visible(self) -> bool:
        """Whether a snapshot lists it; of a removed connector the generation alone is no reason."""
        return self.config is not None or self.target_state is not None or self.inconsistent


class ConfigState:
    """What should run, as the records applied so far say.

    Configs are never changed in place, so snapshots and events share them.
    """

    def __init__(self) -> None:
        self._connectors: dict[str, _Connector] = {}

    def apply(self, offset: int, record: ConfigRecord) -> ConfigChange | None:
        """Apply the record at ``offset``; the change that watchers are told of, if any."""
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
            case IgnoredRecord():
                return None

    def connector(self, name: str) -> ConnectorEntry | None:
        """The connector ``name``, or None if there is no config of it."""
        connector = self._connectors.get(name)
        return None if connector is None or connector.config is None else connector.entry()

    def snapshot(self, end_offset: int) -> ConfigSnapshot:
        """The whole state, ordered by name and task; later changes do not show in it."""
        connectors: dict[str, ConnectorEntry] = {}
        task_configs: dict[TaskId, ConfigMap] = {}
        for name in sorted(self._connectors):
            connector = self._connectors[name]
            if connector.is_visible():
                connectors[name] = connector.entry()
                task_configs.update(connector.task_configs)
        return ConfigSnapshot(end_offset, connectors, task_configs)

    def needed_offsets(self) -> Collection[int]:
        """Offsets of the configs under which task configs were committed.

        A commit marker counts only after a config of its connector, so this config is needed even
        when a later one has superseded it.
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
            if connector.config is None:
                assert connector.applied_config is None, connector
                assert connector.task_count == -1, connector

    def _get(self, name: str) -> _Connector:
        connector = self._connectors.get(name)
        if connector is None:
            connector = self._connectors[name] = _Connector(name)
        return connector

    def _apply_connector(self, offset: int, record: ConnectorRecord) -> ConfigChange:
        connector = self._get(record.name)
        if record.config is not None:
            connector.config = record.config
            connector.revision = offset + 1
            return ConnectorConfigUpdated(connector.entry())
        # the target state, the inconsistent mark and the generation outlive the config
        connector.config = connector.applied_config = None
        connector.revision = connector.committed_revision = 0
        connector.task_count = -1
        connector.task_configs = {}
        connector.deferred = {}
        return ConnectorConfigRemoved(record.name)

    def _apply_commit(self, offset: int, record: CommitRecord) -> ConfigChange | None:
        connector = self._get(record.connector)
        deferred, connector.deferred = connector.deferred, {}
        if connector.config is None:
            # the marker of a connector that was deleted; compaction has removed its config
            return None
        count = record.task_count
        connector.task_count = count
        connector.committed_revision = connector.revision
        connector.inconsistent = count > len(deferred) or any(
            task not in deferred for task in range(count)
        )
        if connector.inconsistent:
            connector.task_configs = {}
        else:
            connector.task_configs = {
                deferred[task].task: deferred[task].config for task in range(count)
            }
            connector.applied_config = connector.config
            connector.generation = offset + 1
        return TaskConfigsUpdated(connector.entry(), connector.task_configs)

    def _apply_target_state(self, record: TargetStateRecord) -> ConfigChange | None:
        connector = self._get(record.name)
        before = connector.effective_state()
        connector.target_state = record.state
        if record.state is None or record.state is before or connector.config is None:
            return None
        return TargetStateChanged(record.name, record.state)
