"""The memory of this worker's engines, from /proc: also of an engine that does not answer."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from drover_worker.engine import process_tree

_PROC = Path("/proc")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
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
class Process:
    """A process below the herder."""

    process_id: int
    parent_id: int
    command: bytes
    resident_bytes: int

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


class EngineMemoryProbe:
    """Measures the memory of the processes below this one; takes milliseconds."""

    def __init__(self) -> None:
        self._measured = EngineMemory()
        self._measured_s = -_CACHED_S

    def measure(self) -> EngineMemory:
        """The present memory, at most two seconds old."""
        now_s = time.monotonic()
        if now_s - self._measured_s >= _CACHED_S:
            self._measured, self._measured_s = memory_of(_below(os.getpid())), now_s
        return self._measured


def _below(root: int) -> list[Process]:
    parents = process_tree.parents()
    found = []
    for process_id in process_tree.descendants(root):
        folder = _PROC / str(process_id)
        try:
            command = (folder / "cmdline").read_bytes()
            pages = int((folder / "statm").read_text().split()[1])
        except (OSError, ValueError, IndexError):  # it has ended
            continue
        found.append(Process(process_id, parents.get(process_id, 0), command, pages * _PAGE_BYTES))
    return found
