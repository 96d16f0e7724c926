"""Metrics of a coordinator's groups."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from drover.metrics.figures import Tally
from drover_coordinator import metrics
from drover_coordinator.sharding.shards import Shards
from tests.support.group_harness import GROUP, GroupHarness


def told(group: GroupHarness) -> dict[tuple[str, ...], Any]:
    runtime = SimpleNamespace(samples=lambda: ())
    shard = SimpleNamespace(machine=group.machine, runtime=runtime)
    shards = cast("Shards", SimpleNamespace(opened=lambda: [shard]))
    samples = metrics.shard_samples(shards)
    return {(each.metric.name, *each.labels): each.value for each in samples}


def rebalances(group: GroupHarness) -> tuple[int, float]:
    tally = told(group)["drover_group_rebalance_seconds", GROUP]
    assert isinstance(tally, Tally)
    return tally.count, tally.total


def test_a_rebalance_takes_from_the_first_join_to_the_assignment(
    prompt_group: GroupHarness,
) -> None:
    group = prompt_group
    group.stable("a", "b")
    count, total_s = rebalances(group)
    assert count == 1
    found = told(group)
    assert found["drover_group_members", GROUP] == 2
    assert found["drover_group_state", GROUP, "STABLE"] == 1
    assert found["drover_groups", "STABLE"] == 1

    group.rejoin("a")  # the leader
    assert told(group)["drover_group_state", GROUP, "PREPARING_REBALANCE"] == 1
    assert rebalances(group) == (count, total_s)  # this rebalance has not ended
    group.advance(5_000)
    group.rejoin("b")
    group.advance(2_000)
    group.assign("a", "b")
    assert rebalances(group) == (2, total_s + 7)


def test_one_by_one_are_told_those_with_most_members(
    prompt_group: GroupHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "GROUPS_MAX", 2)
    prompt_group.stable("a", group_id="one")
    prompt_group.stable("b", "c", group_id="two")
    prompt_group.stable("d", "e", "f", group_id="three")
    found = told(prompt_group)
    assert {key[1] for key in found if key[0] == "drover_group_members"} == {"two", "three"}
    assert found["drover_groups", "STABLE"] == 3
