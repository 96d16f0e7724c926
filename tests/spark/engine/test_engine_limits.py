"""Engines with limits of their own: what enforces them, and what happens when they are exceeded."""

import resource
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from drover_worker.shell import engine_child
from drover_worker.shell.control_groups import ControlGroup, create_group
from drover_worker.shell.engines import LimitKind, LimitsInForce
from tests.spark.engine.harness import CALL_TIMEOUT_S, LIMITS, PLUGINS, Harness
from tests.support.plugins_for_tests import UsesUpTheMemory, plugin
from tests.support.waiting import wait_until_async

pytestmark = [pytest.mark.spark, pytest.mark.faults("engine"), pytest.mark.timeout(600)]

GIB = 1 << 30
GREEDY = plugin(UsesUpTheMemory)
MODULES = f"{PLUGINS},tests.support"
#: On a busy machine, taking memory takes longer than the other tests let a poll() take.
PATIENT = replace(LIMITS, poll_ms=120_000)


def data_limits(harness: Harness) -> dict[str, set[int]]:
    """The soft limits of the data of the engine's processes, by name."""
    guard = harness.supervisor.process_id
    assert guard is not None
    found: dict[str, set[int]] = {}
    for process in psutil.Process(guard).children(recursive=True):
        soft, _ = process.rlimit(resource.RLIMIT_DATA)
        found.setdefault("java" if process.name() == "java" else "python", set()).add(soft)
    return found


async def run_task(harness: Harness, name: str) -> None:
    """Run a task that writes in Spark's Python workers."""
    await harness.start_task(name, plugin="Counter", topic=name, limit="1000", step="100")
    await harness.wait_for_records(name, 1000)


async def test_without_control_groups_each_python_process_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_child, "create_group", lambda *_, **__: None)
    harness = Harness(tmp_path, limits=PATIENT, memory_bytes=GIB, cores=1, plugin_modules=MODULES)
    try:
        await harness.start()
        assert harness.supervisor.limits == LimitsInForce(LimitKind.RLIMIT, LimitKind.SPARK)
        await run_task(harness, "before")
        limits = data_limits(harness)
        assert GIB in limits["python"]
        assert limits["java"] == {resource.RLIM_INFINITY}
        await harness.start_task("greedy", plugin=GREEDY, topic="none")
        failed = await harness.wait_for_report("task_failed", "greedy")
        assert failed.task_failed.trace.startswith("out of memory"), failed
        assert "MemoryError" in failed.task_failed.trace
        assert not harness.exits
        await run_task(harness, "after")
    finally:
        await harness.close()


async def test_a_control_group_ends_an_engine_that_exceeds_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[ControlGroup] = []

    def create(name: str, *, memory_bytes: int | None, cores: int | None) -> ControlGroup | None:
        made = create_group(name, memory_bytes=memory_bytes, cores=cores)
        if made is not None:
            groups.append(made)
        return made

    monkeypatch.setattr(engine_child, "create_group", create)
    harness = Harness(tmp_path, limits=PATIENT, memory_bytes=GIB, cores=1, plugin_modules=MODULES)
    try:
        await harness.start()
        if not groups:
            pytest.skip("no control group can be made here")
        assert harness.supervisor.limits == LimitsInForce(
            LimitKind.CONTROL_GROUP, LimitKind.CONTROL_GROUP
        )
        await run_task(harness, "before")
        assert data_limits(harness)["python"] == {resource.RLIM_INFINITY}
        await harness.start_task("greedy", plugin=GREEDY, topic="none")
        await wait_until_async(lambda: harness.exits, timeout_s=CALL_TIMEOUT_S)
        assert "because the memory of 1 GiB (engine.memory) was exhausted" in (
            harness.exits[0].message
        )
        first = groups[0]
        await wait_until_async(lambda: len(groups) > 1, timeout_s=CALL_TIMEOUT_S)
        assert not any(each.exists() for each in first.directories), "its group is gone with it"
        await harness.supervisor.wait_ready()
    finally:
        await harness.close()
    assert not any(each.exists() for group in groups for each in group.directories)
