"""The worker's copy of the config log's state, updated by the config store's watch."""

from collections.abc import Mapping
from dataclasses import replace

from drover.model.config import (
    ConfigChange,
    ConfigMap,
    ConfigSnapshot,
    ConnectorConfigRemoved,
    ConnectorConfigUpdated,
    ConnectorEntry,
    LoggerLevelSet,
    RestartRequested,
    SessionKeyUpdated,
    TargetStateChanged,
    TaskConfigsUpdated,
)
from drover.model.ids import TaskId

TASKS_MAX_DEFAULT = 1


class ConfigView:
    """Connectors and their tasks, as far as this worker has read the config log.

    ``offset`` is the offset up to which the log was read. ``structure_offset`` is the offset after
    the last change that needs a new assignment: a connector was created or removed, or a set of
    task configs was committed. ``shape_offset`` is the same, but ignores a set with as many tasks
    as the previous one. ``inconsistent`` has the connectors whose last commit marker names tasks
    that the log does not have.
    """

    def __init__(self) -> None:
        self.loaded = False
        self.offset = 0
        self.structure_offset = 0
        self.shape_offset = 0
        self.connectors: dict[str, ConnectorEntry] = {}
        self.inconsistent: dict[str, None] = {}
        self._tasks: dict[str, dict[int, ConfigMap]] = {}
        self._tasks_offsets: dict[str, int] = {}

    def config(self, name: str) -> ConfigMap | None:
        """The connector's config; None if it does not exist."""
        entry = self.connectors.get(name)
        return entry.config if entry else None

    def tasks(self, name: str) -> Mapping[int, ConfigMap]:
        """The connector's task configs by index; empty while they are inconsistent."""
        return self._tasks.get(name, {})

    def has_task(self, task: TaskId) -> bool:
        """Whether the task should exist."""
        return task.task in self._tasks.get(task.connector, {})

    def tasks_offset(self, name: str) -> int:
        """The offset after the connector's task configs; 0 if they came with the snapshot."""
        return self._tasks_offsets.get(name, 0)

    def task_counts(self) -> dict[str, int]:
        """The number of tasks of every connector; 0 while its task configs are inconsistent."""
        return {name: len(self._tasks.get(name, ())) for name in self.connectors}

    def tasks_max(self, name: str) -> int:
        """The connector's ``tasks.max``; the default if the setting is absent or malformed."""
        text = (self.config(name) or {}).get("tasks.max", "").strip()
        return int(text) if text.isdecimal() and int(text) > 0 else TASKS_MAX_DEFAULT

    def load(self, snapshot: ConfigSnapshot) -> list[ConfigChange]:
        """Replace the state by a snapshot; returns the changes, none for the first snapshot.

        A later snapshot follows an interruption of the watch that outlasted the log's history.
        """
        changes = self._differences(snapshot) if self.loaded else []
        known = set(self.connectors)
        self.connectors = {
            name: entry for name, entry in snapshot.connectors.items() if entry.config is not None
        }
        self.inconsistent = {
            name: None for name, entry in self.connectors.items() if entry.inconsistent
        }
        self._tasks = {}
        for task, config in snapshot.task_configs.items():
            if task.connector in self.connectors:
                self._tasks.setdefault(task.connector, {})[task.task] = config
        recommitted = False
        for change in changes:
            if isinstance(change, TaskConfigsUpdated):
                recommitted = True
                self._tasks_offsets[change.connector.name] = snapshot.end_offset
            elif isinstance(change, ConnectorConfigRemoved):
                self._tasks_offsets.pop(change.name, None)
        if changes and (recommitted or known != set(self.connectors)):
            self.structure_offset = self.shape_offset = snapshot.end_offset
        self.offset = snapshot.end_offset
        self.loaded = True
        return changes

    def apply(self, offset: int, change: ConfigChange) -> ConfigChange | None:
        """Apply one change; returns it if a worker has to act on it, else None.

        Only the owner acts on a new config of an existing connector. A new connector moves
        ``structure_offset``.
        """
        if offset < self.offset:
            return None  # a resumed watch may repeat changes
        self.offset = offset + 1
        match change:
            case ConnectorConfigUpdated(connector):
                if connector.name not in self.connectors:
                    self.structure_offset = self.shape_offset = offset + 1
                self._put(connector)
            case ConnectorConfigRemoved(name):
                if self.connectors.pop(name, None) is None:
                    return None
                self.inconsistent.pop(name, None)
                self._tasks.pop(name, None)
                self._tasks_offsets.pop(name, None)
                self.structure_offset = self.shape_offset = offset + 1
            case TaskConfigsUpdated(connector, task_configs):
                known = self.connectors.get(connector.name)
                if known is None:
                    return None
                self._put(connector)
                tasks = {task.task: config for task, config in task_configs.items()}
                if _same_set(known, connector) and tasks == self.tasks(connector.name):
                    return None  # the owner retried a write that it had not read back
                if tasks.keys() != self.tasks(connector.name).keys():
                    self.shape_offset = offset + 1
                self._tasks[connector.name] = tasks
                self._tasks_offsets[connector.name] = self.structure_offset = offset + 1
            case TargetStateChanged(name, target_state):
                entry = self.connectors.get(name)
                if entry is None:
                    return None
                self.connectors[name] = replace(entry, target_state=target_state)
            case RestartRequested(name):
                if name not in self.connectors:
                    return None
            case SessionKeyUpdated():
                pass  # ``SessionKeys`` has the key
            case LoggerLevelSet():
                return None  # no effect on connectors and tasks
        return change

    def advance_to(self, end_offset: int) -> None:
        """Record that the log was read up to ``end_offset``."""
        self.offset = max(self.offset, end_offset)

    def _put(self, entry: ConnectorEntry) -> None:
        self.connectors[entry.name] = entry
        if entry.inconsistent:
            self.inconsistent[entry.name] = None
        else:
            self.inconsistent.pop(entry.name, None)

    def _differences(self, snapshot: ConfigSnapshot) -> list[ConfigChange]:
        present = {n: e for n, e in snapshot.connectors.items() if e.config is not None}
        changes: list[ConfigChange] = [
            ConnectorConfigRemoved(name) for name in self.connectors if name not in present
        ]
        tasks: dict[str, dict[TaskId, ConfigMap]] = {}
        for task, config in snapshot.task_configs.items():
            tasks.setdefault(task.connector, {})[task] = config
        for name, entry in present.items():
            known = self.connectors.get(name)
            if known is None or known.config != entry.config:
                changes.append(ConnectorConfigUpdated(entry))
            if known is None or known.target_state != entry.target_state:
                changes.append(TargetStateChanged(name, entry.target_state))
            new_tasks = tasks.get(name, {})
            same = known is not None and _same_set(known, entry)
            if not same or {t.task: c for t, c in new_tasks.items()} != self.tasks(name):
                changes.append(TaskConfigsUpdated(entry, new_tasks))
        return changes


def _same_set(before: ConnectorEntry, after: ConnectorEntry) -> bool:
    """Whether two commits of equal task configs are equivalent, so that tasks need no restart."""
    if before.inconsistent and after.inconsistent:
        return True  # neither has tasks
    return (
        not before.inconsistent
        and not after.inconsistent
        and before.task_count == after.task_count
        and before.applied_config == after.applied_config
    )
