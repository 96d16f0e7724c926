"""``python -m drover_worker.engine.bound_exec PARENT_PID COMMAND...``: execs COMMAND with a
parent-death signal set.

The engine starts the JVM through this program because no Python code may run between fork and exec
in the engine: its other threads may hold locks.
"""

import os
import signal
import sys

from drover_worker.engine import process_tree
from drover_worker.engine.data_limit import unlimit_data
from drover_worker.engine.process_constants import ExitCode


def main() -> None:
    """Execute the command; exits with ORPHANED when the parent has already ended."""
    parent, *command = sys.argv[1:]
    process_tree.die_with_parent()
    if os.getppid() != int(parent):
        sys.exit(ExitCode.ORPHANED)
    # on Ctrl-C the engine stops the JVM
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    unlimit_data()
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
