"""``drover plugin …``: the connector classes installed on the workers, and plugins in Java."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.cluster_choice import worker_addresses
from drover.cli.commands import java_plugins
from drover.cli.console import (
    AddressOption,
    CliError,
    Output,
    OutputOption,
    plain,
    print_document,
    print_event,
    print_table,
    run_call,
    say,
    while_shown,
)
from drover.cli.names import trimmed
from drover.cli.output.plugin_examples import example_of
from drover.cli.output.plugin_pairs import Pair, guarantees, pair_lines, pairs_of
from drover.client import ConnectClient
from drover.codec.connect import decode_connector_type

#: Covers the start of a new engine and the restart of all connectors and tasks of the worker.
_RELOAD_TIMEOUT_S = 600.0

commands = typer.Typer(no_args_is_help=True, help="Plugins: the installed connector classes.")


commands.command("add")(java_plugins.add)
commands.command("upgrade")(java_plugins.upgrade)
commands.command("remove")(java_plugins.remove)


@commands.command("list")
def list_plugins(
    local: Annotated[
        bool,
        typer.Option(
            "--local", help="Java plugins in DROVER_PLUGIN_HOME and DROVER_PLUGIN_PATH instead."
        ),
    ] = False,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """List the plugins installed on the workers, and which workers have them.

    With --local, list the Java plugins on this machine; no cluster is needed.
    """
    if local:
        java_plugins.show_installed(output)
        return
    answer = run_call(
        worker_addresses(address), lambda c: ConnectClient(c).list_plugins(), server="worker"
    )
    plugins = answer.plugins
    java = [each for each in answer.record_plugins if each.java_plugin]
    listed: list[pb.Plugin | pb.RecordPlugin] = [*plugins, *java]
    if output is not Output.TABLE:
        documents = [_document(each) for each in plugins]
        documents += [
            {
                "class": each.class_name,
                "type": each.kind,
                "version": each.version,
                "java_plugin": each.java_plugin,
            }
            for each in java
        ]
        print_document(
            [
                {**document, "workers": list(each.worker_ids or answer.worker_ids)}
                for document, each in zip(documents, listed, strict=True)
            ],
            output,
        )
        return
    rows: list[tuple[str, ...]] = [
        (
            plugin.aliases[0] if plugin.aliases else plugin.class_name,
            decode_connector_type(plugin.type),
            plugin.version,
            _first_sentence(plugin.description),
        )
        for plugin in plugins
    ]
    rows += [
        (each.class_name, each.kind, each.version, f"A class of the Java plugin {each.java_plugin}")
        for each in java
    ]
    columns: tuple[str, ...] = ("NAME", "TYPE", "VERSION", "DESCRIPTION")
    loads = [_load_time(plugin) for plugin in plugins]
    if len(set(loads)) > 1:
        columns = (*columns, "LOADED")
        shown = [*loads, *("" for _ in java)]
        rows = [(*row, loaded or "-") for row, loaded in zip(rows, shown, strict=True)]
    if any(each.worker_ids for each in listed):
        columns = (*columns, "ONLY ON")
        rows = [(*row, ", ".join(each.worker_ids)) for row, each in zip(rows, listed, strict=True)]
    print_table(columns, rows, empty="no plugins")
    if len(set(loads)) == 1 and loads[0]:
        say(f"loaded at {loads[0]}; `drover plugin reload` loads plugins installed since")
    for problem in answer.problems:
        where = (
            ""
            if set(problem.worker_ids) == {*answer.worker_ids}
            else (f" on {', '.join(problem.worker_ids)}")
        )
        package = problem.package or "unknown package"
        say(plain(f"not loaded{where}: {problem.entry_point} of {package}: {problem.message}"))
    if answer.silent_worker_ids:
        say(plain(f"no answer from {', '.join(answer.silent_worker_ids)}"))


@commands.command("reload")
def reload_plugins(
    worker: Annotated[
        list[str] | None,
        typer.Option("--worker", help="A worker's id; repeatable; by default all."),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Move all connectors and tasks, even if no package changed."),
    ] = False,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Load new and changed plugins by starting a new engine on each worker, one after another.

    Connectors that use a changed package move to the new engine with their tasks, one by one. The
    others stay in the old engine until they restart, for at most an hour. Nothing happens if no
    package changed.
    """
    addresses = worker_addresses(address)
    listing = run_call(addresses, lambda c: ConnectClient(c).list_plugins(), server="worker")
    for worker_id in worker or listing.worker_ids:
        done = run_call(
            addresses,
            lambda c, at=worker_id: while_shown(  # type: ignore[misc]
                ConnectClient(c).reload_plugins(
                    at, everything=everything, timeout_s=_RELOAD_TIMEOUT_S
                ),
                f"{at}: looks for changed packages; a new engine takes a minute or more to start",
            ),
            server="worker",
        )
        if output is not Output.TABLE:
            print_event(_reload_fields(done), output)
        else:
            for line in _reload_lines(done):
                say(plain(line))
    silent = [] if worker else listing.silent_worker_ids
    if silent:
        raise CliError(f"not reloaded, no answer: {', '.join(silent)}; retry with --worker")


