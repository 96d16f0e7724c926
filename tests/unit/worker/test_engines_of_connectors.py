"""Connectors that run in an engine besides the shared one."""

import pytest

from drover.model.config import TargetState
from drover.model.ids import TaskId
from drover_worker.core import events, instructions
from drover_worker.core.context import HerderSettings
from drover_worker.core.engine_slots import SHARED, EngineSlot
from tests.support.herder_driver import ME, HerderDriver, connector_config, entry

A0, B0, B1 = TaskId("a", 0), TaskId("b", 0), TaskId("b", 1)
ALONE = EngineSlot("quarantine/b")


@pytest.fixture
def leader(herder: HerderDriver) -> HerderDriver:
    """Runs connectors a and b in the shared engine."""
    herder.ready(entry("a", tasks=1), entry("b", tasks=2))
    herder.settle_as_leader()
    herder.run_engine()
    assert set(herder.states().values()) == {"RUNNING"}
    herder.status_log.clear()
    return herder


def isolate(herder: HerderDriver, slot: EngineSlot = ALONE) -> None:
    herder.herder.context.engines.isolate("b", slot)
    herder.herder.work.touch_connector("b")
    herder.step(events.PulseDue())


def release(herder: HerderDriver) -> None:
    herder.herder.context.engines.release("b")
    herder.herder.work.touch_connector("b")
    herder.step(events.PulseDue())


def stop_all(herder: HerderDriver) -> None:
    while stops := herder.find(instructions.StopTask):
        herder.todo.remove(stops[0])
        herder.step(events.TaskStopped(stops[0].task, stops[0].run_id))
    for stop in herder.find(instructions.StopConnector):
        herder.todo.remove(stop)
        herder.step(events.ConnectorStopped(stop.name, stop.run_id))


def places(herder: HerderDriver) -> dict[str, str]:
    return {str(item.key): str(item.engine) for item in herder.herder.work.all()}


def test_a_connector_moves_to_its_engine_and_the_others_stay(leader: HerderDriver) -> None:
    runs = {item.key: item.run_id for item in leader.herder.work.all()}
    isolate(leader)
    assert not leader.find(instructions.StartEngine), "it is needed when the old runs have stopped"
    stop_all(leader)
    assert [each.engine for each in leader.find(instructions.StartEngine)] == [ALONE]
    assert not leader.find(instructions.ClaimTask), "a task is claimed when its engine is up"
    leader.run_engine()
    assert set(leader.states().values()) == {"RUNNING"}
    assert places(leader) == {
        "a": "shared",
        "a-0": "shared",
        "b": str(ALONE),
        "b-0": str(ALONE),
        "b-1": str(ALONE),
    }
    assert leader.herder.work.tasks[A0].run_id == runs[A0]
    assert not leader.find(instructions.StopEngine)


def test_the_end_of_an_engine_fails_only_what_ran_in_it(leader: HerderDriver) -> None:
    isolate(leader)
    leader.run_engine()
    leader.step(events.EngineLost("killed", engine=ALONE))
    assert leader.states() == {
        "a": "RUNNING",
        "a-0": "RUNNING",
        "b": "FAILED",
        "b-0": "FAILED",
        "b-1": "FAILED",
    }
    assert "the engine quarantine/b ended: killed" in leader.statuses[B0].trace
    assert not leader.todo
    leader.step(events.EngineReady(ALONE))
    leader.run_engine()
    assert set(leader.states().values()) == {"RUNNING"}


def test_the_end_of_the_shared_engine_leaves_the_others_running(leader: HerderDriver) -> None:
    isolate(leader)
    leader.run_engine()
    leader.step(events.EngineLost("killed"))
    states = leader.states()
    assert states.pop("a") == states.pop("a-0") == "FAILED"
    assert set(states.values()) == {"RUNNING"}


def test_an_engine_that_nothing_needs_is_stopped(leader: HerderDriver) -> None:
    isolate(leader)
    leader.run_engine()
    release(leader)
    stop_all(leader)
    assert [each.engine for each in leader.find(instructions.StopEngine)] == [ALONE]
    leader.run_engine()
    assert set(places(leader).values()) == {"shared"}
    assert set(leader.states().values()) == {"RUNNING"}
    leader.step(events.EngineReady(ALONE))
    assert leader.herder.context.engines.up == {SHARED}, "a late report of it is ignored"


def test_a_stopped_connector_needs_no_engine(leader: HerderDriver) -> None:
    isolate(leader)
    leader.run_engine()
    leader.target("b", TargetState.STOPPED)
    leader.commit("b", [])
    leader.run_engine()
    assert leader.herder.context.engines.up == {SHARED}
    leader.target("b", TargetState.STARTED)
    leader.run_engine(task_counts={"b": 2})
    assert leader.herder.context.engines.up == {SHARED, ALONE}


