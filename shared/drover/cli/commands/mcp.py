"""``drover mcp``: serves the tools of the cluster to an agent on standard input and output."""

import importlib.util
import os
from typing import Annotated

import typer

from drover.cli.access import access_to
from drover.cli.caller import AUTHOR_VARIABLE, author
from drover.cli.cluster_choice import worker_addresses
from drover.cli.console import EXIT_REFUSED, AddressOption, CliError, note_cluster
from drover.python_process import python_command, python_environment

_MODULE = "drover_gateway.mcp"
_LIBRARY = "mcp"


def mcp(
    write: Annotated[
        bool,
        typer.Option(
            "--write",
            help="Offer the tool that carries out planned changes; without it, agents only read.",
        ),
    ] = False,
    address: AddressOption = "",
) -> None:
    """Serve an agent by the Model Context Protocol on stdio, with your rights; read-only.

    An agent's configuration has the command `drover mcp`.
    """
    for module, package in ((_MODULE, "drover-gateway"), (_LIBRARY, "drover-gateway[mcp]")):
        if not _exists(module):
            raise CliError(f"the MCP server is not installed: pip install '{package}'")
    addresses = worker_addresses(address)
    # stdout and stderr belong to the agent's client
    note_cluster("")
    access = access_to(addresses[0])
    environment = python_environment(os.environ) | {
        "DROVER_GATEWAY_WORKERS": ",".join(addresses),
        "DROVER_TOKEN": access.token,
        "DROVER_TLS_CA": access.tls.ca if access.tls else "",
        "DROVER_TLS_CERT": access.tls.cert if access.tls else "",
        "DROVER_TLS_KEY": access.tls.key if access.tls else "",
        AUTHOR_VARIABLE: f"mcp:{author()}",
    }
    command = python_command(_MODULE, *(["--write"] if write else []))
    try:
        os.execve(command[0], command, environment)
    except OSError as error:
        raise CliError(f"cannot start {command[0]}: {error.strerror}", EXIT_REFUSED) from None


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
