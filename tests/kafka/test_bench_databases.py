"""The figures beside Debezium run with tiny sizes; no duration is checked."""

from pathlib import Path

import pyarrow.parquet
import pytest

from bench import cdc_changes, jdbc_source, topic_sinks
from bench.databases import staged
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import create_topic, produce
from tests.support.kafka.jars import KafkaJars
from tests.support.postgres import running_postgres

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

RECORD_COUNT = 200


def test_a_plain_loop_copies_a_topic_to_parquet(
    kafka: Kafka, topic_prefix: str, tmp_path: Path
) -> None:
    topic = f"{topic_prefix}payments"
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, topic_sinks.records(RECORD_COUNT))
    target = tmp_path / topic
    assert topic_sinks.plain_seconds(kafka.bootstrap, topic, target, RECORD_COUNT) > 0
    found = pyarrow.parquet.read_table(target)
    assert found["version"].to_pylist() == list(range(RECORD_COUNT))


@pytest.mark.spark
@pytest.mark.faults("connectors")
async def test_both_sides_copy_changes_and_rows(
    kafka: Kafka, kafka_jars: KafkaJars, tmp_path: Path
) -> None:
    with running_postgres() as postgres:
        async with staged(kafka_jars, kafka.bootstrap, tmp_path, postgres) as stage:
            figures = [
                *await cdc_changes.measure(stage, change_count=RECORD_COUNT, rounds=1),
                *await jdbc_source.measure(stage, row_count=RECORD_COUNT, rounds=1),
                *await topic_sinks.measure(stage, record_count=RECORD_COUNT, rounds=1),
            ]
    rates = [each for each in figures if each.limit]
    assert [(each.figure, each.peer[-12:]) for each in rates] == [
        *(
            (f"{name}{what}", peer)
            for name in ("cdc_changes", "jdbc_source", "jdbc_upserts")
            for peer in ("rger batches", "its defaults")
            for what in ("", "_flowing")
        ),
        ("parquet_sink", "nd pyarrow in a process of its own"[-12:]),
    ]
    assert all(each.value > 0 and each.peer_value for each in rates)
    for name in ("cdc_changes", "jdbc_source", "jdbc_upserts"):
        cpu = [each for each in figures if each.figure == f"{name}_cpu" and each.peer]
        assert len(cpu) == 6
        assert all(each.value > 0 and each.peer_value for each in cpu)
