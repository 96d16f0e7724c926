"""Sources deliver exactly once when Spark's executors are processes of a remote master."""

from pathlib import Path

import psutil
import pytest

from tests.support.cluster import EmbeddedCluster
from tests.support.kafka.choice import Kafka
from tests.support.kafka.clients import create_topic, read_all
from tests.support.kafka.connect import ConnectOptions
from tests.support.kafka.copy import FileCopy
from tests.support.kafka.drover_cluster import drover_on_kafka
from tests.support.spark_processes import executors_below
from tests.support.waiting import wait_until_async

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.faults("kafka"),
    pytest.mark.timeout(1_800),
]

ENVIRONMENT = {
    "DROVER_SPARK_MASTER": "local-cluster[2,1,1024]",
    "DROVER_EXACTLY_ONCE_SOURCE_SUPPORT": "enabled",
}
_WAIT_S = 600


async def test_executors_in_other_processes_deliver_each_line_once(
    kafka: Kafka, topic_prefix: str, tmp_path: Path
) -> None:
    topic = f"{topic_prefix}remote"
    create_topic(kafka.bootstrap, topic)
    copy = FileCopy(tmp_path, "remote", topic)
    copy.configs[copy.source]["exactly.once.support"] = "required"
    _grow(copy, 0)
    options = ConnectOptions.named(f"{topic_prefix}cluster")
    async with drover_on_kafka(
        kafka.bootstrap, options, tmp_path / "cluster", env=ENVIRONMENT
    ) as cluster:
        await cluster.wait_until_members()
        async with cluster.client() as client:
            await copy.create_connectors(client)
            await _passed(copy)
            executors = _executors(cluster)
            assert len(executors) == 2
            _grow(copy, 1_000)
            executors[0].kill()
            _grow(copy, 2_000)
            await _passed(copy)
            await wait_until_async(lambda: len(_executors(cluster)) == 2, timeout_s=_WAIT_S)
    values = [each.value for each in read_all(kafka.bootstrap, topic)]
    assert values == [f"line {number}".encode() for number in range(3_000)]
    assert (copy.lost(), copy.doubled()) == ([], [])


def _grow(copy: FileCopy, first: int) -> None:
    copy.append("".join(f"line {number}\n" for number in range(first, first + 1_000)))


async def _passed(copy: FileCopy) -> None:
    await wait_until_async(
        lambda: copy.output.exists() and not copy.lost(),
        timeout_s=_WAIT_S,
        describe=lambda: copy.output.exists() and len(copy.lost()),
    )


def _executors(cluster: EmbeddedCluster) -> list[psutil.Process]:
    return executors_below(psutil.Process(cluster.process("worker-1").pid))
