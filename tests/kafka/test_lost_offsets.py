"""Sinks whose committed offsets the brokers removed: after their retention, or with the group."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from drover.client import ConnectClient
from drover.connectors.aliases import FILE_STREAM_SINK
from tests.support.cluster import EmbeddedCluster
from tests.support.kafka.broker import BrokerOptions, KafkaBroker
from tests.support.kafka.clients import CALL_TIMEOUT_S, QUIET, create_topic
from tests.support.kafka.connect import ConnectOptions
from tests.support.kafka.drover_cluster import drover_on_kafka
from tests.support.kafka.jars import KafkaJars
from tests.support.waiting import wait_until_async

#: They start a broker and a cluster with an engine.
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.faults("kafka"),
    pytest.mark.timeout(900),
]

_SETTINGS = {
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "2000",
    "log.initial.task.delay.ms": "1000",
}
#: Longer than the retention and the brokers' interval.
_EXPIRED_S = 180
_STRINGS = {"key.converter": "StringConverter", "value.converter": "StringConverter"}


@pytest.fixture
def broker(kafka_jars: KafkaJars, tmp_path: Path) -> Iterator[KafkaBroker]:
    """A broker that removes offsets after a minute."""
    made = KafkaBroker(kafka_jars, tmp_path / "broker", BrokerOptions(settings=_SETTINGS))
    made.start()
    yield made
    made.stop()


class Sinks:
    """A cluster with one sink of each kind, on one topic with two partitions, one of them idle."""

    def __init__(
        self, cluster: EmbeddedCluster, client: ConnectClient, bootstrap: str, directory: Path
    ) -> None:
        self.cluster, self.client, self.bootstrap = cluster, client, bootstrap
        self.lines, self.files = directory / "lines.txt", directory / "files"
        self.admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
        self.names = ("lines", "files")

    async def create(self) -> None:
        create_topic(self.bootstrap, "t", partitions=2)
        common = {"topics": "t", **_STRINGS}
        await self.client.create_connector(
            "lines", {"connector.class": FILE_STREAM_SINK, "file": str(self.lines), **common}
        )
        await self.client.create_connector(
            "files",
            {"connector.class": "FilesSink", "path": str(self.files), "format": "json", **common},
        )

    def produce(self, *values: str, partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, **QUIET})
        for each in values:
            producer.produce("t", value=each.encode(), partition=partition)
        assert producer.flush(CALL_TIMEOUT_S) == 0

    def written(self) -> tuple[list[str], list[str]]:
        """The values in the output of each sink, sorted."""
        lines = self.lines.read_text().splitlines() if self.lines.exists() else []
        files = [
            line
            for path in sorted(self.files.glob("*.json"))
            for line in path.read_text().splitlines()
        ]
        return sorted(lines), sorted(json.loads(each)["value"] for each in files)

    async def wait_until_written(self, *values: str) -> None:
        expected = (sorted(values), sorted(values))
        await wait_until_async(
            lambda: self.written() == expected, timeout_s=CALL_TIMEOUT_S, describe=self.written
        )

    def committed(self, name: str) -> dict[int, int]:
        group = ConsumerGroupTopicPartitions(f"connect-{name}")
        found = self.admin.list_consumer_group_offsets([group])[group.group_id].result(30)
        return {each.partition: each.offset for each in found.topic_partitions if each.offset >= 0}

    async def wait_until_committed(self, expected: dict[int, int]) -> None:
        async def found() -> bool:
            all_found = [await asyncio.to_thread(self.committed, each) for each in self.names]
            return all_found == [expected] * 2

        await wait_until_async(
            found,
            timeout_s=CALL_TIMEOUT_S,
            describe=lambda: [self.committed(each) for each in self.names],
        )

    async def wait_until_expired(self) -> None:
        """Wait until the brokers have removed an offset that is newer than the sinks' offsets."""
        wanted = ConsumerGroupTopicPartitions("control", [TopicPartition("t", 0, 1)])
        altered = self.admin.alter_consumer_group_offsets([wanted])["control"]
        await asyncio.to_thread(altered.result, CALL_TIMEOUT_S)

        async def is_gone() -> bool:
            asked = self.admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions("control")]
            )
            found = await asyncio.to_thread(asked["control"].result, CALL_TIMEOUT_S)
            return not any(each.offset >= 0 for each in found.topic_partitions)

        await wait_until_async(is_gone, timeout_s=_EXPIRED_S)

    async def delete_groups(self) -> None:
        groups = [f"connect-{each}" for each in self.names]
        for deleted in self.admin.delete_consumer_groups(groups).values():
            await asyncio.to_thread(deleted.result, CALL_TIMEOUT_S)

    async def recreate_topic(self) -> None:
        (deleted,) = self.admin.delete_topics(["t"], operation_timeout=CALL_TIMEOUT_S).values()
        await asyncio.to_thread(deleted.result, CALL_TIMEOUT_S)
        create_topic(self.bootstrap, "t", partitions=2)

    async def restart(self) -> None:
        for name in self.names:
            await self.client.restart_connector(name, include_tasks=True)


