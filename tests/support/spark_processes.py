"""Processes of Spark, and of clusters for it."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from tests.support.addresses import HOST
from tests.support.child_process import ChildProcess

_EXECUTOR = "CoarseGrainedExecutorBackend"


def process_apart(
    directory: Path, command: Sequence[str], *, java: Path, environment: Mapping[str, str]
) -> ChildProcess:
    """A process that knows nothing of Drover: with its own directory, which does not exist yet, and
    with nothing in its environment but Java, Python without packages, and ``environment``.
    """
    directory.mkdir()
    # the interpreter without the packages of its virtual environment
    pythons = Path(os.path.realpath(sys.executable)).parent
    variables = {
        "PATH": f"{pythons}:/usr/bin:/bin",
        "JAVA_HOME": str(java.resolve().parents[1]),
        **environment,
    }
    apart = [shutil.which("env") or "env", "-i", "-C", str(directory)]
    apart += [f"{name}={value}" for name, value in variables.items()]
    return ChildProcess(directory.name, [*apart, *command], log_path=directory / "log")


def packed_executors(archive: Path) -> dict[str, str]:
    """Spark's settings for executors on this machine that have only Drover's archive."""
    return {
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.archives": f"{archive}#drover",
    }


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
