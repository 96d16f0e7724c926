"""A connector or task whose worker ended is shown as UNASSIGNED, with that worker as the reason."""

from dataclasses import replace

import pytest

from drover.model.ids import TaskId
from drover.model.status import RecordCounts, RunState, Status, StatusKey, StatusSnapshot
from drover_worker.core import events
from drover_worker.core.context import HerderSettings
from drover_worker.core.rebalance.protocol import MemberMetadata
from tests.support.herder_driver import ME, OTHER, HerderDriver, entry

C0, C1 = TaskId("c", 0), TaskId("c", 1)
GONE = "worker-z:7411"


def stored(
    *keys: StatusKey, worker: str = ME, state: RunState = RunState.RUNNING
) -> StatusSnapshot:
    counts = RecordCounts(read_count=7)
    found = {
        key: Status(key, state, worker, 4, version="1.2", counts=counts, figures={"lag_count": 3})
        for key in keys
    }
    return StatusSnapshot(0, found)


def states(herder: HerderDriver) -> dict[str, tuple[RunState, str, int]]:
    return {str(k): (s.state, s.worker_id, s.generation) for k, s in herder.statuses.items()}


@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.PAUSED, RunState.RESTARTING])
@pytest.mark.parametrize("configs_first", [True, False])
def test_a_worker_that_starts_again_shows_that_its_former_work_does_not_run(
    herder: HerderDriver, state: RunState, configs_first: bool
) -> None:
    if configs_first:
        herder.load(entry("c", tasks=2))
    herder.step(events.StatusesLoaded(stored("c", C0, C1, state=state)))
    if not configs_first:
        herder.load(entry("c", tasks=2))
    expected = (RunState.UNASSIGNED, ME, 4)
    assert states(herder) == {"c": expected, "c-0": expected, "c-1": expected}
    status = herder.statuses[C0]
    assert f"its worker {ME} ended, was started again at " in status.trace
    assert status.counts == RecordCounts(read_count=7)
    assert not status.figures


@pytest.mark.parametrize("state", [RunState.FAILED, RunState.STOPPED, RunState.UNASSIGNED])
def test_states_that_no_worker_holds_stay(herder: HerderDriver, state: RunState) -> None:
    herder.load(entry("c", tasks=1))
    herder.step(events.StatusesLoaded(stored("c", C0, state=state)))
    assert not herder.status_log


def test_a_worker_that_starts_leaves_the_statuses_of_others_and_of_deleted_connectors(
    herder: HerderDriver,
) -> None:
    herder.load(entry("c", tasks=1))
    herder.step(events.StatusesLoaded(stored("c", C0, worker=OTHER)))
    herder.step(events.StatusesLoaded(stored("deleted", TaskId("c", 9))))
    assert not herder.status_log


@pytest.fixture
def delaying() -> HerderDriver:
    """The work of a worker that left the group waits for its return."""
    settings = HerderSettings(worker_id=ME, group_id="drover", scheduled_delay_max_ms=300_000)
    return HerderDriver(settings, protocol="compatible")


def rebalance(herder: HerderDriver, generation: int, *held: StatusKey, leader: bool = True) -> None:
    others = {"member-b": MemberMetadata(OTHER, herder.offset, held=held)} if held else None
    herder.join(generation=generation, leader=leader, others=others)


def test_the_leader_shows_what_waits_for_a_worker_that_left_the_group(
    delaying: HerderDriver,
) -> None:
    herder = delaying
    herder.ready(entry("c", tasks=1))
    rebalance(herder, 4, "c", C0)
    herder.sync()
    herder.grant_writer()
    herder.run_engine()
    herder.see_statuses(dict.fromkeys(("c", C0), RunState.RUNNING))
    herder.status_log.clear()
    herder.statuses.clear()

    herder.step(events.GroupPushed(herder.member_id, 4, rejoin_needed=True))
    rebalance(herder, 5)
    herder.sync()
    assert herder.stage == "SETTLED"
    assert states(herder) == dict.fromkeys(("c", "c-0"), (RunState.UNASSIGNED, OTHER, 1))
    assert f"its worker {OTHER} is not in the group since " in herder.statuses[C0].trace
    herder.echo_statuses()
    herder.status_log.clear()
    herder.see_statuses({C0: RunState.RUNNING}, worker=GONE)
    assert herder.status_log == [(C0, RunState.UNASSIGNED)]


def test_the_leader_leaves_the_statuses_of_members(delaying: HerderDriver) -> None:
    delaying.ready(entry("c", tasks=1))
    rebalance(delaying, 4, "c", C0)
    delaying.sync()
    delaying.grant_writer()
    delaying.run_engine()
    delaying.status_log.clear()
    delaying.see_statuses(dict.fromkeys(("c", C0), RunState.RUNNING))
    assert not delaying.status_log


def test_a_follower_leaves_the_statuses_of_others(herder: HerderDriver) -> None:
    herder.ready(entry("c", tasks=2))
    herder.settle_as_follower(tasks=[C0])
    herder.run_engine()
    herder.status_log.clear()
    herder.see_statuses({C1: RunState.RUNNING}, worker=GONE)
    assert not herder.status_log


def test_a_worker_that_runs_again_reports_running(herder: HerderDriver) -> None:
    herder.load(entry("c", tasks=1))
    herder.step(events.StatusesLoaded(stored("c", C0)))
    herder.step(events.EngineReady())
    herder.echo_statuses()
    herder.settle_as_leader(generation=5)
    herder.run_engine()
    assert {k: s.state for k, s in herder.statuses.items()} == {
        "c": RunState.RUNNING,
        C0: RunState.RUNNING,
    }
    assert replace(herder.statuses[C0], trace="") == herder.statuses[C0]
