"""What this worker and its engines use, from /proc: also an engine that does not answer."""

import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

from drover_worker.engine import process_tree

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICK_MS = 1_000 / os.sysconf("SC_CLK_TCK")
_ENGINE_MODULE = b"drover_worker.engine.process"
#: Within this time the last measurement is returned again.
_CACHED_S = 2.0


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """Resident memory in bytes. Pages that processes share are counted in each of them.

    Attributes:
        engine_bytes: The Python processes in which connectors and the drivers of tasks run.
        jvm_bytes: Spark's JVMs.
        python_workers_bytes: Spark's Python workers and all other processes of the engines.
        python_workers_count: The number of these processes.
    """

    engine_bytes: int = 0
    jvm_bytes: int = 0
    python_workers_bytes: int = 0
    python_workers_count: int = 0


@dataclass(frozen=True, slots=True)
class WorkerUsage:
    """What the worker and its engines use.

    Attributes:
        engine_memory: The memory of the engines.
        worker_bytes: Resident memory of the worker's own process.
        cpu_ms: The CPU time of all processes, also of the ones that have ended.
        uptime_ms: The time since the worker started.
        core_count: The number of cores that they may use.
    """

    engine_memory: EngineMemory
    worker_bytes: int
    cpu_ms: int
    uptime_ms: int
    core_count: int


@dataclass(frozen=True, slots=True)
class Process:
    """A process below the herder; ``cpu_ms`` includes its children that have ended."""

    process_id: int
    parent_id: int
    command: bytes
    resident_bytes: int
    cpu_ms: int = 0

    @property
    def is_engine(self) -> bool:
        """Whether it is an engine or a fork of one; its guard has the engine's command too."""
        _, _, rest = self.command.partition(b"\0-m\0")
        return rest.partition(b"\0")[0] == _ENGINE_MODULE

    @property
    def is_jvm(self) -> bool:
        """Whether it is a Java virtual machine."""
        return self.command.split(b"\0")[0].rpartition(b"/")[2] == b"java"


def memory_of(processes: list[Process]) -> EngineMemory:
    """The memory of the processes of engines, by kind.

    An engine's fork has the same command line as the engine, and counts as another process.
    """
    engines = {each.process_id for each in processes if each.is_engine}
    mains = [p for p in processes if p.process_id in engines and p.parent_id not in engines]
    jvms = [each for each in processes if each.is_jvm]
    counted = {each.process_id for each in (*mains, *jvms)}
    others = [each for each in processes if each.process_id not in counted]
    return EngineMemory(
        engine_bytes=sum(each.resident_bytes for each in mains),
        jvm_bytes=sum(each.resident_bytes for each in jvms),
        python_workers_bytes=sum(each.resident_bytes for each in others),
        python_workers_count=len(others),
    )


class WorkerProcesses:
    """Measures this process and the processes below it; takes milliseconds."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._measured: WorkerUsage | None = None
        self._measured_s = 0.0

    def usage(self) -> WorkerUsage:
        """The present usage, at most two seconds old."""
        now_s = time.monotonic()
        if self._measured is None or now_s - self._measured_s >= _CACHED_S:
            self._measured, self._measured_s = self._measure(now_s), now_s
        return self._measured

    def _measure(self, now_s: float) -> WorkerUsage:
        below = _below(os.getpid())
        own = os.times()
        own_ms = 1_000 * (own.user + own.system + own.children_user + own.children_system)
        return WorkerUsage(
            engine_memory=memory_of(below),
            worker_bytes=_resident_bytes(_PROC / "self"),
            cpu_ms=round(own_ms) + sum(each.cpu_ms for each in below),
            uptime_ms=round(1_000 * (now_s - self._began_s)),
            core_count=usable_core_count(),
        )


def usable_core_count(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int:
    """The cores that this process may use: of its affinity and of its control group's limits.

    A container with a limit sees all cores of its machine otherwise.
    """
    counts = [len(os.sched_getaffinity(0))]
    for folder in _control_groups(proc, cgroups):
        try:
            quota, period = (folder / "cpu.max").read_text().split()
            if quota != "max":
                counts.append(max(math.ceil(int(quota) / int(period)), 1))
        except (OSError, ValueError, ZeroDivisionError):
            continue
    return min(counts)


def _control_groups(proc: Path, cgroups: Path) -> list[Path]:
    """The folders of this process's control group and of its parents."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return []
    (path, *_) = [*(line.removeprefix("0::/") for line in lines if line.startswith("0::/")), ""]
    parts = Path(path).parts
    return [cgroups.joinpath(*parts[:count]) for count in range(len(parts) + 1)]


def _below(root: int) -> list[Process]:
    parents = process_tree.parents()
    found = []
    for process_id in process_tree.descendants(root):
        folder = _PROC / str(process_id)
        try:
            process = Process(
                process_id,
                parents.get(process_id, 0),
                (folder / "cmdline").read_bytes(),
                _resident_bytes(folder),
                _cpu_ms(folder),
            )
        except (OSError, ValueError, IndexError):  # it has ended
            continue
        found.append(process)
    return found


def _resident_bytes(folder: Path) -> int:
    return int((folder / "statm").read_text().split()[1]) * _PAGE_BYTES


def _cpu_ms(folder: Path) -> int:
    """The CPU time of a process and of its children that have ended, from ``stat`` (proc(5))."""
    # the name in brackets may contain anything; the fields follow the last bracket
    fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
    return round(sum(map(int, fields[11:15])) * _TICK_MS)
