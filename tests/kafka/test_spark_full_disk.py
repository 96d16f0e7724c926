"""Executors of a Spark cluster on a full disk."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from drover.local.spark_archive import write_archive
from tests.kafka.test_data_plane_engine import Flow
from tests.support.kafka.choice import Kafka
from tests.support.kafka.remote_harness import remote_harness
from tests.support.service_process import fill, small_disk
from tests.support.spark_cluster import SparkCluster
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.spark,
    pytest.mark.faults("spark"),
    pytest.mark.timeout(1_200),
]

_SECRET = "a-secret-of-tests-only"
#: A new executor unpacks the archive first.
_EXECUTOR_TIMEOUT_S = 300.0


@pytest.fixture
def spark_cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    cluster = SparkCluster(tmp_path / "spark", secret=_SECRET)
    with small_disk(cluster.work, size="4g"), closing(cluster):
        cluster.start()
        yield cluster


async def test_the_other_executor_works_on_while_a_full_disk_prevents_a_new_one(
    kafka: Kafka, spark_cluster: SparkCluster, tmp_path: Path, topic_prefix: str
) -> None:
    archive = tmp_path / "drover.tar.gz"
    write_archive(archive)
    own = tmp_path / "engine"
    own.mkdir()
    harness = remote_harness(
        kafka.bootstrap,
        "full-disk",
        own,
        master=spark_cluster.master_url,
        spark_conf=spark_cluster.engine_conf(archive),
    )

    async def wait_for_both() -> None:
        await wait_until_async(
            lambda: len(spark_cluster.executors()) == 2, timeout_s=_EXECUTOR_TIMEOUT_S
        )

    try:
        await harness.start()
        flow = Flow(harness, kafka.bootstrap, tmp_path, topic_prefix)
        await flow.start_both()
        flow.grow()
        await flow.wait_until_equal()
        await wait_for_both()
        ballast = fill(spark_cluster.work)
        flow.grow()
        await flow.wait_until_equal()
        spark_cluster.executors()[0].kill()
        flow.grow()
        await flow.wait_until_equal()
        ballast.unlink()
        await wait_for_both()
        flow.grow()
        await flow.wait_until_equal()
        await flow.stop()
        assert flow.lines() == flow.records(), "each line once"
        assert flow.failures() == []
    finally:
        await harness.close()
