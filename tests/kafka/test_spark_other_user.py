"""Another user of the machine cannot use files and ports of an engine on a Spark cluster."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from drover.local.spark_archive import write_archive
from drover_worker.engine.process_constants import DIRECTORY_VARIABLE
from tests.kafka.test_data_plane_engine import Flow
from tests.security.test_other_user import (
    below,
    descendants,
    engine_environments,
    listening_ports,
    open_blocks,
    shared_folder,
)
from tests.support.kafka.choice import Kafka
from tests.support.kafka.remote_harness import remote_harness
from tests.support.other_user import answers, readable_files
from tests.support.spark_cluster import SparkCluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.faults("spark"),
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as another user"),
]

__all__ = ["shared_folder"]

_SECRET = "a-secret-of-tests-only"
_SPARK_REJECTS = b"Unknown challenge message"
#: Of a port between Spark's JVM and Python.
_PYTHON_REJECTS = b"\x00\x00\x00\x03err"


@pytest.fixture
def spark_cluster(shared_folder: Path) -> Iterator[SparkCluster]:
    with closing(SparkCluster(shared_folder / "spark", secret=_SECRET)) as cluster:
        cluster.start()
        yield cluster


def _services(cluster: SparkCluster) -> list[psutil.Process]:
    return [psutil.Process(each.pid) for each in (cluster.master, *cluster.workers)]


def _web_pages(cluster: SparkCluster) -> set[int]:
    """The ports of the web pages of the master and its workers, which belong to their operator."""
    ports = set(listening_ports(_services(cluster)))
    requests = dict.fromkeys(ports, b"GET / HTTP/1.0\r\n\r\n")
    return {port for port, answer in answers(requests).items() if answer.startswith(b"HTTP/")}


async def test_another_user_reaches_nothing_of_an_engine_on_a_spark_cluster(
    kafka: Kafka, spark_cluster: SparkCluster, shared_folder: Path, topic_prefix: str
) -> None:
    archive = shared_folder / "drover.tar.gz"
    write_archive(archive)
    others = descendants()
    own = shared_folder / "engine"
    own.mkdir()
    harness = remote_harness(
        kafka.bootstrap,
        "other-user",
        own,
        master=spark_cluster.master_url,
        spark_conf=spark_cluster.engine_conf(archive),
    )
    try:
        await harness.start()
        data = shared_folder / "data"
        data.mkdir(mode=0o700)
        flow = Flow(harness, kafka.bootstrap, data, topic_prefix)
        await flow.start_both()
        flow.grow()
        await flow.wait_until_equal()

        environments = engine_environments(descendants() - others)
        staging = Path(environments[0][DIRECTORY_VARIABLE])
        assert (staging / "spark.properties").exists()
        assert readable_files(below(staging)) == []

        of_executors = [path for path in below(spark_cluster.work) if path.is_file()]
        assert of_executors
        for name in readable_files(of_executors):
            content = Path(name).read_bytes()
            assert _SECRET.encode() not in content, name
            assert b"line 19999" not in content, name

        engine = descendants() - others
        services = _services(spark_cluster)
        ports = set(listening_ports([*engine, *services, *spark_cluster.executors()]))
        found = answers(dict.fromkeys(ports - _web_pages(spark_cluster), open_blocks()))
        of_spark = {port for port, answer in found.items() if _SPARK_REJECTS in answer}
        assert len(of_spark) >= 7, "driver and executors with their blocks, master, workers"
        for port in found.keys() - of_spark:
            assert not found[port] or found[port].endswith(_PYTHON_REJECTS), port
    finally:
        await harness.close()
