"""Shards of coordinators that crash, freeze and stop: never two owners, and soon one again."""

from collections import Counter
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drover_coordinator.core.ownership.machine import spread, takeover_delay_ms
from tests.support.ownership_world import LEASE_MS, OwnershipWorld

FAULTS_UNTIL_MS = 30_000
#: Covers a lost claim of a crashed owner, a second claim, and hand-overs with their delays.
SETTLED_WITHIN_MS = 4 * takeover_delay_ms(LEASE_MS)


def trouble(world: OwnershipWorld) -> None:
    """Append throughout, while nodes are killed, frozen, stopped and restarted."""
    dice = world.random
    for node in world.nodes:
        world.after(dice.randint(0, 2_000), node.start)
        at_ms = 2_000
        while (at_ms := at_ms + dice.randint(100, 6_000)) < FAULTS_UNTIL_MS:
            for_ms = dice.choice((dice.randint(1, 2 * LEASE_MS), 8 * LEASE_MS))
            match dice.choice(("kill", "freeze", "freeze", "stop")):
                case "kill":
                    world.after(at_ms, node.crash)
                case "freeze":
                    world.after(at_ms, node.freeze)
                case "stop":
                    world.after(at_ms, node.stop)
            at_ms += for_ms
            world.after(at_ms, node.revive)
    for at_ms in range(0, FAULTS_UNTIL_MS, 20):
        node, shard = dice.choice(world.nodes), dice.randrange(world.shard_count)
        world.after(at_ms, partial(node.append, shard))


@pytest.mark.parametrize(("nodes", "shards"), [(2, 4), (3, 4), (3, 7), (2, 1)])
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32))
def test_one_owner_at_a_time_and_each_shard_has_one_again_soon(
    nodes: int, shards: int, seed: int
) -> None:
    world = OwnershipWorld(seed, nodes=nodes, shards=shards)
    trouble(world)
    world.run(FAULTS_UNTIL_MS)
    for log in world.logs:
        epochs = [epoch for epoch, _ in log.accepted]
        assert epochs == sorted(epochs), world.story()
        writers = dict(log.accepted)
        assert set(log.accepted) == set(writers.items()), world.story()
    world.faulty = False
    for node in world.nodes:
        node.revive()
    world.run(FAULTS_UNTIL_MS + SETTLED_WITHIN_MS)
    owners = world.owners()
    assert None not in owners, f"{owners}\n{world.story()}"
    counts = Counter({node.address: 0 for node in world.nodes})
    counts.update(owner for owner in owners if owner)
    assert max(counts.values()) - min(counts.values()) <= 1, f"{owners}\n{world.story()}"
    world.run(FAULTS_UNTIL_MS + 2 * SETTLED_WITHIN_MS)
    assert world.owners() == owners, f"shards move without need\n{world.story()}"


ADDRESSES = ("a", "b", "c", "d")


@given(
    holders=st.lists(st.sampled_from([*ADDRESSES, None]), max_size=12),
    live=st.sets(st.sampled_from(ADDRESSES), min_size=1),
)
def test_a_spread_is_even_and_moves_as_little_as_that_takes(
    holders: list[str | None], live: set[str]
) -> None:
    target = spread(holders, live)
    counts = Counter(dict.fromkeys(live, 0))
    counts.update(target)
    assert set(target) <= live
    assert max(counts.values()) - min(counts.values()) <= 1
    held = Counter(holder for holder in holders if holder in live)
    biggest_first = sorted(live, key=lambda each: -held[each])
    shares = sorted(counts.values(), reverse=True)
    needed = sum(min(held[a], share) for a, share in zip(biggest_first, shares, strict=True))
    assert sum(h == t for h, t in zip(holders, target, strict=True)) == needed
    assert spread(target, live) == target
