"""``drover config validate``."""

from collections.abc import Iterable

import typer

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.connector_commands import FileOption
from drover.cli.console import (
    EXIT_REFUSED,
    AddressOption,
    Output,
    OutputOption,
    print_document,
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
    """Show every fault and warning of a definition, create nothing; exit 1 for a fault."""
    definition = read_definition(file)
    settings = dict(definition.config)
    if definition.name:
        settings.setdefault("name", definition.name)
    answer = run_call(
        worker_addresses(address),
        lambda c: ConnectClient(c).validate_config(settings),
        server="worker",
    )
    if output is not Output.TABLE:
        print_document(
            {
                "error_count": answer.error_count,
                "violations": _fields(answer.violations),
                "warnings": _fields(answer.warnings),
            },
            output,
        )
    else:
        for title, found in (("FAULT", answer.violations), ("WARNING", answer.warnings)):
            if found:
                print_table(("SETTING", title), [(each.field, each.description) for each in found])
        said = [_count(answer.error_count, "fault") if answer.error_count else "no faults"]
        said += [_count(len(answer.warnings), "warning")] if answer.warnings else []
        say(", ".join(said))
    if answer.error_count:
        raise typer.Exit(EXIT_REFUSED)


def _fields(found: Iterable[pb.ConfigViolation]) -> list[dict[str, str]]:
    return [{"field": each.field, "description": each.description} for each in found]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}"
