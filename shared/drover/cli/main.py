"""The ``drover`` command. Exit codes: 0 done, 1 refused or failed, 2 misuse or a bad file."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from drover import __version__
from drover.cli import (
    apply_command,
    cluster_commands,
    config_commands,
    connector_commands,
    dlq_commands,
    doctor,
    group_commands,
    logger_commands,
    plugin_commands,
    topic_commands,
    worker_commands,
)
from drover.cli.console import (
    EXIT_INTERRUPTED,
    EXIT_REFUSED,
    EXIT_USAGE,
    CliError,
    Output,
    OutputOption,
    complain,
    note_output,
    print_document,
    print_refusal,
    say,
)
from drover.cli.definitions import DefinitionError
from drover.cli.state import ClusterError
from drover.errors import DroverError

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
# where people look for it first
connector_commands.commands.command("validate")(config_commands.validate)
cli.add_typer(group_commands.commands, name="group")
cli.add_typer(cluster_commands.commands, name="cluster")
cli.add_typer(worker_commands.commands, name="worker")
cli.add_typer(logger_commands.commands, name="logger")
cli.command()(apply_command.apply)
cli.command()(cluster_commands.up)
cli.command()(cluster_commands.down)
cli.command()(doctor.doctor)


def _version_option(wanted: bool) -> None:
    if wanted:
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
) -> None:
    """Runs connectors as Spark tasks over a fleet of workers."""
    del version


@cli.command()
def version(output: OutputOption = Output.TABLE) -> None:
    """Show the version of this command."""
    if output is not Output.TABLE:
        print_document({"version": __version__}, output)
    else:
        say(f"drover {__version__}")


def app(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; nothing that goes wrong shows a traceback."""
    note_output(Output.TABLE)
    try:
        cli(args=None if arguments is None else list(arguments))
    except SystemExit as exit_:
        # typer ends every command so, and has explained misuse
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
        # the reader of our output went away; keep Python from complaining when it flushes
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_REFUSED
    except Exception as error:
        if os.environ.get("DROVER_DEBUG"):
            raise
        complain(f"a defect: {error!r} (DROVER_DEBUG=1 shows where)")
        return EXIT_REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(app())
