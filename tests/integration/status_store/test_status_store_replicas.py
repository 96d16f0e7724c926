"""Two status stores on one log, over real gRPC."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing

import pytest

from drover.client import FailoverChannel, SnapshotRead, StatusStoreClient, follow
from drover.client.watch import WatchableLog
from drover.log.kafka.log import KafkaLog
from drover.model.ids import TaskId
from drover.model.status import (
    RunState,
    Status,
    StatusChange,
    StatusEvent,
    StatusKey,
    StatusSnapshot,
    StatusWrite,
)
from tests.support.status_place import StatusPlace, two_in_shared_memory, two_on_kafka
from tests.support.waiting import wait_until_async

Stores = tuple[StatusPlace, StatusPlace]
TASKS = [TaskId("c", index) for index in range(20)]


@pytest.fixture(params=["shared memory", pytest.param("kafka", marks=pytest.mark.kafka)])
async def stores(request: pytest.FixtureRequest) -> AsyncIterator[Stores]:
    opening: AbstractAsyncContextManager[Stores] = two_in_shared_memory()
    if request.param == "kafka":
        bootstrap = request.getfixturevalue("kafka").bootstrap
        opening = two_on_kafka(bootstrap, request.getfixturevalue("topic_prefix"))
    async with opening as running:
        yield running


async def put(
    client: StatusStoreClient, writer: str, number: int, *statuses: Status, safe: bool = False
) -> None:
    writes = [StatusWrite(status, safe) for status in statuses]
    await client.put_statuses(writes, writer=writer, number=number)


async def statuses(place: StatusPlace) -> dict[StatusKey, Status]:
    return dict((await place.client.get_snapshot()).statuses)


async def until_both_hold(stores: Stores, holds: Callable[[dict[StatusKey, Status]], bool]) -> None:
    async def both() -> bool:
        one, two = [await statuses(place) for place in stores]
        return one == two and holds(one)

    await wait_until_async(both)


async def test_stores_that_are_written_side_by_side_hold_the_same(stores: Stores) -> None:
    async def write(place: StatusPlace, worker: str, generation: int) -> None:
        for number in range(1, 11):
            state = RunState.RUNNING if number % 2 else RunState.FAILED
            said = [Status(task, state, worker, generation) for task in TASKS]
            await put(place.client, worker[0], number, *said, safe=state is RunState.FAILED)

    one, two = stores
    await asyncio.gather(write(one, "a:1", 1), write(two, "b:1", 2))
    await until_both_hold(stores, lambda found: set(found) == set(TASKS))
    for place in stores:
        await place.restart()
    await until_both_hold(stores, lambda found: set(found) == set(TASKS))


async def test_a_late_copy_through_the_other_store_sets_nothing_back(stores: Stores) -> None:
    one, two = stores
    running, failed = (
        Status(TASKS[0], state, "w:1", 1) for state in (RunState.RUNNING, RunState.FAILED)
    )
    two.log.hold()
    copy = asyncio.create_task(put(two.client, "w", 1, running))
    await two.log.held.wait()
    await put(one.client, "w", 2, failed)
    two.log.release()
    await copy
    await until_both_hold(stores, lambda found: found == {TASKS[0]: failed})


async def test_a_mirror_goes_on_at_the_other_store(stores: Stores) -> None:
    mirror: dict[StatusKey, Status] = {}
    snapshots: list[str] = []

    async def watch(log: WatchableLog[StatusSnapshot, StatusChange]) -> None:
        async with aclosing(follow(log, name="test")) as reads:  # type: ignore[type-var]
            async for read in reads:
                if isinstance(read, SnapshotRead):
                    snapshots.append(read.snapshot.log_id)
                    mirror.clear()
                    mirror.update(read.snapshot.statuses)
                    continue
                for event in read.events:
                    assert isinstance(event, StatusEvent)
                    if event.status is None:
                        mirror.pop(event.key, None)
                    else:
                        mirror[event.key] = event.status

    one, two = stores
    async with FailoverChannel([one.address, two.address]) as channel:
        client = StatusStoreClient(channel.as_channel())
        watching = asyncio.create_task(watch(client))
        try:
            await wait_until_async(lambda: snapshots)
            said = [Status(task, RunState.RUNNING, "w:1", 1) for task in TASKS]
            await put(client, "w", 1, *said)
            await wait_until_async(lambda: set(mirror) == set(TASKS))
            await one.stop()
            await put(client, "w", 2, Status(TASKS[0], RunState.DESTROYED, "w:1", 1))
            await wait_until_async(lambda: set(mirror) == set(TASKS[1:]))
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
    # on Kafka each process merges the partitions in its own order: a new log id needs a snapshot
    is_another = isinstance(two.log.log, KafkaLog)
    assert (two.runtime.log_id != snapshots[0]) == is_another
    assert (len(snapshots) > 1) == is_another