def _reload_fields(done: pb.ReloadPluginsResponse) -> dict[str, Any]:
    return {
        "worker": done.worker_id,
        "unchanged": done.unchanged,
        "changed_packages": list(done.changed_packages),
        "moved_count": done.moved_count,
        "moved_connectors": {each.connector: each.reason for each in done.moved_connectors},
        "kept_count": done.kept_count,
    }


def _reload_lines(done: pb.ReloadPluginsResponse) -> Iterator[str]:
    worker = done.worker_id
    if done.unchanged:
        yield (
            f"{worker}: no package changed since its engine started, so nothing was moved (--all "
            "moves all connectors and tasks to a new engine)"
        )
        return
    changed = f": {', '.join(done.changed_packages)}" if done.changed_packages else ""
    yield f"{worker} has a new engine{changed}; {done.moved_count} connectors and tasks moved to it"
    for each in done.moved_connectors:
        yield f"  {each.connector}: {each.reason}"
    if done.kept_count:
        yield (
            f"  {done.kept_count} connectors and tasks stay in the old engine until they restart, "
            "at most an hour; both engines use memory (--all moves them now)"
        )


@commands.command()
def describe(
    class_name: Annotated[
        str, typer.Argument(metavar="CLASS", help="Its full name or an alias.", callback=trimmed)
    ],
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a plugin's settings and delivery guarantees, alone and with each counterpart."""
    addresses = worker_addresses(address)
    answer = run_call(addresses, lambda c: ConnectClient(c).get_plugin(class_name), server="worker")
    others = run_call(addresses, lambda c: ConnectClient(c).list_plugins(), server="worker").plugins
    pairs = pairs_of(answer.plugin, others)
    example = example_of(answer.plugin, answer.config_keys)
    if output is not Output.TABLE:
        settings = [key_document(key) for key in answer.config_keys]
        document = _document(answer.plugin) | {"pairs": [_pair_document(each) for each in pairs]}
        print_document(document | {"settings": settings, "example": example}, output)
        return
    say(plain(f"{answer.plugin.class_name} {answer.plugin.version}"))
    if answer.plugin.aliases:
        say(plain(f"also called {', '.join(answer.plugin.aliases)}"))
    if answer.plugin.description:
        say(plain(answer.plugin.description))
    if answer.plugin.guarantee_embedded:
        embedded, kafka = guarantees(answer.plugin)
        say(plain(f"each record {embedded} in embedded storage, {kafka} on Kafka"))
    for line in pair_lines(answer.plugin, pairs):
        say(plain(line))
    own = [key for key in answer.config_keys if not key.common]
    common = [key for key in answer.config_keys if key.common]
    if own:
        say("")
        _print_settings(own)
    if common:
        kind = decode_connector_type(answer.plugin.type) or "connector"
        say(f"\nsettings of every {kind}")
        _print_settings(common)
    say("\nan example, for a file FILE.yaml and `drover connector create -f FILE.yaml`")
    print_document(example, Output.YAML)
    say("\n`drover config validate -f FILE --settings` shows the settings of a definition")


def _print_settings(keys: Iterable[pb.ConfigKey]) -> None:
    rows = [
        (
            key.name,
            key.type,
            "required" if key.required else key.default_value,
            key.importance,
            _documentation(key),
        )
        for key in keys
    ]
    print_table(("SETTING", "TYPE", "DEFAULT", "IMPORTANCE", "MEANING"), rows)


def key_document(key: pb.ConfigKey) -> dict[str, Any]:
    """A setting of a plugin."""
    return {
        "name": key.name,
        "type": key.type,
        "required": key.required,
        "default": key.default_value if key.HasField("default_value") else None,
        "importance": key.importance,
        "documentation": key.documentation,
        "group": key.group,
        "valid_values": list(key.valid_values),
        "width": key.width,
        "display_name": key.display_name,
        "order": key.order,
        "dependents": list(key.dependents),
        "common": key.common,
    }


def _load_time(plugin: pb.Plugin) -> str | None:
    """The load time as text; None if the worker does not report it."""
    if not plugin.HasField("load_time"):
        return None
    return plugin.load_time.ToDatetime().strftime("%Y-%m-%d %H:%M:%S UTC")


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].rstrip(".")


def _documentation(key: pb.ConfigKey) -> str:
    values = f" One of: {', '.join(key.valid_values)}." if key.valid_values else ""
    return key.documentation + values


def _document(plugin: pb.Plugin) -> dict[str, Any]:
    return {
        "class": plugin.class_name,
        "aliases": list(plugin.aliases),
        "type": decode_connector_type(plugin.type),
        "version": plugin.version,
        "load_time": _load_time(plugin),
        "description": plugin.description,
        "guarantees": dict(zip(("embedded", "kafka"), guarantees(plugin), strict=True)),
        **({"java_plugin": plugin.java_plugin} if plugin.java_plugin else {}),
    }


def _pair_document(pair: Pair) -> dict[str, Any]:
    return {"with": pair.other, "embedded": pair.embedded, "kafka": pair.kafka}
