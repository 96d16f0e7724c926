"""Ends the engine that tests share; by its name the last file, so no test waits for a new
engine.
"""

from typing import Any

import psutil
import pytest

from tests.spark.engine.harness import CALL_TIMEOUT_S, Harness
from tests.support.waiting import wait_until_async

pytestmark = [pytest.mark.spark, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.faults("engine")
async def test_tasks_are_not_failed_by_the_death_of_the_jvm(engine: Harness) -> None:
    first, ended = engine.supervisor.process_id, len(engine.exits)
    assert first is not None
    steady: dict[str, Any] = {"limit": "1000000", "step": "1"}
    for number in range(3):
        await engine.start_task(f"steady-{number}", plugin="Counter", topic="steady", **steady)
    await wait_until_async(lambda: engine.records("steady") > 10, timeout_s=CALL_TIMEOUT_S)
    (jvm,) = [
        each for each in psutil.Process(first).children(recursive=True) if each.name() == "java"
    ]
    jvm.kill()
    await wait_until_async(lambda: len(engine.exits) > ended, timeout_s=CALL_TIMEOUT_S)
    for number in range(3):
        assert engine.reports_of("task_failed", f"steady-{number}") == []
    await wait_until_async(lambda: engine.supervisor.process_id not in (None, first))
    await engine.supervisor.wait_ready()
    engine.ended_by_tests += 1


async def test_an_engine_whose_session_a_plugin_stopped_is_replaced(engine: Harness) -> None:
    first, ended = engine.supervisor.process_id, len(engine.exits)
    await engine.start_task(
        "stopper", plugin="Counter", topic="stopper", fail_at="0", misbehave="stop Spark"
    )
    await wait_until_async(lambda: len(engine.exits) > ended, timeout_s=CALL_TIMEOUT_S)
    (request,) = [each for each in engine.reports if each.HasField("replacement_requested")]
    assert "stopped the shared Spark session" in request.replacement_requested.reason
    await wait_until_async(lambda: engine.supervisor.process_id not in (None, first))
    engine.ended_by_tests += 1
