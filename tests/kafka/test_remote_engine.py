"""Tasks of an engine whose executor is a process of a Spark master."""

from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from tests.kafka.test_data_plane_engine import Flow
from tests.spark.engine.harness import Harness
from tests.support.kafka.choice import Kafka
from tests.support.kafka.remote_harness import remote_harness
from tests.support.spark_processes import executors_below

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1_200),
    pytest.mark.asyncio(loop_scope="module"),
]

LINE_COUNT = 30_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Harness]:
    harness = remote_harness(
        kafka.bootstrap,
        "remote-engine",
        tmp_path_factory.mktemp("engine"),
        master="local-cluster[1,1,1024]",
        spark_conf={},
    )
    await harness.start()
    yield harness
    await harness.close()
    assert [each.requested for each in harness.exits] == [True], "it lived through all tests"


async def test_rows_through_executors_of_a_master_arrive_once(
    engine: Harness, kafka: Kafka, tmp_path: Path, topic_prefix: str
) -> None:
    flow = Flow(engine, kafka.bootstrap, tmp_path, topic_prefix)
    assert len(executors_below(psutil.Process())) == 1
    flow.grow(LINE_COUNT)
    assert (await flow.start("source")).HasField("done")
    assert (await flow.start("sink")).HasField("done")
    await flow.wait_until_equal()
    await flow.engine.stop_task(flow.name("source"))
    flow.grow(1)
    assert (await flow.start("source")).HasField("done"), "it continues at its committed offset"
    await flow.wait_until_equal()
    await flow.stop()
    assert flow.lines() == flow.records(), "each line once"
    assert len(flow.lines()) == LINE_COUNT + 1
    assert flow.failures() == []
