"""Lines that an engine's processes write, as the herder hands them on.

The engine logs as its settings say. Others write plain text beside it: prints of plugins, Java,
Python workers. Where events are asked for, each of their lines becomes one. They share one pipe, on
which a line stays whole if it is one write (of at most PIPE_BUF bytes, 4096).
"""

import io
import json
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime

#: Java says so on every start, as Spark asks for that module.
_NOISE = frozenset({b"WARNING: Using incubator modules: jdk.incubator.vector"})


def write_whole_lines() -> None:
    """Have this process write what it prints line by line.

    Unbuffered, as the engine's environment asks for, a print is two writes: its text, its newline.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)


def write_to_stderr_of_parent() -> None:
    """Make the parent's standard error this process's own, past the pipe that the parent reads.

    A JVM copies such a pipe in pieces that are no lines. Where the parent does not let itself be
    looked at, all stays as it is.
    """
    with suppress(OSError):
        stderr = os.open(f"/proc/{os.getppid()}/fd/2", os.O_WRONLY | os.O_APPEND)
        os.dup2(stderr, 2)
        os.close(stderr)


def as_logged(line: bytes, log_format: str) -> bytes:
    """The line as it belongs into a log of this format; empty when it holds no text."""
    text = line.strip()
    if text in _NOISE:
        return b""
    if log_format != "json":
        return line
    return b"" if not text else (text if _is_event(text) else _as_event(line)) + b"\n"


def _is_event(text: bytes) -> bool:
    if not text.startswith(b"{"):
        return False
    try:
        event = json.loads(text)
    except ValueError:
        return False
    return isinstance(event, dict) and "event" in event


def _as_event(line: bytes) -> bytes:
    event = {
        "event": line.decode(errors="replace").rstrip(),
        "level": "info",
        "logger": "stderr",
        "timestamp": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
        "service": "engine",
    }
    return json.dumps(event).encode()
