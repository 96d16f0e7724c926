"""Health checks report a worker as serving from its first completed join on."""

from drover.errors import Reason, UnavailableError
from drover_worker.core import events, instructions
from drover_worker.core.readiness import why_not_serving
from tests.support.herder_driver import HerderDriver

AWAY = UnavailableError(Reason.SERVICE_UNREACHABLE, "coordinator:7401 cannot be reached")
NOT_YET = "the worker has not joined its group 'drover' yet: "


def why_not(herder: HerderDriver, *, opened: bool = True, turns: bool = True) -> str:
    return why_not_serving(herder.herder, opened=opened, turns=turns)


def test_a_worker_that_has_nothing_yet_names_each_obstacle(
    herder: HerderDriver,
) -> None:
    assert why_not(herder) == (
        f"{NOT_YET}its Spark engine is starting;"
        " the config log has not been read: DROVER_CONFIG_STORE_ADDRESS"
    )
    herder.step(events.EngineReady())
    assert why_not(herder) == (
        f"{NOT_YET}the config log has not been read: DROVER_CONFIG_STORE_ADDRESS"
    )


def test_an_engine_that_does_not_start_is_told_with_its_reason(herder: HerderDriver) -> None:
    herder.load()
    herder.step(events.EngineLost("no Java found"))
    assert why_not(herder) == (
        f"{NOT_YET}its Spark engine is not up (the engine ended: no Java found):"
        " DROVER_SPARK_MASTER"
    )


def test_a_worker_without_a_coordinator_names_it(herder: HerderDriver) -> None:
    herder.ready()
    assert why_not(herder).startswith(f"{NOT_YET}the worker is joining the group")
    herder.step(events.CallFailed(herder.take(instructions.JoinGroup).cause_id, AWAY))
    assert why_not(herder) == (
        f"{NOT_YET}the worker is waiting to join the group again"
        " (coordinator:7401 cannot be reached): DROVER_COORDINATOR_ADDRESS"
    )


def test_it_serves_once_it_has_its_assignment_and_not_before(herder: HerderDriver) -> None:
    herder.ready()
    herder.join(generation=1)
    assert why_not(herder).startswith(f"{NOT_YET}the worker is waiting for its assignment")
    herder.sync()
    assert herder.stage == "SETTLED"
    assert why_not(herder) == ""


def test_it_serves_on_when_it_loses_its_group_later(herder: HerderDriver) -> None:
    herder.ready()
    herder.settle_as_leader()
    herder.advance(herder.herder.context.settings.session_timeout_ms + 1)
    assert herder.stage != "SETTLED"
    assert why_not(herder) == ""
    herder.step(events.EngineLost("killed"))
    assert why_not(herder) == ""


def test_a_herder_that_stands_still_and_a_closed_door_serve_nobody(herder: HerderDriver) -> None:
    herder.ready()
    herder.settle_as_leader()
    assert why_not(herder, opened=False) == "the worker is starting or ending"
    assert why_not(herder, turns=False) == (
        "the herder handles no events: the worker is running its assignment"
    )
