"""The cluster on Kafka, with executors on a Spark cluster: all in containers."""

from collections.abc import Iterator

import pytest

from tests.support.compose import (
    FAULTS,
    ComposeCluster,
    Container,
    compose_command,
    outlast_a_session,
    three_commands,
)
from tests.support.kafka.jars import find_jars
from tests.support.shop_flow import Flow, running_flow

pytestmark = [pytest.mark.faults("cluster"), pytest.mark.timeout(3600)]

EXECUTOR = "CoarseGrainedExecutorBackend"
COMPOSE_FILES = (
    "docker-compose.yml",
    "deploy/kafka-compose.yml",
    "deploy/spark-compose.yml",
    "tests/cluster/compose.yml",
    "tests/cluster/kafka-compose.yml",
)


@pytest.fixture(scope="module")
def on_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeCluster]:
    made = ComposeCluster(
        compose_command(), tmp_path_factory.mktemp("on-kafka"), COMPOSE_FILES, "drover-test-kafka"
    )
    made.prepare()
    made.build_kafka(find_jars().directory)
    made.down()
    try:
        for command in three_commands():
            made.follow(command)
        made.wait_for_workers(2)
        yield made
    finally:
        made.down()


@pytest.fixture(scope="module")
def flow(on_kafka: ComposeCluster) -> Iterator[Flow]:
    with running_flow(on_kafka) as made:
        yield made


def test_executors_are_on_the_spark_cluster(on_kafka: ComposeCluster, flow: Flow) -> None:
    flow.insert(500)
    flow.wait_until_all_are_there()
    (spark,) = on_kafka.containers("spark-worker")
    workers = on_kafka.containers("worker")
    assert [executors_in(each) for each in (spark, *workers)] == [len(workers), 0, 0]


def executors_in(container: Container) -> int:
    """The number of executors: one for the Spark application of each Drover worker."""
    return sum(EXECUTOR in each for each in container.commands())


@pytest.mark.parametrize("what", FAULTS)
@pytest.mark.parametrize("which", ["kafka", "spark-worker", "worker"])
def test_nothing_is_lost_while_a_container_is(
    on_kafka: ComposeCluster, flow: Flow, which: str, what: str
) -> None:
    container = on_kafka.containers(which)[0]
    flow.insert()
    with FAULTS[what](container):
        flow.insert()
        if which == "worker" and what != "paused":
            on_kafka.wait_until_running("capture", "files", not_on=container.host)
            flow.wait_until_all_are_there()
        else:
            outlast_a_session()
    flow.insert()
    flow.wait_until_all_are_there()
    on_kafka.wait_until_running("capture", "files")
    on_kafka.wait_for_workers(2)
