"""Tasks of an engine whose executors are processes of a Spark cluster."""

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
import pytest_asyncio

from drover.log.storage import KafkaStorage
from drover_worker.engine.settings import EngineLimits
from tests.kafka.test_data_plane_engine import Flow
from tests.spark.engine.harness import CALL_TIMEOUT_S, Harness
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import read_all
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1800),
    pytest.mark.asyncio(loop_scope="module"),
]

#: Two executors of one core and 1,024 MiB each.
MASTER = "local-cluster[2,1,1024]"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Harness]:
    harness = Harness(
        tmp_path_factory.mktemp("engine"),
        storage=KafkaStorage(bootstrap_servers=kafka.bootstrap, group_id="remote"),
        limits=EngineLimits(start_ms=120_000, stop_ms=60_000, poll_ms=60_000, progress_ms=50),
        spark_master=MASTER,
        exactly_once=True,
        spark_conf={"spark.executor.memory": "512m"},
    )
    await harness.start()
    yield harness
    await harness.close()
    assert [each.requested for each in harness.exits] == [True], "it lived through all of them"


@pytest.fixture
def flow(engine: Harness, kafka: Kafka, tmp_path: Path, topic_prefix: str) -> Flow:
    return Flow(engine, kafka.bootstrap, tmp_path, topic_prefix)


async def test_a_file_arrives_once_in_transactions(flow: Flow, kafka: Kafka) -> None:
    assert (await flow.start("source")).HasField("done")
    assert (await flow.start("sink")).HasField("done")
    flow.grow(300_000)  # some MB: both executors have a part
    await flow.wait_until_equal()
    flow.grow(1)
    await flow.wait_until_equal()
    await flow.stop()
    assert flow.lines() == flow.records(), "each line once"
    keys = [each.key or b"" for each in read_all(kafka.bootstrap, flow.storage.topics.offset)]
    assert any(flow.name("source").encode() in key for key in keys), "in the same transactions"
    assert flow.failures() == []


async def test_bad_lines_become_dead_letters_once(flow: Flow, kafka: Kafka) -> None:
    flow.source.write_bytes(b"1\nno number\n2\n")
    dead = Flow(flow.engine, kafka.bootstrap, flow.source.parent, f"{flow.topic}-dead-")
    await flow.start(
        "source",
        value_converter="StringConverter",
        errors_tolerance="all",
        errors_deadletterqueue_topic_name=dead.topic,
        errors_deadletterqueue_topic_replication_factor="1",
        transforms="cast",
        transforms_cast_type="Cast$Value",
        transforms_cast_spec="int32",
    )
    await wait_until_async(
        lambda: (flow.records(), dead.records()) == ([b"1", b"2"], [b"no number"]),
        timeout_s=CALL_TIMEOUT_S,
        describe=lambda: (flow.records(), dead.records(), flow.failures()),
    )
    await flow.stop()
    assert flow.failures() == []


async def test_rows_of_a_database_arrive_once(flow: Flow, tmp_path: Path) -> None:
    rows = [(number, f"item {number}") for number in range(1, 5_001)]
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.execute("CREATE TABLE items (id INTEGER PRIMARY KEY NOT NULL, name TEXT)")
        database.executemany("INSERT INTO items VALUES (?, ?)", rows)
        database.commit()
    prefix = flow.topic.removesuffix("lines")
    flow.topic = f"{prefix}items"
    await flow.engine.start_task(
        flow.name("source"),
        plugin="JdbcSource",
        connection_url=f"jdbc:sqlite:{tmp_path}/shop.db",
        mode="incrementing",
        incrementing_column_name="id",
        table_whitelist="items",
        topic_prefix=prefix,
        value_converter="JsonConverter",
        value_converter_schemas_enable="false",
    )
    await wait_until_async(
        lambda: len(flow.records()) >= len(rows),
        timeout_s=CALL_TIMEOUT_S,
        describe=lambda: (len(flow.records()), flow.failures()),
    )
    await flow.engine.stop_task(flow.name("source"))
    found = [json.loads(value) for value in flow.records()]
    assert [(each["id"], each["name"]) for each in found] == rows
    assert flow.failures() == []
