"""The ``drover`` command. Exit codes: 0 success, 1 refused or failed, 2 misuse or a bad file."""

import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from drover import __version__
from drover.cli.access import Access, has_contexts, use_access, use_directory
from drover.cli.command_groups import CommandGroups
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
    prepare_streams,
    print_cluster_if_noted,
    print_document,
    print_refusal,
    say,
)
from drover.cli.definitions import DefinitionError
from drover.errors import DroverError
from drover.local.state import ClusterError

cli = typer.Typer(
    name="drover",
    cls=CommandGroups,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Runs connectors as Spark tasks over a fleet of workers.",
)


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
    if not (context or tls_ca or tls_cert or tls_key or token or has_contexts()):
        return Access()
    # imported here: they load the modules of certificates, and YAML
    from drover.cli.commands.context import checked_files
    from drover.cli.contexts import find_context, read_contexts

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
    prepare_streams()
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _discard_output()
    except OSError as error:
        _discard_output()
        complain(f"the output cannot be written: {error.strerror or error}")
    return EXIT_REFUSED


def _run(arguments: Sequence[str] | None) -> int:
    note_output(Output.TABLE)
    use_access(Access)
    use_directory(None)
    note_cluster("")
    try:
        cli(args=None if arguments is None else list(arguments))
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
        raise
    except UnicodeEncodeError as error:
        if not any(0xD800 <= ord(char) <= 0xDFFF for char in error.object[error.start : error.end]):
            raise
        complain("an argument is not text in the encoding of this terminal: check LANG and LC_ALL")
        return EXIT_USAGE
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None:
            raise  # of a print
        if os.environ.get("DROVER_DEBUG"):
            raise
        complain(f"internal error: {error!r}; DROVER_DEBUG=1 shows the traceback")
        return EXIT_REFUSED
    return 0


def _discard_output() -> None:
    """Let the flush at the end of the process write to the null device."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(app())
