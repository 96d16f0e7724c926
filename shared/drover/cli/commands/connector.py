"""``drover connector …``: connectors, their configs and their statuses."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Annotated, Any

import grpc.aio
import typer
from google.protobuf.json_format import MessageToDict

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.caller import call_worker
from drover.cli.cluster_choice import worker_addresses
from drover.cli.commands.apply import apply
from drover.cli.commands.config import FileArgument, FileOption, one_file, validate
from drover.cli.commands.history import history, rollback
from drover.cli.commands.new import new
from drover.cli.commands.offsets import offsets
from drover.cli.commands.plan import plan
from drover.cli.console import (
    EXIT_REFUSED,
    AddressOption,
    CliError,
    Output,
    OutputOption,
    YesOption,
    call,
    confirm,
    plain,
    print_document,
    print_event,
    print_refusal,
    print_table,
    print_tables,
    say,
    warn,
)
from drover.cli.definitions import Definition, DefinitionError, initial_state, read_definition
from drover.cli.names import NameArgument, NamesArgument, OptionalNamesArgument, trimmed
from drover.cli.output.connectors import (
    connector_document,
    list_table,
    status_document,
    status_rows,
    target_state,
)
from drover.cli.output.previews import preview_tables
from drover.cli.output.remains import remains_text, statements_of
from drover.cli.output.statuses import print_description, print_status
from drover.cli.warnings import end_refused, print_file_warnings, print_warnings
from drover.client import ConnectClient
from drover.clock import SystemClock
from drover.errors import DroverError, InvalidArgumentError, UnavailableError
from drover.model.command_lines import drover_command

commands = typer.Typer(no_args_is_help=True, help="Connectors: create, change, watch, delete.")

_RECONNECT_S = 0.5


@commands.command("list")
def list_connectors(
    follow: Annotated[
        bool, typer.Option("--watch", "-w", help="Keep printing changes until Ctrl-C.")
    ] = False,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """List the connectors with their states."""
    if follow:
        watch("", address, output)
        return
    entries = call_worker(
        address, lambda c: c.list_connectors(include_config=True, include_status=True)
    )
    if output is not Output.TABLE:
        print_document(
            [
                connector_document(entry.connector) | {"status": status_document(entry.status)}
                for entry in entries
            ],
            output,
        )
        return
    print_table(*list_table(entries), empty="no connectors")


@commands.command()
def get(
    name: NameArgument, address: AddressOption = "", output: OutputOption = Output.TABLE
) -> None:
    """Show a connector's config."""
    _print_connector(call_worker(address, lambda c: c.get_connector(name)), output)


