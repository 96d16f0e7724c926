"""``python -m drover_worker.engine.process FD``: the engine process, a child of its guard.

The process starts with few environment variables, and forks the validation process before it
receives the others. The main thread starts Spark, because the JVM is bound to the thread that
started it, then waits for SIGTERM. Commands are served from the start; those for Spark wait.
"""

import os
import signal
import socket
import sys
import threading
from functools import partial
from types import FrameType

from drover_worker.engine import process_tree
from drover_worker.engine.data_limit import limit_data
from drover_worker.engine.process_constants import IN_FLIGHT_VARIABLE, ExitCode
from drover_worker.engine.settings import EngineSettings

_QUERY_LIMIT = "half of DROVER_PLUGIN_CALL_TIMEOUT_MS, which the operator of the worker may change"


def main() -> int:
    """Run the engine; returns the exit code."""
    parent = os.getppid()
    process_tree.die_with_parent()
    if os.getppid() != parent or parent == 1:
        return ExitCode.ORPHANED
    sock = socket.socket(fileno=int(sys.argv[1]))
    limit_data()
    # after die_with_parent: these imports take a second
    from drover_worker.engine.plugins.validation_process import start_validation_process

    control = start_validation_process()
    # after the fork: validations do not need these
    from drover.api.engine.v1 import engine_pb2
    from drover.transform.sql.apart import QueryProcesses, use_query_processes
    from drover_worker.engine.framing import receive
    from drover_worker.engine.main import run
    from drover_worker.engine.plugins.validations import ValidationProcess

    command = receive(sock, engine_pb2.EngineCommand)
    if command is None:
        return ExitCode.ORPHANED
    environment = list(command.start_engine.variables)
    for each in environment:
        name, _, value = each.partition(b"=")
        os.environb[name] = value
    settings = EngineSettings.from_json(command.start_engine.settings)
    for descriptor in (sock.fileno(), int(os.environ[IN_FLIGHT_VARIABLE])):
        os.set_inheritable(descriptor, False)
    stop = threading.Event()
    _catch_signals(stop)
    apart = ValidationProcess(control)
    validate = partial(apart.validate, settings=settings, environment=environment)
    # half: a preview that runs a slow query still returns its error
    limit_ms = max(1, settings.limits.start_ms // 2)
    use_query_processes(
        QueryProcesses(apart.start_queries, limit_ms=limit_ms, limit_rule=_QUERY_LIMIT)
    )
    return run(settings, sock, stop, validate)


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
