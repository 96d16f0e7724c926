"""Output, exit codes and connections of all commands."""

import asyncio
import codecs
import io
import json
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, TextIO, TypeVar

import grpc
import grpc.aio
import typer

from drover.cli.access import access_to, connect
from drover.cli.tables import Screen, Table, table_lines
from drover.errors import DroverError, InvalidArgumentError, listed_message
from drover.local.found_clusters import running_elsewhere

DEFAULT_WORKER_ADDRESS = "127.0.0.1:7411"
DEFAULT_COORDINATOR_ADDRESS = "127.0.0.1:7401"
#: Addresses of workers; the option --address overrides it.
ADDRESS_VARIABLE = "DROVER_ADDRESS"
CONNECT_TIMEOUT_S = 5.0
#: For calls that may have to wait for a rebalance.
CALL_TIMEOUT_S = 60.0
#: Between two lines that show how long a call takes.
PROGRESS_INTERVAL_S = 15.0
#: The width of a terminal that does not report one.
_DEFAULT_WIDTH = 80
_ENCODING_ERRORS = "drover.replace"

EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

T = TypeVar("T")
_NOT_ASCII = re.compile("[^\x00-\x7f]")


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


YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@dataclass(slots=True)
class _ClusterNote:
    """The cluster that the running command chose: to print, and as printed.

    It is no context variable: calls run in copies of the context.
    """

    chosen: str = ""
    printed: str = ""


_note = _ClusterNote()


def note_cluster(text: str) -> None:
    """Have ``text`` printed on stderr once a server of the cluster answers, once per command.

    An empty text starts another command.
    """
    if not text:
        _note.printed = ""
    _note.chosen = "" if text == _note.printed else text


def _print_cluster() -> None:
    # a document of an error has it as a field: stderr stays one document
    if _present_output.get() is Output.TABLE:
        print_cluster_if_noted()


def print_cluster_if_noted() -> None:
    """Print the text of ``note_cluster`` on stderr unless it has been printed."""
    if _note.chosen:
        _note.printed, _note.chosen = _note.chosen, ""
        print(f"drover: using {_note.printed}", file=sys.stderr)


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


async def connects_at_all(server: str, channels: Mapping[str, grpc.aio.Channel]) -> None:
    """Check that a server accepts a connection, and print the cluster that was chosen.

    Args:
        server: The kind of the servers, for the message.
        channels: A channel to each server, by its address.

    Raises:
        CliError: No server accepts a connection.
    """
    if not any(await asyncio.gather(*map(_connects, channels.values()))):
        raise _no_answer(server, list(channels))
    _print_cluster()


def _no_answer(server: str, addresses: Sequence[str]) -> CliError:
    # imported here: it loads cryptography
    from drover.local.tls_check import why_refused

    for address in addresses:
        if why := why_refused(address, access_to(address).tls):
            return CliError(f"the {server} at {address} {why}")
    where = " or ".join(addresses)
    message = f"no {server} answers at {where}; `drover up` starts a cluster here"
    if server == "worker":
        message += f"; for another cluster set {ADDRESS_VARIABLE}, --address or --dir"
        message += running_elsewhere()
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
        print(json_text(document, indent=2, stream=sys.stdout))


def print_event(document: Any, output: Output) -> None:
    """Print one document of a stream and flush: a line of JSON, or a YAML document."""
    if output is Output.YAML:
        print(f"---\n{_yaml(document)}", end="", flush=True)
    else:
        text = json_text(document, separators=(",", ":"), stream=sys.stdout)
        print(text, flush=True)


def json_text(
    document: Any,
    *,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    stream: TextIO | None = None,
) -> str:
    """A document as JSON. Characters that could control a terminal are escaped, and all that are
    not ASCII if the stream cannot encode them.
    """
    text = json.dumps(
        document,
        indent=indent,
        separators=separators,
        ensure_ascii=stream is not None and not _is_unicode(stream),
    )
    if _is_printable(text):
        return text
    # outside of texts JSON is ASCII
    return _NOT_ASCII.sub(lambda match: _escaped(match[0]), text)


def _is_printable(text: str) -> bool:
    return text.replace("\n", "").isprintable()


def _escaped(char: str) -> str:
    return char if char.isprintable() else json.dumps(char)[1:-1]


def _yaml(document: Any) -> str:
    import yaml

    text = str(yaml.safe_dump(document, allow_unicode=True, sort_keys=False))
    if _is_unicode(sys.stdout) and _is_printable(text):
        return text
    return str(yaml.safe_dump(document, sort_keys=False))


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    empty: str = "nothing",
    stream: TextIO | None = None,
) -> None:
    """Print a table on stdout or ``stream``; cells are plain text, never markup.

    In a pipe or a file each row is one whole line, whatever the width of the terminal.
    """
    if not rows:
        print(empty, file=stream)
        return
    _print_lines(Table(columns, [list(map(plain, row)) for row in rows]), stream or sys.stdout)


