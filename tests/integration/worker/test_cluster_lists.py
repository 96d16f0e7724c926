"""Lists that are merged over all workers: rebalances, audit events, and topics of connectors."""

import grpc.aio
import pytest

from drover.api.connect.v1 import connect_service_pb2 as pb
from drover.client import ConnectClient
from drover.codec.common import decode_duration
from drover.errors import InvalidArgumentError
from drover_worker.admin import every_worker
from tests.support.fake_engine import SOURCE
from tests.support.waiting import wait_until_async
from tests.support.worker_cluster import RunningWorker, WorkerCluster

CONFIG = {"connector.class": SOURCE, "tasks.max": "2"}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that wait longer for each other than usual: they share one busy machine."""
    monkeypatch.setattr(every_worker, "_WORKER_TIMEOUT_S", 15.0)
    monkeypatch.setattr(every_worker, "_LEADER_TIMEOUT_S", 18.0)


async def test_rebalances_are_the_same_through_every_worker_and_outlive_the_leader(
    cluster: WorkerCluster, workers: list[RunningWorker], follower: ConnectClient
) -> None:
    leader = workers[0]
    await follower.create_connector("c", CONFIG)
    await cluster.running("c", 2, *workers)
    await cluster.settled(*workers)
    lists: list[pb.ListRebalancesResponse] = []
    async with grpc.aio.insecure_channel(leader.address) as channel:
        through_leader = ConnectClient(channel)

        async def are_equal() -> bool:
            lists[:] = [await each.list_rebalances() for each in (follower, through_leader)]
            return lists[0] == lists[1]

        await wait_until_async(are_equal)
    found = lists[0]
    newest = found.rebalances[0]
    assert newest.leader_worker_id == leader.address
    assert set(newest.worker_ids) == {each.address for each in workers}
    moved = {
        f"{move.connector}-{move.task}" if move.HasField("task") else move.connector
        for each in found.rebalances
        for move in each.moves
        if move.to_worker_id
    }
    assert moved == {"c", "c-0", "c-1"}
    assert any("connectors or tasks changed" in each.reason for each in found.rebalances)
    # pages together have the same
    page = await follower.list_rebalances(page_size=1)
    rest = await follower.list_rebalances(page_token=page.next_page_token)
    assert [*page.rebalances, *rest.rebalances] == list(found.rebalances)
    for size in (-1, 201):
        with pytest.raises(InvalidArgumentError, match="page_size"):
            await follower.list_rebalances(page_size=size)
    await leader.service.stop()
    await cluster.settled(workers[1])

    async def is_without_the_leader() -> bool:
        listed = (await follower.list_rebalances()).rebalances
        return bool(listed) and leader.address not in listed[0].worker_ids

    await wait_until_async(is_without_the_leader)


async def test_audit_events_of_all_workers_are_in_one_list(
    cluster: WorkerCluster, workers: list[RunningWorker], follower: ConnectClient
) -> None:
    async with grpc.aio.insecure_channel(workers[0].address) as channel:
        leader = ConnectClient(channel, author="ben@host")
        for number in range(3):
            await follower.create_connector(f"f-{number}", CONFIG)
            await leader.create_connector(f"l-{number}", CONFIG)
            for letter in "fl":
                await cluster.running(f"{letter}-{number}", 2, *workers)
        await cluster.settled(*workers)
        lists: list[pb.ListAuditEventsResponse] = []

        async def are_equal() -> bool:
            request = pb.ListAuditEventsRequest()
            lists[:] = [await each.list_audit_events(request) for each in (leader, follower)]
            return lists[0] == lists[1] and not lists[0].silent_worker_ids

        await wait_until_async(are_equal)
    created = [each for each in lists[0].events if each.call == "CreateConnector"]
    for letter in "fl":
        listed = [each.connector for each in created if each.connector.startswith(letter)]
        assert listed == [f"{letter}-{number}" for number in (2, 1, 0)]
    times_ms = [each.event_time.ToMilliseconds() for each in created]
    assert times_ms == sorted(times_ms, reverse=True)
    assert {each.worker_id for each in created} == {each.address for each in workers}
    assert {each.outcome for each in created} == {"OK"}
    # pages have each event once, in the same order
    paged: list[pb.AuditEvent] = []
    request = pb.ListAuditEventsRequest(page_size=2, call="CreateConnector")
    while True:
        page = await follower.list_audit_events(request)
        paged.extend(page.events)
        assert len(page.events) <= 2
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert paged == created
    only = pb.ListAuditEventsRequest(principal="ben@host")
    assert {each.connector for each in (await follower.list_audit_events(only)).events} == {
        "l-0", "l-1", "l-2",
    }  # fmt: skip
    since = pb.ListAuditEventsRequest(since_time=created[0].event_time)
    assert created[0] in (await follower.list_audit_events(since)).events
    assert created[-1] not in (await follower.list_audit_events(since)).events
    nothing = await follower.list_audit_events(pb.ListAuditEventsRequest(outcome="INTERNAL"))
    assert not nothing.events
    for token in ("x", "1", "1,x,w", "-1,1,w", "9" * 30 + ",1,w"):
        with pytest.raises(InvalidArgumentError, match="page_token"):
            await follower.list_audit_events(pb.ListAuditEventsRequest(page_token=token))


async def test_topics_of_all_connectors_come_in_pages(
    cluster: WorkerCluster, client: ConnectClient, worker: RunningWorker
) -> None:
    for name in ("a", "b", "c"):
        await client.create_connector(name, CONFIG)
    await cluster.running("b", 2, worker)
    (task,) = [each for each in worker.tasks if str(each) == "b-0"]
    worker.engine.use_topics(task, "t2", "t1")

    async def has_topics() -> bool:
        found = await client.list_connector_topics()
        return found == {"a": [], "b": ["t1", "t2"], "c": []}

    await wait_until_async(has_topics)


async def test_the_usage_of_each_worker_is_listed(
    workers: list[RunningWorker], follower: ConnectClient
) -> None:
    info = await follower.get_cluster_info()
    assert [each.worker_id for each in info.workers] == sorted(each.address for each in workers)
    for usage in (info.usage, *(each.usage for each in info.workers)):
        assert usage.worker_bytes > 0
        assert decode_duration(usage.cpu) > 0
        assert usage.core_count > 0
