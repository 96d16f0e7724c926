"""A cluster on a real broker whose workers and engines are killed while lines flow through it."""

import asyncio
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from drover.dataplane.kafka import batch_producer, one_record_producer
from drover.errors import UnavailableError
from tests.kafka.test_exactly_once import (
    Mortal,
    MortalBatchProducer,
    MortalOneRecordProducer,
    MortalRecordsFirstProducer,
    are_there,
    make_world,
    offset,
)
from tests.support.cluster import EmbeddedCluster
from tests.support.kafka.broker import KafkaBroker
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import create_topic
from tests.support.kafka.connect import ConnectOptions
from tests.support.kafka.copy import FileCopy
from tests.support.kafka.drover_cluster import drover_on_kafka
from tests.support.kafka.jars import KafkaJars
from tests.support.kafka.java_reader import read_committed
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.timeout(1_500),
    pytest.mark.faults("kafka"),
]

KILLS = 6


async def test_each_line_arrives_once_whoever_is_killed(
    kafka: Kafka, kafka_jars: KafkaJars, topic_prefix: str, tmp_path: Path
) -> None:
    options = ConnectOptions.named(f"{topic_prefix}cluster", exactly_once_source="enabled")
    topic = f"{topic_prefix}lines"
    create_topic(kafka.bootstrap, topic)
    copy = FileCopy(tmp_path, "flow", topic, lines_per_tick=1_000)
    async with drover_on_kafka(kafka.bootstrap, options, tmp_path / "d", workers=2) as cluster:
        await cluster.wait_until_members()
        history = copy.history()
        async with copy.feeding(), history.observing(cluster.workers):
            async with cluster.client() as client:
                await copy.create_connectors(client)
            for number in range(KILLS):
                await copy.wait_until_passed(f"before kill {number}")
                await _kill_the_owner(cluster, copy.source, engine_only=number % 2 == 0)
        await copy.assert_equal()
        history.assert_kept(copy.sink, copy.output_lines())
    lines = await asyncio.to_thread(read_committed, kafka_jars, kafka.bootstrap, topic)
    history.assert_kept(copy.source, [line.encode() for line in lines])
    assert lines == copy.input.read_text().splitlines()


async def _kill_the_owner(cluster: EmbeddedCluster, connector: str, *, engine_only: bool) -> None:
    cluster.note_processes()
    asked = cluster.worker_name(cluster.workers[0])
    owner = cluster.worker_name((await cluster.wait_for_task(connector, ask=asked)).worker_id)
    process = cluster.process(owner)
    starts = process.start_count
    assert process.pid is not None
    below = psutil.Process(process.pid).children(recursive=True)
    if engine_only:
        for each in below:
            with suppress(psutil.NoSuchProcess):  # it ended together with the previous one
                each.kill()
    else:
        process.kill()
        await cluster.supervisor.wait_until_serving(owner, start_count=starts + 1, timeout_s=120)
    await cluster.wait_until_members()


@pytest.mark.parametrize(
    "kind", [MortalBatchProducer, MortalRecordsFirstProducer, MortalOneRecordProducer]
)
@pytest.mark.parametrize("step", ["produce", "add_offsets", "commit"])
def test_a_broker_that_dies_in_a_transaction_doubles_and_loses_nothing(
    mortal_broker: KafkaBroker,
    topic_prefix: str,
    tmp_path: Path,
    kind: type[Mortal],
    step: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Shorter client timeouts, but the same transaction timeout: a broker that restarts after a
    # transaction's timeout may fail to write the abort marker.
    for module in (batch_producer, one_record_producer):
        monkeypatch.setattr(module, "DELIVERY_TIMEOUT_MS", 3_000)
        monkeypatch.setattr(module, "COMMIT_S", 3.0)
    world = make_world(mortal_broker.bootstrap, topic_prefix, tmp_path, kind)
    owner = world.take_over()
    owner.start()
    owner.publish_next()
    killed: list[str] = []

    def kill(next_step: str) -> None:
        if next_step == step and not killed:
            killed.append(step)
            mortal_broker.kill()

    owner.producer.before = kill
    staged = world.staged(b"line 2", b"line 3")
    with pytest.raises(UnavailableError):
        owner.writer.publish([staged], [offset(4)])
    mortal_broker.start()

    def is_published() -> bool:
        """Publish as a runner does: restart where the outcome is unknown."""
        try:
            if are_there(staged) and step != "commit":
                owner.writer.publish([staged], [offset(4)])
            else:
                owner.start()
                if owner.next == 2:
                    owner.publish_next()
        except UnavailableError:
            return False
        return True

    wait_until(is_published, timeout_s=120)
    assert world.values() == [b"line 0", b"line 1", b"line 2", b"line 3"]
    owner.writer.close()
