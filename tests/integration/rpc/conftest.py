from collections.abc import AsyncIterator

import pytest

from tests.support.scripted_store import Running, start, stop


@pytest.fixture
async def internal() -> AsyncIterator[Running]:
    running = await start()
    yield running
    await stop(running)


@pytest.fixture
async def admin() -> AsyncIterator[Running]:
    running = await start(internal=False)
    yield running
    await stop(running)


@pytest.fixture
async def young_watches() -> AsyncIterator[Running]:
    running = await start(watch_max_age_s=0.5)
    yield running
    await stop(running)
