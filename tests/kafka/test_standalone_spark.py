"""An engine on a standalone Spark cluster whose executors have only Drover's archive."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from drover.api.common.v1 import activity_pb2
from drover.local.process import is_alive
from drover.local.spark_archive import write_archive
from drover_worker.engine.spark_protection import SECRET
from tests.kafka.test_data_plane_engine import Flow
from tests.spark.engine.harness import CALL_TIMEOUT_S, START_TIMEOUT_S, Harness
from tests.support.kafka.choice import Kafka
from tests.support.kafka.remote_harness import remote_harness
from tests.support.spark_cluster import SparkCluster
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.spark,
    pytest.mark.faults("spark"),
    pytest.mark.timeout(1_800),
    pytest.mark.asyncio(loop_scope="module"),
]

_SECRET = "a-secret-of-tests-only"
_EXECUTOR_PYTHON = "spark.executorEnv.DROVER_EXECUTOR_PYTHON"
_MASTER = "master spark://127.0.0.1:"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "drover.tar.gz"
    write_archive(path)
    return path


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    cluster = SparkCluster(tmp_path_factory.mktemp("spark"), secret=_SECRET)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


Engines = Callable[..., Harness]


@pytest.fixture(scope="module")
def make_engine(
    kafka: Kafka, spark_cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory
) -> Engines:
    """Makes an engine with executors on the cluster; it is not started."""

    def make(name: str, packed: Path, conf: Mapping[str, str] | None = None) -> Harness:
        return remote_harness(
            kafka.bootstrap,
            name,
            tmp_path_factory.mktemp(name),
            master=spark_cluster.master_url,
            spark_conf={**spark_cluster.engine_conf(packed), **(conf or {})},
        )

    return make


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(make_engine: Engines, archive: Path) -> AsyncIterator[Harness]:
    harness = make_engine("standalone", archive)
    await harness.start()
    yield harness
    await harness.close()
    assert [each.requested for each in harness.exits] == [True], "it lived through all tests"


@pytest.fixture
def flow(engine: Harness, kafka: Kafka, tmp_path: Path, topic_prefix: str) -> Flow:
    return Flow(engine, kafka.bootstrap, tmp_path, topic_prefix)


@pytest.mark.parametrize(
    ("name", "conf", "reason"),
    [
        ("no-drover", {}, "they have no Drover: pack it with `drover spark-archive"),
        ("no-python", {_EXECUTOR_PYTHON: "/no/python"}, "they need Python 3"),
        ("another-secret", {SECRET: "another"}, "check that"),
    ],
)
async def test_an_engine_whose_executors_cannot_work_says_why(
    make_engine: Engines, tmp_path: Path, name: str, conf: dict[str, str], reason: str
) -> None:
    empty = tmp_path / "empty.tar.gz"
    write_archive(empty, import_path=[])
    harness = make_engine(name, empty, conf)
    await harness.supervisor.start()
    try:
        await wait_until_async(
            lambda: harness.exits, timeout_s=START_TIMEOUT_S, describe=lambda: harness.log[-5:]
        )
    finally:
        await harness.close()
    assert reason in harness.exits[0].message
    assert _MASTER in harness.exits[0].message


async def _wait_for_executor(cluster: SparkCluster) -> psutil.Process:
    await wait_until_async(cluster.executors, timeout_s=CALL_TIMEOUT_S)
    return cluster.executors()[0]


def _waits_for_executors(flow: Flow) -> bool:
    entries = [e for report in flow.engine.reports for e in report.task_progress.entries]
    steps = [each.activity.step for each in entries if each.task.connector == flow.name("source")]
    return steps[-1:] == [activity_pb2.TASK_STEP_WAITING_FOR_EXECUTORS]


def _libraries(executor: psutil.Process) -> set[Path]:
    """The files of PyArrow and of Drover's other libraries that Python workers have loaded."""
    found = set()
    for worker in executor.children(recursive=True):
        for line in Path(f"/proc/{worker.pid}/maps").read_text().splitlines():
            path = Path(line.split(maxsplit=5)[-1])
            if path.is_absolute() and "pyarrow" in path.parts:
                found.add(path)
    return found


async def test_executors_with_only_the_archive_deliver_each_line_once(
    flow: Flow, spark_cluster: SparkCluster
) -> None:
    await flow.start_both()
    flow.grow()
    await flow.wait_until_equal()
    libraries = _libraries(await _wait_for_executor(spark_cluster))
    assert libraries
    for each in libraries:
        assert each.is_relative_to(spark_cluster.work.resolve()), each
        assert not each.is_relative_to(sys.prefix)
    await flow.stop()
    assert flow.lines() == flow.records()
    assert flow.failures() == []


@pytest.mark.parametrize("which", ["executor", "worker", "master"])
async def test_each_line_is_delivered_once_though_a_process_is_killed(
    flow: Flow, spark_cluster: SparkCluster, which: str
) -> None:
    executor = await _wait_for_executor(spark_cluster)
    await flow.start_both()
    flow.grow()
    await flow.wait_until_equal()
    flow.grow()
    if which == "executor":
        executor.kill()
    elif which == "worker":
        spark_cluster.worker.kill()
        await wait_until_async(lambda: not is_alive(executor), timeout_s=CALL_TIMEOUT_S)
        flow.grow()
        await wait_until_async(
            lambda: _waits_for_executors(flow), timeout_s=CALL_TIMEOUT_S, describe=flow.failures
        )
        spark_cluster.start_worker()
    else:
        spark_cluster.master.kill()
        flow.grow()
        await flow.wait_until_equal()
        spark_cluster.start_master()
    flow.grow()
    await flow.wait_until_equal()
    await flow.stop()
    assert flow.lines() == flow.records(), "each line once"
    assert flow.failures() == [], "Spark repeated what was lost"


async def test_an_engine_without_a_free_core_says_what_it_waits_for_and_starts_when_it_gets_one(
    engine: Harness, make_engine: Engines, archive: Path, spark_cluster: SparkCluster
) -> None:
    executor = await _wait_for_executor(spark_cluster)
    second = make_engine("second", archive)
    await second.supervisor.start()
    try:
        await wait_until_async(
            lambda: "no free core" in second.supervisor.stall, timeout_s=START_TIMEOUT_S
        )
        assert spark_cluster.master_url in second.supervisor.stall
        await engine.close()
        await wait_until_async(lambda: not is_alive(executor), timeout_s=CALL_TIMEOUT_S)
        async with asyncio.timeout(START_TIMEOUT_S):
            await second.supervisor.wait_ready()
        assert second.supervisor.stall == ""
    finally:
        await second.close()
