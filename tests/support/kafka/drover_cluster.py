"""A whole Drover cluster, with workers and Spark, on the topics of a Kafka Connect."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from drover.local.cluster import ClusterOptions, cluster_stages
from tests.support.cluster import TEST_ENVIRONMENT, EmbeddedCluster, running_cluster
from tests.support.kafka.connect import ConnectOptions
from tests.support.kafka.drover_services import kafka_environment


@asynccontextmanager
async def drover_on_kafka(
    bootstrap: str,
    options: ConnectOptions,
    directory: Path,
    *,
    workers: int = 1,
    coordinators: int = 1,
    env: Mapping[str, str] | None = None,
) -> AsyncIterator[EmbeddedCluster]:
    """The cluster with that group id; its workers start in the background."""
    chosen = ClusterOptions(
        directory,
        worker_count=workers,
        coordinator_count=coordinators,
        storage_url=f"kafka://{bootstrap}",
        env={**TEST_ENVIRONMENT, **kafka_environment(bootstrap, options), **(env or {})},
    )
    async with running_cluster(directory, cluster_stages(chosen)) as cluster:
        yield cluster
