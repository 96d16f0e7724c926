"""Exactly once from file to file on three brokers while processes and brokers are killed or
frozen.
"""

import asyncio
import json
import os
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from drover.errors import UnavailableError
from drover.log.storage import KafkaStorage, KafkaTopics
from tests.kafka.test_exactly_once import MortalBatchProducer, World
from tests.support.cluster import EmbeddedCluster
from tests.support.kafka.cluster import KafkaCluster
from tests.support.kafka.connect import ConnectOptions
from tests.support.kafka.copy import FileCopy
from tests.support.kafka.drover_cluster import drover_on_kafka
from tests.support.kafka.harm import Harm
from tests.support.kafka.jars import KafkaJars
from tests.support.kafka.java_reader import read_committed
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.timeout(3_600), pytest.mark.faults("kafka")]

MINUTES = float(os.environ.get("DROVER_TEST_MINUTES", "10"))
SEED = int(os.environ.get("DROVER_TEST_SEED", "15"))
PARTITIONS = 3
#: Initial leader of the tests' partitions, and initial transaction coordinator.
LEADER, COORDINATOR = 2, 3
COMPACTED = {"cleanup.policy": "compact"}
#: Short, so outages often exceed it.
TRANSACTION_TIMEOUT_MS = 10_000
THREE_COPIES = {
    "DROVER_STORAGE_REPLICATION_FACTOR": "3",
    "DROVER_KAFKA_CONFIG": json.dumps({"transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS)}),
}


@pytest.fixture(scope="module")
def brokers(
    kafka_jars: KafkaJars, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaCluster]:
    brokers = KafkaCluster(kafka_jars, tmp_path_factory.mktemp("brokers"), equal=True)
    try:
        brokers.start()
        brokers.make_topic("__transaction_state", leader=COORDINATOR, config=COMPACTED)
        yield brokers
    finally:
        brokers.stop()


@pytest.mark.e2e
@pytest.mark.spark
async def test_each_record_arrives_once_and_in_order_whatever_happens(
    brokers: KafkaCluster, kafka_jars: KafkaJars, topic_prefix: str, tmp_path: Path
) -> None:
    options = ConnectOptions.named(f"{topic_prefix}cluster", exactly_once_source="enabled")
    topic = f"{topic_prefix}lines"
    brokers.make_topic(topic, leader=LEADER, partitions=PARTITIONS)
    copy = FileCopy(tmp_path, "flow", topic, lines_per_tick=100)
    async with drover_on_kafka(
        *(brokers.bootstrap, options, tmp_path / "d"), workers=2, coordinators=2, env=THREE_COPIES
    ) as cluster:
        await cluster.wait_until_members()
        harm = Harm(cluster, brokers, random.Random(SEED), log=tmp_path / "harm.txt")
        async with copy.feeding():
            async with cluster.client() as client:
                await copy.create_connectors(client)
            await copy.wait_until_passed("before anything happens")
            async with harm.to_brokers():
                end_s = time.monotonic() + MINUTES * 60
                while time.monotonic() < end_s:
                    await harm.one_of_drover()
                    await copy.wait_until_passed(f"after {harm.done[-5:]}")
        await copy.wait_until_passed("after the feed has ended")
        position = await _position(cluster, copy.source)
    assert position == copy.input.stat().st_size
    came_in = copy.input.read_text().splitlines()
    in_topic = [
        await asyncio.to_thread(read_committed, kafka_jars, brokers.bootstrap, topic, number)
        for number in range(PARTITIONS)
    ]
    _assert_each_once(came_in, in_topic)
    came_out = copy.output.read_text().splitlines()
    _assert_each_once(came_in, _as_dealt_out(came_out, in_topic))
    history = await _positions_of_old(brokers, kafka_jars, options)
    assert history == sorted(set(history)), "an owner of before has written offsets"
    assert history[-1] == position


@pytest.mark.parametrize(
    ("leader", "nodes"),
    [
        pytest.param(LEADER, [LEADER], id="the records' leader"),
        pytest.param(LEADER, [COORDINATOR], id="the transactions' broker"),
        pytest.param(COORDINATOR, [COORDINATOR], id="one that is both"),
        pytest.param(LEADER, [1, 2, 3], id="all of them"),
    ],
)
def test_what_is_away_for_longer_than_a_transaction_makes_no_aborted_record_visible(
    brokers: KafkaCluster, topic_prefix: str, tmp_path: Path, leader: int, nodes: list[int]
) -> None:
    topics = KafkaTopics(offset=f"{topic_prefix}offsets")
    for name in (topics.offset, f"{topic_prefix}lines"):
        brokers.make_topic(name, leader=leader, config=COMPACTED if "offsets" in name else None)
    brokers.elect("__transaction_state", COORDINATOR)
    storage = KafkaStorage(
        bootstrap_servers=brokers.bootstrap,
        group_id=topic_prefix.strip("-."),
        topics=topics,
        client_config={"transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS)},
    )
    world = World(storage, f"{topic_prefix}lines", tmp_path, MortalBatchProducer)
    owner = world.take_over()
    owner.start()
    owner.publish_next()
    away: list[str] = []
    aborted: list[str] = []

    def goes_away(step: str) -> None:
        if step == "commit" and not away:
            away.append(step)
            over_s = time.monotonic() + 1.5 * TRANSACTION_TIMEOUT_MS / 1_000
            for node in nodes:
                brokers.brokers[node].kill()
            wait_until(lambda: time.monotonic() > over_s)
            with ThreadPoolExecutor() as at_once:
                list(at_once.map(lambda node: brokers.brokers[node].revive(), nodes))

    owner.producer.before = goes_away

    def is_published() -> bool:
        """Publish as a runner does: restart where the outcome is unknown."""
        try:
            if away:
                owner.start()
            while owner.next < 6:
                owner.publish_next()
        except UnavailableError as error:
            aborted.append(error.message)
            return False
        return True

    try:
        wait_until(is_published, timeout_s=180)
        if len(nodes) < len(brokers.brokers):  # others have ended the transaction in time
            assert aborted, "the transaction was ended before the commit"
        brokers.wait_until_all_whole()
        assert world.values() == [b"line %d" % number for number in range(6)]
    finally:
        owner.writer.close()


async def _position(cluster: EmbeddedCluster, connector: str) -> int:
    async with cluster.client() as client:
        (offset,) = await client.get_connector_offsets(connector)
    return int(json.loads(offset.offset_json)["position"])


def _assert_each_once(came_in: list[str], partitions: list[list[str]]) -> None:
    """Check that all input was written, no line twice, in order within each partition."""
    counts = Counter(line for lines in partitions for line in lines)
    lost = [line for line in came_in if line not in counts]
    doubled = [line for line, count in counts.items() if count > 1]
    assert not lost, f"{len(lost)} lost, such as {lost[:3]}"
    assert not doubled, f"{len(doubled)} doubled, such as {doubled[:3]}"
    assert counts.total() == len(came_in)
    for lines in partitions:
        numbers = [int(line.split()[1]) for line in lines]
        assert numbers == sorted(numbers)


def _as_dealt_out(lines: list[str], partitions: list[list[str]]) -> list[list[str]]:
    """A sink's lines in its order, grouped by source partition."""
    where = {line: number for number, partition in enumerate(partitions) for line in partition}
    dealt: list[list[str]] = [[] for _ in partitions]
    for line in lines:
        dealt[where[line]].append(line)
    return dealt


async def _positions_of_old(
    brokers: KafkaCluster, jars: KafkaJars, options: ConnectOptions
) -> list[int]:
    """Every committed position, in order; needs an uncompacted topic."""
    found: list[int] = []
    for number in range(options.offset_partitions):
        values = await asyncio.to_thread(
            read_committed, jars, brokers.bootstrap, options.offset_topic, number
        )
        found += [int(each) for value in values for each in re.findall(r'"position":(\d+)', value)]
    return found
