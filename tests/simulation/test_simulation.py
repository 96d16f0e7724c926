"""Clusters keep their rules under faults, and heal after them."""

from collections.abc import Sequence

import pytest

from simulation.many import run_seed, run_seeds

#: Seeds beyond the first thousand that found a defect, by what was wrong.
FOUND = {
    18061: "the last word of a deleted connector's owner took the place of its removal",
    7_300_877: "the number of a set outlived it, until compaction took its marker",
    9_400_274: "a call sent before the group signed was refused for good when it arrived late",
}


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(60), id="60"),
        pytest.param(range(60, 2_000), id="1940 more", marks=pytest.mark.faults("herder")),
    ],
)
def test_clusters_keep_their_rules_under_faults_and_heal_after_them(seeds: Sequence[int]) -> None:
    failures = [each.story for each in run_seeds(seeds) if each.summary is None]
    assert not failures, "\n\n".join(failures[:3])


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(20), id="20"),
        pytest.param(range(20, 1_000), id="980 more", marks=pytest.mark.faults("herder")),
    ],
)
def test_sources_on_brokers_publish_each_record_once(seeds: Sequence[int]) -> None:
    outcomes = run_seeds(seeds, on_kafka=True)
    failures = [each.story for each in outcomes if each.summary is None]
    assert not failures, "\n\n".join(failures[:3])


@pytest.mark.parametrize("seed", FOUND)
def test_a_seed_that_found_a_defect_holds(seed: int) -> None:
    outcome = run_seed(seed)
    assert outcome.summary is not None, outcome.story
