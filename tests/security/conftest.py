"""One secure cluster for the attacks of all tests."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.secure_cluster import SecureCluster, secure_cluster


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def secure(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SecureCluster]:
    """A running secure cluster; see tests.support.secure_cluster for its users."""
    async with secure_cluster(tmp_path_factory.mktemp("secure")) as running:
        yield running
