"""The ``drover`` command. Exit codes: 0 success, 1 refused or failed, 2 misuse or a bad file."""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from drover import __version__
from drover.cli.access import Access, use_access, use_directory
from drover.cli.cluster_choice import add_directory_option
from drover.cli.commands import apply as apply_command
from drover.cli.commands import certs as certs_commands
from drover.cli.commands import cluster as cluster_commands
from drover.cli.commands import config as config_commands
from drover.cli.commands import connector as connector_commands
from drover.cli.commands import context as context_commands
from drover.cli.commands import dlq as dlq_commands
from drover.cli.commands import group as group_commands
from drover.cli.commands import logger as logger_commands
from drover.cli.commands import plugin as plugin_commands
from drover.cli.commands import topic as topic_commands
from drover.cli.commands import worker as worker_commands
from drover.cli.commands.context import checked_files
from drover.cli.console import (
    EXIT_INTERRUPTED,
    EXIT_REFUSED,
    EXIT_USAGE,
    CliError,
    Output,
    OutputOption,
    complain,
    note_cluster,
    note_output,
    print_cluster_if_noted,
    print_document,
    print_refusal,
    say,
)
from drover.cli.contexts import find_context, read_contexts
from drover.cli.definitions import DefinitionError
from drover.cli.doctor import command as doctor
from drover.errors import DroverError
from drover.local.state import ClusterError

cli = typer.Typer(
    name="drover",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Runs connectors as Spark tasks over a fleet of workers.",
)
cli.add_typer(connector_commands.commands, name="connector")
cli.add_typer(plugin_commands.commands, name="plugin")
cli.add_typer(topic_commands.commands, name="topic")
cli.add_typer(dlq_commands.commands, name="dlq")
cli.add_typer(config_commands.commands, name="config")
# an alias: users expect validate below connector
connector_commands.commands.command("validate")(config_commands.validate)
cli.add_typer(group_commands.commands, name="group")
cli.add_typer(cluster_commands.commands, name="cluster")
cli.add_typer(worker_commands.commands, name="worker")
cli.add_typer(logger_commands.commands, name="logger")
cli.add_typer(certs_commands.commands, name="certs")
cli.add_typer(context_commands.commands, name="context")
cli.command()(apply_command.apply)
cli.command()(cluster_commands.up)
cli.command()(cluster_commands.down)
cli.command()(doctor.doctor)


def _version_option(is_set: bool) -> None:
    if is_set:
        say(f"drover {__version__}")
        raise typer.Exit


@cli.callback()
def drover(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the version of this command.",
            callback=_version_option,
            is_eager=True,
        ),
    ] = False,
    context: Annotated[
        str,
        typer.Option(
            envvar="DROVER_CONTEXT",
            show_default=False,
            help="The context to use; by default the current one, set by `drover context use`.",
        ),
    ] = "",
    tls_ca: Annotated[
        str,
        typer.Option(
            envvar="DROVER_TLS_CA",
            show_default=False,
            help="Use TLS; a PEM file with the CA that signed the servers' certificates.",
        ),
    ] = "",
    tls_cert: Annotated[
        str,
        typer.Option(envvar="DROVER_TLS_CERT", show_default=False, help="Your certificate."),
    ] = "",
    tls_key: Annotated[
        str, typer.Option(envvar="DROVER_TLS_KEY", show_default=False, help="Key of --tls-cert.")
    ] = "",
    token: Annotated[
        str,
        typer.Option(
            envvar="DROVER_TOKEN",
            show_default=False,
            help="Your token. Prefer DROVER_TOKEN: other users of this machine can see arguments.",
        ),
    ] = "",
) -> None:
    """Runs connectors as Spark tasks over a fleet of workers."""
    del version
    use_access(
        partial(_access, context, tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key, token=token)
    )


def _access(context: str, *, tls_ca: str, tls_cert: str, tls_key: str, token: str) -> Access:
    """Options override the values of the context."""
    present = find_context(context)
    access = present.access() if present else Access()
    if present and not context:
        access = replace(access, origin=f"the context {read_contexts().current!r}")
    ca = tls_ca or (access.tls.ca if access.tls else "")
    if tls_cert or tls_key or not access.tls:
        cert, key = tls_cert, tls_key
    else:
        cert, key = access.tls.cert, access.tls.key
    token = token or access.token
    return replace(access, tls=checked_files(ca, cert, key, token=token), token=token)


@cli.command()
def version(output: OutputOption = Output.TABLE) -> None:
    """Show the version of this command."""
    if output is not Output.TABLE:
        print_document({"version": __version__}, output)
    else:
        say(f"drover {__version__}")


def app(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; errors are printed without a traceback."""
    note_output(Output.TABLE)
    use_access(Access)
    use_directory(None)
    note_cluster("")
    command = typer.main.get_command(cli)
    add_directory_option(command)
    try:
        command(args=None if arguments is None else list(arguments))
    except SystemExit as exit_:
        if exit_.code == 0:
            print_cluster_if_noted()
        # typer exits this way after every command, and prints usage errors first
        return exit_.code if isinstance(exit_.code, int) else 0
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except CliError as error:
        complain(str(error))
        return error.exit_code
    except DefinitionError as error:
        complain(str(error))
        return EXIT_USAGE
    except ClusterError as error:
        complain(str(error))
        return EXIT_REFUSED
    except DroverError as error:
        print_refusal(error)
        return EXIT_REFUSED
    except BrokenPipeError:
        # the reader closed the pipe: let the flush at exit write to the null device
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_REFUSED
    except Exception as error:
        if os.environ.get("DROVER_DEBUG"):
            raise
        complain(f"internal error: {error!r}; DROVER_DEBUG=1 shows the traceback")
        return EXIT_REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(app())
