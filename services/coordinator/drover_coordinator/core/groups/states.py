"""The states of a group and where each leads.

The state is soft: it follows from the last durable record and from the calls that wait. What a
request is answered in each state stands in ARCHITECTURE.md; the rules are in ``join`` and
``serving``, and ``rebalance`` moves a group on.
"""

from collections.abc import Mapping
from typing import Final

from drover.model.group import GroupState

LEADS_TO: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    # No members. Also where a new group begins, while its first member gets an id.
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    # A rebalance began: waiting for the members to join the next generation.
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.DEAD}
    ),
    # The generation is durable and told: waiting for the leader's assignment.
    GroupState.COMPLETING_REBALANCE: frozenset(
        {GroupState.PREPARING_REBALANCE, GroupState.STABLE, GroupState.DEAD}
    ),
    # Every member's assignment is durable.
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    # This server no longer serves the group.
    GroupState.DEAD: frozenset({GroupState.DEAD}),
}


def check_transition(start: GroupState, finish: GroupState) -> None:
    """Raise AssertionError when a group may not go from ``start`` to ``finish``."""
    if finish not in LEADS_TO[start]:
        raise AssertionError(f"a group cannot go from {start} to {finish}")
