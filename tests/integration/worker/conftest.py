"""Clusters in the test process: real services and real workers, with fake engines."""

from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest

from drover.client import ConnectClient
from tests.support.worker_cluster import RunningWorker, WorkerCluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[WorkerCluster]:
    """A cluster with running services, without workers."""
    async with WorkerCluster(tmp_path) as running:
        yield running


@pytest.fixture
async def worker(cluster: WorkerCluster) -> RunningWorker:
    """The cluster's only worker."""
    (alone,) = await cluster.settled_workers(1)
    return alone


@pytest.fixture
async def workers(cluster: WorkerCluster) -> list[RunningWorker]:
    """The leader, then the follower."""
    return await cluster.settled_workers(2)


@pytest.fixture
async def three_workers(cluster: WorkerCluster) -> list[RunningWorker]:
    """The leader, then two followers."""
    return await cluster.settled_workers(3)


@pytest.fixture
async def client(worker: RunningWorker) -> AsyncIterator[ConnectClient]:
    """A client of the only worker."""
    async with grpc.aio.insecure_channel(worker.address) as channel:
        yield ConnectClient(channel)


@pytest.fixture
async def follower(workers: list[RunningWorker]) -> AsyncIterator[ConnectClient]:
    """A client of the follower, with ann@host as the author."""
    async with grpc.aio.insecure_channel(workers[1].address) as channel:
        yield ConnectClient(channel, author="ann@host")
