"""The table of leases in the control topic of a real broker."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from drover.errors import UnavailableError
from drover.log.storage import KafkaStorage
from drover_coordinator.core.ownership.lease_table import Identity
from drover_coordinator.core.ownership.machine import Beat, Claim, Lease, Renew, TableSeen
from tests.support.kafka.choice import Kafka
from tests.support.kafka.coordinator_store import CoordinatorStore, small_storage
from tests.support.lease_courses import COURSES, LATER_A, A, B
from tests.support.waiting import wait_until_async


@pytest.fixture
def storage(kafka: Kafka, topic_prefix: str) -> KafkaStorage:
    return small_storage(kafka.bootstrap, topic_prefix)


@pytest.mark.parametrize("course", COURSES)
async def test_a_course_of_leases(storage: KafkaStorage, course: str) -> None:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(CoordinatorStore.opened(storage))
        leases = {}
        for who, writes in COURSES[course].steps:
            if who not in leases:
                leases[who] = store.leases(who)
                stack.push_async_callback(leases[who].close)
            seen = await leases[who].exchange(writes, 7)
        wanted = TableSeen(7, COURSES[course].table.leases, COURSES[course].table.peers)
        assert seen == wanted
        onlooker = store.leases(Identity("c:1", "run c"))
        stack.push_async_callback(onlooker.close)

        async def is_seen() -> bool:
            return await onlooker.exchange([], 7) == wanted

        await wait_until_async(is_seen)


async def test_of_many_who_claim_at_once_one_succeeds(storage: KafkaStorage) -> None:
    whos = [Identity(f"{number}:1", "run") for number in range(4)]
    async with AsyncExitStack() as stack:
        tables = []
        for who in whos:
            store = await stack.enter_async_context(CoordinatorStore.opened(storage))
            tables.append(store.leases(who))
            stack.push_async_callback(tables[-1].close)
            await tables[-1].exchange([], 0)

        async def claim_both(number: int) -> None:
            """Claim as ``ShardManager`` does: retry until a response arrives."""
            for _ in range(20):
                try:
                    await tables[number].exchange([Claim(0, 1, Lease()), Claim(1, 1, Lease())], 0)
                except UnavailableError:  # a concurrent writer won
                    continue
                return
            raise AssertionError("no response arrived")

        await asyncio.gather(*(claim_both(number) for number in range(4)))
        owners: set[str] = set()

        async def all_see_the_same() -> bool:
            seen = [await table.exchange([], 0) for table in tables]
            owners.clear()
            owners.update(lease.owner for each in seen for lease in each.leases)
            return len(owners) == 1

        await wait_until_async(all_see_the_same, describe=lambda: owners)
        assert owners <= {who.address for who in whos}


async def test_nothing_is_lost_of_what_two_write_in_turn(storage: KafkaStorage) -> None:
    """Each exchange depends on the other's last write to the same row."""
    async with AsyncExitStack() as stack:
        leases = []
        for who in (A, LATER_A):
            store = await stack.enter_async_context(CoordinatorStore.opened(storage))
            leases.append(store.leases(who))
            stack.push_async_callback(leases[-1].close)
        for turn in range(1, 6):
            seen = await leases[0].exchange([Beat()], 0)
            assert seen.peers[A.address].beats == 2 * turn - 1
            seen = await leases[1].exchange([Beat()], 0)
            assert seen.peers[A.address].beats == 2 * turn


async def test_one_that_is_fenced_between_two_writes_writes_all_the_same(
    storage: KafkaStorage,
) -> None:
    """The fenced one was not aware of another writer."""
    async with AsyncExitStack() as stack:
        leases = []
        for who in (A, B):
            store = await stack.enter_async_context(CoordinatorStore.opened(storage))
            leases.append(store.leases(who))
            stack.push_async_callback(leases[-1].close)
        a, b = leases
        await a.exchange([Claim(0, 1, Lease())], 0)
        await b.exchange([Claim(1, 1, Lease())], 0)
        seen = await a.exchange([Claim(1, 2, Lease()), Renew(0, 1)], 0)
        assert seen.leases == (Lease(A.address, A.incarnation, 1, 1), Lease("b:1", "run b", 1))
