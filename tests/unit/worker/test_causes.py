import pytest

from drover.errors import Reason, UnavailableError
from drover_worker.core import events
from drover_worker.core.causes import Cause, cause_of
from tests.support.herder_driver import HerderDriver

UNREACHABLE = UnavailableError(Reason.SERVICE_UNREACHABLE, "nobody answers")


@pytest.mark.parametrize("cause", Cause)
def test_the_prefix_of_a_cause_id_names_what_the_call_was_for(cause: Cause) -> None:
    assert cause_of(cause.new_id(7)) is cause


@pytest.mark.parametrize("cause_id", ["", "7", "join", "other-7", "join-7-7"])
def test_other_ids_have_no_cause(cause_id: str) -> None:
    assert cause_of(cause_id) is None


@pytest.mark.parametrize("cause_id", ["", *(cause.new_id(999) for cause in Cause)])
def test_the_failure_of_a_call_that_nobody_waits_for_is_ignored(
    herder: HerderDriver, cause_id: str
) -> None:
    herder.ready()
    herder.settle_as_leader()

    assert herder.step(events.CallFailed(cause_id, UNREACHABLE)) == []


@pytest.mark.parametrize("cause", [Cause.REQUEST, Cause.EMPTY_STOPPED, Cause.TASK_CONFIGS])
def test_a_write_that_nobody_waits_for_is_ignored(herder: HerderDriver, cause: Cause) -> None:
    herder.ready()
    herder.settle_as_leader()

    assert herder.step(events.ConfigWritten(cause.new_id(999), 5)) == []
