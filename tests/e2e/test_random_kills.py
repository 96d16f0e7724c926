"""Each kind of process of a worker is killed at random for three minutes while lines flow."""

import sys
from pathlib import Path

import pytest

from tests.support.cluster import embedded_cluster
from tests.support.flow import Flow
from tests.support.random_kills import RandomKills

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.timeout(1_500),
    pytest.mark.faults("engine"),
]

SEED = 12
KILLING_S = 180.0


async def test_everything_runs_again_and_nothing_is_lost(tmp_path: Path) -> None:
    flow = Flow(tmp_path, "random", lines_per_tick=50)
    async with embedded_cluster(tmp_path) as cluster:
        await cluster.wait_until_members()
        async with cluster.client() as client:
            await flow.create_connectors(client)
        kills = RandomKills(cluster, SEED)
        async with flow.feeding():
            await flow.wait_until_passed("before anything is killed")
            await kills.kill_for(KILLING_S)
            seconds = await kills.wait_until_running([flow.source, flow.sink])
            await flow.wait_until_passed("after the last kill")
        await flow.assert_equal()
        await cluster.wait_until_members()
    sys.stdout.write(f"killed {dict(kills.counts)}; all ran {seconds:.1f} s after the last one\n")
