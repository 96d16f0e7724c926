"""The parent of Spark's Python workers (spark.python.daemon.module), for local masters.

Pyspark's own daemon, whose workers die with it: a worker that runs user code does not look at its
parent, so it would outlive a JVM that was killed. The daemon itself ends when the JVM's end of its
standard input closes. What workers print and log goes straight into the engine's log, line by line.
"""

import gc
import importlib
import os
from typing import Any

from pyspark import daemon

from drover_worker.engine import log_lines, process_tree

_OF_BATCHES = (
    "pandas",  # which pyspark wants for every Arrow function
    "drover.dataplane.embedded",
    "drover.dataplane.kafka.reading",
    "drover.dataplane.kafka.staging",
)


def manager() -> None:
    """Run pyspark's daemon.

    It has loaded what batches need, so that each worker, a fork of it, does not have to.
    """
    for module in _OF_BATCHES:
        importlib.import_module(module)
    # a worker looks for cycles after every task, which would be through all of these each time
    gc.freeze()
    log_lines.write_to_stderr_of_parent()
    log_lines.write_whole_lines()
    daemon_id = os.getpid()

    def become_worker() -> None:
        process_tree.die_with_parent()
        if os.getppid() == daemon_id:
            # the JVM reads the daemon's standard output, and learns the daemon's port from it
            os.dup2(2, 1)

    os.register_at_fork(after_in_child=become_worker)
    run: Any = daemon.manager
    run()


if __name__ == "__main__":
    manager()
