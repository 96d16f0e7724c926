"""Health checks report whether a worker has joined its group and its herder handles events."""

from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest
import structlog

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.local.health import Health, HealthChannel
from drover_worker.shell import health_reporter
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import RunningWorker, WorkerCluster

STALE_MS = 300
SERVICES = ("", "drover.api.connect.v1.ConnectService")


@pytest.fixture
async def pair(cluster: WorkerCluster) -> list[RunningWorker]:
    """The leader, then the follower; their session timeout keeps a blocked worker in the group."""
    return await cluster.settled_workers(2, herder_stale_ms=STALE_MS, session_timeout_ms=300_000)


@contextmanager
def standing_still(worker: RunningWorker) -> Iterator[None]:
    """Block the herder: its loop handles no event, as during a step that does not end."""
    loop = worker.loop
    loop._stepping = True
    try:
        yield
    finally:
        loop._stepping = False


async def statuses(worker: RunningWorker) -> set[str]:
    """The statuses that the worker's health service reports for its service names."""
    found = set()
    for service in SERVICES:
        async with HealthChannel(worker.address, service=service) as health:
            found.add(await health.status(timeout_s=10))
    return found


async def health_of(worker: RunningWorker) -> Health:
    async with HealthChannel(worker.address) as health:
        return await health.ask(timeout_s=10)


async def healths(via: RunningWorker) -> dict[str, str]:
    """The health of all workers, as ``drover cluster info`` shows it, by worker id."""
    info = await via.stub.GetClusterInfo(pb.GetClusterInfoRequest(), timeout=20)
    return {
        each.worker_id: pb.WorkerHealth.Name(each.health).removeprefix("WORKER_HEALTH_")
        for each in info.workers
    }


async def wait_for_statuses(worker: RunningWorker, *wanted: str) -> None:
    async def reached() -> bool:
        return await statuses(worker) == set(wanted)

    await wait_until_async(reached)


async def wait_for_healths(via: RunningWorker, wanted: dict[str, str]) -> None:
    async def reached() -> bool:
        return await healths(via) == wanted

    await wait_until_async(reached)


async def test_a_herder_that_stands_still_is_not_serving_until_it_goes_on(
    pair: list[RunningWorker],
) -> None:
    leader, follower = pair
    both = {leader.address: "SERVING", follower.address: "SERVING"}
    # a leader that is blocked before it has read its session key cannot verify calls
    await wait_for_healths(follower, both)
    for worker in pair:
        await wait_for_statuses(worker, "SERVING")
        await wait_for_healths(worker, both)
        with standing_still(worker):
            await wait_for_statuses(worker, "NOT_SERVING")
            await wait_for_healths(leader, {**both, worker.address: "NOT_SERVING"})
            await wait_for_healths(follower, {**both, worker.address: "NOT_SERVING"})
        await wait_for_statuses(worker, "SERVING")


async def test_a_herder_that_has_nothing_to_do_serves_on(
    cluster: WorkerCluster,
) -> None:
    worker = await cluster.add_worker(herder_stale_ms=STALE_MS, heartbeat_interval_ms=15_000)
    await cluster.settled(worker)
    end_s = worker.loop._turned_s + 3 * STALE_MS / 1000

    async def serves_to_the_end() -> bool:
        assert "NOT_SERVING" not in await statuses(worker)
        return worker.loop._turned_s > end_s

    await wait_until_async(serves_to_the_end)


async def test_a_leader_that_does_not_answer_is_told_by_the_others(
    cluster: WorkerCluster, pair: list[RunningWorker]
) -> None:
    leader, follower = pair
    coordinator = cluster.coordinator
    await coordinator.kill()  # the group cannot elect another leader
    await leader.service.kill()
    await wait_for_healths(follower, {leader.address: "UNREACHABLE", follower.address: "SERVING"})


async def test_a_worker_serves_from_its_first_join_on_and_says_what_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_reporter, "WARN_FIRST_S", 0.1)
    async with AsyncExitStack() as stack:
        logged = stack.enter_context(structlog.testing.capture_logs())
        cluster = await stack.enter_async_context(WorkerCluster(tmp_path, start=False))
        worker = await cluster.add_worker(herder_stale_ms=STALE_MS, session_timeout_ms=1_000)

        async def waits_for(setting: str) -> bool:
            health = await health_of(worker)
            assert health.status == "NOT_SERVING"
            assert health.why.startswith("the worker has not joined its group 'drover' yet: ")
            return health.why.endswith(f": {setting}")

        await wait_until_async(lambda: waits_for("DROVER_CONFIG_STORE_ADDRESS"))
        assert await statuses(worker) == {"NOT_SERVING"}
        for service, next_setting in (
            (cluster.config_store, "DROVER_COORDINATOR_ADDRESS"),
            (cluster.coordinator, ""),
        ):
            stack.push_async_callback(service.kill)
            service.start()
            if next_setting:
                await wait_until_async(partial(waits_for, next_setting))
        await wait_for_statuses(worker, "SERVING")
        assert worker.stage == "SETTLED"
        assert await health_of(worker) == Health("SERVING")
        told = [each for each in logged if each["event"] == "the worker is NOT_SERVING"]
        assert told
        assert {each["config_store_address"] for each in told} == {cluster.config_store_address}
        assert [each["log_level"] for each in told] == ["warning"] * len(told)
        # losing the group later does not make the worker NOT_SERVING
        await cluster.coordinator.kill()
        await wait_until_async(lambda: worker.stage != "SETTLED")
        loop = worker.loop
        turned_s = loop._turned_s
        await wait_until_async(lambda: loop._turned_s > turned_s + STALE_MS / 1000)
        assert await statuses(worker) == {"SERVING"}
