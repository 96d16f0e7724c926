"""An engine on YARN whose executors have only Drover's archive."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from drover.local.spark_archive import write_archive
from tests.kafka.test_data_plane_engine import Flow
from tests.spark.engine.harness import CALL_TIMEOUT_S, Harness
from tests.support.kafka.choice import Kafka
from tests.support.kafka.remote_harness import remote_harness
from tests.support.waiting import wait_until_async
from tests.support.yarn_cluster import YarnCluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.faults("spark"),
    pytest.mark.timeout(1_800),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnCluster]:
    cluster = YarnCluster(tmp_path_factory.mktemp("yarn"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(
    yarn: YarnCluster, kafka: Kafka, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Harness]:
    folder = tmp_path_factory.mktemp("engine")
    archive = folder / "drover.tar.gz"
    write_archive(archive)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HADOOP_CONF_DIR", str(yarn.conf))
        harness = remote_harness(
            kafka.bootstrap,
            "yarn",
            folder,
            master="yarn",
            spark_conf=yarn.engine_conf(archive),
        )
        await harness.start()
        yield harness
        await harness.close()
    assert [each.requested for each in harness.exits] == [True], "it lived through all tests"


@pytest.fixture
def flow(engine: Harness, kafka: Kafka, tmp_path: Path, topic_prefix: str) -> Flow:
    return Flow(engine, kafka.bootstrap, tmp_path, topic_prefix)


async def _executor(yarn: YarnCluster) -> psutil.Process:
    await wait_until_async(yarn.executors, timeout_s=CALL_TIMEOUT_S)
    return yarn.executors()[0]


async def test_executors_in_containers_deliver_each_line_once(
    flow: Flow, yarn: YarnCluster
) -> None:
    await flow.start_both()
    flow.grow()
    await flow.wait_until_equal()
    assert Path((await _executor(yarn)).cwd()).is_relative_to(yarn.work.resolve())
    await flow.stop()
    assert flow.lines() == flow.records()
    assert flow.failures() == []


@pytest.mark.parametrize("which", ["executor", "node manager", "node", "resource manager"])
async def test_each_line_is_delivered_once_though_a_process_of_yarn_is_killed(
    flow: Flow, yarn: YarnCluster, which: str
) -> None:
    executor = await _executor(yarn)
    await flow.start_both()
    flow.grow()
    await flow.wait_until_equal()
    flow.grow()
    if which == "executor":
        executor.kill()
    elif which == "node manager":  # its containers continue
        yarn.node.kill()
        flow.grow()
        await flow.wait_until_equal()
        yarn.start_node()
    elif which == "node":
        yarn.kill_node()
        flow.grow()
        yarn.start_node()
    else:
        yarn.manager.kill()
        flow.grow()
        await flow.wait_until_equal()
        yarn.start_manager()
    flow.grow()
    await flow.wait_until_equal()
    await flow.stop()
    assert flow.lines() == flow.records(), "each line once"
    assert flow.failures() == [], "Spark repeated what was lost"
