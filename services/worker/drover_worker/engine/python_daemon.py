"""The parent of Spark's Python workers (spark.python.daemon.module), for local masters.

It is pyspark's daemon with a parent-death signal in each worker: a worker that runs user code does
not check its parent, so it would outlive a killed JVM. The daemon ends when the JVM closes the
daemon's standard input. Workers write their output and logs to the engine's log, line by line.
"""

import gc
import importlib
import os
import socket
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from drover_worker.engine import log_lines, process_tree
from drover_worker.engine.data_limit import limit_data
from drover_worker.engine.process_constants import ON_KAFKA, STORAGE_VARIABLE

_OF_BATCHES = (
    "pandas",  # pyspark imports it for every Arrow function
    "drover.connector",
)
_OF_KAFKA = ("drover.dataplane.kafka.reading", "drover.dataplane.kafka.staging")
_OF_EMBEDDED = ("drover.dataplane.embedded",)

#: With it pyspark raises the error of an output that is not read; it prints it otherwise.
_RAISE_FLUSH_FAILURES = "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"
_CONNECTION_LOST = 1

Work = Callable[[socket.socket, bool], int]


def ending_with_its_connection(work: Work) -> Work:
    """A worker's function that leaves no traceback when Spark has closed the connection.

    Spark closes that of a worker that was idle for a minute; the worker cannot flush its output
    then. This hides no error of user code: Spark's worker reports those through the connection.
    """

    def run(connection: socket.socket, authenticated: bool) -> int:
        try:
            return work(connection, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return _CONNECTION_LOST

    return run


def use_installed_pyspark() -> None:
    """Import pyspark from where it is installed, not from the archives that Spark puts before it.

    Python compiles each module of an archive at each start, and reads the archives' tables of
    contents again for each task.
    """
    archives = [each for each in sys.path if _is_of_spark(Path(each))]
    others = [each for each in sys.path if each not in archives]
    if all(PathFinder.find_spec(each, others) for each in ("pyspark", "py4j")):
        sys.path[:] = others
        for each in archives:
            sys.path_importer_cache.pop(each, None)


def _is_of_spark(path: Path) -> bool:
    return path.name == "pyspark.zip" or path.match("py4j-*-src.zip")


def manager() -> None:
    """Run pyspark's daemon.

    It imports the modules that batches need before it forks workers, which then share them.
    """
    use_installed_pyspark()
    pyspark_daemon: Any = importlib.import_module("pyspark.daemon")
    of_storage = _OF_KAFKA if os.environ.get(STORAGE_VARIABLE) == ON_KAFKA else _OF_EMBEDDED
    for module in (*_OF_BATCHES, *of_storage):
        importlib.import_module(module)
    # a worker runs the garbage collector after each task; skip these objects
    gc.freeze()
    log_lines.write_to_stderr_of_parent()
    log_lines.write_whole_lines()
    daemon_id = os.getpid()

    def become_worker() -> None:
        process_tree.die_with_parent()
        limit_data()
        if os.getppid() == daemon_id:
            # the JVM reads the daemon's port from the daemon's standard output
            os.dup2(2, 1)

    os.register_at_fork(after_in_child=become_worker)
    os.environ[_RAISE_FLUSH_FAILURES] = "1"
    pyspark_daemon.worker = ending_with_its_connection(pyspark_daemon.worker)
    pyspark_daemon.manager()


if __name__ == "__main__":
    manager()