def test_a_removed_connector_needs_no_engine(leader: HerderDriver) -> None:
    isolate(leader)
    leader.run_engine()
    leader.remove("b")
    leader.run_engine()
    assert leader.herder.context.engines.up == {SHARED}


def test_a_status_shows_why_an_engine_does_not_start(leader: HerderDriver) -> None:
    isolate(leader)
    stop_all(leader)
    leader.step(events.EngineLost("no memory", engine=ALONE))
    states = leader.states()
    assert states["b"] == states["b-0"] == "FAILED"
    assert "no memory" in leader.statuses[B1].trace
    assert states["a"] == states["a-0"] == "RUNNING"
    leader.run_engine()
    assert set(leader.states().values()) == {"RUNNING"}


def test_what_an_engine_failed_restarts_at_once_in_an_engine_that_runs(
    leader: HerderDriver,
) -> None:
    isolate(leader)
    leader.run_engine()
    leader.step(events.EngineLost("killed", engine=ALONE))
    release(leader)
    leader.run_engine()
    assert set(leader.states().values()) == {"RUNNING"}
    assert leader.herder.context.engines.up == {SHARED}


def test_what_its_plugin_failed_stays_failed_when_its_connector_moves(
    leader: HerderDriver,
) -> None:
    leader.step(events.TaskFailed(B0, leader.herder.work.tasks[B0].run_id, "boom"))
    isolate(leader)
    leader.run_engine()
    assert leader.states()["b-0"] == "FAILED"
    assert leader.states()["b-1"] == "RUNNING"


# Engines by config


OWN_B = {**connector_config("b"), "engine": "own"}


def test_a_connector_with_its_own_engine_waits_for_it(herder: HerderDriver) -> None:
    herder.ready(entry("a", tasks=1), entry("b", tasks=2, config=OWN_B))
    herder.settle_as_leader()
    assert [each.engine for each in herder.find(instructions.StartEngine)] == [EngineSlot("own/b")]
    herder.run_engine()
    assert places(herder)["a-0"] == "shared"
    assert places(herder)["b"] == places(herder)["b-1"] == "own/b"


def test_another_engine_memory_or_cores_move_the_connector(leader: HerderDriver) -> None:
    for changes, slot in (
        ({"engine": "own"}, EngineSlot("own/b")),
        ({"engine": "own", "engine.memory": "2g"}, EngineSlot("own/b", 2 << 30)),
        (
            {"engine": "own", "engine.memory": "2g", "engine.cores": "1"},
            EngineSlot("own/b", 2 << 30, 1),
        ),
        ({}, SHARED),
    ):
        run_of_a = leader.herder.work.tasks[A0].run_id
        leader.put("b", config={**connector_config("b"), **changes})
        leader.run_engine()
        assert {leader.herder.work.connectors["b"].engine} == {slot}
        assert leader.herder.work.tasks[B0].engine == slot
        assert leader.herder.context.engines.up == {SHARED, slot}
        assert leader.herder.work.tasks[A0].run_id == run_of_a


def test_the_default_of_the_worker_applies() -> None:
    herder = HerderDriver(HerderSettings(worker_id=ME, group_id="drover", own_engines=True))
    shared = {**connector_config("a"), "engine": "shared"}
    herder.ready(entry("a", tasks=1, config=shared), entry("b", tasks=1))
    herder.settle_as_leader()
    herder.run_engine()
    assert places(herder) == {"a": "shared", "a-0": "shared", "b": "own/b", "b-0": "own/b"}


def test_more_own_engines_than_the_worker_may_have_wait_for_room() -> None:
    settings = HerderSettings(worker_id=ME, group_id="drover", own_engines=True, own_engines_max=1)
    herder = HerderDriver(settings)
    herder.ready(entry("a", tasks=1), entry("b", tasks=1))
    herder.settle_as_leader()
    herder.run_engine()
    assert herder.herder.context.engines.up == {SHARED, EngineSlot("own/a")}
    assert herder.states() == {"a": "RUNNING", "a-0": "RUNNING", "b": "FAILED", "b-0": "FAILED"}
    told = herder.herder.work.connectors["b"].failure or ""
    assert "has 1 own engines (own/a), and DROVER_OWN_ENGINES_MAX allows 1" in told
    assert "an operator of the worker may change the setting" in told
    herder.put("a", config={**connector_config("a"), "engine": "shared"})
    herder.run_engine()
    assert herder.herder.context.engines.up == {SHARED, EngineSlot("own/b")}
    assert set(herder.states().values()) == {"RUNNING"}
