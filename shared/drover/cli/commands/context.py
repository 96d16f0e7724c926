"""``drover context …``: named connections to clusters."""

from pathlib import Path
from typing import Annotated

import typer

from drover.cli.access import contexts_file
from drover.cli.console import (
    EXIT_USAGE,
    CliError,
    Output,
    OutputOption,
    print_document,
    print_table,
    say,
)
from drover.cli.contexts import (
    Context,
    Contexts,
    read_contexts,
    unknown_context,
    write_contexts,
)
from drover.cli.names import trimmed
from drover.security.certificates import TlsFiles, read_certificate

commands = typer.Typer(no_args_is_help=True, help="Contexts: named connections to clusters.")

NameArgument = Annotated[str, typer.Argument(help="The context's name.", callback=trimmed)]


def _path_option(help_text: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        help=help_text, dir_okay=False, show_default=False
    )
    return option


@commands.command("add")
def add(
    name: NameArgument,
    address: Annotated[
        str,
        typer.Option("--address", "-a", help="host:port of one or more workers, comma-separated."),
    ],
    coordinator: Annotated[
        str, typer.Option(help="host:port of one or more coordinators, for `drover group`.")
    ] = "",
    tls_ca: Annotated[Path | None, _path_option("The cluster's CA file.")] = None,
    tls_cert: Annotated[Path | None, _path_option("Your certificate.")] = None,
    tls_key: Annotated[Path | None, _path_option("Key of --tls-cert.")] = None,
    token: Annotated[
        str, typer.Option(envvar="DROVER_TOKEN", show_default=False, help="Your token.")
    ] = "",
) -> None:
    """Add or replace a context, and make it the current one."""
    paths = [str(path.absolute()) if path else "" for path in (tls_ca, tls_cert, tls_key)]
    files = checked_files(*paths, token=token)
    if files is not None:
        read_certificate(files, of_cluster=False)
    context = Context(
        address=address,
        coordinator=coordinator,
        tls_ca=paths[0],
        tls_cert=paths[1],
        tls_key=paths[2],
        token=token,
    )
    known = read_contexts()
    try:
        changed = Contexts.model_validate(
            {"current": name, "contexts": {**known.contexts, name: context}}
        )
    except ValueError:
        raise CliError(
            f"the name {name!r} is invalid: use at most 64 letters, digits, dots, dashes and "
            "underscores",
            EXIT_USAGE,
        ) from None
    write_contexts(changed)
    say(f"the current context is {name}; it is stored in {contexts_file()}")


@commands.command("use")
def use(name: NameArgument) -> None:
    """Make a context the current one."""
    known = read_contexts()
    if name not in known.contexts:
        raise unknown_context(name, known)
    write_contexts(known.model_copy(update={"current": name}))
    say(f"the current context is {name}")


@commands.command("remove")
def remove(name: NameArgument) -> None:
    """Remove a context; if it was the current one, no context is current."""
    known = read_contexts()
    if name not in known.contexts:
        raise unknown_context(name, known)
    others = {each: context for each, context in known.contexts.items() if each != name}
    current = "" if known.current == name else known.current
    write_contexts(Contexts(current=current, contexts=others))
    say(f"removed {name}")


@commands.command("list")
def list_all(output: OutputOption = Output.TABLE) -> None:
    """Show the contexts, without tokens."""
    known = read_contexts()
    rows = [
        {
            "name": name,
            "in_use": name == known.current,
            "address": context.address,
            "tls": bool(context.tls_ca),
            "credentials": "token" if context.token else "certificate" if context.tls_cert else "",
        }
        for name, context in sorted(known.contexts.items())
    ]
    if output is not Output.TABLE:
        print_document(rows, output)
        return
    print_table(
        ("NAME", "IN USE", "ADDRESS", "TLS", "CREDENTIALS"),
        [
            (
                str(row["name"]),
                "yes" if row["in_use"] else "",
                str(row["address"]),
                "yes" if row["tls"] else "no",
                str(row["credentials"]) or "none",
            )
            for row in rows
        ],
        empty="no contexts",
    )


def checked_files(ca: str, cert: str, key: str, *, token: str) -> TlsFiles | None:
    """The TLS files given by options; None for plaintext.

    Raises:
        CliError: A file is missing: the key, the certificate, or the CA.
    """
    if bool(cert) != bool(key):
        raise CliError("--tls-cert and --tls-key need each other: give both", EXIT_USAGE)
    if (cert or token) and not ca:
        option = "--token" if token else "--tls-cert"
        raise CliError(f"{option} needs TLS: give the cluster's CA by --tls-ca", EXIT_USAGE)
    return TlsFiles(ca, cert, key) if ca else None
