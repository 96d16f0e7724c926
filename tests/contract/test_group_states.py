"""The transitions of a group equal the table in docs/group-states.md."""

import itertools

import pytest

from drover.model.group import GroupState
from drover_coordinator.core.groups.states import LEADS_TO, check_transition
from tests.support.group_tables import table

TABLE = table("From \\ to")
NAMES = {state: state.removesuffix("_REBALANCE") for state in GroupState}


def test_the_table_has_every_state() -> None:
    assert list(TABLE) == list(NAMES.values())
    assert all(list(row) == list(NAMES.values()) for row in TABLE.values())
    assert set(LEADS_TO) == set(GroupState)


@pytest.mark.parametrize(("start", "finish"), list(itertools.product(GroupState, GroupState)))
def test_a_group_goes_where_the_table_says_why(start: GroupState, finish: GroupState) -> None:
    if TABLE[NAMES[start]][NAMES[finish]]:
        check_transition(start, finish)
    else:
        with pytest.raises(AssertionError, match="cannot go"):
            check_transition(start, finish)
