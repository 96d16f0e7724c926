"""A herder in an environment that acts in any order: its guarantees always hold."""

import random
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from drover.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    NotFoundError,
    Reason,
    UnavailableError,
)
from drover.model.config import ConfigMap, TargetState
from drover.model.group import Joined, JoinedMember, RebalanceInProgress, RetryJoin, Synced
from drover.model.ids import TaskId, Term
from drover.model.status import RunState, StatusKey, StatusSnapshot
from drover_worker.core import events, instructions, requests
from drover_worker.core.engine_slots import SHARED, EngineSlot
from drover_worker.core.instructions import HerderInstruction
from drover_worker.core.rebalance.protocol import (
    AssignmentError,
    MemberMetadata,
    encode_assignment,
    encode_metadata,
)
from tests.support.herder_driver import OTHER, HerderDriver, task_configs

NAMES = ("a", "b", "c")
FAULTS = (
    UnavailableError(Reason.SERVICE_UNREACHABLE, "away"),
    DeadlineExceededError(Reason.DEADLINE_EXCEEDED, "slow"),
    NotFoundError(Reason.UNKNOWN_MEMBER_ID, "unknown member"),
    FailedPreconditionError(Reason.ILLEGAL_GENERATION, "another generation"),
    FailedPreconditionError(Reason.STALE_WRITER_EPOCH, "stale epoch"),
    FailedPreconditionError(Reason.STALE_TERM, "stale term"),
)


