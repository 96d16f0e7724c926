"""``drover connector …``: what should run, and what does."""

import asyncio
import time
from contextlib import aclosing, suppress
from typing import Annotated, Any

import grpc.aio
import typer
from google.protobuf.json_format import MessageToDict

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.caller import call_worker
from drover.cli.console import (
    AddressOption,
    CliError,
    NameArgument,
    Output,
    OutputOption,
    call,
    plain,
    print_json,
    print_json_line,
    print_table,
    print_tables,
    say,
    worker_addresses,
)
from drover.cli.definitions import Definition, DefinitionError, read_definition
from drover.cli.failure_views import failure_notes, failure_rows
from drover.cli.history_commands import history, rollback
from drover.cli.offset_commands import offsets
from drover.cli.preview_view import preview_tables
from drover.cli.views import (
    COUNTS,
    cause,
    connector_document,
    count_rows,
    run_state,
    status_document,
    status_rows,
    status_table,
    target_state,
    task_summary,
)
from drover.client import ConnectClient
from drover.clock import SystemClock
from drover.codec.connect import decode_connector_type
from drover.errors import UnavailableError
from drover.model.config import TargetState

commands = typer.Typer(no_args_is_help=True, help="Connectors: create, change, watch, delete.")

_WATCH_AGAIN_S = 0.5

FileOption = Annotated[
    str,
    typer.Option(
        "--file", "-f", metavar="FILE", help="A definition in JSON or YAML; - for standard input."
    ),
]


@commands.command("list")
def list_connectors(address: AddressOption = "", output: OutputOption = Output.TABLE) -> None:
    """List the connectors with their states."""
    entries = call_worker(
        address, lambda c: c.list_connectors(include_config=True, include_status=True)
    )
    if output is Output.JSON:
        print_json(
            [
                connector_document(entry.connector) | {"status": status_document(entry.status)}
                for entry in entries
            ]
        )
        return
    rows = [
        (
            entry.name,
            decode_connector_type(entry.status.type) or decode_connector_type(entry.connector.type),
            entry.connector.config.get("connector.class", ""),
            run_state(entry.status.connector.state),
            task_summary(entry.status),
        )
        for entry in entries
    ]
    print_table(("NAME", "TYPE", "CLASS", "STATE", "TASKS"), rows, empty="no connectors")


@commands.command()
def get(
    name: NameArgument, address: AddressOption = "", output: OutputOption = Output.TABLE
) -> None:
    """Show a connector's config."""
    _print_connector(call_worker(address, lambda c: c.get_connector(name)), output)


@commands.command()
def create(
    file: FileOption, address: AddressOption = "", output: OutputOption = Output.TABLE
) -> None:
    """Create a connector; refused when it exists."""
    definition = _named(file)
    state = _initial_state(definition, file)
    made = call_worker(
        address,
        lambda c: c.create_connector(definition.name, definition.config, initial_state=state),
    )
    if output is Output.JSON:
        print_json(connector_document(made))
    else:
        say(f"created {plain(made.name)}")


@commands.command()
def apply(
    file: FileOption, address: AddressOption = "", output: OutputOption = Output.TABLE
) -> None:
    """Create a connector or replace its config."""
    definition = _named(file)
    if definition.initial_state:
        raise DefinitionError(f'{file}: "initial_state" is for `drover connector create` only')
    answer = call_worker(
        address, lambda c: c.put_connector_config(definition.name, definition.config)
    )
    if output is Output.JSON:
        print_json(connector_document(answer.connector) | {"created": answer.created})
    else:
        say(f"{'created' if answer.created else 'updated'} {plain(answer.connector.name)}")


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
    """Change some settings of a connector; the others, and its secrets, stay as they are."""
    pairs = [_setting(each) for each in settings or ()]
    wanted = dict(pairs)
    if len(wanted) < len(pairs):
        raise CliError("a setting is given twice")
    patched = call_worker(
        address, lambda c: c.patch_connector_config(name, settings=wanted, remove=remove or ())
    )
    if output is Output.JSON:
        print_json(connector_document(patched))
    else:
        say(plain(f"patched {patched.name}: its config is version {patched.revision} now"))


@commands.command()
def delete(
    name: NameArgument, address: AddressOption = "", output: OutputOption = Output.TABLE
) -> None:
    """Remove a connector; its committed offsets stay."""
    call_worker(address, lambda c: c.delete_connector(name))
    _done(name, "deleted", output)


@commands.command()
def pause(
    name: NameArgument, address: AddressOption = "", output: OutputOption = Output.TABLE
) -> None:
    """Keep a connector's tasks assigned but idle."""
    call_worker(address, lambda c: c.pause_connector(name))
    _done(name, "paused", output)


@commands.command()
def resume(
    name: NameArgument, address: AddressOption = "", output: OutputOption = Output.TABLE
) -> None:
    """End a pause or a stop."""
    call_worker(address, lambda c: c.resume_connector(name))
    _done(name, "resumed", output)


@commands.command()
def stop(
    name: NameArgument, address: AddressOption = "", output: OutputOption = Output.TABLE
) -> None:
    """Remove a connector's tasks; its config and offsets stay."""
    call_worker(address, lambda c: c.stop_connector(name))
    _done(name, "stopped", output)


