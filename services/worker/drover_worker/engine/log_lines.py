"""Lines that an engine's processes write, as the herder hands them on.

The engine logs as its settings say. Others write plain text beside it: prints of plugins, Java,
Python workers. Where events are asked for, each of their lines becomes one.
"""

import json
from datetime import UTC, datetime

#: Java says so on every start, as Spark asks for that module.
_NOISE = frozenset({b"WARNING: Using incubator modules: jdk.incubator.vector"})


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
