"""The random kills of the embedded storage test, on a real broker; its consumer counts the
lines.
"""

import asyncio
from pathlib import Path

import pytest

from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import create_topic
from tests.support.kafka.connect import ConnectOptions
from tests.support.kafka.copy import FileCopy
from tests.support.kafka.drover_cluster import drover_on_kafka
from tests.support.kafka.jars import KafkaJars
from tests.support.kafka.java_reader import read_committed
from tests.support.random_kills import assert_all_survive

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.timeout(2_400),
    pytest.mark.faults("engine"),
]


async def test_everything_runs_again_and_nothing_is_lost(
    kafka: Kafka, kafka_jars: KafkaJars, topic_prefix: str, tmp_path: Path
) -> None:
    options = ConnectOptions.named(f"{topic_prefix}cluster", exactly_once_source="enabled")
    topic = f"{topic_prefix}lines"
    create_topic(kafka.bootstrap, topic)
    copy = FileCopy(tmp_path, "random", topic, lines_per_tick=50)
    async with drover_on_kafka(kafka.bootstrap, options, tmp_path / "d", workers=2) as cluster:
        await cluster.wait_until_members()
        async with cluster.client() as client:
            await copy.create_connectors(client)
        history = await assert_all_survive(cluster, copy)
    lines = await asyncio.to_thread(read_committed, kafka_jars, kafka.bootstrap, topic)
    history.assert_kept(copy.source, [line.encode() for line in lines])
    assert lines == copy.input.read_text().splitlines()
