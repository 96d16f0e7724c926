"""A second, simpler fold of the config log, compared with the config store's state."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from drover.log.log import LogRecord
from drover.model.config import ConfigMap, ConfigSnapshot, HistoryEntry, TargetState
from drover.model.ids import TaskId
from drover_config_store.core import records
from drover_config_store.core.connector_history import VERSIONS_MAX_DEFAULT


@dataclass(slots=True)
class ReferenceConnector:
    """The state of a connector that exists or existed."""

    config: ConfigMap | None = None
    revision: int = 0
    target: TargetState | None = None
    tasks: list[ConfigMap] | None = None
    set_number: int = -1
    uncommitted: list[ConfigMap] = field(default_factory=list)
    #: the offsets of its configs and tombstones, and of other records written while it had a config
    versions: list[int] = field(default_factory=list)
    others: list[int] = field(default_factory=list)

    def history(self) -> list[int]:
        """The offsets that the connector's history should contain."""
        versions = self.versions[-VERSIONS_MAX_DEFAULT:]
        others = [offset for offset in self.others if versions and offset > versions[0]]
        return sorted([*versions, *others[-VERSIONS_MAX_DEFAULT:]])

    #: The task count of a commit marker whose set is incomplete in the log; None if complete.
    missing_tasks_of: int | None = None


class ReferenceConfigs:
    """The fold of every record ever written, including compacted ones."""

    def __init__(self) -> None:
        self.connectors: dict[str, ReferenceConnector] = {}
        self.request_ids: set[str] = set()
        self.end_offset = 0

    def write(self, offset: int, stored: LogRecord) -> None:
        """Fold a durable record."""
        self.end_offset = offset + 1
        if stored.request_id:
            self.request_ids.add(stored.request_id)
        match records.decode(stored.key, stored.value):
            case records.ConnectorRecord(name, config):
                known = self._get(name)
                known.config = config
                known.revision = offset + 1
                known.versions.append(offset)
                if config is None:
                    known.tasks = None
                    known.set_number = -1
                    known.uncommitted = []
                    known.missing_tasks_of = None
            case records.TargetStateRecord(name, state):
                known = self._get(name)
                known.target = state
                if known.config is not None:
                    known.others.append(offset)
            case records.RestartRecord(name):
                known = self._get(name)
                if known.config is not None:
                    known.others.append(offset)
            case records.TaskRecord(task, config):
                self._get(task.connector).uncommitted.append(config)
            case records.CommitRecord(name, task_count):
                known = self._get(name)
                if known.config is not None:
                    is_whole = len(known.uncommitted) == task_count
                    known.tasks = known.uncommitted if is_whole else []
                    known.missing_tasks_of = None if is_whole else task_count
                    known.set_number = offset + 1 if is_whole else -1
                known.uncommitted = []
            case _:
                pass

    def existing(self) -> Mapping[str, ReferenceConnector]:
        """The connectors that exist, by name."""
        return {n: c for n, c in sorted(self.connectors.items()) if c.config is not None}

    def difference(self, snapshot: ConfigSnapshot) -> tuple[str, str] | None:
        """The first connector that differs in a snapshot, and the difference; None if equal."""
        if snapshot.end_offset != self.end_offset:
            return "", f"the log ends at {snapshot.end_offset}, not {self.end_offset}"
        existing = self.existing()
        shown = {n: e for n, e in snapshot.connectors.items() if e.config is not None}
        for name in sorted({*existing, *shown}):
            entry = shown.get(name)
            known = existing.get(name)
            if entry is None or known is None:
                return name, f"is {'lost' if entry is None else 'not deleted'}"
            tasks = known.tasks or []
            task_count = known.missing_tasks_of
            if task_count is None:
                task_count = -1 if known.tasks is None else len(tasks)
            expected = (
                known.config,
                known.revision,
                known.target or TargetState.STARTED,
                task_count,
                known.missing_tasks_of is not None,
                known.set_number,
                {TaskId(name, index): config for index, config in enumerate(tasks)},
            )
            found = (
                entry.config,
                entry.config_revision,
                entry.target_state,
                entry.task_count,
                entry.inconsistent,
                entry.task_config_generation,
                {t: c for t, c in snapshot.task_configs.items() if t.connector == name},
            )
            if expected != found:
                return name, f"is {found}, not {expected}"
        return None

    def history_difference(
        self, history: Callable[[str], Sequence[HistoryEntry]]
    ) -> tuple[str, str] | None:
        """The first connector whose history differs, and the difference; None if equal."""
        for name, known in sorted(self.connectors.items()):
            expected, found = known.history(), [entry.offset for entry in history(name)]
            if expected != found:
                return name, f"has a history of {found}, not {expected}"
        return None

    def _get(self, name: str) -> ReferenceConnector:
        return self.connectors.setdefault(name, ReferenceConnector())
