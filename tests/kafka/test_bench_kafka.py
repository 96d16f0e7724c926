"""The figures beside Kafka Connect are measured: tiny, and without a look at how long it took."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.kafka_connectors import connectors_a_second
from tests.bench.kafka_copy import JSON, TEXT, in_turn
from tests.bench.kafka_sides import Side, connect_side, drover_side
from tests.bench.running import write_lines
from tests.support.kafka.choice import Kafka
from tests.support.kafka.jars import KafkaJars

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

LINE_COUNT = 100


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_lines(tmp_path / "lines.txt", LINE_COUNT)
    return tmp_path / "lines.txt"


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    (tmp_path / "empty.txt").touch()
    return tmp_path / "empty.txt"


async def test_kafka_connect_copies_a_file_and_runs_connectors(
    kafka: Kafka, kafka_jars: KafkaJars, source: Path, empty: Path
) -> None:
    async with connect_side(kafka_jars, kafka.bootstrap, source.parent / "connect") as connect:
        await assert_measured(kafka.bootstrap, source, empty, connect)


@pytest.mark.spark
@pytest.mark.faults("kafka")
async def test_both_sides_copy_a_file_and_run_connectors(
    kafka: Kafka, kafka_jars: KafkaJars, source: Path, empty: Path
) -> None:
    async with (
        connect_side(kafka_jars, kafka.bootstrap, source.parent / "connect") as connect,
        drover_side(kafka.bootstrap, source.parent / "drover") as drover,
    ):
        await assert_measured(kafka.bootstrap, source, empty, drover, connect)


async def assert_measured(bootstrap: str, source: Path, empty: Path, *sides: Side) -> None:
    for job in (TEXT, JSON):
        small = replace(job, line_count=LINE_COUNT, rounds=0)
        done = await in_turn(sides, small, bootstrap, source)
        counted = [each for each in done if each.lines_per_s or each.cpu_s]
        assert not counted, "the round that warms up does not count"
    for side in sides:
        assert await connectors_a_second(side, empty, 2) > 0
        assert await side.running_count() == 2
