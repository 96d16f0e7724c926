"""Control groups for engines, in a copy of the kernel's files."""

import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drover_worker.shell.control_groups import ControlGroup, create_group

V1 = "4:memory:/pods/a\n3:cpu,cpuacct:/pods/a\n0::/\n"
V2 = "0::/user/worker\n"
NAME = "drover-engine-1"


class KernelFile(io.StringIO):
    """A file that refuses or obeys what is written, as the kernel does."""

    def __init__(self, obey: Callable[[str], None]) -> None:
        super().__init__()
        self._obey = obey

    def write(self, text: str) -> int:
        self._obey(text)
        return len(text)


class Kernel:
    """A file system with the files of ``files`` in each new group.

    In version 2, ``files`` also follow from the controllers that the parent enables.
    """

    def __init__(self, root: Path, lines: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.proc, self.groups = root / "proc", root / "groups"
        (self.proc / "self").mkdir(parents=True)
        self._group_file = self.proc / "self" / "cgroup"
        self._group_file.write_text(lines)
        self.files: dict[Path, list[str]] = {}
        self.counts_swap = True
        self._made, self._opened = Path.mkdir, Path.open
        self._monkeypatch = monkeypatch

    def add(self, group: str, *files: str) -> Path:
        """A group that exists, below which new groups have ``files``."""
        directory = self.groups / group
        directory.mkdir(parents=True)
        (directory / "cgroup.procs").write_text("")
        self.files[directory] = ["cgroup.procs", *files] if files else []
        return directory

    def add_unified(self, group: str, *controllers: str, members: str = "") -> Path:
        """A group of version 2 with controllers to enable, and with processes."""
        directory = self.groups / group
        directory.mkdir(parents=True)
        (directory / "cgroup.procs").write_text(members)
        (directory / "cgroup.controllers").write_text(" ".join(controllers))
        (directory / "cgroup.subtree_control").write_text("")
        return directory

    def create(
        self, memory_bytes: int | None = None, cores: int | None = None
    ) -> ControlGroup | None:
        kernel = self
        with self._monkeypatch.context() as patched:
            patched.setattr(Path, "mkdir", lambda *args, **kwargs: kernel._mkdir(*args, **kwargs))
            patched.setattr(Path, "open", lambda *args, **kwargs: kernel._open(*args, **kwargs))
            return create_group(
                NAME, memory_bytes=memory_bytes, cores=cores, proc=self.proc, root=self.groups
            )

    def _mkdir(self, directory: Path, *args: object, **kwargs: object) -> None:
        self._made(directory, *args, **kwargs)  # type: ignore[arg-type]
        for name in self.files.get(directory.parent, ()):
            (directory / name).write_text("")
        enabled = directory.parent / "cgroup.subtree_control"
        if enabled.exists():
            controllers = enabled.read_text()
            (directory / "cgroup.procs").write_text("")
            (directory / "cgroup.subtree_control").write_text("")
            self._add_controllers(directory, controllers)

    def _add_controllers(self, group: Path, controllers: str) -> None:
        (group / "cgroup.controllers").write_text(controllers)
        for controller in controllers.split():
            files = {"memory": ["memory.max"], "cpu": ["cpu.max"]}[controller]
            if controller == "memory" and self.counts_swap:
                files.append("memory.swap.max")
            for name in files:
                (group / name).touch()

    def _open(self, path: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        group = path.parent
        if mode == "r+" and (group / "cgroup.subtree_control").exists():
            if path.name == "cgroup.subtree_control":
                return KernelFile(lambda text: self._enable(group, text))
            if path.name == "cgroup.procs":
                return KernelFile(lambda text: self._move(group, text))
        return self._opened(path, mode, *args, **kwargs)

    def _enable(self, group: Path, text: str) -> None:
        controller = text.removeprefix("+")
        if controller not in (group / "cgroup.controllers").read_text().split():
            raise OSError(errno.ENOENT, "no such controller")
        if (group / "cgroup.procs").read_text():
            raise OSError(errno.EBUSY, "processes are in the group")
        file = group / "cgroup.subtree_control"
        file.write_text(f"{file.read_text()} {controller}")
        for below in group.glob("*/cgroup.subtree_control"):
            self._add_controllers(below.parent, file.read_text())

    def _move(self, group: Path, text: str) -> None:
        for file in self.groups.rglob("cgroup.procs"):
            file.write_text("\n".join(each for each in file.read_text().split() if each != text))
        file = group / "cgroup.procs"
        file.write_text(f"{file.read_text()}\n{text}".lstrip())
        if int(text) == os.getpid():
            self._group_file.write_text(f"0::/{group.relative_to(self.groups)}\n")


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


def test_a_worker_alone_in_a_delegated_group_limits_groups_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel(tmp_path, V2, monkeypatch)
    kernel.add_unified("user", "memory", "cpu", members="1")
    worker = kernel.add_unified("user/worker", "memory", "cpu", members=str(os.getpid()))
    for _ in range(2):  # the second engine
        group = kernel.create(1 << 30, 1)
        assert group is not None
        assert list(group.limits) == ["memory", "cores"]
        assert list(group.directories) == [worker / NAME]
        assert (worker / NAME / "memory.max").read_text() == "1073741824"
        assert (worker / NAME / "cpu.max").read_text() == "100000 100000"
        assert (worker / "drover-worker" / "cgroup.procs").read_text() == str(os.getpid())


def test_processes_of_others_are_not_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(tmp_path, V2, monkeypatch)
    members = f"1\n{os.getpid()}"
    user = kernel.add_unified("user", "memory", "cpu")
    worker = kernel.add_unified("user/worker", "memory", "cpu", members=members)
    group = kernel.create(1 << 30, 1)
    assert group is not None
    assert list(group.directories) == [user / NAME], "beside the worker's group"
    assert (worker / "cgroup.procs").read_text() == members


@pytest.mark.parametrize("counts_swap", [True, False])
def test_an_engine_does_not_swap_beyond_its_memory(
    counts_swap: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel(tmp_path, V2, monkeypatch)
    kernel.counts_swap = counts_swap
    worker = kernel.add_unified("user/worker", "memory", "cpu")
    group = kernel.create(1 << 30, 1)
    assert group is not None
    assert list(group.limits) == ["memory", "cores"]
    swap = worker / NAME / "memory.swap.max"
    assert (swap.read_text() if swap.exists() else "0") == "0"
    assert swap.exists() is counts_swap


def test_all_limits_of_the_second_version_are_of_one_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel(tmp_path, V2, monkeypatch)
    kernel.add_unified("user", "memory", "cpu")
    worker = kernel.add_unified("user/worker", "memory", members=str(os.getpid()))
    group = kernel.create(1 << 30, 1)
    assert group is not None
    assert list(group.directories) == [worker / NAME]
    assert list(group.limits) == ["memory"], "the group cannot limit cores"


def test_nothing_is_left_behind_where_no_controller_can_be_enabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel(tmp_path, V2, monkeypatch)
    kernel.add_unified("user", members="1")
    kernel.add_unified("user/worker", members=str(os.getpid()))
    assert kernel.create(1 << 30, 1) is None
    assert not list(kernel.groups.rglob("drover-*"))


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
    kernel.add_unified("user/worker", "memory", "cpu")
    assert kernel.create() is None


def test_a_group_limits_what_it_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(tmp_path, V2, monkeypatch)
    kernel.add_unified("user/worker", "memory")
    group = kernel.create(1 << 30, 1)
    assert group is not None
    assert list(group.limits) == ["memory"]


def test_old_empty_groups_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(tmp_path, V2, monkeypatch)
    directory = kernel.add_unified("user/worker", "memory")
    old, new, other = (directory / name for name in ("drover-engine-0", "drover-engine-2", "x-0"))
    for each in (old, new, other):
        each.mkdir()
    for each in (old, other):
        os.utime(each, (0, 0))
    assert kernel.create(1 << 30) is not None
    assert not old.exists()
    assert new.exists()
    assert other.exists()
