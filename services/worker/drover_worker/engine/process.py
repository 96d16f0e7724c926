"""``python -m drover_worker.engine.process FD``: the engine process, a child of its guard.

The main thread starts Spark, because the JVM is bound to the thread that started it, then waits for
SIGTERM. Commands are served from the start; commands that need Spark wait for it.
"""

import os
import signal
import socket
import sys
import threading
from types import FrameType

from drover_worker.engine import process_tree
from drover_worker.engine.settings import (
    IN_FLIGHT_VARIABLE,
    SETTINGS_VARIABLE,
    EngineSettings,
    ExitCode,
)


def main() -> int:
    """Run the engine; returns the exit code."""
    parent = os.getppid()
    process_tree.die_with_parent()
    if os.getppid() != parent or parent == 1:
        return ExitCode.ORPHANED
    settings = EngineSettings.from_json(os.environ.pop(SETTINGS_VARIABLE))
    sock = socket.socket(fileno=int(sys.argv[1]))
    # after die_with_parent: these imports take a second
    from drover_worker.engine.main import run

    for descriptor in (sock.fileno(), int(os.environ[IN_FLIGHT_VARIABLE])):
        os.set_inheritable(descriptor, False)
    stop = threading.Event()
    _catch_signals(stop)
    return run(settings, sock, stop)


def _catch_signals(stop: threading.Event) -> None:
    def request_stop(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            return
        stop.set()

    signal.signal(signal.SIGTERM, request_stop)
    signal.signal(signal.SIGINT, request_stop)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # hung plugin threads and py4j's would block a normal exit; the guard kills the other processes
    os._exit(code)
