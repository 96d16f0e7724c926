import itertools

import pytest

from drover.model.ids import TaskId
from drover.model.status import RunState
from drover_worker.core.lifecycle.restart_plan import (
    RestartPlan,
    RestartRequest,
    plan_restart,
    preserve_highest_impact,
)

T0, T1, T2 = (TaskId("c", index) for index in range(3))
STATES = {T0: RunState.RUNNING, T1: RunState.FAILED, T2: RunState.PAUSED}


def request(*, only_failed: bool, include_tasks: bool) -> RestartRequest:
    return RestartRequest.of("c", only_failed=only_failed, include_tasks=include_tasks)


@pytest.mark.parametrize(
    ("only_failed", "include_tasks", "state", "plan"),
    [
        (False, False, RunState.RUNNING, RestartPlan("c", True, ())),
        (False, True, RunState.RUNNING, RestartPlan("c", True, (T0, T1, T2))),
        (True, False, RunState.RUNNING, RestartPlan("c", False, ())),
        (True, False, RunState.FAILED, RestartPlan("c", True, ())),
        (True, True, RunState.RUNNING, RestartPlan("c", False, (T1,))),
        (True, True, RunState.FAILED, RestartPlan("c", True, (T1,))),
    ],
)
def test_what_a_request_restarts(
    only_failed: bool, include_tasks: bool, state: RunState, plan: RestartPlan
) -> None:
    asked = request(only_failed=only_failed, include_tasks=include_tasks)
    assert plan_restart(asked, connector_state=state, task_states=STATES) == plan


def test_preserve_highest_impact_restart_request() -> None:
    ranked = [
        request(only_failed=True, include_tasks=False),
        request(only_failed=True, include_tasks=True),
        request(only_failed=False, include_tasks=False),
        request(only_failed=False, include_tasks=True),
    ]
    assert [asked.impact for asked in ranked] == [0, 1, 2, 3]
    for first, second in itertools.product(ranked, repeat=2):
        kept = preserve_highest_impact({"c": first}, second)["c"]
        assert kept == max(first, second, key=lambda asked: asked.impact)


def test_requests_of_other_connectors_are_kept_apart() -> None:
    other = RestartRequest.of("d", only_failed=True, include_tasks=False)
    asked = request(only_failed=False, include_tasks=True)
    assert preserve_highest_impact({"d": other}, asked) == {"d": other, "c": asked}
