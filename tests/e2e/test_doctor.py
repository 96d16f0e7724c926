"""`drover doctor` on a running cluster, and on one with a failed task."""

import json
from typing import Any

import pytest

from tests.support import plugins_for_tests as plugins
from tests.support.shared_cluster import SharedCluster

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.asyncio(loop_scope="session"),
]


async def found(shared: SharedCluster) -> tuple[int, dict[str, dict[str, Any]]]:
    done = await shared.drover("doctor", "--dir", "cluster", "-o", "json")
    return done.exit_code, {each["check"]: each for each in json.loads(done.out)["findings"]}


async def test_a_cluster_that_runs_is_sound_until_a_task_fails(unharmed: SharedCluster) -> None:
    code, checks = await found(unharmed)
    assert code == 0, checks
    for name in unharmed.cluster.supervisor.processes:
        assert checks[name]["level"] == "ok"
    for address in unharmed.cluster.workers:
        assert "clock and version agree" in checks[f"worker {address}"]["found"]
    assert checks["leader"]["found"] in unharmed.cluster.workers

    config = {"connector.class": plugins.plugin(plugins.RaisesInPoll), "restart.policy": "never"}
    async with unharmed.connector("doctor-failing", config):
        await unharmed.cluster.wait_for_task("doctor-failing", state="FAILED")
        code, checks = await found(unharmed)
    assert code == 1
    assert "FAILED, or with FAILED tasks: doctor-failing" in checks["connectors"]["found"]
