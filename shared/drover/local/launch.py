"""Runs a program that the kernel kills with its supervisor: ``launch.py PARENT PROGRAM…``.

It sets the kernel's parent-death signal, which survives the exec: when the supervisor is killed,
its children are killed too. This is a script and not a ``preexec_fn``, because running Python code
after a fork is unsafe in a process with gRPC threads.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> None:
    """Set the signal, check that the supervisor still runs, and exec."""
    parent, program = int(argv[0]), argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(f"the supervisor {parent} is gone")
    os.execv(program[0], program)


if __name__ == "__main__":
    main(sys.argv[1:])
