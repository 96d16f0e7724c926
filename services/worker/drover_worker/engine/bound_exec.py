"""``python -m drover_worker.engine.bound_exec PARENT_PID COMMAND...``: become the command, bound
to die with the parent.

Starting the JVM through this program needs no code between fork and exec of the engine, where other
threads may hold any lock.
"""

import os
import signal
import sys

from drover_worker.engine import process_tree
from drover_worker.engine.settings import ExitCode


def main() -> None:
    """Execute the command; ends as ORPHANED when the parent is gone already."""
    parent, *command = sys.argv[1:]
    process_tree.die_with_parent()
    if os.getppid() != int(parent):
        sys.exit(ExitCode.ORPHANED)
    # the engine decides when a Ctrl-C ends the JVM
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
