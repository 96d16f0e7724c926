"""Control groups that limit the memory and the cores of one engine.

Both versions of the kernel's interface are used, if this worker may create groups: below its own
group or, with version 2, beside it. In version 2 a group whose processes are in it cannot limit
groups below. If only this worker and its processes are in its group (in systemd: a service with
``Delegate=yes``), they move to the group ``drover-worker`` below it.

See "No Internal Process Constraint" in the kernel's Documentation/admin-guide/cgroup-v2.rst.
"""

import errno
import os
import select
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from drover_worker.engine import process_tree

_PROC = Path("/proc")
_ROOT = Path("/sys/fs/cgroup")
#: The period for which the limit of CPU time counts.
_CPU_PERIOD_US = 100_000
_MEMBERS = "cgroup.procs"
#: The controllers that limit groups below, in version 2.
_ENABLED = "cgroup.subtree_control"
#: The group of the worker's own processes, in version 2.
_OWN_PROCESSES = "drover-worker"
#: What a group can limit.
MEMORY, CORES = "memory", "cores"

#: How often processes that have just started are moved too.
_VACATE_TRIES = 10
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


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a group may be created.

    Attributes:
        directory: Its directory.
        files: The files of its limits, with their contents.
        swap_files: Files that limit swap, if the kernel has them.
        enable: The controller that its parent has to enable; empty with version 1.
    """

    directory: Path
    files: Mapping[str, str]
    swap_files: Mapping[str, str]
    enable: str = ""


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
    unified: Path | None = None
    for what, controller, amount in wanted:
        for place in _places(name, controller, amount or 0, proc, root):
            if place.enable and unified not in (None, place.directory):
                continue  # a process is in one group of version 2 only
            if _set_up(place):
                if place.directory not in directories:
                    directories.append(place.directory)
                if place.enable:
                    unified = place.directory
                limits.append(what)
                break
    return ControlGroup(directories, limits) if directories else None


def _removed(directory: Path) -> bool:
    with suppress(OSError):
        directory.rmdir()
    return not directory.exists()


def _set_up(place: _Place) -> bool:
    """Create a directory and write its limits; False if that is not possible."""
    directory = place.directory
    existed = directory.exists()
    try:
        if place.enable:
            _enable(place.enable, directory.parent)
        if not existed:
            _remove_leftovers(directory)
            directory.mkdir()
        for file, value in place.files.items():
            _write(directory / file, value)
        for file, value in place.swap_files.items():
            with suppress(OSError):  # the kernel may not count swap
                _write(directory / file, value)
        if not os.access(directory.parent / _MEMBERS, os.W_OK):
            raise PermissionError(f"no process may leave {directory.parent}")
    except OSError as error:
        log.debug("no control group can be used", directory=str(directory), why=str(error))
        if not existed:
            with suppress(OSError):
                directory.rmdir()
        return False
    return True


def _write(file: Path, value: str) -> None:
    with file.open("r+") as opened:  # never creates it
        opened.write(value)


def _enable(controller: str, parent: Path) -> None:
    """Let the groups below ``parent`` have a controller's limits.

    Raises:
        OSError: Processes of others are in ``parent``, or this one has not the rights.
    """
    enabled = parent / _ENABLED
    if controller in enabled.read_text().split():
        return
    try:
        _write(enabled, f"+{controller}")
    except OSError as error:
        if error.errno != errno.EBUSY or not _vacate(parent):
            raise
        _write(enabled, f"+{controller}")


def _vacate(group: Path) -> bool:
    """Move all processes of a group to a group below it, if this worker started all of them."""
    below = group / _OWN_PROCESSES
    for _ in range(_VACATE_TRIES):  # a process may start another one before it is moved
        members = [int(each) for each in (group / _MEMBERS).read_text().split()]
        if not members:
            return True
        if not {os.getpid(), *process_tree.descendants(os.getpid())}.issuperset(members):
            return False
        below.mkdir(exist_ok=True)
        for process_id in members:
            with suppress(ProcessLookupError):
                _write(below / _MEMBERS, str(process_id))
    return False


def _remove_leftovers(directory: Path) -> None:
    """Remove empty groups whose names begin like that of ``directory``."""
    newest_s = time.time() - _LEFTOVER_AGE_S
    prefix = directory.name.rpartition("-")[0]
    for each in directory.parent.glob(f"{prefix}-*") if prefix else ():
        with suppress(OSError):
            if each.stat().st_mtime < newest_s:
                each.rmdir()


def _places(name: str, controller: str, amount: int, proc: Path, root: Path) -> list[_Place]:
    """Where the group may be created; version 2 first."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return []
    second: list[_Place] = []
    first: list[_Place] = []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            own = root / group.lstrip("/")
            parents = [] if own.name == _OWN_PROCESSES else [own]
            if own != root:
                parents.append(own.parent)
            limits = _limits_of_second(controller, amount)
            second += [_Place(parent / name, *limits, controller) for parent in parents]
        elif controller in controllers.split(","):
            directory = root / controllers / group.lstrip("/") / name
            first.append(_Place(directory, *_limits_of_first(controller, amount)))
    return second + first


def _limits_of_second(controller: str, amount: int) -> tuple[Mapping[str, str], Mapping[str, str]]:
    if controller == "memory":
        return {"memory.max": str(amount)}, {"memory.swap.max": "0"}
    return {"cpu.max": f"{amount * _CPU_PERIOD_US} {_CPU_PERIOD_US}"}, {}


def _limits_of_first(controller: str, amount: int) -> tuple[Mapping[str, str], Mapping[str, str]]:
    if controller == "memory":
        # the second one is for memory and swap together
        return {"memory.limit_in_bytes": str(amount)}, {"memory.memsw.limit_in_bytes": str(amount)}
    files = {
        "cpu.cfs_period_us": str(_CPU_PERIOD_US),
        "cpu.cfs_quota_us": str(amount * _CPU_PERIOD_US),
    }
    return files, {}
