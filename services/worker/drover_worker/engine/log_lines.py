"""Log lines of the engine's process tree, formatted for the herder's log.

The engine logs in the configured format. Plugins, Java and Python workers write plain text to the
same pipe; in a JSON log each of their lines becomes an event. A line stays whole on the pipe when
it is a single write of at most PIPE_BUF (4096) bytes.
"""

import fcntl
import io
import json
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime

_OWN_DESCRIPTORS_FROM = 64
#: Java prints this at every start, because Spark requests that module.
_NOISE = frozenset({b"WARNING: Using incubator modules: jdk.incubator.vector"})


def use_own_descriptors() -> None:
    """Make this process write its log to descriptors that no other code uses.

    A plugin that closes descriptor 1 or 2 frees it for the next file or connection that is opened,
    to which the log would then be written.
    """
    for name in ("stdout", "stderr"):
        descriptor = getattr(sys, name).fileno()
        copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _OWN_DESCRIPTORS_FROM)
        setattr(sys, name, os.fdopen(copy, "w", encoding="utf-8", errors="backslashreplace"))


def write_whole_lines() -> None:
    """Make this process write its standard output and error line by line.

    The engine's environment sets unbuffered output, where a print is two writes: text, then
    newline.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)


def write_to_stderr_of_parent() -> None:
    """Redirect this process's standard error to the parent's, bypassing the pipe that the parent
    reads.

    A JVM copies such a pipe in chunks that are not lines. Does nothing when the parent's
    descriptors are not accessible.
    """
    with suppress(OSError):
        stderr = os.open(f"/proc/{os.getppid()}/fd/2", os.O_WRONLY | os.O_APPEND)
        os.dup2(stderr, 2)
        os.close(stderr)


def as_logged(line: bytes, log_format: str) -> bytes:
    """The line in the given log format; empty when it has no text."""
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
