"""What a worker and its engines use, by kind of process."""

import subprocess
import sys

from drover_worker.shell.worker_processes import (
    EngineMemory,
    Process,
    WorkerProcesses,
    memory_of,
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
