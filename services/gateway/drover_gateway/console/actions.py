"""What operators do with several connectors at a time: what will happen, and doing it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from drover.cli.output.remains import statements_of
from drover.client import ConnectClient
from drover.errors import DroverError
from drover.model.command_lines import drover_command
from drover_gateway.console.command_lines import grpc_command
from drover_gateway.console.rights import role_of
from drover_gateway.console.rows import Row, State

_AT_A_TIME = 8


@dataclass(frozen=True, slots=True, eq=False)
class Action:
    """An action on connectors.

    Attributes:
        key: Its name in forms.
        label: The text of its button.
        done: What a connector is afterwards.
        explanation: A sentence about its result.
        command: Its command, before the names.
        rpc: The method of ``drover.api.connect.v1.ConnectService``.
        arguments: The further fields of the RPC's request.
        options: The options of the command.
        is_destructive: Whether it cannot be undone.
    """

    key: str
    label: str
    done: str
    explanation: str
    command: str
    rpc: str
    arguments: Mapping[str, bool] = field(default_factory=dict)
    options: str = ""
    is_destructive: bool = False

    def cli(self, names: Sequence[str]) -> str:
        """The command for these connectors."""
        return drover_command(f"connector {self.command}", *names, options=self.options.split())

    def grpc(self, name: str) -> str:
        """The command that makes the RPC for one connector, without the client's options."""
        return grpc_command(self.rpc, {"name": name, **self.arguments})


RESTART_FAILED = Action(
    "restart-failed",
    "Restart failed",
    "restarting",
    "The connector and its tasks restart where they have failed. Nothing else is interrupted.",
    "restart",
    "RestartConnector",
    {"include_tasks": True, "only_failed": True},
    "--include-tasks --only-failed",
)
RESTART = Action(
    "restart",
    "Restart",
    "restarting",
    "The connector and all its tasks restart, from their committed offsets.",
    "restart",
    "RestartConnector",
    {"include_tasks": True},
    "--include-tasks",
)
PAUSE = Action(
    "pause",
    "Pause",
    "paused",
    "Tasks stay on their workers and process nothing until the connector is resumed.",
    "pause",
    "PauseConnector",
)
RESUME = Action(
    "resume",
    "Resume",
    "resumed",
    "A paused or stopped connector runs again, from its committed offsets.",
    "resume",
    "ResumeConnector",
)
STOP = Action(
    "stop",
    "Stop",
    "stopped",
    "Tasks are removed from their workers. The config and the committed offsets are kept.",
    "stop",
    "StopConnector",
)
DELETE = Action(
    "delete",
    "Delete",
    "deleted",
    "The config, its history and the status are removed, and cannot be restored here. Topics and"
    " committed offsets are kept.",
    "delete",
    "DeleteConnector",
    options="--yes",
    is_destructive=True,
)
ACTIONS: Mapping[str, Action] = {
    each.key: each for each in (RESTART_FAILED, RESTART, PAUSE, RESUME, STOP, DELETE)
}


#: Why an action would do nothing.
_NOTHING: Mapping[str, str] = {
    PAUSE.key: "it is paused already",
    RESUME.key: "it is not paused or stopped",
    STOP.key: "it is stopped already",
    RESTART.key: "it is stopped, resume it instead",
    RESTART_FAILED.key: "neither it nor a task has failed",
}


def offered(row: Row) -> Sequence[Action]:
    """The actions that would do something with a connector."""
    return _offered(row.target, bool(row.failed_tasks) or row.own_state is State.FAILED)


@cache
def _offered(target: str, has_failed: bool) -> Sequence[Action]:
    does = {
        RESTART_FAILED: has_failed,
        RESTART: target != "stopped",
        PAUSE: target != "paused",
        RESUME: target != "started",
        STOP: target != "stopped",
        DELETE: True,
    }
    return tuple(each for each in ACTIONS.values() if does[each])


