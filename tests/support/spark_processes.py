"""Processes of Spark."""

from pathlib import Path

import psutil

_EXECUTOR = "CoarseGrainedExecutorBackend"


def executors_below(ancestor: psutil.Process) -> list[psutil.Process]:
    """The executors of remote masters that the process, or one that it started, runs."""
    return [each for each in ancestor.children(recursive=True) if _is_executor(each)]


def _is_executor(process: psutil.Process) -> bool:
    try:
        # YARN starts them by a shell, whose command contains the name too
        program, *arguments = process.cmdline() or [""]
        return Path(program).name == "java" and any(_EXECUTOR in each for each in arguments)
    except psutil.Error:
        return False  # it ended
