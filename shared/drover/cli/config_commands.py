"""``drover config validate``."""

import typer

from drover.cli.connector_commands import FileOption
from drover.cli.console import (
    EXIT_REFUSED,
    AddressOption,
    Output,
    OutputOption,
    print_json,
    print_table,
    run_call,
    say,
    worker_addresses,
)
from drover.cli.definitions import read_definition
from drover.client import ConnectClient

commands = typer.Typer(no_args_is_help=True, help="Configs: check them before they are used.")


@commands.callback()
def config() -> None:
    """Configs: check them before they are used."""


@commands.command()
def validate(
    file: FileOption, address: AddressOption = "", output: OutputOption = Output.TABLE
) -> None:
    """Show every fault of a definition without creating anything; exit 1 when there is one."""
    definition = read_definition(file)
    settings = dict(definition.config)
    if definition.name:
        settings.setdefault("name", definition.name)
    answer = run_call(
        worker_addresses(address),
        lambda c: ConnectClient(c).validate_config(settings),
        server="worker",
    )
    if output is Output.JSON:
        print_json(
            {
                "error_count": answer.error_count,
                "violations": [
                    {"field": fault.field, "description": fault.description}
                    for fault in answer.violations
                ],
            }
        )
    elif answer.error_count == 0:
        say("no faults")
    else:
        rows = [(fault.field, fault.description) for fault in answer.violations]
        print_table(("SETTING", "FAULT"), rows)
        say(f"{answer.error_count} fault{'s' if answer.error_count > 1 else ''}")
    if answer.error_count:
        raise typer.Exit(EXIT_REFUSED)
