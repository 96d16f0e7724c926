"""``drover apply``: makes the cluster's connectors match their definition files."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

import typer

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.caller import call_worker
from drover.cli.console import (
    EXIT_REFUSED,
    AddressOption,
    CliError,
    Output,
    OutputOption,
    complain,
    confirm,
    plain,
    print_document,
    print_refusal,
    say,
    warn,
)
from drover.cli.definitions import Definition, initial_state, read_definitions
from drover.cli.output.connectors import target_state
from drover.cli.warnings import print_file_warnings, print_refused, print_warnings
from drover.client import ConnectClient
from drover.errors import DroverError
from drover.model.command_lines import drover_command
from drover.model.config import TargetState

#: The commands that lead to a target state.
_VERBS = {"STARTED": "resume", "PAUSED": "pause", "STOPPED": "stop"}
#: Exit code of --dry-run when something would change.
EXIT_DIFFERS = 3
#: Concurrent calls; a worker combines changes that arrive together in one rebalance.
_CALLS_AT_ONCE = 8

ItemT = TypeVar("ItemT")


class Action(StrEnum):
    """The change to a connector."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"
    UNCHANGED = "unchanged"


_DONE = {
    Action.CREATE: "created",
    Action.CHANGE: "changed",
    Action.DELETE: "deleted",
    Action.UNCHANGED: "unchanged",
}


_PLANNED = MappingProxyType({each: each.value for each in Action})


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """The change to one connector.

    Attributes:
        name: The connector.
        action: The kind of change.
        changes: (setting, present value, new value) of each changed setting, with secrets masked;
            a value is None if the setting is absent.
        definition: The definition to apply; None to delete.
    """

    name: str
    action: Action
    changes: Sequence[tuple[str, str | None, str | None]] = ()
    definition: Definition | None = None


