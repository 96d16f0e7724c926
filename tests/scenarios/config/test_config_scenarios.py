"""Every scenario file beside this one; see tests/support/config_scenario.py for the commands."""

from pathlib import Path

import pytest

from tests.support.config_scenario import ConfigScenario
from tests.support.scenario import run_scenario

SCENARIOS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=[path.stem for path in SCENARIOS])
def test_scenario(path: Path) -> None:
    run_scenario(path, ConfigScenario().execute)


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) >= 4
