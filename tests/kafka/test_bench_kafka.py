"""The figures beside Kafka Connect are measured: tiny, and without a look at how long it took."""

from pathlib import Path

import pytest

from tests.bench.kafka_connectors import connectors_a_second
from tests.bench.kafka_copy import in_turn
from tests.bench.kafka_sides import connect_side, drover_side
from tests.bench.running import write_lines
from tests.support.kafka.choice import Kafka
from tests.support.kafka.jars import KafkaJars

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.timeout(600)]


async def test_both_sides_copy_a_file_and_run_connectors(
    kafka: Kafka, kafka_jars: KafkaJars, tmp_path: Path
) -> None:
    bootstrap = kafka.bootstrap
    source, empty = tmp_path / "lines.txt", tmp_path / "empty.txt"
    write_lines(source, 100)
    empty.touch()
    async with (
        connect_side(kafka_jars, bootstrap, tmp_path / "connect") as connect,
        drover_side(bootstrap, tmp_path / "drover") as drover,
    ):
        for rates in await in_turn([drover, connect], bootstrap, source, line_count=100, rounds=0):
            assert rates == [], "the round that warms up does not count"
        for side in (drover, connect):
            assert await connectors_a_second(side, empty, 2) > 0
            assert await side.running_count() == 2
