"""How much CPU the processes below this one take, by what they are: it says more than seconds on a
machine that is shared.
"""

import os
from collections import defaultdict
from collections.abc import Mapping

import psutil

from drover.local.process import descendants

#: By what their command lines have; the first that fits.
_KINDS = (
    ("ConnectDistributed", "Kafka Connect"),
    ("kafka.Kafka", "broker"),
    ("pyspark-shell", "Spark's JVM"),
    ("engine.python_daemon", "Python workers"),
    ("drover_worker.engine", "engine"),
    ("drover_worker", "herder"),
    ("drover_", "other services"),
    ("postgres", "PostgreSQL"),
)


def kind_of(command: str) -> str:
    """What a process is, of those that are measured."""
    return next((kind for part, kind in _KINDS if part in command), "other")


class CpuTimes:
    """Seconds of CPU since this was made; those of a process that ended are its parent's."""

    def __init__(self) -> None:
        self._before = _seconds()

    def by_kind(self) -> Mapping[str, float]:
        """Since then; what a process that came meanwhile has taken counts as well."""
        taken: dict[str, float] = defaultdict(float)
        now = _seconds()
        for each, (kind, seconds) in now.items():
            taken[kind] += seconds - self._before.get(each, (kind, 0.0))[1]
        for kind, seconds in (self._before[each] for each in self._before.keys() - now.keys()):
            taken[kind] -= seconds  # its parent has all of it
        return taken


def _seconds() -> dict[psutil.Process, tuple[str, float]]:
    found = {}
    for process in descendants(os.getpid()):
        try:
            times = process.cpu_times()
            # a server with a process for each connection has most in those that ended
            ended = times.children_user + times.children_system
            taken = times.user + times.system + ended
            found[process] = (kind_of(" ".join(process.cmdline())), taken)
        except psutil.Error:
            continue
    return found
