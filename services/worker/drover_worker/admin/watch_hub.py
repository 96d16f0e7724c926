"""Notifies watchers of changed connectors; a slow watcher skips intermediate states."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from drover.model.config import (
    ConfigChange,
    ConnectorConfigUpdated,
    LoggerLevelSet,
    SessionKeyUpdated,
    TaskConfigsUpdated,
)
from drover.model.ids import TaskId
from drover.model.status import StatusKey, TopicEvent
from drover_worker.core import events


class Changed:
    """The names of the connectors that changed since the last ``take``, each once."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._all = False
        self._wake = asyncio.Event()

    def add(self, name: str) -> None:
        """Add a changed connector."""
        self._names[name] = None
        self._wake.set()

    def add_all(self) -> None:
        """Mark every connector as changed or removed."""
        self._all = True
        self._wake.set()

    async def take(self, timeout_s: float) -> list[str] | None:
        """Wait for changes; returns their names in order, or None if any connector may differ.

        The list is empty after ``timeout_s`` without a change.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()
        except TimeoutError:
            return []
        self._wake.clear()
        names, self._names = self._names, {}
        everything, self._all = self._all, False
        return None if everything else list(names)


class WatchHub:
    """Distributes the changes of the views to all watchers."""

    def __init__(self) -> None:
        self._configs: set[Changed] = set()
        self._statuses: set[Changed] = set()

    @contextmanager
    def watch_configs(self) -> Iterator[Changed]:
        """Follow changes of connectors and their tasks."""
        with _subscribed(self._configs) as changed:
            yield changed

    @contextmanager
    def watch_statuses(self) -> Iterator[Changed]:
        """Follow changes of statuses, and of their connectors and tasks."""
        with _subscribed(self._statuses) as changed:
            yield changed

    def observe(self, event: events.HerderEvent) -> None:
        """Notify the watchers of the changes in an event that the herder has handled."""
        match event:
            case events.ConfigsChanged(changes):
                for change in changes:
                    name = _name_of(change.change)
                    if name:
                        self._config_changed(name)
            case events.ConfigsLoaded():
                for changed in (*self._configs, *self._statuses):
                    changed.add_all()
            case events.StatusesChanged(status_changes):
                for status_change in status_changes:
                    if not isinstance(status_change, TopicEvent):
                        self._status_changed(status_change.key)
            case events.StatusesLoaded():
                for changed in self._statuses:
                    changed.add_all()
            case _:
                pass

    def _config_changed(self, name: str) -> None:
        for changed in (*self._configs, *self._statuses):
            changed.add(name)

    def _status_changed(self, key: StatusKey) -> None:
        name = key.connector if isinstance(key, TaskId) else key
        for changed in self._statuses:
            changed.add(name)


@contextmanager
def _subscribed(to: set[Changed]) -> Iterator[Changed]:
    changed = Changed()
    to.add(changed)
    try:
        yield changed
    finally:
        to.discard(changed)


def _name_of(change: ConfigChange) -> str:
    """The connector of a change; empty if it concerns none."""
    match change:
        case ConnectorConfigUpdated(connector) | TaskConfigsUpdated(connector):
            return connector.name
        case SessionKeyUpdated() | LoggerLevelSet():
            return ""
        case _:
            return change.name
