"""Clusters keep their rules under faults, and heal after them."""

from collections.abc import Sequence

import pytest

from tests.simulation.many import run_seeds


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(100), id="100"),
        pytest.param(range(100, 2_000), id="1900 more", marks=pytest.mark.faults("herder")),
    ],
)
def test_clusters_keep_their_rules_under_faults_and_heal_after_them(seeds: Sequence[int]) -> None:
    failures = [each.story for each in run_seeds(seeds) if each.summary is None]
    assert not failures, "\n\n".join(failures[:3])
