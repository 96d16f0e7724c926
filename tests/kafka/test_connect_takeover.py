"""Drover takes over a Kafka Connect cluster while data flows, and Kafka Connect takes it back."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from drover.client import ConnectClient
from drover.model.config import CONSUMER_GROUP_SETTING
from tests.support.cluster import EmbeddedCluster
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import CALL_TIMEOUT_S, QUIET, create_topic
from tests.support.kafka.connect import ConnectOptions, KafkaConnect
from tests.support.kafka.copy import FileCopy
from tests.support.kafka.drover_cluster import drover_on_kafka
from tests.support.shared_cluster import errors_in
from tests.support.waiting import wait_until_async

#: Covers the start of a cluster with an engine and two workers of Kafka Connect.
pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(1_200)]

PASS_TIMEOUT_S = 120


@pytest.fixture
def options(topic_prefix: str) -> ConnectOptions:
    return ConnectOptions.named(f"{topic_prefix}cluster")


@pytest.fixture
def connect(
    kafka: Kafka, connect_cluster: Callable[..., KafkaConnect], options: ConnectOptions
) -> KafkaConnect:
    return connect_cluster(bootstrap=kafka.bootstrap, options=options)


async def test_a_copy_is_taken_over_and_given_back(
    kafka: Kafka, connect: KafkaConnect, options: ConnectOptions, tmp_path: Path
) -> None:
    flow, still = _copies(kafka, options, tmp_path)
    still.append("one\ntwo, and still o")
    async with flow.feeding():
        for copy in (flow, still):
            await asyncio.to_thread(copy.create_in, connect.rest)
        await flow.wait_until_passed("through Kafka Connect")
        await _came_out(still, "one\n")
        await asyncio.to_thread(connect.stop)

        async with drover_on_kafka(kafka.bootstrap, options, tmp_path / "first") as cluster:
            await cluster.wait_until_members()
            await flow.wait_until_passed("through Drover")
            await _came_out(still, "one\n")
            still.append("pen\nthree\nopen aga")
            await _came_out(still, "one\ntwo, and still open\nthree\n")
            async with cluster.client() as client:
                await _shown_as_taken_over(client, cluster, still)
                await _lag_tools_see_the_offsets(client, kafka, still)
                await client.pause_connector(still.sink)
                await cluster.wait_for_task(still.sink, state="PAUSED")
            _assert_unharmed(cluster)

        await _give_back(connect, flow, still)
        still.append("in\nfour\n")
        await _came_out(still, "one\ntwo, and still open\nthree\nopen again\nfour\n")
    await flow.assert_equal()


@pytest.mark.faults("kafka")
async def test_a_worker_is_killed_between_two_takeovers(
    kafka: Kafka, connect: KafkaConnect, options: ConnectOptions, tmp_path: Path
) -> None:
    flow, _ = _copies(kafka, options, tmp_path)
    async with flow.feeding():
        await asyncio.to_thread(flow.create_in, connect.rest)
        await flow.wait_until_passed("through Kafka Connect")
        await asyncio.to_thread(connect.stop)
        async with drover_on_kafka(kafka.bootstrap, options, tmp_path / "drover") as cluster:
            await cluster.wait_until_members()
            await flow.wait_until_passed("through Drover")
            await _kill(cluster, "worker-1")
            await flow.wait_until_passed("after the worker was killed")
        await asyncio.to_thread(connect.start)
        await flow.wait_until_passed("through Kafka Connect at last")
    await wait_until_async(lambda: not flow.lost(), timeout_s=PASS_TIMEOUT_S, describe=flow.lost)
    # at least once: lines that a killed source wrote and did not commit are written again, complete
    assert flow.unknown() == []
    print(f"{len(flow.doubled())} of {flow.line_count()} lines came twice")  # noqa: T201


async def _give_back(connect: KafkaConnect, flow: FileCopy, still: FileCopy) -> None:
    """Changes made through Drover's API also apply in Kafka Connect."""
    await asyncio.to_thread(connect.start)
    await asyncio.to_thread(flow.wait_until_run_by, connect.rest)
    await asyncio.to_thread(connect.rest.wait_until_state, still.sink, "PAUSED", tasks=1)
    await asyncio.to_thread(connect.rest.resume, still.sink)
    await flow.wait_until_passed("through Kafka Connect again")
    for name, config in {**flow.configs, **still.configs}.items():
        status = await asyncio.to_thread(connect.rest.wait_until_running, name)
        assert status["tasks"][0]["worker_id"] == connect.rest.url.removeprefix("http://")
        assert connect.rest.get(name)["config"] == config


