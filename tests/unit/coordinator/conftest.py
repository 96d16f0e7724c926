"""Groups whose state machine is validated at the end of each test."""

from collections.abc import Iterator

import pytest

from drover_coordinator.core.groups.settings import GroupSettings
from tests.support.group_harness import GroupHarness


@pytest.fixture
def group() -> Iterator[GroupHarness]:
    """A coordinator with default settings."""
    harness = GroupHarness()
    yield harness
    harness.machine.validate()


@pytest.fixture
def prompt_group() -> Iterator[GroupHarness]:
    """A coordinator that does not wait for more first members."""
    harness = GroupHarness(GroupSettings(initial_rebalance_delay_ms=0))
    yield harness
    harness.machine.validate()
