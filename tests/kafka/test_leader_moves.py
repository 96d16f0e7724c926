"""Partitions whose leader dies or moves, under the logs, tasks and services that use them."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from drover.client import FailoverChannel, StatusStoreClient
from drover.errors import DeadlineExceededError, DroverError, Reason, UnavailableError
from drover.log.kafka.client import DEFAULT_TIMEOUT_S
from drover.log.kafka.log import KafkaLogSpec
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommitOutcome
from drover.model.status import RunState, Status, StatusWrite
from drover.testing import read_all
from drover_worker.engine.tasks.topic_watcher import TopicWatcher
from tests.support.coordinator_pair import FollowingMember
from tests.support.coordinator_process import coordinator_process
from tests.support.group_members import form_group
from tests.support.kafka.callers import Caller, assert_all_kept, calling
from tests.support.kafka.clients import CALL_TIMEOUT_S, produce
from tests.support.kafka.cluster import CONTROLLER, KafkaCluster
from tests.support.kafka.coordinators import claim, commit, committed, kafka_settings
from tests.support.kafka.data_topic import Topic
from tests.support.kafka.following import Following
from tests.support.kafka.jars import KafkaJars
from tests.support.kafka.logs import LogOnKafka, storage_on
from tests.support.store_process import OnKafka, StoreProcess, assert_kept, writing, wrote_more
from tests.support.waiting import wait_until_async

#: Covers the start of three brokers.
pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("leader_moves")]

#: Initial leader of the tests' partitions; initial coordinator of transactions and groups.
LEADER, COORDINATOR = 2, 3
COMPACTED = {"cleanup.policy": "compact"}
TASK = TaskId("files", 0)


@pytest.fixture(scope="module")
def cluster(
    kafka_jars: KafkaJars, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaCluster]:
    cluster = KafkaCluster(kafka_jars, tmp_path_factory.mktemp("cluster"))
    try:
        cluster.start()
        for topic in ("__transaction_state", "__consumer_offsets"):
            cluster.make_topic(topic, leader=COORDINATOR, config=COMPACTED)
        yield cluster
    finally:
        cluster.stop()


@asynccontextmanager
async def away(cluster: KafkaCluster, node: int, *topics: str, silent: bool) -> AsyncIterator[None]:
    """Run the block without this broker, which led the topics; other brokers lead them from then
    on.

    With ``silent``, its connections stay open, as its peers see a lost host.
    """
    broker = cluster.brokers[node]
    others = {*cluster.brokers} - {node}
    for topic in topics:
        await asyncio.to_thread(cluster.wait_until_whole, topic)
    await asyncio.to_thread(broker.freeze if silent else broker.kill)
    try:
        for topic in topics:
            await asyncio.to_thread(cluster.wait_until_led, topic, *others)
        yield
    finally:
        await asyncio.to_thread(broker.thaw if silent else broker.start)


async def elect(cluster: KafkaCluster, node: int, *topics: str) -> None:
    """Elect the broker as leader of the topics that prefer it."""
    for topic in topics:
        await asyncio.to_thread(cluster.elect, topic, node)


async def open_log(
    cluster: KafkaCluster, stack: AsyncExitStack, prefix: str, followed: bool
) -> LogOnKafka:
    """A log in its own topic; the leaders of this topic and of its control topic are chosen."""
    storage = storage_on(cluster.bootstrap, prefix)
    for topic in (storage.topics.config, storage.topics.control):
        await asyncio.to_thread(partial(cluster.make_topic, topic, leader=LEADER, config=COMPACTED))
    spec = KafkaLogSpec(
        topic=storage.topics.config, transactional_id=f"{prefix}writer", followed=followed
    )
    return await stack.enter_async_context(
        LogOnKafka.opened(cluster.bootstrap, prefix, spec=spec, timeout_s=DEFAULT_TIMEOUT_S)
    )


@pytest.mark.parametrize(
    ("node", "silent"),
    [
        pytest.param(LEADER, False, id="killed", marks=pytest.mark.faults("kafka")),
        pytest.param(LEADER, True, id="silent", marks=pytest.mark.faults("kafka")),
        pytest.param(
            *(COORDINATOR, False),
            id="the transactions' is killed",
            marks=pytest.mark.faults("kafka"),
        ),
    ],
)
async def test_nothing_is_lost_while_a_logs_leader_moves(
    cluster: KafkaCluster, topic_prefix: str, node: int, silent: bool
) -> None:
    async with AsyncExitStack() as stack:
        shared = await open_log(cluster, stack, f"{topic_prefix}shared-", followed=True)
        own = await open_log(cluster, stack, f"{topic_prefix}own-", followed=False)
        topics = [name for each in (shared, own) for name in (each.spec.topic, each.control.topic)]
        moving = topics if node == LEADER else ["__transaction_state"]
        following = Following(shared.log)
        plain = [Caller(shared.log, f"plain-{index}", None) for index in range(2)]
        leaders = [Caller(shared.log, f"leader-{index}", Term(1, 1)) for index in range(2)]
        owners = [Caller(own.log, f"owner-{index}", Term(1, 1)) for index in range(2)]
        callers = [*plain, *leaders, *owners]

        async with calling(*callers):
            await elect(cluster, node, *moving)
            async with away(cluster, node, *moving, silent=silent):
                await asyncio.gather(*(caller.goes_on() for caller in callers))
            await asyncio.gather(*(caller.goes_on() for caller in callers))
            await elect(cluster, node, *moving)

        for each in (shared, own):  # with all brokers up, the timeout may be long
            each.client.timeout_s = CALL_TIMEOUT_S
        await assert_all_kept(shared.log, *plain, *leaders)
        await assert_all_kept(own.log, *owners)
        end = await shared.log.end_offset()
        await wait_until_async(lambda: following.stored[-1].offset + 1 == end)
        assert following.stored == await read_all(shared.log), "the tail missed nothing"


# tasks


def test_a_source_writes_to_topics_that_not_every_broker_knows_yet(
    cluster: KafkaCluster, topic_prefix: str
) -> None:
    for number in range(10):
        topic = Topic.at(cluster.bootstrap, f"{topic_prefix}{number}")
        assert topic.write({"value": [b"first"]}, partition_count=3) == 1


@pytest.mark.faults("kafka")
@pytest.mark.parametrize("silent", [False, True], ids=["killed", "silent"])
async def test_tasks_go_on_when_their_topics_leader_moves(
    cluster: KafkaCluster, topic_prefix: str, silent: bool
) -> None:
    topic = Topic.at(cluster.bootstrap, f"{topic_prefix}topic")
    cluster.make_topic(topic.name, leader=LEADER)
    watcher = TopicWatcher(topic.plane, interval_ms=20)
    written: list[bytes] = []

    def watch() -> threading.Event:
        """The wait of a sink that has read everything."""
        woken = threading.Event()
        watcher.wait(woken.set, {(topic.name, 0): len(written)}, {topic.name: 1})
        return woken

    def is_written(values: Sequence[bytes]) -> bool:
        try:
            return topic.write({"value": values}) == len(values)
        except UnavailableError:  # before anything was sent
            return False

    def is_seen() -> bool:
        key = (topic.name, 0)
        try:
            return topic.plane.end_offsets([key]) == {key: len(written)}
        except UnavailableError:
            return False

    def read() -> list[bytes]:
        """All records; empty where the brokers are slow."""
        with suppress(UnavailableError):
            return topic.values()
        return []

    async def goes_on(sleeping: threading.Event) -> None:
        """Other records wake the sink, a source writes, and all records are readable."""
        others = [b"others %d" % (len(written) + number) for number in range(10)]
        written.extend(others)
        bootstrap = cluster.brokers[CONTROLLER].bootstrap
        records = [(None, each) for each in others]
        await asyncio.to_thread(produce, bootstrap, topic.name, records)
        await wait_until_async(sleeping.is_set, timeout_s=60)
        own = [b"%d" % (len(written) + number) for number in range(1_000)]
        written.extend(own)
        await wait_until_async(partial(asyncio.to_thread, is_written, own), timeout_s=60)
        await wait_until_async(partial(asyncio.to_thread, is_seen), timeout_s=60)
        found = await wait_until_async(partial(asyncio.to_thread, read), timeout_s=60)
        assert found == written

    await goes_on(watch())
    sleeping = watch()
    async with away(cluster, LEADER, topic.name, silent=silent):
        await goes_on(sleeping)
    await goes_on(watch())
    sleeping = watch()
    await elect(cluster, LEADER, topic.name)
    await goes_on(sleeping)


# services


class Calls:
    """Makes numbered calls one after another; retries each until it is answered."""

    def __init__(self, name: str, call: Callable[[int], Awaitable[object]]) -> None:
        self.done = 0
        self.failures: list[str] = []
        self._name = name
        self._call = call
        self._stopping = False
        self._task = asyncio.create_task(self._run())

    async def goes_on(self) -> None:
        goal = self.done + 5
        await wait_until_async(
            lambda: self.done >= goal or self._task.done(),
            timeout_s=60,
            describe=lambda: (self._name, self.failures[-5:]),
        )
        if self._task.done():
            await self._task

    async def stop(self) -> None:
        self._stopping = True
        await self._task

    async def _run(self) -> None:
        while not self._stopping:
            try:
                await self._call(self.done + 1)
            except DroverError as error:
                self.failures.append(str(error))
                passes_by = isinstance(error, UnavailableError | DeadlineExceededError)
                # a coordinator whose lease was renewed late serves no group for a moment
                if not passes_by and error.reason is not Reason.NOT_COORDINATOR:
                    raise
                await asyncio.sleep(0)
            else:
                self.done += 1


@pytest.mark.faults("kafka")
async def test_services_go_on_when_the_leader_of_their_topics_dies(
    cluster: KafkaCluster, topic_prefix: str, tmp_path: Path
) -> None:
    where = OnKafka(bootstrap=cluster.bootstrap, prefix=topic_prefix)
    settings = kafka_settings(
        *(cluster.bootstrap, topic_prefix),
        group_id=where.environment()["DROVER_GROUP_ID"],
        status_storage_topic=where.status_topic,
        group_shards=1,
    )
    partitions = {
        where.config_topic: 1,
        where.status_topic: 2,
        settings["offset_storage_topic"]: 3,
        settings["control_storage_topic"]: 3,
    }
    for topic, count in partitions.items():
        cluster.make_topic(topic, leader=LEADER, partitions=count, config=COMPACTED)
    async with AsyncExitStack() as stack:
        configs = StoreProcess("config-store", where, tmp_path)
        statuses = StoreProcess("status-store", where, tmp_path)
        for store in (configs, statuses):
            stack.push_async_callback(asyncio.to_thread, store.process.stop)
            await asyncio.to_thread(store.start)
        coordinator = await stack.enter_async_context(coordinator_process(tmp_path, **settings))
        group_id = settings["group_id"]
        member = await stack.enter_async_context(
            FollowingMember([coordinator.address], "a", group_id=group_id)
        )
        await form_group(member)
        term = await claim(member, TASK)
        replicas = await stack.enter_async_context(FailoverChannel([statuses.address]))
        status_client = StatusStoreClient(replicas.as_channel())

        async def put_status(number: int) -> None:
            status = Status(TaskId("c", number), RunState.RUNNING, "w:1", 1)
            await status_client.put_statuses([StatusWrite(status)], timeout_s=5)

        async def commit_offset(number: int) -> None:
            result = await commit(member, TASK, term, number, number=number)
            assert result.outcome is CommitOutcome.COMMITTED

        calls = [Calls("status", put_status), Calls("commit", commit_offset)]
        for each in calls:
            stack.push_async_callback(each.stop)
        async with writing(configs) as leader:

            async def all_go_on() -> None:
                await asyncio.gather(wrote_more(leader, 5), *(each.goes_on() for each in calls))

            await all_go_on()
            async with away(cluster, LEADER, *partitions, silent=False):
                await all_go_on()
            await all_go_on()
            await elect(cluster, LEADER, *partitions)
            await all_go_on()

        for each in calls:
            await each.stop()
        await assert_kept(leader, where, configs)
        assert await committed(member, TASK) == calls[1].done
        await status_client.flush(timeout_s=CALL_TIMEOUT_S)
        known = (await status_client.get_snapshot(timeout_s=CALL_TIMEOUT_S)).statuses
        assert {*known} == {TaskId("c", number + 1) for number in range(calls[0].done)}
        coordinator.assert_unharmed()
        statuses.assert_unharmed()
