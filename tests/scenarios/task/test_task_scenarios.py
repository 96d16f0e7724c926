"""Runs every scenario of this folder; see tests/support/scenario.py for how to bless one."""

from pathlib import Path

import pytest

from tests.support.scenario import run_scenario
from tests.support.task_scenario import TaskScenario

SCENARIOS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    run_scenario(path, TaskScenario().execute)


def test_there_are_scenarios() -> None:
    assert SCENARIOS
