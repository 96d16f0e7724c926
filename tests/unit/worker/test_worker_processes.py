"""What a worker and its engines use, by kind of process."""

import os
import subprocess
import sys
from pathlib import Path

from drover_worker.shell.worker_processes import (
    EngineMemory,
    Process,
    WorkerProcesses,
    memory_of,
    usable_core_count,
)

ENGINE = b"python\0-P\0-m\0drover_worker.engine.process\x003"
GUARD = b"python\0-P\0-m\0drover_worker.engine\x001\0" + ENGINE


def test_engine_jvm_and_python_workers_are_told_apart() -> None:
    found = memory_of(
        [
            Process(10, 1, GUARD, 1),
            Process(11, 10, ENGINE, 1_600),
            Process(12, 11, ENGINE, 90),  # the engine's fork for validations
            Process(13, 11, b"/usr/lib/jvm/bin/java\0-cp\0x", 600),
            Process(14, 13, b"python\0-m\0drover_worker.engine.python_daemon", 40),
            Process(15, 14, b"python\0-m\0drover_worker.engine.python_daemon", 50),
        ]
    )
    assert found == EngineMemory(1_600, 600, 1 + 90 + 40 + 50, 4)


def test_several_engines_of_a_worker_are_summed() -> None:
    found = memory_of(
        [
            Process(11, 10, ENGINE, 100),
            Process(21, 20, ENGINE, 200),
            Process(13, 11, b"java", 1),
            Process(23, 21, b"java", 2),
        ]
    )
    assert (found.engine_bytes, found.jvm_bytes, found.python_workers_count) == (300, 3, 0)


def test_real_children_are_measured() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        found = WorkerProcesses().usage()
    finally:
        child.communicate(b"\n")
    assert found.engine_memory.python_workers_count >= 1
    assert found.engine_memory.python_workers_bytes > 1_000_000
    assert found.worker_bytes > 1_000_000
    assert found.core_count >= 1


def test_the_cpu_time_of_children_that_have_ended_still_counts() -> None:
    # a worker whose engine was replaced does not seem to have used less
    before_ms = WorkerProcesses().usage().cpu_ms
    burn = "import time\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    assert WorkerProcesses().usage().cpu_ms >= before_ms + 490


def test_the_cores_of_a_limited_container_are_not_the_ones_of_its_machine(tmp_path: Path) -> None:
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (cgroups / "a" / "b").mkdir(parents=True)
    all_cores = len(os.sched_getaffinity(0))
    assert usable_core_count(proc, cgroups) == all_cores
    (proc / "self" / "cgroup").write_text("0::/a/b\n")
    assert usable_core_count(proc, cgroups) == all_cores
    (cgroups / "a" / "b" / "cpu.max").write_text("max 100000\n")
    assert usable_core_count(proc, cgroups) == all_cores
    # a limit of a parent applies too
    for text, expected in (("150000 100000\n", 2), ("50000 100000\n", 1), ("x\n", all_cores)):
        (cgroups / "a" / "cpu.max").write_text(text)
        assert usable_core_count(proc, cgroups) == min(expected, all_cores)
