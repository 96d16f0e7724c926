"""Arguments for names of connectors, with shell completion."""

import asyncio
import os
from contextlib import suppress
from typing import Annotated

import typer

from drover.cli.caller import call_worker
from drover.cli.console import ADDRESS_VARIABLE, CliError
from drover.client import ConnectClient
from drover.errors import DroverError

#: Short, because the user waits for the completion.
_PATIENCE_S = 2.0


def trimmed(name: str) -> str:
    """A name without white space around it, as workers take it."""
    return name.strip()


def all_trimmed(names: list[str]) -> list[str]:
    """As ``trimmed``."""
    return [name.strip() for name in names]


def complete_name(context: typer.Context, incomplete: str) -> list[str]:
    """The connectors whose names start with ``incomplete``; none if no worker answers in time."""
    address = context.params.get("address") or os.environ.get(ADDRESS_VARIABLE, "")

    async def names(client: ConnectClient) -> list[str]:
        async with asyncio.timeout(_PATIENCE_S):
            entries = await client.list_connectors(timeout_s=_PATIENCE_S)
        return [entry.name for entry in entries if entry.name.startswith(incomplete)]

    with suppress(CliError, DroverError, TimeoutError):
        return call_worker(address, names)
    return []


NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="The connector's name.",
        autocompletion=complete_name,
        callback=trimmed,
    ),
]
OptionalNamesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME…]",
        help="The names of connectors, one or several.",
        autocompletion=complete_name,
        callback=lambda names: all_trimmed(names or []),
    ),
]
NamesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME…",
        help="The names of connectors, one or several.",
        autocompletion=complete_name,
        callback=all_trimmed,
    ),
]
