"""Output, exit codes and connections of all commands."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import grpc
import grpc.aio
import typer
import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from drover.cli.access import access_to, connect
from drover.client import CoordinatorsClient
from drover.errors import DroverError, InvalidArgumentError
from drover.local.tls_check import why_refused

DEFAULT_WORKER_ADDRESS = "127.0.0.1:7411"
DEFAULT_COORDINATOR_ADDRESS = "127.0.0.1:7401"
#: Addresses of workers; the option --address overrides it.
ADDRESS_VARIABLE = "DROVER_ADDRESS"
CONNECT_TIMEOUT_S = 5.0
#: For calls that may have to wait for a rebalance.
CALL_TIMEOUT_S = 60.0

EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

T = TypeVar("T")


class Output(StrEnum):
    """How a command prints."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class CliError(Exception):
    """Ends a command with one line on stderr and an exit code."""

    def __init__(self, message: str, exit_code: int = EXIT_REFUSED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


#: The output format of the running command; errors use it too.
_present_output = ContextVar("present_output", default=Output.TABLE)


def note_output(output: Output) -> Output:
    """Record the output format of the running command."""
    _present_output.set(output)
    return output


OutputOption = Annotated[
    Output,
    typer.Option(
        "--output",
        "-o",
        help="Output format, of errors too: a table, or a JSON or YAML document.",
        callback=note_output,
    ),
]
AddressOption = Annotated[
    str,
    typer.Option(
        "--address",
        "-a",
        envvar=ADDRESS_VARIABLE,
        show_default=False,
        help="host:port of one or more workers, comma-separated; the first that answers is used. "
        f"Default: the cluster of `drover up` in this folder, else {DEFAULT_WORKER_ADDRESS}.",
    ),
]


#: The cluster that the running command chose, until it is printed.
_chosen_cluster: ContextVar[str] = ContextVar("chosen_cluster", default="")


def note_cluster(text: str) -> None:
    """Have ``text`` printed on stderr once a server of the cluster answers."""
    _chosen_cluster.set(text)


def _print_cluster() -> None:
    # a document of an error has it as a field: stderr stays one document
    if _present_output.get() is Output.TABLE:
        print_cluster_if_noted()


def print_cluster_if_noted() -> None:
    """Print the text of ``note_cluster`` on stderr unless it has been printed."""
    if chosen := _chosen_cluster.get():
        _chosen_cluster.set("")
        print(f"drover: using {chosen}", file=sys.stderr)


def run_call(
    addresses: Sequence[str], work: Callable[[grpc.aio.Channel], Awaitable[T]], *, server: str
) -> T:
    """Run ``work`` on a channel to the first of ``addresses`` that accepts a connection.

    Raises:
        CliError: No server accepts a connection.
        DroverError: The error that the server returned.
    """
    return asyncio.run(call(addresses, work, server=server))


async def call(
    addresses: Sequence[str], work: Callable[[grpc.aio.Channel], Awaitable[T]], *, server: str
) -> T:
    """``run_call`` for a running event loop."""
    async with AsyncExitStack() as stack:
        for address in addresses:
            candidate = await stack.enter_async_context(connect(address))
            if await _connects(candidate):
                _print_cluster()
                return await work(candidate)
    raise _no_answer(server, addresses)


def run_coordinator_call(
    addresses: Sequence[str], work: Callable[[CoordinatorsClient], Awaitable[T]]
) -> T:
    """Run ``work`` with a client of all coordinators; at least one must accept a connection.

    Raises:
        CliError: No coordinator accepts a connection.
        DroverError: The error that a coordinator returned.
    """

    async def run() -> T:
        async with CoordinatorsClient(addresses, connect=connect) as client:
            connected = [_connects(client.direct(address)) for address in addresses]
            if not any(await asyncio.gather(*connected)):
                raise _no_answer("coordinator", addresses)
            _print_cluster()
            return await work(client)

    return asyncio.run(run())


def _no_answer(server: str, addresses: Sequence[str]) -> CliError:
    for address in addresses:
        if why := why_refused(address, access_to(address).tls):
            return CliError(f"the {server} at {address} {why}")
    where = " or ".join(addresses)
    message = f"no {server} answers at {where}; `drover up` starts a cluster here"
    if server == "worker":
        message += f"; for another cluster set {ADDRESS_VARIABLE} or --address"
    return CliError(message)


async def _connects(candidate: grpc.aio.Channel) -> bool:
    """Whether the first attempt to connect succeeds."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            state = candidate.get_state(try_to_connect=True)
            while state in (grpc.ChannelConnectivity.IDLE, grpc.ChannelConnectivity.CONNECTING):
                await candidate.wait_for_state_change(state)
                state = candidate.get_state(try_to_connect=True)
    except TimeoutError:
        return False
    return state is grpc.ChannelConnectivity.READY


def print_document(document: Any, output: Output) -> None:
    """Print one JSON or YAML document on stdout."""
    if output is Output.YAML:
        print(_yaml(document), end="")
    else:
        print(json.dumps(document, indent=2, ensure_ascii=False))


def print_event(document: Any, output: Output) -> None:
    """Print one document of a stream and flush: a line of JSON, or a YAML document."""
    if output is Output.YAML:
        print(f"---\n{_yaml(document)}", end="", flush=True)
    else:
        print(json.dumps(document, ensure_ascii=False, separators=(",", ":")), flush=True)


def _yaml(document: Any) -> str:
    return str(yaml.safe_dump(document, allow_unicode=True, sort_keys=False))


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str = "nothing"
) -> None:
    """Print a table on stdout; cells are plain text, never markup."""
    console = Console(soft_wrap=False)
    if not rows:
        console.print(empty, style="dim")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    console.print(table)


def print_tables(tables: Iterable[Table]) -> None:
    """Print tables on stdout with an empty line between them."""
    console = Console(soft_wrap=False)
    for index, table in enumerate(tables):
        if index:
            console.print()
        console.print(table)


def say(text: str) -> None:
    """Print one line on stdout."""
    print(text)


def complain(text: str, **details: Any) -> None:
    """Print an error on stderr: one line, or with -o json or yaml a document with ``details``."""
    if _present_output.get() is Output.TABLE:
        print(f"drover: {text}", file=sys.stderr)
    else:
        document: dict[str, Any] = {"error": {"message": text, **details}}
        if chosen := _chosen_cluster.get():
            _chosen_cluster.set("")
            document["cluster"] = chosen
        print(json.dumps(document, ensure_ascii=False), file=sys.stderr)


def plain(text: str) -> str:
    """Replace control characters in text from a server, which could control the terminal."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)


def print_refusal(error: DroverError, *, about: str = "") -> None:
    """Print a server's error on stderr: one line, then every violation.

    Args:
        error: The error.
        about: The connector concerned, when the command handles several.
    """
    violations = error.violations if isinstance(error, InvalidArgumentError) else ()
    message = plain(error.message or error.code)
    if _present_output.get() is not Output.TABLE:
        complain(
            message,
            code=error.code,
            reason=str(error.reason),
            **({"about": about} if about else {}),
            violations=[{"field": v.field, "description": v.description} for v in violations],
        )
        return
    complain(
        f"{plain(about)}: {message} ({error.reason})" if about else f"{message} ({error.reason})"
    )
    if violations:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("SETTING", overflow="fold")
        table.add_column("FAULT", overflow="fold")
        for violation in violations:
            table.add_row(Text(plain(violation.field)), Text(plain(violation.description)))
        Console(stderr=True).print(table)
