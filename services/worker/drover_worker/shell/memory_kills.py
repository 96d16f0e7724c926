"""Detects processes that the kernel killed for lack of memory, and the memory limit."""

from pathlib import Path

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
#: Cgroups version 1 shows a number near 2**63 for no limit.
_NO_LIMIT_BYTES = 1 << 60
_KIB = 1024


def memory_kill_count(proc: Path = _PROC) -> int:
    """How many processes of this machine the kernel has killed for lack of memory since boot.

    Counts both the machine's limit and control groups; 0 if the kernel does not report it.
    """
    try:
        lines = (proc / "vmstat").read_text().splitlines()
    except OSError:
        return 0
    found = dict(line.split(maxsplit=1) for line in lines)
    return int(found.get("oom_kill", 0))


def memory_limit_bytes(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int | None:
    """The memory limit of this process's control group or machine; None if unknown."""
    found = []
    for path in _cgroup_limits(proc, cgroups):
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text.isdigit() and int(text) < _NO_LIMIT_BYTES:
            found.append(int(text))
    try:
        meminfo = (proc / "meminfo").read_text()
        found.append(int(meminfo.split("MemTotal:", 1)[1].split()[0]) * _KIB)
    except (OSError, IndexError, ValueError):
        pass
    return min(found, default=None)


def _cgroup_limits(proc: Path, cgroups: Path) -> list[Path]:
    """Files that may contain the limits of this process's control group and its parents."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return []
    files = []
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers in ("", "memory"):
            root, limit = cgroups / controllers, "memory.max"
            if controllers:
                limit = "memory.limit_in_bytes"
            group = root / name.lstrip("/")
            above = [each for each in (group, *group.parents) if each.is_relative_to(root)]
            files += [each / limit for each in above]
    return files
