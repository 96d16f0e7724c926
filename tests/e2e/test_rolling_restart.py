"""Workers as real processes that are told to end, one after the other; stops are counted."""

from pathlib import Path

import pytest

from tests.support.cluster import running_cluster
from tests.support.idle_worker import Story, idle_stages
from tests.support.rolling import create_connectors, restart_one_by_one

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


async def test_a_rolling_restart_moves_each_task_away_and_back_and_stops_nothing_else(
    tmp_path: Path,
) -> None:
    story = Story(tmp_path)
    async with running_cluster(tmp_path, idle_stages(tmp_path, workers=3)) as cluster:
        await cluster.wait_until_members()
        async with cluster.client() as client:
            await create_connectors(client, 6)
            moved: set[str] = set()
            async for restarted in restart_one_by_one(cluster, client, story):
                assert restarted.stops == dict.fromkeys(restarted.own, 2)
                moved |= restarted.own
    assert len(moved) == 18
