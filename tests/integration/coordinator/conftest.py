"""A coordinator in this process, on a directory of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.group_members import RunningCoordinator


@pytest.fixture
async def coordinator(tmp_path: Path) -> AsyncIterator[RunningCoordinator]:
    """It runs, and is stopped in good order at the end."""
    running = RunningCoordinator(tmp_path)
    await running.start()
    yield running
    await running.stop()
