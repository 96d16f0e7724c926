import pytest

from tests.simulation.many import run_seeds


@pytest.mark.timeout(1_800)
def test_clusters_keep_their_rules_under_faults_and_heal_after_them() -> None:
    failures = [each.story for each in run_seeds(range(1_000)) if each.summary is None]
    assert not failures, "\n\n".join(failures[:3])
