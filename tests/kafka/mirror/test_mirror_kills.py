"""A topic is copied out of another cluster and back while workers and its broker are killed."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.cluster import EmbeddedCluster, embedded_cluster
from tests.support.kafka.broker import KafkaBroker
from tests.support.kafka.clients import QUIET, create_topic
from tests.support.random_kills import kill_in_turn
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.faults("connectors"),
    pytest.mark.timeout(1800),
]

SEED = 14
ROUNDS = 9
ROWS_A_ROUND = 4_000
PARTITIONS = 3


async def test_each_record_is_copied_once_whatever_is_killed(
    mortal_broker: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    topic = f"{topic_prefix}rows"
    await asyncio.to_thread(create_topic, mortal_broker.bootstrap, topic, partitions=PARTITIONS)
    async with embedded_cluster(tmp_path) as cluster:
        await cluster.wait_until_members()
        await _create_connectors(cluster, mortal_broker, topic, tmp_path)
        for turn in range(ROUNDS):
            await asyncio.to_thread(_send, mortal_broker, topic, turn)
            await _wait_until_copied(tmp_path, turn * ROWS_A_ROUND + rng.randrange(ROWS_A_ROUND))
            await kill_in_turn(cluster, rng, turn, partial(_kill_and_revive, mortal_broker))
        await cluster.wait_until_members()
        await _wait_until_copied(tmp_path, ROUNDS * ROWS_A_ROUND)
        back = partial(asyncio.to_thread, _rows_back, mortal_broker, topic)
        await wait_until_async(
            lambda: _is_all(back), timeout_s=300, describe=lambda: "not all rows came back"
        )
        for counts in (_rows(tmp_path), await back()):
            assert sorted(counts) == list(range(ROUNDS * ROWS_A_ROUND))
            assert set(counts.values()) == {1}


async def _is_all(rows: Callable[[], Awaitable[Counter[int]]]) -> bool:
    return (await rows()).total() >= ROUNDS * ROWS_A_ROUND


def _rows_back(broker: KafkaBroker, topic: str) -> Counter[int]:
    """How often each row is in the copy that was written back to the broker."""
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "reader",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        **QUIET,
    }
    consumer = Consumer(settings)
    try:
        name = f"back.east.{topic}"
        found = consumer.list_topics(name, timeout=30).topics[name]
        consumer.assign([TopicPartition(name, each, 0) for each in found.partitions])
        counts: Counter[int] = Counter()
        ended: set[int] = set()
        while len(ended) < len(found.partitions):
            message = consumer.poll(30)
            assert message is not None
            if message.error() is None:
                counts[int(message.value() or b"")] += 1
            else:
                ended.add(message.partition() or 0)
        return counts
    finally:
        consumer.close()


def _send(broker: KafkaBroker, topic: str, turn: int) -> None:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, **QUIET}
    )
    for n in range(turn * ROWS_A_ROUND, (turn + 1) * ROWS_A_ROUND):
        producer.produce(topic, str(n).encode(), partition=n % PARTITIONS)
        producer.poll(0)
    assert producer.flush(60) == 0


async def _create_connectors(
    cluster: EmbeddedCluster, broker: KafkaBroker, topic: str, path: Path
) -> None:
    async with cluster.client() as client:
        await client.create_connector(
            "mirror",
            {
                "connector.class": "KafkaSource",
                "tasks.max": "2",
                "source.cluster.bootstrap.servers": broker.bootstrap,
                "source.cluster.alias": "east",
                "topics": topic,
                "errors.retry.timeout": "60000",
            },
        )
        await client.create_connector(
            "files",
            {
                "connector.class": "FilesSink",
                "topics": f"east.{topic}",
                "value.converter": "StringConverter",
                "path": str(path / "files"),
            },
        )
        await client.create_connector(
            "back",
            {
                "connector.class": "KafkaSink",
                "tasks.max": "2",
                "topics": f"east.{topic}",
                "target.cluster.bootstrap.servers": broker.bootstrap,
                "topic.format": "back.${topic}",
                "errors.retry.timeout": "60000",
            },
        )


def _kill_and_revive(broker: KafkaBroker) -> None:
    broker.kill()
    broker.revive()


async def _wait_until_copied(path: Path, count: int) -> None:
    await wait_until_async(
        partial(asyncio.to_thread, lambda: _rows(path).total() >= count),
        timeout_s=300,
        describe=lambda: f"{_rows(path).total()} of {count} rows",
    )


def _rows(path: Path) -> Counter[int]:
    """How often each row is in the files."""
    try:
        found = ds.dataset(path / "files", format="parquet").to_table()
    except (FileNotFoundError, OSError):
        return Counter()  # none yet, or a file was removed
    if not found.num_rows:
        return Counter()
    return Counter(int(each) for each in found.column("value").to_pylist())
