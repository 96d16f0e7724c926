"""An engine on a standalone Spark cluster whose executors have only Drover's archive."""

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
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
from tests.support.addresses import free_address
from tests.support.freezing import suspend
from tests.support.kafka.choice import Kafka
from tests.support.kafka.remote_harness import remote_harness
from tests.support.spark_cluster import SparkCluster
from tests.support.spark_processes import packed_executors
from tests.support.waiting import pause, wait_until_async

pytestmark = [
    pytest.mark.spark,
    pytest.mark.faults("spark"),
    pytest.mark.timeout(1_800),
    pytest.mark.asyncio(loop_scope="module"),
]

_SECRET = "a-secret-of-tests-only"
_EXECUTOR_PYTHON = "spark.executorEnv.DROVER_EXECUTOR_PYTHON"
_MASTER = "master spark://127.0.0.1:"
#: Where there may be other versions of Python than the engine's: the system's, and beside its own.
_PYTHONS = (
    *Path("/usr/bin").glob("python3.[0-9][0-9]"),
    *Path(os.path.realpath(sys.executable)).parents[2].glob("*/bin/python3.[0-9][0-9]"),
)
_OWN_PYTHON = f"python3.{sys.version_info.minor}"
#: One of them, or "" if there is none.
_ANOTHER_PYTHON = next((str(each) for each in _PYTHONS if each.name != _OWN_PYTHON), "")
#: For how long executors do not answer.
_CUT_OFF_S = 60.0


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
        ("another-python", {_EXECUTOR_PYTHON: _ANOTHER_PYTHON}, "they need Python 3"),
        ("another-secret", {SECRET: "another"}, "check that"),
    ],
)
async def test_an_engine_whose_executors_cannot_work_says_why(
    make_engine: Engines, tmp_path: Path, name: str, conf: dict[str, str], reason: str
) -> None:
    if "" in conf.values():
        pytest.skip("no other version of Python is installed")
    empty = tmp_path / "empty.tar.gz"
    write_archive(empty, import_path=[])
    message = await _exit_message(make_engine(name, empty, conf))
    assert reason in message
    assert _MASTER in message


async def test_an_engine_whose_master_cannot_be_reached_says_so(
    kafka: Kafka, archive: Path, tmp_path: Path
) -> None:
    master = f"spark://{free_address()}"
    conf = {**packed_executors(archive), SECRET: _SECRET}
    harness = remote_harness(kafka.bootstrap, "no-master", tmp_path, master=master, spark_conf=conf)
    message = await _exit_message(harness)
    assert f"the master {master}" in message
    assert "check that it runs" in message


async def _exit_message(harness: Harness) -> str:
    """What the engine says when it cannot start."""
    await harness.supervisor.start()
    try:
        await wait_until_async(
            lambda: harness.exits, timeout_s=START_TIMEOUT_S, describe=lambda: harness.log[-5:]
        )
    finally:
        await harness.close()
    return harness.exits[0].message


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


@pytest.mark.parametrize("which", ["executor", "workers", "master"])
async def test_each_line_is_delivered_once_though_processes_are_killed(
    flow: Flow, spark_cluster: SparkCluster, which: str
) -> None:
    executor = await _wait_for_executor(spark_cluster)
    await flow.start_both()
    flow.grow()
    await flow.wait_until_equal()
    flow.grow()
    if which == "executor":
        executor.kill()
    elif which == "workers":
        executors = spark_cluster.executors()
        for worker in spark_cluster.workers:
            worker.kill()
        # an executor that its worker was starting does not notice the end of the worker
        for each in executors:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        await wait_until_async(lambda: not any(map(is_alive, executors)), timeout_s=CALL_TIMEOUT_S)
        flow.grow()
        await wait_until_async(
            lambda: _waits_for_executors(flow), timeout_s=CALL_TIMEOUT_S, describe=flow.failures
        )
        for worker in spark_cluster.workers:
            spark_cluster.start_worker(worker)
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


async def test_each_line_is_delivered_once_though_executors_do_not_answer_for_a_minute(
    flow: Flow, spark_cluster: SparkCluster
) -> None:
    await _wait_for_executor(spark_cluster)
    await flow.start_both()
    flow.grow()
    await flow.wait_until_equal()
    executors = spark_cluster.executors()
    for each in executors:
        suspend(each.pid)
    try:
        flow.grow()
        await pause(_CUT_OFF_S)
    finally:
        for each in executors:
            each.resume()
    await flow.wait_until_equal()
    await flow.stop()
    assert flow.lines() == flow.records(), "each line once"
    assert flow.failures() == []


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


async def test_engines_with_one_application_name_share_the_cluster(
    make_engine: Engines, archive: Path, kafka: Kafka, tmp_path: Path, topic_prefix: str
) -> None:
    engines = [make_engine(name, archive, {"spark.cores.max": "1"}) for name in ("left", "right")]
    try:
        await asyncio.gather(*(each.start() for each in engines))
        flows = []
        for number, each in enumerate(engines):
            own = tmp_path / str(number)
            own.mkdir()
            flows.append(Flow(each, kafka.bootstrap, own, f"{topic_prefix}{number}-"))
            await flows[-1].start_both()
            flows[-1].grow()
        for flow in flows:
            await flow.wait_until_equal()
            await flow.stop()
            assert flow.lines() == flow.records()
            assert flow.failures() == []
    finally:
        for each in engines:
            await each.close()


async def test_a_batch_that_exceeds_the_drivers_memory_fails_with_its_remedy(
    make_engine: Engines, archive: Path, kafka: Kafka, tmp_path: Path, topic_prefix: str
) -> None:
    # by default half of spark.driver.memory
    harness = make_engine("small-driver", archive, {"spark.driver.maxResultSize": "1m"})
    try:
        await harness.start()
        flow = Flow(harness, kafka.bootstrap, tmp_path, topic_prefix)
        lines = random.Random(1).randbytes(4 << 20).hex("\n", 40)
        flow.source.write_text(f"{lines}\n")
        await flow.start("source")
        await wait_until_async(flow.failures, timeout_s=CALL_TIMEOUT_S)
        assert "lower batch.max.bytes, or raise spark.driver.memory" in flow.failures()[0]
    finally:
        await harness.close()