def print_tables(tables: Iterable[Table]) -> None:
    """Print tables on stdout with an empty line between them; cells may be untrusted."""
    for index, table in enumerate(tables):
        if index:
            print()
        rows = [list(map(plain, row)) for row in table.rows]
        columns = list(map(plain, table.columns))
        _print_lines(Table(columns, rows, plain(table.title)), sys.stdout)


def _print_lines(table: Table, stream: TextIO) -> None:
    for line in table_lines(table, screen_of(stream)):
        print(line, file=stream)


def screen_of(stream: TextIO) -> Screen:
    """The terminal of a stream: its width, from COLUMNS if set, and whether it shows bold text.

    NO_COLOR (https://no-color.org) and TERM=dumb exclude bold text.
    """
    if not stream.isatty():
        return Screen()
    width = 0
    with suppress(ValueError):
        width = int(os.environ.get("COLUMNS", ""))
    if width < 1:
        with suppress(OSError, ValueError):
            width = os.get_terminal_size(stream.fileno()).columns
    bold = not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in (None, "", "dumb")
    return Screen(width if width > 0 else _DEFAULT_WIDTH, bold=bold)


def shortened(text: str, length: int) -> str:
    """A text of at most ``length`` characters at a terminal; the whole text in a pipe or file."""
    if len(text) <= length or not sys.stdout.isatty():
        return text
    return f"{text[: length - 1]}…"


def prepare_streams() -> None:
    """Let stdout and stderr replace characters that their encoding lacks, such as Latin-1's."""
    codecs.register_error(_ENCODING_ERRORS, _replacement)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ENCODING_ERRORS)


def _replacement(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].replace("…", "...")
    return text.encode("ascii", "backslashreplace").decode("ascii"), error.end


def _is_unicode(stream: TextIO) -> bool:
    return (getattr(stream, "encoding", None) or "").lower().startswith("utf")


def confirm(question: str, *, yes: bool, in_scripts: bool = False) -> None:
    """Ask before a command that destroys something, unless --yes is given.

    Without a terminal, a command whose arguments name everything that it destroys proceeds
    (``in_scripts``); others need --yes, or the answer on standard input.

    Raises:
        CliError: The answer is not yes.
    """
    is_terminal = sys.stdin is not None and sys.stdin.isatty()
    if yes or (in_scripts and not is_terminal):
        return
    try:
        if sys.stdin is None:
            raise typer.Abort
        typer.confirm(question, abort=True, err=True)
    except typer.Abort:
        print(file=sys.stderr)
        hint = "" if is_terminal else "; without a terminal give --yes"
        raise CliError(f"nothing was changed{hint}") from None


async def while_shown(work: Awaitable[T], text: str) -> T:
    """The result of a long call; stderr shows ``text``, and at intervals how long the call takes.

    With -o json or yaml nothing is shown: stderr may have to be one document.
    """
    if _present_output.get() is not Output.TABLE:
        return await work
    print(plain(text), file=sys.stderr, flush=True)
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    call = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait([call], timeout=PROGRESS_INTERVAL_S))[0]:
            elapsed_s = loop.time() - started_s
            print(plain(f"{text}: {elapsed_s:.0f} s"), file=sys.stderr, flush=True)
        return await call
    finally:
        call.cancel()


def warn(text: str) -> None:
    """Print a warning on stderr."""
    print(plain(f"warning: {text}"), file=sys.stderr)


def say(text: str) -> None:
    """Print one line on stdout."""
    print(text)


def complain(text: str, **details: Any) -> None:
    """Print an error on stderr: one line, or with -o json or yaml a document with ``details``."""
    if _present_output.get() is Output.TABLE:
        print(f"drover: {text}", file=sys.stderr)
    else:
        document: dict[str, Any] = {"error": {"message": text, **details}}
        if _note.chosen:
            document["cluster"], _note.chosen = _note.chosen, ""
        print(json_text(document, stream=sys.stderr), file=sys.stderr)


def plain(text: str) -> str:
    """Replace control characters in text from a server, which could control the terminal."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)


def print_refusal(
    error: DroverError, *, about: str = "", warnings: Sequence[tuple[str, str]] = ()
) -> None:
    """Print a server's error on stderr: one line, then every violation and warning.

    Args:
        error: The error.
        about: The connector concerned, when the command handles several.
        warnings: Settings of the refused config, each with its warning.
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
            **(
                {"warnings": [{"field": field, "description": text} for field, text in warnings]}
                if warnings
                else {}
            ),
        )
        return
    complain(
        f"{plain(about)}: {message} ({error.reason})" if about else f"{message} ({error.reason})"
    )
    is_told = len(violations) == 1 and message == plain(listed_message(violations))
    if violations and not is_told:
        rows = [(violation.field, violation.description) for violation in violations]
        print_table(("SETTING", "FAULT"), rows, stream=sys.stderr)
    if warnings:
        print_table(("SETTING", "WARNING"), warnings, stream=sys.stderr)
