"""The states of a group, what each accepts and where it leads.

The state is soft: it follows from the last durable record and from the calls that wait. The rules
for each request are in ``joining`` and ``serving``; ``rebalance`` moves a group on.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from drover.model.group import GroupState


@dataclass(frozen=True, slots=True)
class StateRule:
    """One state: what it means, what it accepts, and from where it may be entered."""

    meaning: str
    accepts: str
    entered_from: frozenset[GroupState]


STATE_RULES: Mapping[GroupState, StateRule] = {
    GroupState.EMPTY: StateRule(
        meaning="No members. Also where a new group begins, while its first member gets an id.",
        accepts=(
            "a join with an id that is pending, which starts the initial delay; "
            "everything else of a member is answered UNKNOWN_MEMBER_ID"
        ),
        entered_from=frozenset({GroupState.PREPARING_REBALANCE}),
    ),
    GroupState.PREPARING_REBALANCE: StateRule(
        meaning="A rebalance began: waiting for the members to join the next generation.",
        accepts=(
            "joins, which are parked; heartbeats, answered rebalance in progress; syncs, answered "
            "rebalance in progress; leaves, which may complete the phase"
        ),
        entered_from=frozenset(
            {GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE}
        ),
    ),
    GroupState.COMPLETING_REBALANCE: StateRule(
        meaning="The generation is durable and told: waiting for the leader's assignment.",
        accepts=(
            "syncs, which are parked until the leader's is durable; heartbeats; a join with the "
            "same metadata, answered again; any other join and a leave start a rebalance"
        ),
        entered_from=frozenset({GroupState.PREPARING_REBALANCE}),
    ),
    GroupState.STABLE: StateRule(
        meaning="Every member's assignment is durable.",
        accepts=(
            "heartbeats; syncs, answered with the assignment; a follower's join with the same "
            "metadata, answered again; any other join and a leave start a rebalance"
        ),
        entered_from=frozenset({GroupState.COMPLETING_REBALANCE}),
    ),
    GroupState.DEAD: StateRule(
        meaning="This server no longer serves the group.",
        accepts="nothing: every call of a member is answered COORDINATOR_NOT_AVAILABLE",
        entered_from=frozenset(GroupState),
    ),
}


def leads_to(state: GroupState) -> frozenset[GroupState]:
    """Where a group in ``state`` can go."""
    return frozenset(to for to, rule in STATE_RULES.items() if state in rule.entered_from)


def check_transition(start: GroupState, finish: GroupState) -> None:
    """Raise AssertionError when a group may not go from ``start`` to ``finish``."""
    if start not in STATE_RULES[finish].entered_from:
        raise AssertionError(f"a group cannot go from {start} to {finish}")
