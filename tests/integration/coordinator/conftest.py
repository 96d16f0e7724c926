"""A coordinator in the test process, with its own directory."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.group_members import RunningCoordinator


@pytest.fixture
async def coordinator(tmp_path: Path) -> AsyncIterator[RunningCoordinator]:
    """A running coordinator; it drains and stops after the test."""
    running = RunningCoordinator(tmp_path)
    await running.start()
    yield running
    await running.stop()
