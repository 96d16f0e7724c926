"""The time for which tasks do not run after kill -9 of their worker; the engines do nothing."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure
from drover.client import ConnectClient
from tests.support.cluster import EmbeddedCluster, running_cluster
from tests.support.idle_worker import Story, idle_stages
from tests.support.rolling import TASKS_PER_CONNECTOR, create_connectors, wait_until_even
from tests.support.waiting import wait_until_async

CONNECTORS = 100
WORKERS = 3
ROUNDS = 20
#: The limit for a round and the rebalance after it, on a busy machine.
_LIMIT_S = 300.0


async def measure(
    folder: Path, connectors: int = CONNECTORS, rounds: int = ROUNDS
) -> tuple[Figure, Figure]:
    """Kill each worker after another, the leader included, whenever the load is even and all tasks
    run.
    """
    story = Story(folder)
    async with running_cluster(folder, idle_stages(folder, workers=WORKERS)) as cluster:
        await cluster.wait_until_members()
        async with cluster.client() as client:
            await create_connectors(client, connectors)
            seconds = []
            for number in range(rounds):
                await wait_until_even(
                    client, tasks=connectors * TASKS_PER_CONNECTOR, timeout_s=_LIMIT_S
                )
                seconds.append(
                    await _round(cluster, client, story, cluster.workers[number % WORKERS])
                )
    what = f"{connectors} connectors with {TASKS_PER_CONNECTOR} tasks, {WORKERS} workers"
    return (
        Figure(
            "hand_over",
            statistics.median(seconds),
            f"s (kill -9 of a worker until its last task has started elsewhere, median; {what})",
            limit="<= 3 s",
            samples=seconds,
        ),
        Figure("hand_over_worst", max(seconds), "s (the same, the longest)", limit="<= 5 s"),
    )


async def _round(
    cluster: EmbeddedCluster, client: ConnectClient, story: Story, worker_id: str
) -> float:
    info = await client.get_cluster_info()
    (worker,) = [each for each in info.workers if each.worker_id == worker_id]
    own = set(worker.tasks)
    name = cluster.worker_name(worker_id)
    start_count = cluster.process(name).start_count
    killed_s = time.monotonic()
    cluster.process(name).kill()
    await wait_until_async(
        lambda: own <= _started_since(story, killed_s).keys(),
        timeout_s=_LIMIT_S,
        describe=f"the tasks of {name} run elsewhere",
    )
    started_s = _started_since(story, killed_s)
    await cluster.supervisor.wait_until_serving(name, start_count=start_count + 1)
    return max(started_s[task] for task in own) - killed_s


def _started_since(story: Story, since_s: float) -> dict[str, float]:
    """The first start of each task since a time."""
    found: dict[str, float] = {}
    for line in story.lines():
        if line.verb == "start" and line.at_s >= since_s:
            found.setdefault(line.task, line.at_s)
    return found


def figures() -> Iterator[Figure]:
    """From kill -9 of a worker until its tasks have started on the others, median and longest."""
    with tempfile.TemporaryDirectory(prefix="drover-bench-") as folder:
        yield from asyncio.run(measure(Path(folder)))
