"""Control groups for engines, in a copy of the kernel's files."""

import os
from pathlib import Path

import pytest

from drover_worker.shell.control_groups import ControlGroup, create_group

V1 = "4:memory:/pods/a\n3:cpu,cpuacct:/pods/a\n0::/\n"
V2 = "0::/user/worker\n"
NAME = "drover-engine-1"


class Kernel:
    """A file system with the files of ``files`` in each new group."""

    def __init__(self, root: Path, lines: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.proc, self.groups = root / "proc", root / "groups"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "self" / "cgroup").write_text(lines)
        self.files: dict[Path, list[str]] = {}
        made = Path.mkdir

        def mkdir(directory: Path, *args: object, **kwargs: object) -> None:
            made(directory, *args, **kwargs)  # type: ignore[arg-type]
            for name in self.files.get(directory.parent, ()):
                (directory / name).write_text("")

        self._mkdir = mkdir
        self._monkeypatch = monkeypatch

    def add(self, group: str, *files: str) -> Path:
        """A group that exists, below which new groups have ``files``."""
        directory = self.groups / group
        directory.mkdir(parents=True)
        (directory / "cgroup.procs").write_text("")
        self.files[directory] = ["cgroup.procs", *files] if files else []
        return directory

    def create(
        self, memory_bytes: int | None = None, cores: int | None = None
    ) -> ControlGroup | None:
        self._monkeypatch.setattr(Path, "mkdir", self._mkdir)
        return create_group(
            NAME, memory_bytes=memory_bytes, cores=cores, proc=self.proc, root=self.groups
        )


def test_the_first_version_has_a_directory_for_each_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel(tmp_path, V1, monkeypatch)
    memory = kernel.add("memory/pods/a", "memory.limit_in_bytes")
    cpu = kernel.add("cpu,cpuacct/pods/a", "cpu.cfs_period_us", "cpu.cfs_quota_us")
    group = kernel.create(1 << 30, 2)
    assert group is not None
    assert list(group.limits) == ["memory", "cores"]
    assert group.member_files() == [
        str(memory / NAME / "cgroup.procs"),
        str(cpu / NAME / "cgroup.procs"),
    ]
    assert (memory / NAME / "memory.limit_in_bytes").read_text() == "1073741824"
    assert (cpu / NAME / "cpu.cfs_quota_us").read_text() == "200000"


def test_the_second_version_has_one_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel(tmp_path, V2, monkeypatch)
    kernel.add("user/worker")  # it has processes, so it cannot limit groups below it
    user = kernel.groups / "user"
    (user / "cgroup.procs").write_text("")
    kernel.files[user] = ["cgroup.procs", "memory.max", "cpu.max"]
    group = kernel.create(1 << 30, 1)
    assert group is not None
    assert list(group.directories) == [user / NAME]
    assert (user / NAME / "memory.max").read_text() == "1073741824"
    assert (user / NAME / "cpu.max").read_text() == "100000 100000"
    assert not (user / "worker" / NAME).exists(), "no empty group is left behind"


def test_a_kernel_without_the_controllers_gives_no_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel(tmp_path, V2, monkeypatch)
    directory = kernel.add("user/worker")
    assert kernel.create(1 << 30, 1) is None
    assert list(directory.iterdir()) == [directory / "cgroup.procs"]


def test_an_engine_without_limits_gets_no_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel(tmp_path, V2, monkeypatch)
    kernel.add("user/worker", "memory.max", "cpu.max")
    assert kernel.create() is None


def test_a_group_limits_what_it_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(tmp_path, V2, monkeypatch)
    kernel.add("user/worker", "memory.max")
    group = kernel.create(1 << 30, 1)
    assert group is not None
    assert list(group.limits) == ["memory"]


def test_old_empty_groups_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(tmp_path, V2, monkeypatch)
    directory = kernel.add("user/worker", "memory.max")
    old, new, other = (directory / name for name in ("drover-engine-0", "drover-engine-2", "x-0"))
    for each in (old, new, other):
        each.mkdir()
    for each in (old, other):
        os.utime(each, (0, 0))
    assert kernel.create(1 << 30) is not None
    assert not old.exists()
    assert new.exists()
    assert other.exists()