@commands.command()
def create(
    path: FileArgument = "",
    file: FileOption = "",
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a connector; refused if it exists."""
    definition = _named(one_file(path, file))
    print_file_warnings([definition])
    state = initial_state(definition)
    try:
        made = call_worker(
            address,
            lambda c: c.create_connector(definition.name, definition.config, initial_state=state),
        )
    except InvalidArgumentError as error:
        end_refused(error, definition.config, address)
    if output is not Output.TABLE:
        print_document(connector_document(made), output)
    else:
        say(f"created {plain(made.name)}")
    print_warnings(made.config, address)


@commands.command()
def patch(
    name: NameArgument,
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="SETTING=VALUE…", help="Settings to write.", show_default=False),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option("--remove", "-r", metavar="SETTING", help="A setting to remove; repeatable."),
    ] = None,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Change some settings of a connector; other settings, secrets included, are kept."""
    pairs = [_setting(each) for each in settings or ()]
    changes = dict(pairs)
    if len(changes) < len(pairs):
        raise CliError("a setting is given twice: give each once")
    removed = remove or []
    try:
        patched = call_worker(
            address, lambda c: c.patch_connector_config(name, settings=changes, remove=removed)
        )
    except InvalidArgumentError as error:
        (present,) = call_worker(address, lambda c: _configs(c, [name])) or [{}]
        refused = {key: value for key, value in present.items() if key not in removed} | changes
        end_refused(error, refused, address)
    if output is not Output.TABLE:
        print_document(connector_document(patched), output)
    else:
        say(plain(f"patched {patched.name}: its config is now version {patched.revision}"))
    print_warnings(patched.config, address)


@commands.command()
def delete(
    names: NamesArgument,
    yes: YesOption = False,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete connectors; their committed offsets are kept. At a terminal it asks first.

    It shows what a connector leaves in another system, such as a replication slot.
    """
    configs = call_worker(address, lambda client: _configs(client, names))
    for config in configs:
        if statements := statements_of(config):
            warn(remains_text(config, statements))
    confirm(f"Delete {', '.join(map(plain, names))}?", yes=yes, in_scripts=True)
    _for_each(names, address, lambda c, name: c.delete_connector(name), "deleted", output)


async def _configs(client: ConnectClient, names: Sequence[str]) -> list[dict[str, str]]:
    """The configs of connectors that can be read."""
    found = []
    for name in dict.fromkeys(names):
        with suppress(DroverError):
            connector = await client.get_connector(name)
            found.append({**connector.config, "name": connector.name})
    return found


@commands.command()
def pause(
    names: NamesArgument, address: AddressOption = "", output: OutputOption = Output.TABLE
) -> None:
    """Pause connectors: their tasks stay assigned but process nothing."""
    _for_each(names, address, lambda c, name: c.pause_connector(name), "paused", output)


@commands.command()
def resume(
    names: NamesArgument, address: AddressOption = "", output: OutputOption = Output.TABLE
) -> None:
    """Resume paused or stopped connectors."""
    _for_each(names, address, lambda c, name: c.resume_connector(name), "resumed", output)


@commands.command()
def stop(
    names: NamesArgument, address: AddressOption = "", output: OutputOption = Output.TABLE
) -> None:
    """Stop connectors: their tasks are removed, their configs and offsets are kept."""
    _for_each(names, address, lambda c, name: c.stop_connector(name), "stopped", output)


@commands.command()
def restart(
    names: OptionalNamesArgument = None,
    every: Annotated[bool, typer.Option("--all", help="Restart all connectors.")] = False,
    task: Annotated[int | None, typer.Option(min=0, help="Restart only this task.")] = None,
    include_tasks: Annotated[bool, typer.Option(help="Restart the tasks too.")] = False,
    only_failed: Annotated[
        bool,
        typer.Option(help="Restart only FAILED ones; with --all, the FAILED tasks too."),
    ] = False,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Restart connector objects, their tasks, or one task."""
    names = names or []
    if bool(names) == every:
        raise typer.BadParameter("give the names of connectors, or --all")
    if task is not None:
        if include_tasks or only_failed or len(names) != 1:
            raise typer.BadParameter(
                "--task needs one name, and cannot be combined with --all, --include-tasks or "
                "--only-failed"
            )
        (name,) = names
        call_worker(address, lambda c: c.restart_task(name, task))
        _done(f"{name}-{task}", "restarted", output)
        return
    if len(names) == 1:
        _restart_one(
            names[0], address, output, include_tasks=include_tasks, only_failed=only_failed
        )
        return
    if every:
        include_tasks = include_tasks or only_failed
        names = call_worker(address, partial(_names_to_restart, only_failed=only_failed))
    if not names:
        say("no connector or task is FAILED" if only_failed else "no connectors")
        return
    _for_each(
        names,
        address,
        lambda c, name: c.restart_connector(
            name, include_tasks=include_tasks, only_failed=only_failed
        ),
        "restarted",
        output,
    )


async def _names_to_restart(client: ConnectClient, *, only_failed: bool) -> list[str]:
    """The names of all connectors, or only of connectors that failed or have a FAILED task."""
    entries = await client.list_connectors(include_status=only_failed)
    failed = pb.RUN_STATE_FAILED
    return [
        entry.name
        for entry in entries
        if not only_failed
        or entry.status.connector.state == failed
        or any(each.state == failed for each in entry.status.tasks)
    ]


def _restart_one(
    name: str, address: str, output: Output, *, include_tasks: bool, only_failed: bool
) -> None:
    planned = call_worker(
        address,
        lambda c: c.restart_connector(name, include_tasks=include_tasks, only_failed=only_failed),
    )
    if planned.name:
        _print_status(planned, output)
        return
    status = call_worker(address, lambda c: c.get_connector_status(name))
    failed = [each.task for each in status.tasks if each.state == pb.RUN_STATE_FAILED]
    if output is not Output.TABLE:
        document = {"name": name, "result": "restarted", "failed_tasks": failed}
        print_document(document, output)
        return
    say(plain(f"restarted the connector object of {name}, not its tasks"))
    if failed:
        which = f"task {failed[0]} is" if len(failed) == 1 else f"{len(failed)} tasks are"
        command = drover_command(
            "connector restart", name, options=["--include-tasks", "--only-failed"]
        )
        say(plain(f"{which} still FAILED; to restart: {command}"))


@commands.command()
def status(
    name: NameArgument,
    follow: Annotated[
        bool, typer.Option("--watch", "-w", help="Keep printing changes until Ctrl-C.")
    ] = False,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the states of a connector and its tasks."""
    if follow:
        watch(name, address, output)
        return
    _print_status(call_worker(address, lambda c: c.get_connector_status(name)), output)


@commands.command()
def preview(
    path: FileArgument = "",
    file: FileOption = "",
    rows: Annotated[int, typer.Option(min=1, max=1_000, help="How many records.")] = 10,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show records as they are read and after each step; nothing is written or committed."""
    definition = read_definition(one_file(path, file))
    print_file_warnings([definition])
    config = dict(definition.config)
    if definition.name:
        config.setdefault("name", definition.name)
    found = call_worker(address, lambda c: c.preview_connector(config, row_count=rows))
    if output is not Output.TABLE:
        print_document(MessageToDict(found, preserving_proto_field_name=True), output)
        return
    print_tables(preview_tables(found))
    for note in found.notes:
        say(plain(note))
    if found.truncated:
        say("truncated: the response has reached its size limit")


@commands.command()
def describe(
    name: NameArgument, address: AddressOption = "", output: OutputOption = Output.TABLE
) -> None:
    """Show record counts since the connector's creation, what each task does, failures, figures."""
    found = call_worker(address, lambda c: c.get_connector_status(name))
    if output is not Output.TABLE:
        print_document(status_document(found), output)
        return
    print_description(found, now_ms=SystemClock().now_ms())


@commands.command()
def topics(
    name: NameArgument,
    reset: Annotated[
        bool, typer.Option("--reset", help="Clear the list; topics still in use reappear.")
    ] = False,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the topics that a connector has used."""
    if reset:
        call_worker(address, lambda c: c.reset_connector_topics(name))
        _done(name, "cleared the topics of", output)
        return
    names = call_worker(address, lambda c: c.get_connector_topics(name))
    if output is not Output.TABLE:
        print_document({"name": name, "topics": names}, output)
    else:
        print_table(("TOPIC",), [(topic,) for topic in names], empty="none yet")


@commands.command()
def watch(
    name: Annotated[
        str, typer.Argument(help="Only this connector.", show_default=False, callback=trimmed)
    ] = "",
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Print the present statuses, then each change, until Ctrl-C."""
    shown: dict[tuple[str, str], tuple[str, str, str]] = {}

    async def follow(channel: grpc.aio.Channel) -> None:
        async with aclosing(ConnectClient(channel).watch_statuses(name)) as events:
            async for event in events:
                if not event.HasField("status"):
                    continue
                if output is not Output.TABLE:
                    print_event(status_document(event.status) | {"removed": event.removed}, output)
                else:
                    _print_changes(event, shown)

    async def follow_for_ever() -> None:
        while True:
            # reconnects to another worker; raises CliError when none answers
            with suppress(UnavailableError):
                await call(worker_addresses(address), follow, server="worker")
            await asyncio.sleep(_RECONNECT_S)

    asyncio.run(follow_for_ever())


def _print_changes(
    event: pb.WatchStatusesResponse, shown: dict[tuple[str, str], tuple[str, str, str]]
) -> None:
    stamp = time.strftime("%H:%M:%S")
    name = event.status.name
    if event.removed:
        for key in [key for key in shown if key[0] == name]:
            del shown[key]
        say(plain(f"{stamp}  {name}  removed"))
        return
    present = {(name, row[0]): row[1:] for row in status_rows(event.status)}
    for key, cells in present.items():
        if shown.get(key) != cells:
            say(plain("  ".join((stamp, *key, *cells))).rstrip())
    for key in [key for key in shown if key[0] == name and key not in present]:
        del shown[key]
        say(plain("  ".join((stamp, *key, "removed"))))
    shown.update(present)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise CliError(f"{text!r} is not NAME=VALUE; to remove a setting give --remove NAME")
    return name, value


def _named(file: str) -> Definition:
    definition = read_definition(file)
    if not definition.name:
        raise DefinitionError(f'{file}: the definition has no "name"')
    return definition


def _for_each(
    names: Sequence[str],
    address: str,
    work: Callable[[ConnectClient, str], Awaitable[object]],
    what: str,
    output: Output,
) -> None:
    """Run ``work`` for each connector, continuing after failures.

    Args:
        names: The connectors.
        address: The address option.
        work: Called with the client and the name.
        what: The result to print, such as "deleted".
        output: The output format.
    """
    done: list[str] = []
    failed: dict[str, DroverError] = {}

    async def each(client: ConnectClient) -> None:
        for name in dict.fromkeys(names):
            try:
                await work(client, name)
            except DroverError as error:
                failed[name] = error
            else:
                done.append(name)

    call_worker(address, each)
    if len(names) == 1 and failed:
        raise failed[names[0]]
    if output is Output.TABLE or len(names) == 1:
        for name in done:
            _done(name, what, output)
    else:
        print_document([{"name": name, "result": what} for name in done], output)
    for name, error in failed.items():
        print_refusal(error, about=name)
    if failed:
        raise typer.Exit(EXIT_REFUSED)


def _done(name: str, what: str, output: Output) -> None:
    if output is not Output.TABLE:
        print_document({"name": name, "result": what}, output)
    else:
        say(plain(f"{what} {name}"))


def _print_connector(connector: pb.Connector, output: Output) -> None:
    document: dict[str, Any] = connector_document(connector)
    if output is not Output.TABLE:
        print_document(document, output)
        return
    say(
        plain(
            f"{connector.name}: {document['type'] or 'unknown type'}, "
            f"{target_state(connector.target_state)}, {len(connector.task_indexes)} tasks, "
            f"revision {connector.revision}"
        )
    )
    print_table(("SETTING", "VALUE"), list(document["config"].items()))


def _print_status(status_: pb.ConnectorStatus, output: Output) -> None:
    if output is not Output.TABLE:
        print_document(status_document(status_), output)
        return
    print_status(status_, now_ms=SystemClock().now_ms())


commands.command()(apply)
commands.command()(plan)
commands.command()(offsets)
commands.command()(history)
commands.command()(rollback)
commands.command()(new)
# an alias: users expect validate below connector
commands.command()(validate)
