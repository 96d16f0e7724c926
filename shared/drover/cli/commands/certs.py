"""``drover certs …``: certificates for a trial."""

from pathlib import Path
from typing import Annotated

import typer

from drover.cli.console import EXIT_USAGE, CliError, say
from drover.security.development_ca import (
    ACCESS_FILE,
    ROLES,
    init_certificates,
    keep_certificates,
)

commands = typer.Typer(no_args_is_help=True, help="Certificates for a trial.")


@commands.command("init")
def init(
    directory: Annotated[Path, typer.Argument(help="Where to put them.", file_okay=False)],
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="A name or address of a machine of the cluster, beside those of loopback; may be "
            "given again.",
        ),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long they are valid.")] = 365,
    renew: Annotated[
        bool, typer.Option(help="Issue those in the directory anew, by the same authority.")
    ] = False,
    keep: Annotated[
        bool,
        typer.Option(
            help="Leave certificates that are there alone, unless one is missing, has less than a "
            "month left or is not for these hosts; for a command that runs at each start.",
        ),
    ] = False,
) -> None:
    """Make an authority, certificates of it for services and people, and an access file."""
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
    names = ", ".join(f"{name}.pem" for name in ROLES)
    say(f"{'renewed' if renew else 'made'} {names} in {directory}, valid for {days} days")
    if not renew:
        say(f"{directory / ACCESS_FILE} says who may do what")
        say(f"try: drover up --certs {directory}")
