"""Simulates a herder's environment: time, timers, and the results of its instructions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from drover.errors import DroverError
from drover.machine import CancelTimer, Complete, Fail, SetTimer
from drover.model.config import (
    ConfigChange,
    ConfigEvent,
    ConfigMap,
    ConfigSnapshot,
    ConnectorConfigRemoved,
    ConnectorConfigUpdated,
    ConnectorEntry,
    RestartRequested,
    SessionKey,
    SessionKeyUpdated,
    TargetState,
    TargetStateChanged,
    TaskConfigsUpdated,
)
from drover.model.group import Joined, JoinedMember, Synced
from drover.model.ids import TaskId, Term
from drover.model.status import (
    RecordCounts,
    RunState,
    Status,
    StatusEvent,
    StatusKey,
    StatusSnapshot,
)
from drover_worker.core import events, instructions, requests
from drover_worker.core.context import HerderSettings
from drover_worker.core.herder import Herder
from drover_worker.core.instructions import HerderInstruction
from drover_worker.core.rebalance.protocol import (
    Assignment,
    AssignmentError,
    MemberMetadata,
    encode_assignment,
    encode_metadata,
)

InstructionT = TypeVar("InstructionT")

ME = "worker-a:7411"
OTHER = "worker-b:7411"


def connector_config(name: str, **settings: str) -> ConfigMap:
    return {"name": name, "connector.class": "Source", "tasks.max": "9", **settings}


def entry(
    name: str,
    *,
    tasks: int = 0,
    target: TargetState = TargetState.STARTED,
    config: ConfigMap | None = None,
) -> ConnectorEntry:
    own = config if config is not None else connector_config(name)
    return ConnectorEntry(
        name=name,
        config=own,
        target_state=target,
        task_count=tasks,
        task_config_generation=0,
        applied_config=own,
    )


def task_configs(name: str, count: int) -> list[ConfigMap]:
    return [{"part": f"{name}/{index}"} for index in range(count)]


class HerderDriver:
    """A herder with a manual clock; validates it after every step.

    ``todo`` holds unanswered instructions, ``answers`` the callers' responses, ``statuses`` the
    last status written for each key.
    """

    def __init__(
        self, settings: HerderSettings | None = None, *, protocol: str = "default"
    ) -> None:
        #: The group's protocol; eager unless a test selects another.
        self.protocol = protocol
        self.herder = Herder(settings or HerderSettings(worker_id=ME, group_id="drover"))
        self.now_ms = 1_000_000
        self.todo: list[HerderInstruction] = []
        self.timers: dict[str, SetTimer] = {}
        self.answers: dict[str, requests.Response | DroverError] = {}
        self.statuses: dict[StatusKey, Status] = {}
        self.status_log: list[tuple[StatusKey, RunState]] = []
        self.offset = 0
        self.status_offset = 0
        self.member_id = ""
        self.watched_member_id = ""
        #: Sees every instruction as it is emitted.
        self.observer: Callable[[HerderInstruction], None] | None = None

    # Stepping

    def step(self, event: events.HerderEvent) -> list[HerderInstruction]:
        emitted = list(self.herder.step(event, self.now_ms))
        self.herder.validate()
        for instruction in emitted:
            if self.observer is not None:
                self.observer(instruction)
            self._take_in(instruction)
        return emitted

    def _take_in(self, instruction: HerderInstruction) -> None:
        match instruction:
            case SetTimer(key):
                self.timers[key] = instruction
            case CancelTimer(key):
                self.timers.pop(key, None)
            case Complete(call_id, response):
                assert call_id not in self.answers, f"{call_id} was answered twice"
                self.answers[call_id] = response  # type: ignore[assignment]
            case Fail(call_id, error):
                assert call_id not in self.answers, f"{call_id} was answered twice"
                self.answers[call_id] = error
            case instructions.WriteStatus(write):
                self.statuses[write.status.key] = write.status
                self.status_log.append((write.status.key, write.status.state))
            case instructions.WatchGroup(member_id):
                self.watched_member_id = member_id
            case _:
                self.todo.append(instruction)

    def advance(self, duration_ms: int) -> None:
        """Let time pass; timers fire in order."""
        end_ms = self.now_ms + duration_ms
        while True:
            due = sorted(
                (t for t in self.timers.values() if t.deadline_ms <= end_ms),
                key=lambda timer: timer.deadline_ms,
            )
            if not due:
                break
            del self.timers[due[0].key]
            self.now_ms = max(self.now_ms, due[0].deadline_ms)
            self.step(due[0].event)  # type: ignore[arg-type]
        self.now_ms = end_ms

    def gather(self) -> None:
        """Let the rejoin delay pass: the herder then acts on changes of connectors and tasks."""
        self.advance(self.herder.context.settings.rejoin_delay_ms)

    def find(self, kind: type[InstructionT]) -> list[InstructionT]:
        return [i for i in self.todo if isinstance(i, kind)]

    def take(self, kind: type[InstructionT]) -> InstructionT:
        """The one unanswered instruction of a kind."""
        found = self.find(kind)
        assert len(found) == 1, f"{len(found)} {kind.__name__} in {self.todo}"
        self.todo.remove(found[0])  # type: ignore[arg-type]
        return found[0]

    def take_all(self, kind: type[InstructionT]) -> list[InstructionT]:
        found = self.find(kind)
        self.todo = [i for i in self.todo if not isinstance(i, kind)]
        return found

    @property
    def stage(self) -> str:
        return self.herder.membership.stage.name

    # The config store

    def load(
        self,
        *entries: ConnectorEntry,
        tasks: Mapping[TaskId, ConfigMap] | None = None,
        offset: int | None = None,
    ) -> None:
        made: dict[TaskId, ConfigMap] = {}
        for item in entries:
            for index, config in enumerate(task_configs(item.name, max(item.task_count, 0))):
                made[TaskId(item.name, index)] = config
        self.offset = len(entries) + len(made) if offset is None else offset
        self.step(
            events.ConfigsLoaded(
                ConfigSnapshot(
                    self.offset,
                    {item.name: item for item in entries},
                    made if tasks is None else tasks,
                )
            )
        )

    def change(self, *changes: ConfigChange) -> None:
        """Append one record to the config log for each change."""
        batch = []
        for change in changes:
            batch.append(ConfigEvent(self.offset, change))
            self.offset += 1
        self.step(events.ConfigsChanged(batch, self.offset))

    def put(self, name: str, *, config: ConfigMap | None = None, tasks: int = -1) -> None:
        known = self.herder.context.view.connectors.get(name)
        new = config if config is not None else connector_config(name)
        base = known or ConnectorEntry(name)
        self.change(
            ConnectorConfigUpdated(
                ConnectorEntry(
                    name=name,
                    config=new,
                    target_state=base.target_state,
                    task_count=base.task_count,
                    task_config_generation=base.task_config_generation,
                    applied_config=base.applied_config,
                )
            )
        )
        if tasks >= 0:
            self.commit(name, task_configs(name, tasks))

    def commit(self, name: str, configs: Sequence[ConfigMap], *, own: bool = True) -> None:
        """Commit a task set: the connector's last one, unless ``own`` is false."""
        connector = self.herder.work.connectors.get(name)
        if own and connector is not None:
            connector.generated = configs
        known = self.herder.context.view.connectors[name]
        after = ConnectorEntry(
            name=name,
            config=known.config,
            target_state=known.target_state,
            task_count=len(configs),
            task_config_generation=known.task_config_generation + 1,
            applied_config=known.config,
        )
        self.change(TaskConfigsUpdated(after, {TaskId(name, i): c for i, c in enumerate(configs)}))

    def commit_half(self, name: str, count: int) -> None:
        """Write a commit marker that names more tasks than the log has."""
        known = self.herder.context.view.connectors[name]
        after = replace(known, task_count=count, inconsistent=True)
        self.change(TaskConfigsUpdated(after, {}))

    def session_key(self, key: bytes, algorithm: str = "HmacSHA256") -> SessionKey:
        """Write a session key, created now."""
        made = SessionKey(key, algorithm, self.now_ms)
        self.change(SessionKeyUpdated(made))
        return made

    def remove(self, name: str) -> None:
        self.change(ConnectorConfigRemoved(name))

    def target(self, name: str, state: TargetState) -> None:
        self.change(TargetStateChanged(name, state))

    def restart_requested(self, name: str, *, only_failed: bool, include_tasks: bool) -> None:
        self.change(RestartRequested(name, only_failed, include_tasks))

    # The status store

    def see_statuses(
        self,
        states: Mapping[StatusKey, RunState],
        worker: str = OTHER,
        counts: RecordCounts | None = None,
    ) -> None:
        """Statuses written by other workers, each with these counts."""
        batch = []
        for key, state in states.items():
            status = Status(key, state, worker, 1, counts=counts)
            batch.append(StatusEvent(self.status_offset, key, status))
            self.status_offset += 1
        self.step(events.StatusesChanged(batch))

    def echo_statuses(self) -> None:
        """Deliver this worker's own statuses from the status store."""
        known = self.herder.context.statuses
        fresh = {k: s for k, s in self.statuses.items() if known.get(k) != s}
        batch = []
        for key, status in fresh.items():
            gone = status.state is RunState.DESTROYED
            batch.append(StatusEvent(self.status_offset, key, None if gone else status))
            self.status_offset += 1
        if batch:
            self.step(events.StatusesChanged(batch))

    # The group

    def join(
        self,
        *,
        generation: int,
        leader: bool = True,
        others: Mapping[str, MemberMetadata] | None = None,
        member_id: str = "member-a",
    ) -> instructions.JoinGroup:
        """Answer the pending join."""
        call = self.take(instructions.JoinGroup)
        self.member_id = member_id
        members = [
            JoinedMember(
                member_id, next(p.metadata for p in call.protocols if p.name == self.protocol)
            ),
            *(JoinedMember(m, encode_metadata(data)) for m, data in (others or {}).items()),
        ]
        leader_id = member_id if leader else next(iter(others or {}), "member-b")
        self.step(
            events.JoinAnswered(
                call.cause_id,
                Joined(
                    generation=generation,
                    member_id=member_id,
                    leader_id=leader_id,
                    protocol_type="connect",
                    protocol_name=self.protocol,
                    members=members if leader else (),
                ),
            )
        )
        return call

    def sync(self, assignment: Assignment | None = None) -> instructions.SyncGroup:
        """Answer the pending sync; the leader gets the assignment that it sent."""
        call = self.take(instructions.SyncGroup)
        data = (
            call.assignments[call.member_id]
            if assignment is None
            else encode_assignment(assignment)
        )
        self.step(events.SyncAnswered(call.cause_id, Synced(data, "connect", self.protocol)))
        return call

    def settle_as_leader(
        self, *, generation: int = 1, others: Mapping[str, MemberMetadata] | None = None
    ) -> None:
        """Take it from JOINING to SETTLED as leader, with the right to write."""
        self.join(generation=generation, others=others)
        self.sync()
        if self.find(instructions.ClaimWriter):
            self.grant_writer()
        assert self.stage == "SETTLED", self.stage

    def grant_writer(self, epoch: int = 7) -> Term:
        claim = self.take(instructions.ClaimWriter)
        self.step(events.WriterClaimed(claim.cause_id, epoch, self.offset))
        return claim.term

    def settle_as_follower(
        self,
        *,
        generation: int = 1,
        connectors: Sequence[str] = (),
        tasks: Sequence[TaskId] = (),
        offset: int | None = None,
    ) -> None:
        """Take it from JOINING to SETTLED as follower; the other worker leads."""
        self.join(generation=generation, leader=False)
        self.sync(self.led_assignment(connectors=connectors, tasks=tasks, offset=offset))
        assert self.stage == "SETTLED", self.stage

    def led_assignment(
        self,
        *,
        connectors: Sequence[str] = (),
        tasks: Sequence[TaskId] = (),
        offset: int | None = None,
        error: AssignmentError = AssignmentError.NO_ERROR,
        leader_id: str = "member-b",
        stops: Sequence[StatusKey] = (),
        delay_ms: int = 0,
    ) -> Assignment:
        return Assignment(
            error=error,
            leader_id=leader_id,
            leader_url=OTHER if leader_id == "member-b" else ME,
            config_offset=self.offset if offset is None else offset,
            connectors=tuple(connectors),
            tasks=tuple(tasks),
            stops=tuple(stops),
            delay_ms=delay_ms,
        )

    def ready(self, *entries: ConnectorEntry) -> None:
        """The engine is up and the views are loaded: the first join is pending."""
        self.step(events.StatusesLoaded(StatusSnapshot(0, {})))
        self.load(*entries)
        self.step(events.EngineReady())
        assert self.stage == "JOINING"

    def fail(self, cause_id: str, error: DroverError) -> None:
        self.step(events.CallFailed(cause_id, error))

    # The engine and the coordinator's claims

    def run_engine(self, *, task_counts: Mapping[str, int] | None = None) -> None:
        """Execute all instructions for the engine and the coordinator, until none is left."""
        for _ in range(1000):
            if not self._run_one(task_counts or {}):
                return
        raise AssertionError("the herder never comes to rest")

    def _run_one(self, task_counts: Mapping[str, int]) -> bool:
        for instruction in self.todo:
            answer = self._engine_answer(instruction, task_counts)
            if answer is not None:
                self.todo.remove(instruction)
                self.step(answer)
                return True
        return False

    def _engine_answer(
        self, instruction: HerderInstruction, task_counts: Mapping[str, int]
    ) -> events.HerderEvent | None:
        match instruction:
            case instructions.StartEngine(engine):
                return events.EngineReady(engine)
            case instructions.StopEngine():
                return events.PulseDue()
            case instructions.StartConnector(name, run_id):
                return events.ConnectorStarted(name, run_id)
            case instructions.StopConnector(name, run_id):
                return events.ConnectorStopped(name, run_id)
            case instructions.GenerateTaskConfigs(name, run_id):
                entry_now = self.herder.context.view.connectors.get(name)
                known = max(entry_now.task_count, 0) if entry_now else 0
                count = task_counts.get(name, known)
                return events.TaskConfigsGenerated(name, run_id, task_configs(name, count))
            case instructions.ClaimTask(task, run_id, generation=generation):
                return events.TaskClaimed(task, run_id, Term(generation, run_id))
            case instructions.FetchOffsets(task, run_id):
                return events.OffsetsFetched(task, run_id, ())
            case instructions.StartTask(task, run_id):
                return events.TaskStarted(task, run_id)
            case instructions.SetTaskPaused(task, run_id, paused):
                return events.TaskPauseSet(task, run_id, paused)
            case instructions.StopTask(task, run_id):
                return events.TaskStopped(task, run_id)
        return None

    # Callers

    def ask(
        self,
        request: requests.Request,
        *,
        call_id: str = "call",
        timeout_ms: int = 60_000,
        hops: int = 0,
    ) -> None:
        self.step(events.RequestReceived(call_id, request, self.now_ms + timeout_ms, hops))

    def validated(self, cause_id: str, connector_type: str = "source") -> None:
        self.step(events.ConfigValidated(cause_id, (), connector_type))

    def states(self) -> dict[str, str]:
        """The last status of each item that this worker reported."""
        return {str(key): status.state.value for key, status in self.statuses.items()}
