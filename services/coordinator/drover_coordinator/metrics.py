"""Metrics of a coordinator's shards and groups."""

import heapq
from collections import Counter
from collections.abc import Iterator

from drover.metrics import table
from drover.metrics.figures import Tally
from drover.metrics.metric import Sample
from drover.model.group import GroupState
from drover_coordinator.core.groups.group import Group
from drover_coordinator.sharding.shards import Shards

#: Groups with their own samples, since any client can create groups: the largest ones, which
#: should include the workers' group.
GROUPS_MAX = 100


def shard_samples(shards: Shards) -> Iterator[Sample]:
    """Samples of every open shard: its log and its groups; for ``Metrics.add``."""
    opened = shards.opened()
    yield table.SHARDS.at(len(opened))
    groups: list[Group] = []
    for shard in opened:
        yield from shard.runtime.samples()
        groups += shard.machine.groups
    states = Counter(group.state for group in groups)
    for state in GroupState:
        yield table.GROUPS.at(states[state], state)
    for group in heapq.nlargest(GROUPS_MAX, groups, key=lambda each: len(each.members)):
        yield from _group(group)


def _group(group: Group) -> Iterator[Sample]:
    yield table.GROUP_MEMBERS.at(len(group.members), group.group_id)
    yield table.GROUP_STATE.at(1, group.group_id, group.state)
    yield table.GROUP_GENERATION.at(group.generation, group.group_id)
    rebalances = Tally(group.rebalance_count, group.rebalances_ms / 1_000)
    yield table.GROUP_REBALANCES.at(rebalances, group.group_id)
