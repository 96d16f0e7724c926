"""One embedded cluster for all tests that do not kill anything."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.shared_cluster import SharedCluster, shared_cluster


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedCluster]:
    """It runs with data that flows; tests name their connectors by themselves, and delete them."""
    async with shared_cluster(tmp_path_factory.mktemp("shared")) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def unharmed(shared: SharedCluster) -> AsyncIterator[SharedCluster]:
    """The same; after the test nothing of it is harmed or left."""
    yield shared
    shared.assert_unharmed()
    listed = await shared.client.list_connectors()
    assert [entry.name for entry in listed] == [shared.flow.sink, shared.flow.source]


@pytest_asyncio.fixture(loop_scope="session")
async def flowing(unharmed: SharedCluster) -> AsyncIterator[SharedCluster]:
    """The same; data still flows after the test."""
    yield unharmed
    await unharmed.flow.wait_until_passed("after what the test did")
    for connector in (unharmed.flow.source, unharmed.flow.sink):
        await unharmed.cluster.wait_for_task(connector)
