"""Connectors on idle workers that are restarted with SIGTERM, one after another."""

import signal
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import ConnectClient
from drover.errors import DroverError
from tests.support.cluster import EmbeddedCluster
from tests.support.fake_engine import SOURCE
from tests.support.idle_worker import Story
from tests.support.waiting import DEFAULT_TIMEOUT_S, wait_until_async

TASKS_PER_CONNECTOR = 3


@dataclass(frozen=True, slots=True)
class Restarted:
    """The stops caused by one worker's restart; ``own`` are the tasks that it ran before."""

    own: Set[str]
    stops: Counter[str]


async def create_connectors(client: ConnectClient, count: int) -> None:
    """Create ``count`` connectors with three tasks each."""
    for number in range(count):
        config = {"connector.class": SOURCE, "tasks.max": str(TASKS_PER_CONNECTOR)}
        await client.create_connector(f"c{number}", config)


async def restart_one_by_one(
    cluster: EmbeddedCluster, client: ConnectClient, story: Story
) -> AsyncIterator[Restarted]:
    """Restart each worker with SIGTERM, whenever the load is even and all tasks run."""
    tasks = TASKS_PER_CONNECTOR * len(await client.list_connectors())
    await wait_until_even(client, tasks=tasks)
    for worker_id in cluster.workers:
        own = {str(task) for task in (await _workers(client))[worker_id].tasks}
        before = story.stops()
        name = cluster.worker_name(worker_id)
        starts = cluster.process(name).start_count
        cluster.process(name).send(signal.SIGTERM)
        await cluster.supervisor.wait_until_serving(name, start_count=starts + 1)
        await wait_until_even(client, tasks=tasks)
        yield Restarted(own, story.stops() - before)


async def wait_until_even(
    client: ConnectClient, *, tasks: int, timeout_s: float = DEFAULT_TIMEOUT_S
) -> None:
    """Wait until ``tasks`` tasks run, and the workers' counts differ by at most one."""

    async def even() -> bool:
        loads = [len(worker.tasks) for worker in (await _workers(client)).values()]
        if sum(loads) != tasks or max(loads) - min(loads) > 1:
            return False
        entries = await client.list_connectors(include_status=True)
        states = [task.state for entry in entries for task in entry.status.tasks]
        return states == [pb.RUN_STATE_RUNNING] * tasks

    await wait_until_async(even, timeout_s=timeout_s)


async def _workers(client: ConnectClient) -> Mapping[str, pb.WorkerInfo]:
    with suppress(DroverError):
        return {each.worker_id: each for each in (await client.get_cluster_info()).workers}
    return {}
