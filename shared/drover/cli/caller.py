"""How commands call a worker: the first that answers, in the name of who runs the command."""

import getpass
import os
import socket
from collections.abc import Awaitable, Callable

import grpc.aio

from drover.cli.console import T, run_call, worker_addresses
from drover.client import ConnectClient

#: Names who runs the command where the user's name says nothing, as in a container.
AUTHOR_VARIABLE = "DROVER_AUTHOR"


def call_worker(address: str, work: Callable[[ConnectClient], Awaitable[T]]) -> T:
    """Do ``work`` with a client of a worker: the one at ``address``, else as the console finds one.

    Raises:
        CliError: none answers.
        DroverError: what the worker answered.
    """

    async def on_channel(channel: grpc.aio.Channel) -> T:
        return await work(ConnectClient(channel, author=author()))

    return run_call(worker_addresses(address), on_channel, server="worker")


def author() -> str:
    """Who runs this command, for the history of connectors: user@host."""
    return os.environ.get(AUTHOR_VARIABLE) or f"{_user()}@{socket.gethostname()}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())  # a user without a name, as in a container
