"""CPU time of this process's descendants by kind; less affected by a shared machine than elapsed
time.
"""

import os
from collections import defaultdict
from collections.abc import Mapping

import psutil

from drover.local.process import descendants

#: The first entry whose text occurs in the command line names the kind.
_KINDS = (
    ("io.drover.host.Main", "Java plugins"),
    ("ConnectDistributed", "Kafka Connect"),
    ("kafka.Kafka", "broker"),
    ("pyspark-shell", "Spark's JVM"),
    ("CoarseGrainedExecutorBackend", "executors"),
    ("engine.python_daemon", "Python workers"),
    ("drover_worker.engine", "engine"),
    ("drover_worker", "herder"),
    ("drover_", "other services"),
    ("postgres", "PostgreSQL"),
)


def kind_of(command: str) -> str:
    """The kind of a process, by its command line."""
    return next((kind for part, kind in _KINDS if part in command), "other")


class CpuTimes:
    """CPU seconds since construction; the time of an ended process counts for its parent."""

    def __init__(self) -> None:
        self._before = _seconds()

    def by_kind(self) -> Mapping[str, float]:
        """CPU seconds since construction, including processes started later."""
        taken: dict[str, float] = defaultdict(float)
        now = _seconds()
        for each, (kind, seconds) in now.items():
            taken[kind] += seconds - self._before.get(each, (kind, 0.0))[1]
        for kind, seconds in (self._before[each] for each in self._before.keys() - now.keys()):
            taken[kind] -= seconds  # the parent's time contains it
        return taken


def _seconds() -> dict[psutil.Process, tuple[str, float]]:
    found = {}
    for process in descendants(os.getpid()):
        try:
            times = process.cpu_times()
            # a server with a process per connection (PostgreSQL) spends most time in children that
            # ended
            ended = times.children_user + times.children_system
            taken = times.user + times.system + ended
            found[process] = (kind_of(" ".join(process.cmdline())), taken)
        except psutil.Error:
            continue
    return found
