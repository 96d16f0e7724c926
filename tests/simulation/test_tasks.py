"""Simulated tasks: an event that has no transition ends its task, and no other one."""

import pytest

from drover_worker.engine.core import events
from drover_worker.engine.core.phases import Phase
from simulation.simulation import Simulation, SimulationError
from simulation.tasks import SimulatedTask

#: Seeds with several tasks, and when one gets the event.
SEED = 1
AT_MS = 9_000


def with_an_impossible_event(told: list[SimulatedTask]) -> Simulation:
    """A simulation in which a task between two runs gets the result of an operation."""
    simulation = Simulation(SEED)
    cluster, world = simulation.cluster, simulation.world

    def tell() -> None:
        tasks = [task for each in cluster.workers for task in each.engine.tasks.values()]
        resting = [each for each in tasks if each.core.phase is Phase.RESTING]
        if len(tasks) < 2 or not resting:
            world.after(50, tell)
            return
        told.append(resting[0])
        resting[0].engine.deliver(0, lambda: resting[0].deliver(events.Notified()))

    world.after(AT_MS, tell)
    return simulation


def test_only_the_task_with_an_event_without_a_transition_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[SimulatedTask] = []
    failed: list[tuple[SimulatedTask, str]] = []
    monkeypatch.setattr(
        SimulatedTask, "_check_verdict", lambda task, error: failed.append((task, str(error)))
    )
    with_an_impossible_event(told).run()  # it heals, as an operator restarts what failed
    (task,) = told
    ((found, text),) = failed
    assert found is task
    first, *recent = text.splitlines()
    assert first.startswith(f"task {task.task} got Notified in phase RESTING, which is a defect")
    assert len(recent) > 3
    assert recent[-1].endswith("RESTING: Notified")


def test_the_simulation_reports_an_event_without_a_transition() -> None:
    with pytest.raises(SimulationError, match="got Notified in phase RESTING") as caught:
        with_an_impossible_event([]).run()
    assert caught.value.rule == "a task fails only for its plugin"
