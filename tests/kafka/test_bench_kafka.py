"""The figures beside Kafka Connect run with tiny sizes; no duration is checked."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench import small_tasks
from bench.kafka_connectors import connectors_a_second
from bench.kafka_copy import JSON, TEXT, in_turn
from bench.kafka_first_row import first_row_s
from bench.kafka_kill import copy_with_kill
from bench.kafka_latency import running_pair
from bench.kafka_sides import Side, connect_side, drover_side
from bench.running import write_lines
from tests.support.kafka.choice import Kafka
from tests.support.kafka.connect import ConnectOptions
from tests.support.kafka.drover_cluster import drover_on_kafka
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


@pytest.mark.spark
@pytest.mark.faults("kafka")
async def test_a_copy_is_timed_from_a_kill_on(
    kafka: Kafka, topic_prefix: str, tmp_path: Path
) -> None:
    write_lines(tmp_path / "lines.txt", 1_000_000)
    options = ConnectOptions.named(f"{topic_prefix}-kill", exactly_once_source="enabled")
    (tmp_path / "drover").mkdir()
    async with drover_on_kafka(kafka.bootstrap, options, tmp_path / "drover", workers=2) as cluster:
        await cluster.wait_until_members()
        for killed in ("source", "sink"):
            topic = f"{topic_prefix}-{killed}"
            lines = tmp_path / "lines.txt"
            assert await copy_with_kill(cluster, kafka.bootstrap, lines, topic, killed=killed) > 0


async def test_lines_of_many_small_tasks_are_timed_one_by_one(
    kafka: Kafka,
    kafka_jars: KafkaJars,
    topic_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(small_tasks, "WARM_UP_ROUNDS", 1)
    monkeypatch.setattr(small_tasks, "ROUNDS", 2)
    folder = tmp_path / topic_prefix
    async with connect_side(kafka_jars, kafka.bootstrap, tmp_path / "connect") as connect:
        found = await small_tasks.outcome_of(connect, kafka.bootstrap, folder, task_count=3)
    assert (found.line_count, len(found.latencies_s)) == (6, 6)
    assert found.cpu["Kafka Connect"] > 0


async def test_a_line_is_timed_from_file_to_file(
    kafka: Kafka, kafka_jars: KafkaJars, topic_prefix: str, tmp_path: Path
) -> None:
    async with (
        connect_side(kafka_jars, kafka.bootstrap, tmp_path / "connect") as connect,
        running_pair(connect, kafka.bootstrap, tmp_path, f"{topic_prefix}-timed") as pair,
    ):
        pair.append("one\nanother\n")
        pair.append("a third\n")
        await pair.all_there(connect.name)
        assert len(pair.latencies_s) == 2
        assert pair.target.read_text() == "the first line\none\nanother\na third\n"


async def assert_measured(bootstrap: str, source: Path, empty: Path, *sides: Side) -> None:
    for job in (TEXT, JSON):
        small = replace(job, line_count=LINE_COUNT, rounds=0)
        done = await in_turn(sides, small, bootstrap, source)
        counted = [each for each in done if each.lines_per_s or each.cpu_s]
        assert not counted, "the round that warms up does not count"
    for number, side in enumerate(sides):
        topic = f"{source.parent.name}-first-row-{number}"
        assert await first_row_s(side, bootstrap, source.parent, topic) > 0
        assert await connectors_a_second(side, empty, 2) > 0
        assert await side.running_count() == 2
