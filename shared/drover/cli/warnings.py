"""Warnings about definitions, and about the settings of connectors that were written."""

from collections.abc import Iterable, Mapping

from drover.cli.caller import call_worker
from drover.cli.console import CliError, warn
from drover.cli.definitions import Definition
from drover.errors import DroverError


def print_file_warnings(definitions: Iterable[Definition]) -> None:
    """Print on stderr what has no effect in the files of definitions."""
    for each in definitions:
        for text in each.warnings:
            warn(text)


def print_warnings(config: Mapping[str, str], address: str, *, name: str = "") -> None:
    """Print the warnings of a config's validation on stderr, after it was written.

    Args:
        config: The written config; secrets may be masked.
        address: As in ``call_worker``.
        name: The connector, if the command wrote several.
    """
    wanted = dict(config)
    try:
        answer = call_worker(address, lambda c: c.validate_config(wanted, skip_systems=True))
    except (CliError, DroverError):
        return  # the config is written, and `drover config validate` shows the warnings
    about = f"{name}: " if name else ""
    for each in answer.warnings:
        warn(f"{about}{each.field} {each.description}")