def counts_of(rows: Iterable[Row]) -> Mapping[str, int]:
    """The number of connectors with which each action would do something, by its key."""
    kinds = Counter(map(offered, rows))
    counts: Counter[str] = Counter()
    for actions, count in kinds.items():
        counts.update(dict.fromkeys((each.key for each in actions), count))
    return counts


@dataclass(frozen=True, slots=True)
class Effect:
    """What an action will do with one connector.

    Attributes:
        name: The connector.
        now: Its present state, in words.
        then: What will happen, in words.
        is_change: Whether anything will happen.
        remains: Statements that remove what a deleted connector leaves in another system.
    """

    name: str
    now: str
    then: str
    is_change: bool = True
    remains: Sequence[str] = ()


def without_role(action: Action, effect: Effect) -> Effect:
    """The effect for a connector for which the caller lacks the role."""
    text = f"nothing: you need the role {role_of(action.rpc)} for it"
    return Effect(effect.name, effect.now, text, False)


def effect_of(
    action: Action, name: str, row: Row | None, config: Mapping[str, str] | None = None
) -> Effect:
    """What an action will do with a connector; ``row`` is None if the caller sees no such one."""
    if row is None:
        return Effect(name, "unknown", "nothing: there is no connector with this name", False)
    now = _state_text(row)
    tasks = _count(row.task_count, "task")
    if action not in offered(row):
        return Effect(name, now, f"nothing: {_NOTHING[action.key]}", False)
    match action.key:
        case "pause":
            return Effect(name, now, f"{tasks} will pause" if row.task_count else "it will pause")
        case "resume":
            return Effect(name, now, "it will run from its committed offsets")
        case "stop":
            return Effect(name, now, f"{tasks} will be removed; config and offsets are kept")
        case "restart-failed":
            return Effect(name, now, f"{_failed_parts(row)} will restart")
        case "restart":
            return Effect(name, now, f"the connector and {tasks} will restart")
        case _:
            running = f"{tasks} will end; " if row.task_count else ""
            text = f"{running}config and history will be removed; offsets and topics are kept"
            statements = statements_of({**(config or {}), "name": name})
            return Effect(name, now, text, remains=tuple(statements))


def _failed_parts(row: Row) -> str:
    parts = ["the connector"] if row.own_state is State.FAILED else []
    if row.failed_tasks:
        numbers = ", ".join(map(str, row.failed_tasks))
        parts.append(f"{'task' if len(row.failed_tasks) == 1 else 'tasks'} {numbers}")
    return " and ".join(parts)


def _state_text(row: Row) -> str:
    counted = [f"{count} {state.value}" for state, count in row.tasks.items() if count]
    if len(counted) == 1 and row.tasks.get(row.state):
        return f"{row.state.value}, {_count(row.task_count, 'task')}"
    return f"{row.state.value}, tasks: {', '.join(counted)}" if counted else row.state.value


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of an action for one connector; ``error`` is empty after a success."""

    name: str
    error: str = ""


async def run(client: ConnectClient, action: Action, names: Sequence[str]) -> AsyncIterator[Result]:
    """Carry out an action for each connector; yields results in the order in which they come."""
    queue = iter(names)
    running: set[asyncio.Task[Result]] = set()
    try:
        while True:
            while len(running) < _AT_A_TIME and (name := next(queue, None)) is not None:
                running.add(asyncio.create_task(_run_one(client, action, name)))
            if not running:
                return
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                yield each.result()
    finally:
        for each in running:
            each.cancel()


async def _run_one(client: ConnectClient, action: Action, name: str) -> Result:
    try:
        match action.key:
            case "pause":
                await client.pause_connector(name)
            case "resume":
                await client.resume_connector(name)
            case "stop":
                await client.stop_connector(name)
            case "delete":
                await client.delete_connector(name)
            case "restart":
                await client.restart_connector(name, include_tasks=True)
            case _:
                await client.restart_connector(name, include_tasks=True, only_failed=True)
    except DroverError as error:
        return Result(name, " ".join(error.message.split()) or error.reason.value)
    return Result(name)
