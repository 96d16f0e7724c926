"""One embedded cluster, shared by all tests that kill no process."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.shared_cluster import SharedCluster, shared_cluster


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedCluster]:
    """A cluster with data that flows; each test names its own connectors and deletes them."""
    async with shared_cluster(tmp_path_factory.mktemp("shared")) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def unharmed(shared: SharedCluster) -> AsyncIterator[SharedCluster]:
    """The shared cluster; asserts after the test that it is intact and no connector of the test
    remains.
    """
    yield shared
    shared.assert_unharmed()
    listed = await shared.client.list_connectors()
    assert [entry.name for entry in listed] == [shared.flow.sink, shared.flow.source]


@pytest_asyncio.fixture(loop_scope="session")
async def flowing(unharmed: SharedCluster) -> AsyncIterator[SharedCluster]:
    """The shared cluster; asserts after the test that data still flows."""
    yield unharmed
    await unharmed.flow.wait_until_passed("after what the test did")
    for connector in (unharmed.flow.source, unharmed.flow.sink):
        await unharmed.cluster.wait_for_task(connector)