class World:
    """The environment of one herder; ``engine`` holds what runs in the engine."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.driver = HerderDriver()
        self.engine: dict[str, int] = {}
        #: The engine of each key of ``engine``.
        self.places: dict[str, EngineSlot] = {}
        self.engines = {SHARED}
        self.up: set[EngineSlot] = set()
        self.stops_asked: set[int] = set()
        self.generation = 0
        self.asked: set[str] = set()
        #: Connectors whose next task set will be incomplete.
        self.spoiled: set[str] = set()
        self.driver.observer = self._check
        self.driver.step(events.StatusesLoaded(StatusSnapshot(0, {})))
        self.driver.load()

    def step(self, event: events.HerderEvent) -> None:
        self.driver.step(event)
        assert set(self.driver.answers) <= self.asked

    def _check(self, instruction: HerderInstruction) -> None:
        """Check an instruction: a correct herder never sends some of them to the engine."""
        herder = self.driver.herder
        match instruction:
            case instructions.StartEngine(engine):
                assert engine not in self.engines
                self.engines.add(engine)
            case instructions.StopEngine(engine):
                running = [key for key, at in self.places.items() if at == engine]
                assert not running, f"{engine} ends while {running} run in it"
                self.engines.remove(engine)
                self.up.discard(engine)
            case instructions.StartTask(task, run_id):
                assert instruction.engine in self.up
                self.places[str(task)] = instruction.engine
                assert str(task) not in self.engine, f"two runs of {task}"
                assert herder.membership.settled
                assert herder.membership.assignment is not None
                assert task in herder.membership.assignment.tasks
                self.engine[str(task)] = run_id
            case instructions.StartConnector(name, run_id):
                assert instruction.engine in self.up
                self.places[f"connector {name}"] = instruction.engine
                assert f"connector {name}" not in self.engine, f"two runs of {name}"
                assert herder.membership.settled
                self.engine[f"connector {name}"] = run_id
            case instructions.StopTask(_, run_id) | instructions.StopConnector(_, run_id):
                assert run_id not in self.stops_asked, f"run {run_id} is stopped twice"
                self.stops_asked.add(run_id)
            case instructions.JoinGroup():
                assert not self.engine, f"joins while {self.engine} runs"
            case instructions.WriteConnectorConfig() | instructions.RemoveConnector():
                assert herder.membership.leads

    # Possible next actions

    def act(self) -> None:
        if self.driver.todo and self.rng.random() < 0.7:
            self._answer(self.rng.choice(self.driver.todo))
        else:
            self.rng.choice(
                [
                    self._toggle_engine,
                    self._move,
                    self._change_configs,
                    self._pass_time,
                    self._push,
                    self._ask,
                    self._report,
                    self._read_configs,
                ]
            )()

    def _toggle_engine(self) -> None:
        engine = self.rng.choice(sorted(self.engines, key=str))
        if engine in self.up and self.rng.random() < 0.3:
            self.up.discard(engine)
            for key in [key for key, at in self.places.items() if at == engine]:
                del self.places[key]
                self.engine.pop(key, None)
            kind = self.rng.choice(list(events.EndKind))
            self.step(events.EngineLost("killed", self._at_work(), kind, engine))
        elif engine not in self.up:
            self.up.add(engine)
            self.step(events.EngineReady(engine))

    def _move(self) -> None:
        """Another engine is chosen for a connector."""
        name, herder = self.rng.choice(NAMES), self.driver.herder
        slot = self.rng.choice([SHARED, EngineSlot("suspects/1"), EngineSlot("suspects/2")])
        if slot == SHARED:
            herder.context.engines.release(name)
        else:
            herder.context.engines.isolate(name, slot)
        herder.work.touch_connector(name)
        self.step(events.PulseDue())

    def _at_work(self) -> list[StatusKey] | None:
        """Some of the worker's connectors and tasks, or None."""
        held = self.driver.herder.work.held
        return self.rng.sample(held, min(len(held), 2)) if self.rng.random() < 0.5 else None

    def _change_configs(self) -> None:
        name = self.rng.choice(NAMES)
        known = name in self.driver.herder.context.view.connectors
        match self.rng.randrange(6):
            case 0:
                self.driver.put(name)
            case 1 if known:
                self.driver.remove(name)
            case 2 if known:
                self.driver.commit(name, task_configs(name, self.rng.randrange(4)))
            case 3 if known:
                self.driver.target(name, self.rng.choice(list(TargetState)))
            case 4 if known:
                self.driver.restart_requested(
                    name, only_failed=self.rng.random() < 0.5, include_tasks=True
                )
            case 5 if known:
                self.driver.commit_half(name, self.rng.randrange(1, 4))

    def _pass_time(self) -> None:
        self.driver.advance(self.rng.choice([1, 300, 3_000, 12_000]))

    def _push(self) -> None:
        self.step(events.GroupPushed(self.driver.member_id, self.generation, True))

    def _read_configs(self) -> None:
        self.step(events.ConfigsChanged([], self.driver.offset))

    def _ask(self) -> None:
        name = self.rng.choice(NAMES)
        call_id = f"call-{len(self.asked)}"
        possible: list[requests.Request] = [
            requests.CreateConnector(name, {"name": name}, TargetState.STARTED, call_id),
            requests.DeleteConnector(name, call_id),
            requests.SetTargetState(name, TargetState.STOPPED, call_id),
            requests.SetTargetState(name, TargetState.PAUSED, call_id),
            requests.RestartConnector(name, True, False, call_id),
            requests.RestartConnector(name, False, False, call_id),
            requests.RestartTask(TaskId(name, 0)),
            requests.SubmitTaskConfigs(name, task_configs(name, 2), call_id),
        ]
        request = self.rng.choice(possible)
        self.asked.add(call_id)
        self.step(
            events.RequestReceived(
                call_id, request, self.driver.now_ms + 20_000, self.rng.randrange(3)
            )
        )

    def _report(self) -> None:
        """The engine reports about a current or former run."""
        run_id = self.rng.randrange(1, 200)
        task = TaskId(self.rng.choice(NAMES), self.rng.randrange(3))
        present = self.driver.herder.work.tasks.get(task)
        if present is not None and self.rng.random() < 0.7:
            run_id = present.run_id
        reports: list[events.HerderEvent] = [
            events.TaskFailed(task, run_id, "boom"),
            events.TaskFenced(task, run_id),
            events.ReconfigurationRequested(task.connector, run_id),
            events.StatusesChanged([]),
        ]
        self.step(self.rng.choice(reports))

    def _answer(self, instruction: HerderInstruction) -> None:
        self.driver.todo.remove(instruction)
        cause_id = getattr(instruction, "cause_id", None)
        if cause_id is not None and self.rng.random() < 0.25:
            self.step(events.CallFailed(cause_id, self.rng.choice(FAULTS)))
            return
        for event in self._outcome(instruction):
            self.step(event)

    def _outcome(self, instruction: HerderInstruction) -> list[events.HerderEvent]:
        match instruction:
            case instructions.JoinGroup():
                return [self._joined(instruction)]
            case instructions.SyncGroup():
                return [self._synced(instruction)]
            case instructions.Heartbeat(cause_id):
                return [events.HeartbeatAnswered(cause_id, self.rng.random() < 0.2)]
            case instructions.LeaveGroup(cause_id):
                return [events.LeaveAnswered(cause_id)]
            case instructions.ReadConfigsToEnd(cause_id):
                return [
                    events.ConfigsChanged([], self.driver.offset),
                    events.ReadToEnd(cause_id),
                ]
            case instructions.ClaimWriter(cause_id):
                return [events.WriterClaimed(cause_id, self.generation, self.driver.offset)]
            case instructions.SubmitToLeader(cause_id, _, name, configs):
                self._write_task_configs(name, configs)
                return [events.TaskConfigsSubmitted(cause_id)]
            case instructions.ValidateConfig(cause_id):
                return [events.ConfigValidated(cause_id, (), "source")]
            case instructions.ClaimTask(task, run_id) | instructions.FetchOffsets(task, run_id):
                return [self._prepared(instruction, task, run_id)]
            case instructions.WriteTaskConfigs(cause_id, name, configs):
                self._write_task_configs(name, configs)
                return [events.ConfigWritten(cause_id, self.driver.offset)]
            case _ if getattr(instruction, "cause_id", None) is not None:
                return [events.ConfigWritten(instruction.cause_id, self.driver.offset, 1)]  # type: ignore[union-attr]
            case _:
                return self._engine_outcome(instruction)

    def _write_task_configs(self, name: str, configs: Sequence[ConfigMap]) -> None:
        """The leader writes a task set, sometimes an incomplete one."""
        if name not in self.driver.herder.context.view.connectors:
            return
        if self.rng.random() < 0.3 or name in self.spoiled:
            self.spoiled.discard(name)
            self.driver.commit_half(name, len(configs) + 1)
        else:
            self.driver.commit(name, configs)

    def _engine_outcome(self, instruction: HerderInstruction) -> list[events.HerderEvent]:
        fails = self.rng.random() < 0.2
        match instruction:
            case instructions.StartEngine(engine):
                if engine not in self.engines or engine in self.up:
                    return []
                self.up.add(engine)
                return [events.EngineReady(engine)]
            case instructions.StartTask(task, run_id):
                if self.engine.get(str(task)) != run_id:
                    return []  # its engine ended, or it was stopped before
                if fails:
                    return [events.TaskFailed(task, run_id, "start() raised")]
                return [events.TaskStarted(task, run_id)]
            case instructions.StartConnector(name, run_id):
                key = f"connector {name}"
                if self.engine.get(key) != run_id:
                    return []
                if fails:
                    return [events.ConnectorFailed(name, run_id, "start() raised")]
                return [events.ConnectorStarted(name, run_id)]
            case instructions.StopTask(task, run_id):
                if self.engine.get(str(task)) == run_id:
                    del self.engine[str(task)], self.places[str(task)]
                return [events.TaskStopped(task, run_id)]
            case instructions.StopConnector(name, run_id):
                if self.engine.get(f"connector {name}") == run_id:
                    del self.engine[f"connector {name}"], self.places[f"connector {name}"]
                return [events.ConnectorStopped(name, run_id)]
            case instructions.SetTaskPaused(task, run_id, paused):
                return [events.TaskPauseSet(task, run_id, paused)]
            case instructions.GenerateTaskConfigs(name, run_id):
                if fails:
                    return [events.TaskConfigsNotGenerated(name, run_id, "boom")]
                configs = task_configs(name, self.rng.randrange(4))
                return [events.TaskConfigsGenerated(name, run_id, configs)]
        return []

    def _prepared(
        self, instruction: HerderInstruction, task: TaskId, run_id: int
    ) -> events.HerderEvent:
        if self.rng.random() < 0.25:
            return events.TaskNotPrepared(task, run_id, self.rng.choice(FAULTS))
        if isinstance(instruction, instructions.ClaimTask):
            return events.TaskClaimed(task, run_id, Term(self.generation, run_id))
        return events.OffsetsFetched(task, run_id, ())

    def _joined(self, call: instructions.JoinGroup) -> events.HerderEvent:
        member_id = call.member_id or f"member-{self.rng.randrange(1000)}"
        if self.rng.random() < 0.1:
            return events.JoinAnswered(call.cause_id, RetryJoin(member_id))
        self.generation += 1
        self.driver.member_id = member_id
        leads = self.rng.random() < 0.6
        ahead = self.rng.choice([0, self.driver.offset])
        other = JoinedMember("other", encode_metadata(MemberMetadata(OTHER, ahead)))
        return events.JoinAnswered(
            call.cause_id,
            Joined(
                generation=self.generation,
                member_id=member_id,
                leader_id=member_id if leads else "other",
                protocol_type="connect",
                protocol_name="default",
                members=[JoinedMember(member_id, call.protocols[0].metadata), other]
                if leads
                else (),
            ),
        )

    def _synced(self, call: instructions.SyncGroup) -> events.HerderEvent:
        if self.rng.random() < 0.1:
            return events.SyncAnswered(call.cause_id, RebalanceInProgress())
        data = call.assignments.get(call.member_id)
        if data is None:
            names = self.rng.sample(NAMES, self.rng.randrange(3))
            data = encode_assignment(
                self.driver.led_assignment(
                    connectors=names,
                    tasks=[TaskId(name, index) for name in NAMES for index in range(2)],
                    offset=self.rng.choice([self.driver.offset, 0]),
                    error=self.rng.choice([AssignmentError.NO_ERROR] * 4 + [*AssignmentError]),
                    leader_id="member-b",
                )
            )
        return events.SyncAnswered(call.cause_id, Synced(data, "connect", "default"))


