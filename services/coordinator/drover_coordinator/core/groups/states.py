"""The states of a group and their transitions.

The state is soft: it follows from the last durable record and from parked calls.
docs/group-states.md has the response to each request in each state. Calls are answered by the
module of their name; ``rebalance`` makes the transitions.
"""

from collections.abc import Mapping
from typing import Final

from drover.model.group import GroupState

LEADS_TO: Final[Mapping[GroupState, frozenset[GroupState]]] = {
    # No members. Also where a new group begins, while its first member gets an id.
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    # A rebalance began: the group waits for its members to join.
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.DEAD}
    ),
    # The generation is durable; the group waits for the leader's assignment.
    GroupState.COMPLETING_REBALANCE: frozenset(
        {GroupState.PREPARING_REBALANCE, GroupState.STABLE, GroupState.DEAD}
    ),
    # Every member's assignment is durable.
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    # This server no longer serves the group.
    GroupState.DEAD: frozenset({GroupState.DEAD}),
}


def check_transition(start: GroupState, finish: GroupState) -> None:
    """Raise AssertionError when ``start`` does not lead to ``finish``."""
    if finish not in LEADS_TO[start]:
        raise AssertionError(f"a group cannot go from {start} to {finish}")
