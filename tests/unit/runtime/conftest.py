from collections.abc import AsyncIterator

import pytest

from drover.runtime.runtime import Runtime
from drover.testing import ManualClock, MemoryLog
from tests.support.notebook import Notebook, new_runtime


@pytest.fixture
def machine() -> Notebook:
    return Notebook()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(clock: ManualClock) -> MemoryLog:
    return MemoryLog(clock)


@pytest.fixture
async def runtime(
    machine: Notebook, log: MemoryLog, clock: ManualClock
) -> AsyncIterator[Runtime[str]]:
    running = new_runtime(machine, log, clock)
    await running.load()
    machine.diary.clear()
    yield running
    log.release_appends()
    await running.close()
