"""Processes of Spark."""

import psutil

_EXECUTOR = "CoarseGrainedExecutorBackend"


def executors_below(ancestor: psutil.Process) -> list[psutil.Process]:
    """The executors of remote masters that the process, or one that it started, runs."""
    return [each for each in ancestor.children(recursive=True) if _is_executor(each)]


def _is_executor(process: psutil.Process) -> bool:
    try:
        return any(_EXECUTOR in each for each in process.cmdline())
    except psutil.Error:
        return False  # it ended