def calm_down(world: World) -> None:
    """All faults end; the herder must become idle."""
    driver = world.driver
    for engine in sorted(world.engines, key=str):
        world.up.add(engine)
        world.step(events.EngineReady(engine))
    for turn in range(150):  # longer than the longest back-off
        if turn == 20:
            world.spoiled.update(driver.herder.context.view.connectors)
            for name in sorted(world.spoiled):
                driver.commit_half(name, 1)
        for instruction in list(driver.todo):
            if instruction not in driver.todo:
                continue
            driver.todo.remove(instruction)
            for event in _good_outcome(world, instruction):
                world.step(event)
        if not driver.todo:
            driver.advance(1_000)
    assert driver.stage == "SETTLED"


def _good_outcome(world: World, instruction: HerderInstruction) -> list[events.HerderEvent]:
    rng, world.rng = world.rng, _Kind()
    try:
        return world._outcome(instruction)
    finally:
        world.rng = rng


class _Kind(random.Random):
    """No fault, this worker leads, and every connector returns its current tasks."""

    def random(self) -> float:
        return 0.5

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return start if stop is not None else 0


@given(seed=st.integers(0, 2**32), length=st.integers(1, 250))
@settings(max_examples=150)
def test_whatever_happens_nothing_runs_twice_or_unassigned_and_everyone_is_answered(
    seed: int, length: int
) -> None:
    world = World(random.Random(seed))
    for _ in range(length):
        world.act()
    # every caller gets a response by its deadline, whatever else happens
    world.driver.advance(25_000)
    assert set(world.driver.answers) == world.asked
    assert len(world.driver.herder.requests) == 0


@given(seed=st.integers(0, 2**32), length=st.integers(1, 150))
@settings(max_examples=60)
def test_a_herder_settles_once_the_world_is_sound(seed: int, length: int) -> None:
    world = World(random.Random(seed))
    for _ in range(length):
        world.act()
    calm_down(world)
    herder = world.driver.herder
    assert herder.membership.assignment is not None
    wanted = {t for t in herder.membership.assignment.tasks if herder.context.view.has_task(t)}
    assert set(herder.work.tasks) == wanted
    for item in herder.work.tasks.values():
        assert item.state in (RunState.RUNNING, RunState.PAUSED, RunState.FAILED)
    for name, connector in herder.work.connectors.items():
        target = herder.context.view.connectors[name].target_state
        if connector.running and target is TargetState.STARTED:
            assert name not in herder.context.view.inconsistent, f"{name} is left without tasks"
