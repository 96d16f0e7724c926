import pytest

from tests.simulation.group_simulation import GroupSimulation


@pytest.mark.parametrize("seed", range(40))
def test_a_group_keeps_its_rules_under_faults_and_heals_after_them(seed: int) -> None:
    GroupSimulation(seed).run()