@asynccontextmanager
async def sinks_on(broker: KafkaBroker, directory: Path, prefix: str) -> AsyncIterator[Sinks]:
    options = ConnectOptions.named(f"{prefix}cluster")
    async with drover_on_kafka(broker.bootstrap, options, directory / "drover") as cluster:
        await cluster.wait_until_members()
        async with cluster.client() as client:
            sinks = Sinks(cluster, client, broker.bootstrap, directory)
            await sinks.create()
            yield sinks


async def test_offsets_of_idle_and_paused_sinks_outlive_the_brokers_retention(
    broker: KafkaBroker, tmp_path: Path, topic_prefix: str
) -> None:
    async with sinks_on(broker, tmp_path, topic_prefix) as sinks:
        sinks.produce("a", "b", "c")
        sinks.produce("d", partition=1)
        await sinks.wait_until_written("a", "b", "c", "d")
        await sinks.wait_until_committed({0: 3, 1: 1})
        await sinks.client.pause_connector("files")
        await sinks.wait_until_expired()
        await sinks.wait_until_committed({0: 3, 1: 1})
        deleted = sinks.admin.delete_records([TopicPartition("t", 0, 2)])
        await asyncio.to_thread(next(iter(deleted.values())).result, CALL_TIMEOUT_S)
        await sinks.client.resume_connector("files")
        await sinks.restart()
        sinks.produce("e", partition=1)
        await sinks.wait_until_written("a", "b", "c", "d", "e")


async def test_a_group_that_another_client_deletes_is_restored_or_stops_the_sink(
    broker: KafkaBroker, tmp_path: Path, topic_prefix: str
) -> None:
    async with sinks_on(broker, tmp_path, topic_prefix) as sinks:
        sinks.produce("a", "b", "c")
        await sinks.wait_until_written("a", "b", "c")
        await sinks.wait_until_committed({0: 3})
        await sinks.delete_groups()
        await sinks.wait_until_committed({0: 3})  # by the next of the regular commits
        await sinks.delete_groups()
        before = sinks.written()
        await sinks.restart()
        for name in sinks.names:
            status = await sinks.cluster.wait_for_task(name, state="FAILED")
            assert "t-0: no committed offset, the last known one is " in status.trace
            assert "the output goes up to 3" in status.trace
        assert sinks.written() == before
        for name in sinks.names:
            await sinks.client.stop_connector(name)
            message = await sinks.client.adopt_connector_offsets(name)
            assert message == "1 offset adopted from the output: t-0 at 3"
            await sinks.client.resume_connector(name)
        sinks.produce("d")
        await sinks.wait_until_written("a", "b", "c", "d")
        await sinks.wait_until_committed({0: 4})

        for name in sinks.names:
            await sinks.client.stop_connector(name)
            await sinks.client.reset_connector_offsets(name)
            await sinks.client.resume_connector(name)
        await sinks.wait_until_written(*"aabbccdd")
        await sinks.wait_until_committed({0: 4})


async def test_topics_that_are_created_again_are_read_completely(
    broker: KafkaBroker, tmp_path: Path, topic_prefix: str
) -> None:
    async with sinks_on(broker, tmp_path, topic_prefix) as sinks:
        values = ["old 1", "old 2", "old 3"]
        sinks.produce(*values)
        for count in (1, 3, 5):  # fewer, equal, more
            await sinks.wait_until_written(*values)
            await sinks.recreate_topic()
            news = [f"new {number} of {count}" for number in range(count)]
            sinks.produce(*news)
            values += news
        await sinks.wait_until_written(*values)
        await sinks.restart()
        sinks.produce("last")
        await sinks.wait_until_written(*values, "last")
