"""``drover config validate``."""

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.cluster_choice import worker_addresses
from drover.cli.commands.plugin import key_document
from drover.cli.console import (
    EXIT_REFUSED,
    AddressOption,
    Output,
    OutputOption,
    print_document,
    print_table,
    run_call,
    say,
)
from drover.cli.definitions import read_definition
from drover.cli.warnings import print_file_warnings
from drover.client import ConnectClient

commands = typer.Typer(no_args_is_help=True, help="Configs: validate before use.")

FileArgument = Annotated[
    str, typer.Argument(metavar="[FILE]", help="The same as --file.", show_default=False)
]
FileOption = Annotated[
    str,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="A definition in JSON, YAML or .properties; - for standard input.",
        show_default=False,
    ),
]


def one_file(argument: str, option: str) -> str:
    """The file of a command that takes it as an argument or as ``--file``.

    Raises:
        typer.BadParameter: There is none, or one of each.
    """
    if argument and option:
        raise typer.BadParameter(f"give one file: {argument}, or --file {option}")
    if not argument and not option:
        raise typer.BadParameter("give the file with the definition; - for standard input")
    return argument or option


@commands.callback()
def config() -> None:
    """Configs: validate before use."""


@commands.command()
def validate(
    path: FileArgument = "",
    file: FileOption = "",
    settings: Annotated[
        bool,
        typer.Option(
            "--settings",
            help="Show every setting that takes effect with the given ones, with its value and "
            "recommended values.",
        ),
    ] = False,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show all faults and warnings of a definition without creating it; exit 1 for a fault."""
    definition = read_definition(one_file(path, file))
    print_file_warnings([definition])
    config = dict(definition.config)
    if definition.name:
        config.setdefault("name", definition.name)
    answer = run_call(
        worker_addresses(address),
        lambda c: ConnectClient(c).validate_config(config),
        server="worker",
    )
    if output is not Output.TABLE:
        print_document(
            {
                "error_count": answer.error_count,
                "violations": _fields(answer.violations),
                "warnings": _fields(answer.warnings),
                "skipped_checks": [
                    {"setting": each.setting, "reason": each.reason}
                    for each in answer.skipped_checks
                ],
                "groups": list(answer.groups),
                "configs": [_config_document(each) for each in answer.values],
            },
            output,
        )
    else:
        if settings:
            _print_settings(answer)
        for title, found in (("FAULT", answer.violations), ("WARNING", answer.warnings)):
            if found:
                print_table(("SETTING", title), [(each.field, each.description) for each in found])
        if answer.skipped_checks:
            skipped = [(each.setting or "-", each.reason) for each in answer.skipped_checks]
            print_table(("SETTING", "SKIPPED CHECK"), skipped)
        counts = [_count(answer.error_count, "fault") if answer.error_count else "no faults"]
        counts += [_count(len(answer.warnings), "warning")] if answer.warnings else []
        if answer.skipped_checks:
            counts.append(_count(len(answer.skipped_checks), "skipped check"))
        say(", ".join(counts))
    if answer.error_count:
        raise typer.Exit(EXIT_REFUSED)


def _print_settings(answer: pb.ValidateConfigResponse) -> None:
    """Print a table for each group of settings; "-" marks an optional setting without a value."""
    for group in answer.groups:
        rows = [
            (
                each.key.name,
                each.value if each.HasField("value") else "-",
                ", ".join(each.recommended_values),
            )
            for each in sorted(answer.values, key=lambda each: each.key.order)
            if each.visible and each.key.group == group
        ]
        if rows:
            print_table((group.upper(), "VALUE", "RECOMMENDED"), rows)
            say("")


def _config_document(value: pb.ConfigValue) -> dict[str, Any]:
    """A setting and the result of its validation, in the form of Kafka Connect's REST API."""
    return {
        "definition": key_document(value.key),
        "value": {
            "name": value.key.name,
            "value": value.value if value.HasField("value") else None,
            "recommended_values": list(value.recommended_values),
            "errors": list(value.errors),
            "warnings": list(value.warnings),
            "visible": value.visible,
        },
    }


def _fields(found: Iterable[pb.ConfigViolation]) -> list[dict[str, str]]:
    return [{"field": each.field, "description": each.description} for each in found]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}"
