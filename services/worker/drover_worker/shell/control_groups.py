"""Control groups that limit the memory and the cores of one engine.

Both versions of the kernel's interface are used, if this worker may create groups: below its own
group or, with version 2, beside it. In version 2 a group with processes can have no limited groups
below, so the worker has to be in a group of a delegated one (in systemd ``Delegate=yes`` and
``DelegateSubgroup=worker``).
"""

import os
import select
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

_PROC = Path("/proc")
_ROOT = Path("/sys/fs/cgroup")
#: The period for which the limit of CPU time counts.
_CPU_PERIOD_US = 100_000
_MEMBERS = "cgroup.procs"
#: What a group can limit.
MEMORY, CORES = "memory", "cores"

#: Processes that were killed stay in their group for a moment.
_CHECK_INTERVAL_S = 0.01
#: Empty groups of this age were left behind by a worker that was killed.
_LEFTOVER_AGE_S = 60.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """The directories of a group, one in each hierarchy.

    Attributes:
        directories: Its directories; a process joins through each.
        limits: What is limited: MEMORY, CORES.
    """

    directories: Sequence[Path]
    limits: Sequence[str]

    def member_files(self) -> list[str]:
        """The files to which a process writes its id to join."""
        return [str(each / _MEMBERS) for each in self.directories]

    def remove(self, limit_s: float = 0.0) -> None:
        """Remove the group, within the limit once its processes have ended."""
        deadline_s = time.monotonic() + limit_s
        for directory in self.directories:
            while not _removed(directory) and time.monotonic() < deadline_s:
                select.select([], [], [], _CHECK_INTERVAL_S)


def create_group(
    name: str,
    *,
    memory_bytes: int | None,
    cores: int | None,
    proc: Path = _PROC,
    root: Path = _ROOT,
) -> ControlGroup | None:
    """Create a group below that of this process.

    Args:
        name: The name of the group's directories.
        memory_bytes: The limit for all its processes together; None for none.
        cores: The CPU time of this number of cores; None for no limit.
        proc: The mount point of proc.
        root: The mount point of the control groups.

    Returns:
        None if no limit is asked for, or if the kernel or the rights allow none.
    """
    wanted = [
        each
        for each in (
            (MEMORY, "memory", memory_bytes),
            (CORES, "cpu", cores),
        )
        if each[2] is not None
    ]
    directories: list[Path] = []
    limits: list[str] = []
    for what, controller, amount in wanted:
        for directory, files in _places(name, controller, amount or 0, proc, root):
            if _set_up(directory, files):
                if directory not in directories:
                    directories.append(directory)
                limits.append(what)
                break
    return ControlGroup(directories, limits) if directories else None


def _removed(directory: Path) -> bool:
    with suppress(OSError):
        directory.rmdir()
    return not directory.exists()


def _set_up(directory: Path, files: dict[str, str]) -> bool:
    """Create a directory and write its limits; False if that is not possible."""
    existed = directory.exists()
    try:
        if not existed:
            _remove_leftovers(directory)
            directory.mkdir()
        for file, value in files.items():
            with (directory / file).open("r+") as opened:  # never creates it
                opened.write(value)
        if not os.access(directory.parent / _MEMBERS, os.W_OK):
            raise PermissionError(f"no process may leave {directory.parent}")
    except OSError as error:
        log.debug("no control group can be used", directory=str(directory), why=str(error))
        if not existed:
            with suppress(OSError):
                directory.rmdir()
        return False
    return True


def _remove_leftovers(directory: Path) -> None:
    """Remove empty groups whose names begin like that of ``directory``."""
    newest_s = time.time() - _LEFTOVER_AGE_S
    prefix = directory.name.rpartition("-")[0]
    for each in directory.parent.glob(f"{prefix}-*") if prefix else ():
        with suppress(OSError):
            if each.stat().st_mtime < newest_s:
                each.rmdir()


def _places(
    name: str, controller: str, amount: int, proc: Path, root: Path
) -> list[tuple[Path, dict[str, str]]]:
    """Where the group may be created, with the files of its limits; version 2 first."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return []
    found: list[tuple[int, Path, dict[str, str]]] = []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            files = (
                {"memory.max": str(amount)}
                if controller == "memory"
                else {"cpu.max": f"{amount * _CPU_PERIOD_US} {_CPU_PERIOD_US}"}
            )
            own = root / group.lstrip("/")
            found.append((2, own / name, files))
            if own != root:
                found.append((2, own.parent / name, files))
        elif controller in controllers.split(","):
            files = (
                {"memory.limit_in_bytes": str(amount)}
                if controller == "memory"
                else {
                    "cpu.cfs_period_us": str(_CPU_PERIOD_US),
                    "cpu.cfs_quota_us": str(amount * _CPU_PERIOD_US),
                }
            )
            found.append((1, root / controllers / group.lstrip("/") / name, files))
    found.sort(key=lambda each: -each[0])
    return [(directory, files) for _, directory, files in found]
