"""Clusters keep their rules under faults, and heal after them."""

from collections.abc import Sequence

import pytest

from simulation.many import run_seeds


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


def test_the_stale_state_of_a_fenced_coordinator_breaks_no_rule() -> None:
    # a coordinator is paused while it appends a generation, and another one takes its shards
    (outcome,) = run_seeds([10_118])
    assert outcome.summary is not None, outcome.story
