"""The parent of Spark's Python workers (spark.python.daemon.module), for local masters.

Pyspark's own daemon, whose workers die with it: a worker that runs user code does not look at its
parent, so it would outlive a JVM that was killed. The daemon itself ends when the JVM's end of its
standard input closes.
"""

import importlib
import os
from typing import Any

from pyspark import daemon

from drover_worker.engine import process_tree


def manager() -> None:
    """Run pyspark's daemon.

    It has loaded what batches need, so that each worker, a fork of it, does not have to.
    """
    importlib.import_module("pandas")  # which pyspark wants for every Arrow function
    importlib.import_module("drover.dataplane.embedded")
    os.register_at_fork(after_in_child=process_tree.die_with_parent)
    run: Any = daemon.manager
    run()


if __name__ == "__main__":
    manager()
