"""A control group with little memory, for tests in which the kernel kills processes."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.waiting import wait_until

_ROOT = Path("/sys/fs/cgroup")
#: The folder of a hierarchy with a memory controller, and its limit file.
_KINDS = ((_ROOT / "memory", "memory.limit_in_bytes"), (_ROOT, "memory.max"))


class MemoryGroup:
    """The kernel kills members that together exceed the limit."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def add(self, process_ids: Iterable[int]) -> None:
        """Add processes; their future children belong to the group too."""
        for process_id in process_ids:
            (self._directory / "cgroup.procs").write_text(str(process_id))


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[MemoryGroup]:
    """A temporary memory group, removed when it is empty; skips where none can be created."""
    directory = _made(limit_bytes)
    if directory is None:
        pytest.skip("no control group of memory can be made here")
    try:
        yield MemoryGroup(directory)
    finally:
        wait_until(lambda: _removed(directory), describe=f"nothing runs in {directory}")


def _made(limit_bytes: int) -> Path | None:
    for root, limit in _KINDS:
        directory = root / f"drover-test-{os.getpid()}"
        with suppress(OSError):
            directory.mkdir()
            try:
                (directory / limit).write_text(str(limit_bytes))
            except OSError:
                directory.rmdir()
                raise
            return directory
    return None


def _removed(directory: Path) -> bool:
    with suppress(OSError):
        directory.rmdir()
    return not directory.exists()