def apply(
    files: Annotated[
        list[str],
        typer.Option(
            "--file",
            "-f",
            metavar="FILE|DIR",
            help="Definitions in JSON, YAML or .properties; a YAML file may have several "
            "documents. A folder means all of its files, - standard input. Repeatable.",
        ),
    ],
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help=f"Show the changes without making them; exit {EXIT_DIFFERS} if there are any.",
        ),
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete connectors that no file defines.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before deleting.")] = False,
    plan: Annotated[
        str,
        typer.Option(
            "--plan",
            metavar="HASH",
            help="The hash that `drover connector plan` printed for the only connector; refuse if "
            "the plan has changed since.",
        ),
    ] = "",
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Create and change connectors as files define them; unchanged connectors are not touched.

    All definitions are validated first: with one fault in any file nothing is changed.
    """
    definitions = read_definitions(files)
    print_file_warnings(definitions)
    if plan and (prune or len(definitions) != 1):
        raise CliError("--plan is for one connector: give one definition, without --prune")
    states = {each.name: initial_state(each) for each in definitions}
    if plan and any(states.values()):
        raise CliError("--plan cannot set initial_state: remove it from the definition")
    steps, faults = call_worker(address, lambda client: _plan(client, definitions, prune=prune))
    if faults:
        refused = {each.name: each for each in definitions}
        for name, error in sorted(faults.items()):
            about = f"{refused[name].place}: {name}"
            print_refused(error, refused[name].config, address, about=about)
        complain("nothing was changed")
        raise typer.Exit(EXIT_REFUSED)
    if dry_run:
        show_steps(steps, output)
        if any(step.action is not Action.UNCHANGED for step in steps):
            raise typer.Exit(EXIT_DIFFERS)
        return
    deleted = [step.name for step in steps if step.action is Action.DELETE]
    if deleted:
        confirm(f"Delete {', '.join(map(plain, deleted))}, which no file defines?", yes=yes)
    failed = call_worker(address, lambda client: _carry_out(client, steps, states, plan))
    show_steps([step for step in steps if step.name not in failed], output, _DONE)
    for step in steps:
        changed = step.action is not Action.UNCHANGED and step.name not in failed
        if changed and step.definition is not None:
            print_warnings(step.definition.config, address, name=step.name)
    if failed:
        for name, error in sorted(failed.items()):
            print_refusal(error, about=name)
        complain(f"{len(steps) - len(failed)} of {len(steps)} connectors match their definitions")
        raise typer.Exit(EXIT_REFUSED)


async def _plan(
    client: ConnectClient, definitions: Sequence[Definition], *, prune: bool
) -> tuple[list[PlannedChange], dict[str, DroverError]]:
    """The steps in the order of the files, deletions last, and the errors of definitions."""
    listed = await client.list_connectors(include_config=True)
    present = {entry.name: dict(entry.connector.config) for entry in listed}
    targets = {entry.name: target_state(entry.connector.target_state) for entry in listed}
    faults: dict[str, DroverError] = {}
    steps: dict[str, PlannedChange] = {}

    async def plan(definition: Definition) -> None:
        name = definition.name
        try:
            answer = await client.put_connector_config(name, definition.config, dry_run=True)
        except DroverError as error:
            faults[name] = error
        else:
            steps[name] = _step(definition, answer, present.get(name, {}))
            _warn_of_state(definition, targets.get(name))

    await _each(definitions, plan)
    planned = [steps[each.name] for each in definitions if each.name in steps]
    if prune:
        named = {each.name for each in definitions}
        planned += [PlannedChange(name, Action.DELETE) for name in sorted(present.keys() - named)]
    return planned, faults


def _warn_of_state(definition: Definition, now: str | None) -> None:
    """Warn if an existing connector is not in the state that its file gives."""
    if definition.has_state and now not in (None, definition.initial_state):
        name, wanted = definition.name, definition.initial_state
        warn(
            f"{definition.place}: the state is {wanted}, and {name} is {now}: "
            f"`{drover_command(f'connector {_VERBS[wanted]}', name)}` changes it"
        )


def _step(
    definition: Definition, answer: pb.PutConnectorConfigResponse, now: Mapping[str, str]
) -> PlannedChange:
    keys = sorted([*answer.added_keys, *answer.changed_keys, *answer.removed_keys])
    then = dict(answer.connector.config)
    changes = [(key, now.get(key), then.get(key)) for key in keys]
    differs = Action.CHANGE if changes else Action.UNCHANGED
    action = Action.CREATE if answer.created else differs
    return PlannedChange(definition.name, action, changes, definition)


async def _carry_out(
    client: ConnectClient,
    steps: Sequence[PlannedChange],
    states: Mapping[str, TargetState | None],
    plan_hash: str,
) -> dict[str, DroverError]:
    """Apply every step, continuing after failures; returns the errors by connector."""
    failed: dict[str, DroverError] = {}

    async def carry_out(step: PlannedChange) -> None:
        try:
            await _do(client, step, states.get(step.name), plan_hash)
        except DroverError as error:
            failed[step.name] = error

    await _each([step for step in steps if step.action is not Action.UNCHANGED], carry_out)
    return failed


async def _do(
    client: ConnectClient, step: PlannedChange, state: TargetState | None, plan_hash: str
) -> None:
    if step.definition is None:
        await client.delete_connector(step.name)
    elif plan_hash:
        config = step.definition.config
        await client.put_connector_config(step.name, config, plan_hash=plan_hash)
    elif step.action is Action.CREATE and state is not None:
        await client.create_connector(step.name, step.definition.config, initial_state=state)
    else:
        await client.put_connector_config(step.name, step.definition.config, skip_unchanged=True)


async def _each(items: Iterable[ItemT], work: Callable[[ItemT], Awaitable[None]]) -> None:
    """Run ``work`` for all items with bounded concurrency."""
    slots = asyncio.Semaphore(_CALLS_AT_ONCE)

    async def limited(item: ItemT) -> None:
        async with slots:
            await work(item)

    await asyncio.gather(*(limited(item) for item in items))


def show_steps(
    steps: Sequence[PlannedChange],
    output: Output,
    words: Mapping[Action, str] = _PLANNED,
) -> None:
    """Print the steps.

    Args:
        steps: The steps.
        output: The output format.
        words: The word for each action: planned, or done.
    """
    if output is not Output.TABLE:
        print_document([_document(step, words) for step in steps], output)
        return
    for step in steps:
        say(plain(f"{words[step.action]} {step.name}"))
        for setting, now, then in step.changes:
            if now is None:
                say(plain(f"  + {setting}: {then}"))
            elif then is None:
                say(plain(f"  - {setting}: {now}"))
            else:
                say(plain(f"  ~ {setting}: {now} -> {then}"))


def _document(step: PlannedChange, words: Mapping[Action, str]) -> dict[str, Any]:
    return {
        "name": step.name,
        "action": words[step.action],
        "changes": [
            {"setting": setting, "from": now, "to": then} for setting, now, then in step.changes
        ],
    }
