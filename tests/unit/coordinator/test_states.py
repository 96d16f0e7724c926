"""The table of states: 21 transitions of upstream's ClassicGroupTest, and its text."""

import itertools

import pytest

from drover.model.group import GroupState
from services.coordinator.core.states import STATE_RULES, check_transition, leads_to

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState
ALLOWED = {
    (PREPARING, EMPTY),
    (EMPTY, PREPARING),
    (COMPLETING, PREPARING),
    (STABLE, PREPARING),
    (PREPARING, COMPLETING),
    (COMPLETING, STABLE),
    *((state, DEAD) for state in GroupState),
}


@pytest.mark.parametrize(("start", "finish"), list(itertools.product(GroupState, GroupState)))
def test_only_the_allowed_transitions_are_allowed(start: GroupState, finish: GroupState) -> None:
    if (start, finish) in ALLOWED:
        check_transition(start, finish)
        assert finish in leads_to(start)
    else:
        with pytest.raises(AssertionError, match="cannot go"):
            check_transition(start, finish)
        assert finish not in leads_to(start)


def test_every_state_says_what_it_means_and_accepts() -> None:
    assert set(STATE_RULES) == set(GroupState)
    assert all(rule.meaning and rule.accepts for rule in STATE_RULES.values())
