"""The commands of config scenarios, and how what happens is written down.

put c x=1 y=2                       a connector's config
create c PAUSED x=1                 a new connector with its initial state
put-if c 3 x=1                      only at revision 3
delete c
tasks c one two                     task configs {"t":"one"} and {"t":"two"}
state c STOPPED
restart-tasks c
again                               repeat the last request, on a new call
foreign KEY JSON                    a record of another program; no JSON is a tombstone
compact        reload               remove superseded records; kill -9 and load
show c                              the connector and its tasks
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any

from drover.errors import DroverError
from drover.model.config import (
    ConfigChange,
    ConfigVersion,
    ConnectorConfigRemoved,
    ConnectorConfigUpdated,
    DeadLettersChanged,
    HistoryChange,
    LoggerLevelSet,
    RestartRequested,
    SessionKeyUpdated,
    TargetState,
    TargetStateChanged,
    TaskConfigsUpdated,
)
from drover.model.ids import TaskId
from drover_config_store.core.events import (
    ConfigRequest,
    DeleteConnector,
    PutConnectorConfig,
    PutLoggerLevel,
    PutRestartRequest,
    PutSessionKey,
    PutTargetState,
    PutTaskConfigs,
    PutTaskCount,
    WriteAnswer,
)
from drover_config_store.core.machine import ConfigMachine
from drover_config_store.core.records import ConfigRecord, decode, encode
from tests.support.log_machine import LogMachineDriver
from tests.support.scenario import Command


class ConfigScenario:
    """Runs commands against one config machine; ``execute`` returns the trace of each."""

    def __init__(self) -> None:
        # one past config per connector, so the scenario shows what compaction keeps
        self._driver = _driver(versions_max=1)
        self._numbers = count(1)
        self._last: ConfigRequest | None = None
        self._author = ""
        self._logged = 0
        self._watched = 0

    def execute(self, command: Command) -> Iterable[str]:
        """Run one command."""
        commands: dict[str, Callable[[Command], list[str]]] = {
            "put": lambda c: self._put(c),
            "create": lambda c: self._put(c, initial_state=TargetState(c.words[1])),
            "put-if": lambda c: self._put(c, expected_revision=int(c.words[1])),
            "delete": lambda c: self._submit(DeleteConnector(**self._ids(), name=c.words[0])),
            "tasks": self._tasks,
            "state": self._state,
            "restart-tasks": self._restart_tasks,
            "fenced": self._fenced,
            "key": self._key,
            "level": self._level,
            "remember": self._remember,
            "author": self._set_author,
            "history": self._history,
            "again": self._again,
            "foreign": self._foreign,
            "compact": self._compact,
            "reload": self._reload,
            "show": self._show,
        }
        said = commands[command.name](command)
        return [*self._news(), *said]

    def _ids(self) -> dict[str, Any]:
        number = next(self._numbers)
        return {
            "call_id": f"call-{number}",
            "request_id": f"id-{number}",
            "author": self._author,
            "writer_epoch": 1,
        }

    def _unprivileged_ids(self) -> dict[str, Any]:
        ids = self._ids()
        del ids["writer_epoch"]
        return ids

    def _submit(self, event: ConfigRequest) -> list[str]:
        self._last = event
        try:
            answer = self._driver.submit(event)
        except DroverError as error:
            return [f"{error.code} {error.reason}: {error.message}"]
        assert isinstance(answer, WriteAnswer)
        revision = f", revision {answer.revision}" if answer.revision else ""
        return [f"ok, end {answer.end_offset}{revision}"]

    def _put(self, command: Command, **more: Any) -> list[str]:
        name = command.words[0]
        return self._submit(
            PutConnectorConfig(**self._ids(), name=name, config=command.options, **more)
        )

    def _tasks(self, command: Command) -> list[str]:
        connector, *texts = command.words
        configs = [(TaskId(connector, index), {"t": text}) for index, text in enumerate(texts)]
        return self._submit(
            PutTaskConfigs(**self._ids(), connector=connector, task_configs=configs)
        )

    def _state(self, command: Command) -> list[str]:
        name, state = command.words
        event = PutTargetState(
            **self._unprivileged_ids(), name=name, target_state=TargetState(state)
        )
        return self._submit(event)

    def _restart_tasks(self, command: Command) -> list[str]:
        return self._submit(
            PutRestartRequest(
                **self._ids(), name=command.words[0], only_failed=False, include_tasks=True
            )
        )

    def _fenced(self, command: Command) -> list[str]:
        name, count = command.words
        return self._submit(PutTaskCount(**self._ids(), name=name, task_count=int(count)))

    def _key(self, command: Command) -> list[str]:
        key = command.words[0].encode()
        return self._submit(PutSessionKey(**self._ids(), key=key, algorithm="HmacSHA256"))

    def _level(self, command: Command) -> list[str]:
        logger, level = command.words
        return self._submit(PutLoggerLevel(**self._unprivileged_ids(), logger=logger, level=level))

    def _set_author(self, command: Command) -> list[str]:
        self._author = command.words[0]
        return []

    def _remember(self, command: Command) -> list[str]:
        """Before the first write: set the number of past configs."""
        assert not self._driver.log
        self._driver = _driver(versions_max=int(command.words[0]))
        return []

    def _history(self, command: Command) -> list[str]:
        return [
            f"{entry.offset} by {entry.author or '?'} at {entry.time_ms} ms: {_entry(entry.change)}"
            for entry in self._driver.machine.connector_history(command.words[0])
        ] or ["nothing is known"]

    def _again(self, _: Command) -> list[str]:
        assert self._last is not None
        return self._submit(dataclasses.replace(self._last, call_id=f"call-{next(self._numbers)}"))

    def _foreign(self, command: Command) -> list[str]:
        key, *value = command.words
        self._driver.append_foreign((key, value[0] if value else None))
        return []

    def _compact(self, _: Command) -> list[str]:
        self._driver.compact()
        return [
            f"left: {key.decode()} at {offset}"
            for offset, (key, _, _) in enumerate(self._driver.log)
            if offset not in self._driver.compacted
        ]

    def _reload(self, _: Command) -> list[str]:
        self._driver.restart()
        return []

    def _show(self, command: Command) -> list[str]:
        name = command.words[0]
        snapshot = self._driver.machine.snapshot()
        entry = snapshot.connectors.get(name)
        if entry is None:
            return ["not there"]
        inconsistent = ", inconsistent" if entry.inconsistent else ""
        lines = [
            f"config {_config(entry.config)}, {entry.target_state},"
            f" {entry.task_count} tasks of {_config(entry.applied_config)}{inconsistent}"
        ]
        if entry.fenced_task_count is not None:
            pending = ", earlier ones are to be fenced" if entry.fencing_pending else ""
            lines.append(f"{entry.fenced_task_count} tasks may have transactional ids{pending}")
        lines += [
            f"task {task.task}: {_config(config)}"
            for task, config in snapshot.task_configs.items()
            if task.connector == name
        ]
        return lines

    def _news(self) -> list[str]:
        """The appended records, and the watchers' changes."""
        driver = self._driver
        news = [
            f"log < {key.decode()} {'(tombstone)' if value is None else value.decode()}"
            for key, value, _ in driver.log[self._logged :]
        ]
        self._logged = len(driver.log)
        history = driver.machine.history
        start = max(self._watched, history.start_offset)
        news += [f"watchers: {_change(event.change)}" for event in history.read(start)]
        self._watched = history.end_offset
        return news


