"""Warnings about definitions, and about the settings of connectors that were written or refused."""

from collections.abc import Iterable, Mapping
from typing import NoReturn

import typer

from drover.cli.caller import call_worker
from drover.cli.console import EXIT_REFUSED, CliError, print_refusal, warn
from drover.cli.definitions import Definition
from drover.errors import DroverError, InvalidArgumentError


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
    about = f"{name}: " if name else ""
    for setting, text in _warnings(config, address):
        warn(f"{about}{setting} {text}")


def print_refused(
    error: DroverError, config: Mapping[str, str], address: str, *, about: str = ""
) -> None:
    """Print the faults of a refused config, and its warnings, such as a misspelt setting.

    Args:
        error: Why the config was refused.
        config: The refused config; secrets may be masked.
        address: As in ``call_worker``.
        about: As in ``print_refusal``.
    """
    has_faults = isinstance(error, InvalidArgumentError) and error.violations
    print_refusal(error, about=about, warnings=_warnings(config, address) if has_faults else [])


def end_refused(error: DroverError, config: Mapping[str, str], address: str) -> NoReturn:
    """``print_refused``, then end the command.

    Raises:
        typer.Exit: Always.
    """
    print_refused(error, config, address)
    raise typer.Exit(EXIT_REFUSED)


def _warnings(config: Mapping[str, str], address: str) -> list[tuple[str, str]]:
    """The settings with warnings, and these; none if the config cannot be validated now."""
    wanted = dict(config)
    try:
        answer = call_worker(address, lambda c: c.validate_config(wanted, skip_systems=True))
    except (CliError, DroverError):
        return []  # `drover config validate` shows them
    return [(each.field, each.description) for each in answer.warnings]