@commands.command()
def restart(
    name: NameArgument,
    task: Annotated[
        int | None, typer.Option(min=0, help="Only this task, not the connector object.")
    ] = None,
    include_tasks: Annotated[bool, typer.Option(help="The tasks too.")] = False,
    only_failed: Annotated[bool, typer.Option(help="Only what has failed.")] = False,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Restart a connector object, its tasks, or one task."""
    if task is not None:
        if include_tasks or only_failed:
            raise typer.BadParameter("--task goes without --include-tasks and --only-failed")
        call_worker(address, lambda c: c.restart_task(name, task))
        _done(f"{name}-{task}", "restarted", output)
        return
    planned = call_worker(
        address,
        lambda c: c.restart_connector(name, include_tasks=include_tasks, only_failed=only_failed),
    )
    if planned.name:
        _print_status(planned, output)
    else:
        _done(name, "restarted", output)


@commands.command()
def status(
    name: NameArgument, address: AddressOption = "", output: OutputOption = Output.TABLE
) -> None:
    """Show what a connector and its tasks are doing."""
    _print_status(call_worker(address, lambda c: c.get_connector_status(name)), output)


@commands.command()
def preview(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A definition; - for stdin.")],
    rows: Annotated[int, typer.Option(min=1, max=1_000, help="How many records.")] = 10,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show records as they are read and after each step; nothing is written or committed."""
    definition = read_definition(file)
    config = dict(definition.config)
    if definition.name:
        config.setdefault("name", definition.name)
    found = call_worker(address, lambda c: c.preview_connector(config, row_count=rows))
    if output is Output.JSON:
        print_json(MessageToDict(found, preserving_proto_field_name=True))
        return
    print_tables(preview_tables(found))
    for note in found.notes:
        say(plain(note))
    if found.truncated:
        say("there is more than an answer holds")


@commands.command()
def describe(
    name: NameArgument, address: AddressOption = "", output: OutputOption = Output.TABLE
) -> None:
    """Show what became of the records of each task since it was started, and the sums."""
    found = call_worker(address, lambda c: c.get_connector_status(name))
    if output is Output.JSON:
        print_json(status_document(found))
        return
    kind = decode_connector_type(found.type) or "unknown type"
    say(plain(f"{found.name}: {kind}, {run_state(found.connector.state)}"))
    print_table(("TASK", "STATE", "WORKER", *COUNTS), count_rows(found))
    for task in found.tasks:
        if task.trace and not task.HasField("failures"):
            say(plain(f"task {task.task}: {cause(task.trace)}"))
    failures = failure_rows(found)
    if failures:
        print_table(("FAILURES OF", "TIME", "WORKER", "CAUSE"), failures)
    for note in failure_notes(found, now_ms=SystemClock().now_ms()):
        say(plain(note))


@commands.command()
def topics(
    name: NameArgument,
    reset: Annotated[
        bool, typer.Option("--reset", help="Forget them; those still in use come back.")
    ] = False,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the topics that a connector was seen to use."""
    if reset:
        call_worker(address, lambda c: c.reset_connector_topics(name))
        _done(name, "forgot the topics of", output)
        return
    names = call_worker(address, lambda c: c.get_connector_topics(name))
    if output is Output.JSON:
        print_json({"name": name, "topics": names})
    else:
        print_table(("TOPIC",), [(topic,) for topic in names], empty="none yet")


@commands.command()
def watch(
    name: Annotated[str, typer.Argument(help="Only this connector.", show_default=False)] = "",
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Follow statuses as they change, the present ones first; Ctrl-C ends it."""
    shown: dict[tuple[str, str], tuple[str, str, str]] = {}

    async def follow(channel: grpc.aio.Channel) -> None:
        async with aclosing(ConnectClient(channel).watch_statuses(name)) as events:
            async for event in events:
                if not event.HasField("status"):
                    continue
                if output is Output.JSON:
                    print_json_line(status_document(event.status) | {"removed": event.removed})
                else:
                    _print_changes(event, shown)

    async def follow_for_ever() -> None:
        while True:
            # when the worker goes away another one can go on; none at all ends in an error
            with suppress(UnavailableError):
                await call(worker_addresses(address), follow, server="worker")
            await asyncio.sleep(_WATCH_AGAIN_S)

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
        raise CliError(f"{text!r}: write a setting as NAME=VALUE, and --remove NAME to remove one")
    return name, value


def _named(file: str) -> Definition:
    definition = read_definition(file)
    if not definition.name:
        raise DefinitionError(f'{file}: the definition has no "name"')
    return definition


def _initial_state(definition: Definition, file: str) -> TargetState | None:
    if not definition.initial_state:
        return None
    try:
        return TargetState(definition.initial_state.upper())
    except ValueError:
        raise DefinitionError(
            f'{file}: "initial_state" is {definition.initial_state!r}; it must be one of '
            + ", ".join(TargetState)
        ) from None


def _done(name: str, what: str, output: Output) -> None:
    if output is Output.JSON:
        print_json({"name": name, "result": what})
    else:
        say(plain(f"{what} {name}"))


def _print_connector(connector: pb.Connector, output: Output) -> None:
    document: dict[str, Any] = connector_document(connector)
    if output is Output.JSON:
        print_json(document)
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
    if output is Output.JSON:
        print_json(status_document(status_))
        return
    print_table(*status_table(status_))
    for note in failure_notes(status_, now_ms=SystemClock().now_ms()):
        say(plain(note))
    for task in status_.tasks:
        if task.trace.count("\n") > 1:
            say(plain(f"\ntask {task.task} failed:\n{task.trace}"))
    if cause(status_.connector.trace) != status_.connector.trace.strip():
        say(plain(f"\nthe connector failed:\n{status_.connector.trace}"))


commands.command()(offsets)
commands.command()(history)
commands.command()(rollback)
