"""The effect of a rolling restart of three workers on tasks; the engines do nothing."""

import asyncio
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure
from tests.support.cluster import running_cluster
from tests.support.idle_worker import Story, idle_stages
from tests.support.rolling import create_connectors, restart_one_by_one

CONNECTORS = 100


async def measure(folder: Path, connectors: int = CONNECTORS) -> tuple[Figure, Figure]:
    """The number of stops of a task, and the time for which it does not run after each."""
    story = Story(folder)
    stops: Counter[str] = Counter()
    async with running_cluster(folder, idle_stages(folder, workers=3)) as cluster:
        await cluster.wait_until_members()
        async with cluster.client() as client:
            await create_connectors(client, connectors)
            async for restarted in restart_one_by_one(cluster, client, story):
                stops += restarted.stops
    gaps_s = story.gaps_s()
    return (
        Figure(
            "rolling_restart_stops",
            max(stops.values()),
            f"stops of a task at most ({connectors} connectors with 3 tasks, 3 workers)",
            limit="<= 2 (away and back)",
        ),
        Figure(
            "rolling_restart_gap",
            statistics.median(gaps_s),
            "s (a task from its stop to its next start, median and longest)",
            samples=[statistics.median(gaps_s), max(gaps_s)],
        ),
    )


def figures() -> Iterator[Figure]:
    """Stops of each task, and their duration, while three workers restart one after another."""
    with tempfile.TemporaryDirectory(prefix="drover-bench-") as folder:
        yield from asyncio.run(measure(Path(folder)))
