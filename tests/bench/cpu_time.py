"""How much CPU the processes below this one take, by what they are: it says more than seconds on a
machine that is shared.
"""

import os
from collections import defaultdict
from collections.abc import Mapping

import psutil

from drover.cli.process import descendants

#: By what their command lines have; the first that fits.
_KINDS = (
    ("ConnectDistributed", "Kafka Connect"),
    ("kafka.Kafka", "broker"),
    ("pyspark-shell", "Spark's JVM"),
    ("engine.python_daemon", "Python workers"),
    ("drover_worker.engine", "engine"),
    ("drover_worker", "herder"),
    ("drover_", "other services"),
)


def kind_of(command: str) -> str:
    """What a process is, of those that are measured."""
    return next((kind for part, kind in _KINDS if part in command), "other")


class CpuTimes:
    """Seconds of CPU since this was made, of processes that are still there."""

    def __init__(self) -> None:
        self._before = _seconds()

    def by_kind(self) -> Mapping[str, float]:
        """Since then; what a process that came meanwhile has taken counts as well."""
        taken: dict[str, float] = defaultdict(float)
        for each, (kind, seconds) in _seconds().items():
            taken[kind] += seconds - self._before.get(each, (kind, 0.0))[1]
        return taken


def _seconds() -> dict[psutil.Process, tuple[str, float]]:
    found = {}
    for process in descendants(os.getpid()):
        try:
            times = process.cpu_times()
            found[process] = (kind_of(" ".join(process.cmdline())), times.user + times.system)
        except psutil.Error:
            continue
    return found
