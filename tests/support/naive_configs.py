"""A simple model of what users and watchers of the config store see."""

import dataclasses

from drover.errors import OutOfRangeError
from drover.model.config import (
    ConfigMap,
    ConfigSnapshot,
    ConnectorConfigRemoved,
    ConnectorConfigUpdated,
    ConnectorEntry,
    HistoryEntry,
    LoggerLevelSet,
    SessionKey,
    SessionKeyUpdated,
    TargetState,
    TargetStateChanged,
    TaskConfigsUpdated,
)
from drover.model.ids import TaskId
from drover_config_store.core.machine import ConfigMachine

#: few, so configs leave the history in a short run
VERSIONS_MAX = 3


@dataclasses.dataclass
class ModelConnector:
    """A user's view of a connector."""

    config: ConfigMap
    state: TargetState
    tasks: list[ConfigMap] | None = None
    applied: ConfigMap | None = None
    generation: int = -1


class ModelHistory:
    """Every record written for one name, and the part that should remain."""

    def __init__(self) -> None:
        self.versions: list[HistoryEntry] = []
        self.others: list[HistoryEntry] = []

    def left(self) -> list[HistoryEntry]:
        versions = self.versions[-VERSIONS_MAX:]
        others = [entry for entry in self.others if entry.offset > versions[0].offset]
        return sorted([*versions, *others[-VERSIONS_MAX:]], key=lambda entry: entry.offset)


class Mirror:
    """A watcher: a worker's view built from changes alone."""

    def __init__(self) -> None:
        self.position = -1
        self.connectors: dict[str, ConnectorEntry] = {}
        self.task_configs: dict[str, dict[TaskId, ConfigMap]] = {}
        self.session_key: SessionKey | None = None
        self.logger_levels: dict[str, str] = {}

    def follow(self, machine: ConfigMachine) -> None:
        if self.position < 0:
            self._take(machine.snapshot())
        try:
            events = machine.history.read(self.position)
        except OutOfRangeError:
            self._take(machine.snapshot())
            return
        for event in events:
            self._apply(event.change)
        self.position = machine.end_offset

    def _take(self, snapshot: ConfigSnapshot) -> None:
        self.position = snapshot.end_offset
        self.connectors = {
            name: entry for name, entry in snapshot.connectors.items() if entry.config is not None
        }
        self.task_configs = {name: {} for name in self.connectors}
        for task, config in snapshot.task_configs.items():
            self.task_configs[task.connector][task] = config
        self.session_key = snapshot.session_key
        self.logger_levels = dict(snapshot.logger_levels)

    def _apply(self, change: object) -> None:
        match change:
            case ConnectorConfigUpdated(entry):
                self.connectors[entry.name] = entry
                self.task_configs.setdefault(entry.name, {})
            case ConnectorConfigRemoved(name):
                self.connectors.pop(name, None)
                self.task_configs.pop(name, None)
            case TaskConfigsUpdated(entry, task_configs):
                self.connectors[entry.name] = entry
                self.task_configs[entry.name] = dict(task_configs)
            case TargetStateChanged(name, state):
                self.connectors[name] = dataclasses.replace(
                    self.connectors[name], target_state=state
                )
            case SessionKeyUpdated(session_key):
                self.session_key = session_key
            case LoggerLevelSet(logger, level):
                self.logger_levels[logger] = level
