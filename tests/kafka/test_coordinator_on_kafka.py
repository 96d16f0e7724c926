"""Coordinators over real gRPC on a real broker: groups, tasks, takeovers, broker outages."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka.admin import AdminClient

from drover.client import CoordinatorClient, channel
from drover.errors import DroverError, Reason, UnavailableError
from drover.log.kafka.client import KafkaClient
from drover.log.kafka.control import CONTROL_PARTITION
from drover.log.kafka.records import Produced
from drover.log.kafka.writer import PlainWriter
from drover.log.storage import KafkaStorage
from drover.model.group import GroupState, Joined
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommitOutcome, GroupOffset, TaskOffsets
from drover.testing import raises_reason
from drover_coordinator.settings import CoordinatorSettings
from tests.support.coordinator_pair import FollowingMember
from tests.support.coordinator_process import (
    CoordinatorProcess,
    CoordinatorProcesses,
    coordinator_process,
)
from tests.support.group_members import RunningCoordinator, form_group
from tests.support.kafka.broker import KafkaBroker
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import CALL_TIMEOUT_S
from tests.support.kafka.coordinators import (
    as_environment,
    claim,
    commit,
    committed,
    health,
    kafka_settings,
)
from tests.support.kafka.told import assert_told_in_turn
from tests.support.service_process import assert_one_clear_line, run_to_its_end
from tests.support.waiting import pause, wait_until_async

TASK = TaskId("files", 0)
#: Longer than a stall of some seconds.
LEASE_MS = 8_000


@pytest.fixture
def settings(kafka: Kafka, topic_prefix: str) -> dict[str, Any]:
    return kafka_settings(kafka.bootstrap, topic_prefix, coordinator_lease_ms=LEASE_MS)


class Rejoining(FollowingMember):
    """Joins as a worker does: retries while no coordinator serves its group."""

    async def join(self, timeout_s: float = CALL_TIMEOUT_S) -> Joined:
        joined: list[Joined] = []

        async def has_joined() -> bool:
            with suppress(UnavailableError):
                joined.append(await FollowingMember.join(self, timeout_s))
            return bool(joined)

        await wait_until_async(has_joined, timeout_s=90)
        return joined[-1]


async def following(
    stack: AsyncExitStack, addresses: Sequence[str], group_id: str, *names: str
) -> list[FollowingMember]:
    """Members of a stable group that follow it.

    They also retry with a single coordinator: on a busy machine it may renew its lease late, and
    then serves no group for a moment.
    """
    members: list[FollowingMember] = [
        await stack.enter_async_context(Rejoining(addresses, name, group_id=group_id))
        for name in names
    ]
    await form_group(*members)
    return members


async def owner_of(processes: CoordinatorProcesses, group_id: str) -> str:
    async with processes.client() as client:
        return await client.find_coordinator(group_id)


# --- one coordinator ---------------------------------------------------------------------------


async def test_groups_claims_and_offsets_outlive_a_killed_coordinator(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    group_id = settings["group_id"]
    async with coordinator_process(tmp_path, **settings) as coordinator, AsyncExitStack() as stack:
        a, b = await following(stack, [coordinator.address], group_id, "a", "b")
        term = await claim(a, TASK)
        await commit(a, TASK, term, 7, number=7)
        await a.client.commit_group_offsets(
            group_id=f"{group_id}-consumers", offsets=[GroupOffset("t", 0, 42)]
        )
        before = await a.client.describe(group_id)
        assert before.state is GroupState.STABLE

        await coordinator.kill()
        await coordinator.start()

        after = await a.client.describe(group_id, timeout_s=30)
        assert after == before
        assert await a.heartbeat() is False
        assert await b.heartbeat() is False
        [found] = await a.client.fetch_group_offsets(group_id=f"{group_id}-consumers")
        assert found.offset == 42
        assert await committed(a, TASK) == 7
        assert (await commit(a, TASK, term, 6, number=6)).outcome is CommitOutcome.COMMITTED
        assert await committed(a, TASK) == 7, "a late copy sets nothing back"
        assert await claim(b, TASK) > term
        assert (await commit(a, TASK, term, 8, number=8)).outcome is CommitOutcome.STALE_CLAIM


async def test_one_that_is_told_of_no_others_serves_at_the_address_it_was_given_by_the_system(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    coordinator = RunningCoordinator(tmp_path, **settings)
    coordinator.address = "127.0.0.1:0"
    await coordinator.start()
    try:
        assert not coordinator.address.endswith(":0")
        async with coordinator.client() as client:
            assert await client.find_coordinator("any") == coordinator.address
        await wait_until_async(lambda: healths(coordinator, "SERVING"), timeout_s=60)
    finally:
        await coordinator.stop()
    # it released its shards: a successor at another address need not wait
    heir = RunningCoordinator(tmp_path, **{**settings, "coordinator_lease_ms": 60_000})
    await heir.start()
    await heir.stop()


async def test_tasks_are_of_the_workers_group_alone(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    """Another group may have another coordinator, which has no record of these claims."""
    coordinator = RunningCoordinator(tmp_path, **settings)
    await coordinator.start()
    try:
        async with AsyncExitStack() as stack:
            [member] = await following(stack, [coordinator.address], "others", "a")
            for call in (
                lambda: claim(member, TASK),
                lambda: commit(member, TASK, Term(1, 1), 1),
                lambda: committed(member, TASK),
            ):
                with raises_reason(Reason.INVALID_REQUEST, "group_id", settings["group_id"]):
                    await call()
    finally:
        await coordinator.stop()


# --- wrong topics ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"group_id": "another"}, ["another", "DROVER_GROUP_ID"]),
        ({"group_shards": 7}, ["DROVER_GROUP_SHARDS", "7", "4"]),
    ],
)
async def test_topics_of_another_cluster_are_refused(
    settings: dict[str, Any], tmp_path: Path, changes: dict[str, Any], words: list[str]
) -> None:
    first = RunningCoordinator(tmp_path, **settings)
    await first.start()
    try:
        environment = as_environment({**settings, **changes})
        done = await run_to_its_end("coordinator", tmp_path, environment)
        assert_one_clear_line(done, "coordinator", settings["control_storage_topic"], *words)
        assert await first.serves()
    finally:
        await first.stop()


@pytest.mark.parametrize("service", ["config-store", "status-store"])
async def test_a_store_of_another_cluster_is_refused_before_it_makes_its_topic(
    settings: dict[str, Any], kafka: Kafka, tmp_path: Path, service: str
) -> None:
    first = RunningCoordinator(tmp_path, **settings)
    await first.start()
    try:
        others = {"group_id": "another"} | {
            name: f"{settings[name]}-of-another"
            for name in ("config_storage_topic", "status_storage_topic")
        }
        environment = as_environment({**settings, **others})
        done = await run_to_its_end(service, tmp_path, environment)
        assert_one_clear_line(done, service, settings["control_storage_topic"], "DROVER_GROUP_ID")
        made = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=30).topics
        assert not [topic for topic in made if topic in others.values()]
    finally:
        await first.stop()


async def test_a_topic_of_a_newer_version_is_refused(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    first = RunningCoordinator(tmp_path, **settings)
    await first.start()
    await first.stop()
    cluster = {"format": 99, "group_id": settings["group_id"], "group_shards": 4}
    topic = settings["control_storage_topic"]
    record = Produced(topic, b"cluster", json.dumps(cluster).encode(), CONTROL_PARTITION)
    client = KafkaClient(cast("KafkaStorage", CoordinatorSettings(**settings).storage()))
    writer = PlainWriter(client)
    await writer.write([record])
    await writer.close()
    await client.close()
    done = await run_to_its_end("coordinator", tmp_path, as_environment(settings))
    assert_one_clear_line(done, "coordinator", topic, "99")


# --- several coordinators ----------------------------------------------------------------------


@pytest.fixture
async def pair(settings: dict[str, Any], tmp_path: Path) -> AsyncIterator[CoordinatorProcesses]:
    """Two running coordinators with two shards each."""
    (tmp_path / "data").mkdir()
    async with CoordinatorProcesses(tmp_path, env=as_environment(settings)) as processes:
        for address in processes.addresses:
            await has_loaded(processes, address)
        yield processes


async def test_the_other_takes_over_from_one_that_was_killed(
    pair: CoordinatorProcesses, settings: dict[str, Any]
) -> None:
    group_id = settings["group_id"]
    async with AsyncExitStack() as stack:
        a, b = await following(stack, pair.addresses, group_id, "a", "b")
        term = await claim(a, TASK)
        await commit(a, TASK, term, 1, number=1)
        before = await a.client.describe(group_id)
        owner = await owner_of(pair, group_id)

        pair.kill(owner)
        await pair_is_served_by(pair, pair.other(owner))

        assert await a.client.describe(group_id) == before
        assert await a.heartbeat() is False
        assert await b.heartbeat() is False
        assert await committed(a, TASK) == 1
        result = await commit(a, TASK, term, 2, number=2)
        assert result.outcome is CommitOutcome.COMMITTED
        assert await committed(a, TASK) == 2
        pair.start(owner)
        await pair.wait_until_shared()
        assert await a.client.describe(group_id) == before


@pytest.mark.faults("coordinator")
async def test_one_that_was_frozen_has_nothing_to_say_when_it_wakes_up(
    pair: CoordinatorProcesses, settings: dict[str, Any]
) -> None:
    group_id = settings["group_id"]
    async with AsyncExitStack() as stack:
        [a] = await following(stack, pair.addresses, group_id, "a")
        term = await claim(a, TASK)
        await commit(a, TASK, term, 1, number=1)
        owner = await owner_of(pair, group_id)
        zombie = CoordinatorClient(await stack.enter_async_context(channel(owner)))
        with suppress(DroverError):  # opens the connection, even where it no longer owns the group
            await zombie.describe(group_id)

        await pair.freeze(owner)
        await pair_is_served_by(pair, pair.other(owner))
        assert (await commit(a, TASK, term, 2, number=2)).outcome is CommitOutcome.COMMITTED
        # these calls are in its sockets when it resumes, before it polls the leases
        late = [
            asyncio.ensure_future(call)
            for call in (
                zombie.commit_offsets(
                    group_id=group_id, tasks=[TaskOffsets(TASK, term, [], 9)], timeout_s=20
                ),
                zombie.claim_task(
                    group_id=group_id,
                    member_id=a.member_id,
                    generation=a.joined.generation if a.joined else 0,
                    task=TASK,
                    task_config_generation=0,
                    timeout_s=20,
                ),
                zombie.heartbeat(group_id=group_id, member_id=a.member_id, generation=1),
            )
        ]
        await asyncio.sleep(0)
        pair.thaw(owner)
        for answer in await asyncio.gather(*late, return_exceptions=True):
            assert isinstance(answer, DroverError)
            assert answer.reason is Reason.NOT_COORDINATOR
        assert (await commit(a, TASK, term, 3, number=3)).outcome is CommitOutcome.COMMITTED
        assert await committed(a, TASK) == 3
        await pair.wait_until_shared()
        assert await committed(a, TASK) == 3


async def test_one_that_stops_in_order_gives_its_shards_back_at_once(
    pair: CoordinatorProcesses, settings: dict[str, Any]
) -> None:
    group_id = settings["group_id"]
    async with AsyncExitStack() as stack:
        [a] = await following(stack, pair.addresses, group_id, "a")
        owner = await owner_of(pair, group_id)
        assert await asyncio.to_thread(pair.stop, owner) == 0
        assert "unloading a shard" in pair.log(owner)
        await pair.wait_until_owned_by(pair.other(owner))
        assert await a.heartbeat() is False


async def pair_is_served_by(pair: CoordinatorProcesses, address: str) -> None:
    await pair.wait_until_owned_by(address)
    await has_loaded(pair, address)


async def has_loaded(pair: CoordinatorProcesses, address: str) -> None:
    """Wait until the coordinator answers for all groups that it owns."""

    async def answers() -> bool:
        async with channel(address) as connection:
            with suppress(DroverError):
                await CoordinatorClient(connection).list_groups(timeout_s=5)
                return True
        return False

    await wait_until_async(answers, timeout_s=60)


# --- brokers that are away ---------------------------------------------------------------------


@pytest.mark.faults("coordinator")
async def test_a_broker_that_is_away_at_the_start_and_later_is_waited_for(
    mortal_broker: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    broker = mortal_broker
    await asyncio.to_thread(broker.stop)
    settings = kafka_settings(broker.bootstrap, topic_prefix, coordinator_lease_ms=LEASE_MS)
    coordinator = CoordinatorProcess(tmp_path, **settings)
    await coordinator.launch()
    try:
        await wait_until_async(lambda: healths(coordinator, "NOT_SERVING"), timeout_s=60)
        async with coordinator.client() as client:
            for call in (
                lambda: client.find_coordinator("g", timeout_s=1),
                lambda: client.describe("g", timeout_s=1),
            ):
                await wait_until_async(partial(is_refused, call))
            await asyncio.to_thread(broker.start)
            await wait_until_async(lambda: healths(coordinator, "SERVING"), timeout_s=60)

            async def serves() -> bool:
                with suppress(DroverError):
                    return (await client.describe("g", timeout_s=5)).state is GroupState.DEAD
                return False

            await wait_until_async(serves, timeout_s=60, describe=coordinator.log)
            # it may answer for one group before it has loaded all shards
            await wait_until_async(lambda: is_serving(coordinator), timeout_s=60)
            await asyncio.to_thread(broker.kill)
            await wait_until_async(lambda: healths(coordinator, "NOT_SERVING"), timeout_s=60)
            assert await is_serving(coordinator), "the process itself"
            await asyncio.to_thread(broker.start)
            await wait_until_async(lambda: healths(coordinator, "SERVING"), timeout_s=60)
            await wait_until_async(serves, timeout_s=60, describe=coordinator.log)
        assert_told_in_turn(
            coordinator.log(),
            "the leases cannot be renewed",
            "the leases can be renewed again",
            times=2,
        )
        coordinator.assert_unharmed()
    finally:
        await coordinator.stop()


async def is_refused(call: Callable[[], Awaitable[object]]) -> bool:
    """False where the call timed out without a response: the caller then repeats it."""
    with pytest.raises(DroverError) as caught:
        await call()
    return caught.value.code in ("UNAVAILABLE", "FAILED_PRECONDITION")


async def healths(coordinator: CoordinatorProcess | RunningCoordinator, wanted: str) -> bool:
    return await health(coordinator.address) == wanted


async def is_serving(coordinator: CoordinatorProcess) -> bool:
    return await health(coordinator.address, "") == "SERVING"


@pytest.mark.faults("coordinator")
async def test_no_commit_that_was_acknowledged_is_lost_with_a_broker_or_a_coordinator(
    mortal_broker: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    broker = mortal_broker
    settings = kafka_settings(broker.bootstrap, topic_prefix, coordinator_lease_ms=LEASE_MS)
    async with AsyncExitStack() as stack:
        coordinator = await stack.enter_async_context(coordinator_process(tmp_path, **settings))
        [member] = await following(stack, [coordinator.address], settings["group_id"], "a")
        tasks = [TaskId("files", number) for number in range(4)]
        terms = [await claim(member, TaskId(f"c{task.task}", 0)) for task in tasks]
        acknowledged = [0] * len(tasks)
        stopping = asyncio.Event()

        async def load(index: int) -> None:
            """Commit repeatedly; retry each commit until it is answered, as a task does."""
            position = 0
            while not stopping.is_set():
                position += 1
                while True:
                    try:
                        result = await commit(
                            member, TaskId(f"c{index}", 0), terms[index], position, number=position
                        )
                    except DroverError:
                        await pause(0.05)
                        continue
                    assert result.outcome is CommitOutcome.COMMITTED, result
                    acknowledged[index] = position
                    break

        async def more(count: int) -> None:
            wanted = [each + count for each in acknowledged]
            await wait_until_async(
                lambda: all(a >= w for a, w in zip(acknowledged, wanted, strict=True)),
                timeout_s=90,
                describe=lambda: (acknowledged, wanted, coordinator.log()[-3_000:]),
            )

        loads = [asyncio.create_task(load(index)) for index in range(len(tasks))]
        await more(20)
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
        await more(20)
        await coordinator.kill()
        await coordinator.start()
        await more(20)
        stopping.set()
        await asyncio.gather(*loads)
        for index in range(len(tasks)):
            found = await committed(member, TaskId(f"c{index}", 0))
            assert found == acknowledged[index]
