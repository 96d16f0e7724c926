"""Each kind of process of a worker is killed at random for three minutes while lines flow."""

from pathlib import Path

import pytest

from tests.support.cluster import embedded_cluster
from tests.support.flow import Flow
from tests.support.random_kills import assert_all_survive

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.timeout(2_400),
    pytest.mark.faults("engine"),
]


async def test_everything_runs_again_and_nothing_is_lost(tmp_path: Path) -> None:
    flow = Flow(tmp_path, "random", lines_per_tick=50)
    async with embedded_cluster(tmp_path) as cluster:
        await cluster.wait_until_members()
        async with cluster.client() as client:
            await flow.create_connectors(client)
        await assert_all_survive(cluster, flow)
