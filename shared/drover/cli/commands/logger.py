"""``drover logger …``: log levels of running workers."""

from datetime import UTC
from typing import Annotated

import typer

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.cli.caller import call_worker
from drover.cli.console import (
    AddressOption,
    Output,
    OutputOption,
    plain,
    print_document,
    print_table,
    say,
)
from drover.cli.names import trimmed
from drover.cli.output.loggers import levels_of

commands = typer.Typer(no_args_is_help=True, help="Log levels of running workers.")


@commands.command("list")
def list_loggers(
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Of every worker, not only the one that answers.")
    ] = False,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """List the loggers of a worker with their levels."""
    if cluster:
        _list_all(call_worker(address, lambda c: c.list_cluster_loggers()), output)
        return
    loggers = call_worker(address, lambda c: c.list_loggers())
    if output is not Output.TABLE:
        print_document(
            [{"name": each.name, "level": each.level, "set": _set_time(each)} for each in loggers],
            output,
        )
        return
    rows = [(each.name, each.level, _set_time(each) or "") for each in loggers]
    print_table(("LOGGER", "LEVEL", "SET"), rows)


@commands.command("set")
def set_level(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help='The logger, or "root".', callback=trimmed)
    ],
    level: Annotated[
        str, typer.Argument(metavar="LEVEL", help="DEBUG, INFO, WARNING, ERROR or OFF.")
    ],
    cluster: Annotated[
        bool, typer.Option("--cluster", help="On every worker, not only the one that answers.")
    ] = False,
    address: AddressOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Set the level of a logger and of its children, until the worker stops."""
    names = call_worker(address, lambda c: c.set_logger_level(name, level, cluster_scope=cluster))
    if output is not Output.TABLE:
        print_document({"name": name, "cluster": cluster, "changed": names}, output)
    elif cluster:
        say(plain(f"{name} is being set to {level.upper()} on every worker"))
    else:
        say(plain(f"set to {level.upper()}: {', '.join(names) or 'none, no level changed'}"))


def _list_all(found: pb.ListLoggersResponse, output: Output) -> None:
    if output is not Output.TABLE:
        print_document(
            {
                "loggers": [
                    {
                        "name": each.name,
                        "levels": {level.worker_id: level.level for level in each.worker_levels},
                        "set": _set_time(each),
                    }
                    for each in found.loggers
                ],
                "silent_workers": [*found.silent_worker_ids],
            },
            output,
        )
        return
    rows = [
        (each.name, level, workers, _set_time(each) or "")
        for each in found.loggers
        for level, workers in levels_of(each).items()
    ]
    print_table(("LOGGER", "LEVEL", "WORKERS", "SET"), rows)
    for each in found.silent_worker_ids:
        say(plain(f"{each} did not answer"))


def _set_time(logger: pb.Logger) -> str | None:
    if not logger.HasField("last_change_time"):
        return None
    return logger.last_change_time.ToDatetime(tzinfo=UTC).isoformat(timespec="seconds")
