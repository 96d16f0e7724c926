"""``drover plugin …``: which connectors a worker could run."""

from typing import Annotated, Any

import typer

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.console import (
    AddressOption,
    Output,
    OutputOption,
    plain,
    print_document,
    print_table,
    run_call,
    say,
    worker_addresses,
)
from drover.client import ConnectClient
from drover.codec.connect import decode_connector_type

commands = typer.Typer(no_args_is_help=True, help="Plugins: the connectors that are installed.")


@commands.command("list")
def list_plugins(address: AddressOption = "", output: OutputOption = Output.TABLE) -> None:
    """List the plugins installed on the workers, and who has one that others lack."""
    answer = run_call(
        worker_addresses(address), lambda c: ConnectClient(c).list_plugins(), server="worker"
    )
    plugins = answer.plugins
    if output is not Output.TABLE:
        print_document(
            [
                {**_document(each), "workers": list(each.worker_ids or answer.worker_ids)}
                for each in plugins
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
    columns: tuple[str, ...] = ("NAME", "TYPE", "VERSION", "DESCRIPTION")
    if any(plugin.worker_ids for plugin in plugins):
        columns = (*columns, "ONLY ON")
        rows = [(*row, ", ".join(p.worker_ids)) for row, p in zip(rows, plugins, strict=True)]
    print_table(columns, rows, empty="no plugins")
    if answer.silent_worker_ids:
        say(plain(f"no answer from {', '.join(answer.silent_worker_ids)}"))


@commands.command()
def describe(
    class_name: Annotated[str, typer.Argument(metavar="CLASS", help="Its full name or an alias.")],
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a plugin's settings."""
    answer = run_call(
        worker_addresses(address),
        lambda c: ConnectClient(c).get_plugin(class_name),
        server="worker",
    )
    if output is not Output.TABLE:
        settings = [key_document(key) for key in answer.config_keys]
        print_document(_document(answer.plugin) | {"settings": settings}, output)
        return
    say(plain(f"{answer.plugin.class_name} {answer.plugin.version}"))
    if answer.plugin.aliases:
        say(plain(f"also called {', '.join(answer.plugin.aliases)}"))
    if answer.plugin.description:
        say(plain(answer.plugin.description))
    if answer.plugin.guarantee_embedded:
        embedded, kafka = _guarantees(answer.plugin)
        say(plain(f"each record {embedded} in embedded storage, {kafka} on Kafka"))
    rows = [
        (
            key.name,
            key.type,
            "required" if key.required else key.default_value,
            key.importance,
            _documentation(key),
        )
        for key in answer.config_keys
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
    }


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
        "description": plugin.description,
        "guarantees": dict(zip(("embedded", "kafka"), _guarantees(plugin), strict=True)),
    }


def _guarantees(plugin: pb.Plugin) -> tuple[str | None, str | None]:
    """How often records arrive in embedded storage, and on Kafka; None where nothing is said."""
    return _words(plugin.guarantee_embedded), _words(plugin.guarantee_kafka)


def _words(guarantee: pb.Guarantee.ValueType) -> str | None:
    if guarantee == pb.GUARANTEE_UNSPECIFIED:
        return None
    return pb.Guarantee.Name(guarantee).removeprefix("GUARANTEE_").replace("_", " ").lower()