def _driver(versions_max: int) -> LogMachineDriver[ConfigMachine, ConfigRecord]:
    return LogMachineDriver(lambda: ConfigMachine(versions_max=versions_max), encode, decode)


def _config(config: Mapping[str, str] | None) -> str:
    return "none" if config is None else json.dumps(dict(config), separators=(",", ":"))


def _change(change: ConfigChange) -> str:
    match change:
        case ConnectorConfigUpdated(entry):
            return f"{entry.name} has config {_config(entry.config)}, {entry.target_state}"
        case ConnectorConfigRemoved(name):
            return f"{name} is removed"
        case TaskConfigsUpdated(entry, task_configs):
            inconsistent = ", inconsistent" if entry.inconsistent else ""
            generation = entry.task_config_generation
            return (
                f"{entry.name} has {len(task_configs)} task configs,"
                f" generation {generation}{inconsistent}"
            )
        case TargetStateChanged(name, state):
            return f"{name} shall be {state}"
        case RestartRequested(name, only_failed, include_tasks):
            tasks = " with tasks" if include_tasks else ""
            failed = ", what failed" if only_failed else ""
            return f"{name} shall restart{tasks}{failed}"
        case SessionKeyUpdated(session_key):
            return f"the session key is another one, for {session_key.algorithm}"
        case LoggerLevelSet(logger, level):
            return f"{logger} logs at {level}"


def _entry(change: HistoryChange) -> str:
    match change:
        case ConfigVersion(revision, config):
            return f"config {revision}: {_config(config)}"
        case DeadLettersChanged(name, topic, ranges):
            return f"{name}: dead letters {topic} {ranges}"
        case _:
            return _change(change)
