"""Becomes a program that dies with its supervisor; run as a script: ``launch.py PARENT PROGRAM…``.

The kernel's parent-death signal is set here and survives the exec, so that a supervisor that was
killed leaves nothing behind. A program of its own rather than a ``preexec_fn``, because forking
Python code in a process with gRPC threads is not safe.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> None:
    """Set the signal, look whether the supervisor is still there, and exec."""
    parent, program = int(argv[0]), argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(f"the supervisor {parent} is gone")
    os.execv(program[0], program)


if __name__ == "__main__":
    main(sys.argv[1:])
