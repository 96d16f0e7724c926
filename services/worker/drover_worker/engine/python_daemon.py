"""The parent of Spark's Python workers (spark.python.daemon.module), for local masters.

It is pyspark's daemon with a parent-death signal in each worker: a worker that runs user code does
not check its parent, so it would outlive a killed JVM. The daemon ends when the JVM closes the
daemon's standard input. Workers write their output and logs to the engine's log, line by line.
"""

import gc
import importlib
import os
from typing import Any

from pyspark import daemon

from drover_worker.engine import log_lines, process_tree
from drover_worker.engine.data_limit import limit_data

_OF_BATCHES = (
    "pandas",  # pyspark imports it for every Arrow function
    "drover.dataplane.embedded",
    "drover.dataplane.kafka.reading",
    "drover.dataplane.kafka.staging",
)


def manager() -> None:
    """Run pyspark's daemon.

    It imports the modules that batches need before it forks workers, which then share them.
    """
    for module in _OF_BATCHES:
        importlib.import_module(module)
    # a worker runs the garbage collector after each task; skip these objects
    gc.freeze()
    log_lines.write_to_stderr_of_parent()
    log_lines.write_whole_lines()
    log_lines.drop_lost_pipes()
    daemon_id = os.getpid()

    def become_worker() -> None:
        process_tree.die_with_parent()
        limit_data()
        if os.getppid() == daemon_id:
            # the JVM reads the daemon's port from the daemon's standard output
            os.dup2(2, 1)

    os.register_at_fork(after_in_child=become_worker)
    run: Any = daemon.manager
    run()


if __name__ == "__main__":
    manager()
