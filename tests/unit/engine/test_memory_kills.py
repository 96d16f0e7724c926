"""The kernel's counts of out-of-memory kills, and memory limits."""

from pathlib import Path

import pytest

from drover.model.sizes import size_text
from drover_worker.shell.memory_kills import memory_kill_count, memory_limit_bytes

GROUP = "11:memory:/pods/a\n0::/kube/pod/a\n"


def tell(proc: Path, *, cgroup: str = "", vmstat: str = "", meminfo: str = "") -> None:
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(cgroup)
    (proc / "vmstat").write_text(vmstat)
    (proc / "meminfo").write_text(meminfo)


def limit(cgroups: Path, name: str, text: str) -> None:
    (cgroups / name).parent.mkdir(parents=True, exist_ok=True)
    (cgroups / name).write_text(text)


def test_the_kernel_counts_what_it_killed(tmp_path: Path) -> None:
    tell(tmp_path, vmstat="nr_free_pages 12\noom_kill 3\n")
    assert memory_kill_count(tmp_path) == 3


@pytest.mark.parametrize("there", [True, False])
def test_a_kernel_that_does_not_say_killed_nothing(tmp_path: Path, *, there: bool) -> None:
    if there:
        tell(tmp_path, vmstat="nr_free_pages 12\n")
    assert memory_kill_count(tmp_path) == 0


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, 4 << 20),
        ({"kube/pod/a/memory.max": "max\n", "kube/pod/memory.max": "1048576\n"}, 1 << 20),
        ({"memory/pods/a/memory.limit_in_bytes": "2097152\n"}, 2 << 20),
        ({"memory/pods/a/memory.limit_in_bytes": "9223372036854771712\n"}, 4 << 20),
        ({"memory.max": "524288\n"}, 1 << 19),
    ],
)
def test_the_least_limit_counts(tmp_path: Path, limits: dict[str, str], expected: int) -> None:
    tell(tmp_path / "proc", cgroup=GROUP, meminfo="MemTotal:           4096 kB\nMemFree: 1 kB\n")
    for name, text in limits.items():
        limit(tmp_path / "cgroup", name, text)
    assert memory_limit_bytes(tmp_path / "proc", tmp_path / "cgroup") == expected


def test_there_may_be_nothing_that_says_it(tmp_path: Path) -> None:
    assert memory_limit_bytes(tmp_path, tmp_path) is None


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(12, "12 bytes"), (1 << 29, "512 MiB"), (3 << 29, "1.5 GiB"), (1 << 60, "1.05e+06 TiB")],
)
def test_sizes_are_for_people(size_bytes: int, text: str) -> None:
    assert size_text(size_bytes) == text
