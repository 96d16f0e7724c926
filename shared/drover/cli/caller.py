"""Calls a worker on behalf of a command, with the user as the author of the change."""

import getpass
import os
import socket
from collections.abc import Awaitable, Callable

import grpc.aio

from drover.cli.cluster_choice import worker_addresses
from drover.cli.console import T, run_call
from drover.client import ConnectClient

#: Overrides user@host as the author, for example in a container.
AUTHOR_VARIABLE = "DROVER_AUTHOR"


def call_worker(address: str, work: Callable[[ConnectClient], Awaitable[T]]) -> T:
    """Run ``work`` with a client of the first worker that answers.

    Args:
        address: Comma-separated addresses; empty for the default of ``worker_addresses``.
        work: Called with the client.

    Raises:
        CliError: No worker answers.
        DroverError: The error that the worker returned.
    """

    async def on_channel(channel: grpc.aio.Channel) -> T:
        return await work(ConnectClient(channel, author=author()))

    return run_call(worker_addresses(address), on_channel, server="worker")


def author() -> str:
    """The user who runs this command, as user@host; recorded in the history of connectors."""
    return os.environ.get(AUTHOR_VARIABLE) or f"{_user()}@{socket.gethostname()}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())  # in a container the user id may have no passwd entry
