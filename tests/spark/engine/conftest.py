"""One engine for all tests; the last may end it."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.spark.engine.harness import START_TIMEOUT_S, Harness


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def starting_engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Harness]:
    """Not awaited: the engine answers while Spark starts."""
    harness = Harness(tmp_path_factory.mktemp("engine"))
    await harness.supervisor.start()
    yield harness
    await harness.close()
    unwanted = harness.exits[harness.ended_by_tests :]
    assert [each.requested for each in unwanted] == [True], "it lived through all others"


@pytest_asyncio.fixture(loop_scope="session")
async def engine(starting_engine: Harness) -> Harness:
    """The same engine, with Spark started."""
    async with asyncio.timeout(START_TIMEOUT_S):
        await starting_engine.supervisor.wait_ready()
    return starting_engine
