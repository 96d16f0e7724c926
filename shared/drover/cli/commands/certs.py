"""``drover certs …``: development certificates."""

from pathlib import Path
from typing import Annotated

import typer

from drover.cli.console import EXIT_USAGE, CliError, say
from drover.model.command_lines import drover_command
from drover.security.development_ca import (
    ACCESS_FILE,
    NAMES,
    init_certificates,
    keep_certificates,
)

commands = typer.Typer(no_args_is_help=True, help="Development certificates.")


@commands.command("init")
def init(
    directory: Annotated[Path, typer.Argument(help="Directory to write to.", file_okay=False)],
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="Name or address of a machine of the cluster, beside loopback; repeatable.",
        ),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=3650, help="Days of validity.")] = 365,
    renew: Annotated[
        bool, typer.Option(help="Reissue the certificates in the directory, signed by the same CA.")
    ] = False,
    keep: Annotated[
        bool,
        typer.Option(
            help="Keep existing certificates unless one is missing, expires within a month, or "
            "lacks one of the hosts; for a command that runs at each start.",
        ),
    ] = False,
) -> None:
    """Create a CA, certificates for services and users signed by it, and an access file."""
    if keep and renew:
        raise CliError("give --keep or --renew, not both", exit_code=EXIT_USAGE)
    try:
        if keep:
            reason = keep_certificates(directory, hosts=host or (), days=days)
            say(f"issued certificates in {directory}: {reason}" if reason else f"kept {directory}")
            return
        init_certificates(directory, hosts=host or (), days=days, renew=renew)
    except OSError as error:
        place = error.filename or directory
        raise CliError(f"{place} cannot be written: {error.strerror}") from None
    names = ", ".join(f"{name}.pem" for name in NAMES)
    say(f"{'renewed' if renew else 'made'} {names} in {directory}, valid for {days} days")
    if not renew:
        say(f"{directory / ACCESS_FILE} grants the roles")
        command = drover_command("up", options=["--certs", str(directory)])
        say(f"try: {command}")