def _copies(kafka: Kafka, options: ConnectOptions, directory: Path) -> tuple[FileCopy, FileCopy]:
    """Two copies: one with growing input, and one with its own consumer group that reads on
    request.
    """
    made = []
    for name in ("flow.1-x", "still"):
        topic = f"{options.group_id}-{name}"
        create_topic(kafka.bootstrap, topic)
        made.append(FileCopy(directory, name, topic))
    flow, still = made
    still.configs[still.sink][CONSUMER_GROUP_SETTING] = f"{still.topic}-readers"
    return flow, still


async def _came_out(copy: FileCopy, text: str) -> None:
    await wait_until_async(
        lambda: copy.output.exists() and len(copy.output.read_bytes()) >= len(text),
        timeout_s=PASS_TIMEOUT_S,
        describe=lambda: copy.output.exists() and copy.output.read_bytes(),
    )
    assert copy.output.read_bytes() == text.encode()


async def _shown_as_taken_over(
    client: ConnectClient, cluster: EmbeddedCluster, copy: FileCopy
) -> None:
    await client.list_plugins()  # settings of classes that a worker does not know yet are masked
    for name, config in copy.configs.items():
        connector = await client.get_connector(name)
        assert dict(connector.config) == config, "what Kafka Connect wrote stays as it is"
        task = await cluster.wait_for_task(name)
        assert task.worker_id == cluster.workers[0]
        assert await client.get_connector_topics(name) == [copy.topic]


async def _lag_tools_see_the_offsets(client: ConnectClient, kafka: Kafka, copy: FileCopy) -> None:
    """Kafka's tools show that the sink's group has committed three records; its default group has
    none.
    """
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, **QUIET})
    group = copy.configs[copy.sink][CONSUMER_GROUP_SETTING]
    seen: list[object] = []

    async def agree() -> bool:
        shown = [
            (json.loads(each.partition_json), json.loads(each.offset_json))
            for each in await client.get_connector_offsets(copy.sink)
        ]
        held = await asyncio.to_thread(_positions, admin, group)
        seen[:] = [shown, held]
        partition = {"kafka_topic": copy.topic, "kafka_partition": 0}
        assert await asyncio.to_thread(_positions, admin, f"connect-{copy.sink}") == []
        return shown == [(partition, {"kafka_offset": 3})] and held == [(copy.topic, 0, 3)]

    await wait_until_async(agree, timeout_s=PASS_TIMEOUT_S, describe=lambda: seen)


def _positions(admin: AdminClient, group: str) -> list[tuple[str, int, int]]:
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    found = asked[group].result(CALL_TIMEOUT_S).topic_partitions
    return [(each.topic, each.partition, each.offset) for each in found]


async def _kill(cluster: EmbeddedCluster, name: str) -> None:
    cluster.note_processes()
    process = cluster.process(name)
    starts = process.start_count
    process.kill()
    await cluster.supervisor.wait_until_serving(name, start_count=starts + 1, timeout_s=120)
    await cluster.wait_until_members()


def _assert_unharmed(cluster: EmbeddedCluster) -> None:
    for name, process in cluster.supervisor.processes.items():
        assert process.start_count == 1, f"{name} died: {cluster.log(name)[-3_000:]}"
        assert errors_in(cluster.log(name)) == [], name
