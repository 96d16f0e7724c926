"""The commands of herder scenarios, and how what the herder wants is written down.

ready c=2 d=1                       engine up, config log read: connectors with their tasks
join 1 [follower] [ahead=9]         the join is answered with a generation
sync [connectors=c] [tasks=c-0] [offset=4] [mismatch]   the assignment; a leader's own by default
push 1                              the coordinator announces a rebalance of a generation
grant                               the leader's claim of the config log is granted
work                                engine and claims do all that they are asked, until rest
fail JoinGroup UNREACHABLE          an instruction fails with a reason
read                                the config log was read to its end
put c    commit c 2    half c 2     remove c     target c PAUSED    restart c [only-failed] [tasks]
seen                                the status store shows what the herder wrote
lose-engine    regain-engine        task-fails c-0    task-fenced c-0
ask create d    ask delete c    ask stop c    ask restart c    ask restart-task c-0
written                             the write under way is durable and read back
advance 3000    stop                time passes; SIGTERM
"""

from collections.abc import Callable, Iterable

from drover.errors import (
    DroverError,
    FailedPreconditionError,
    NotFoundError,
    Reason,
    UnavailableError,
)
from drover.machine import CancelTimer, Complete, Fail, SetTimer
from drover.model.config import TargetState
from drover.model.ids import TaskId
from drover_worker.core import events, instructions, requests
from drover_worker.core.instructions import HerderInstruction
from drover_worker.core.rebalance.protocol import AssignmentError, MemberMetadata, decode_assignment
from tests.support.herder_driver import OTHER, HerderDriver, connector_config, entry, task_configs
from tests.support.scenario import Command

_ERRORS: dict[str, DroverError] = {
    "UNREACHABLE": UnavailableError(Reason.SERVICE_UNREACHABLE, "nobody answers"),
    "UNKNOWN_MEMBER_ID": NotFoundError(Reason.UNKNOWN_MEMBER_ID, "unknown member"),
    "ILLEGAL_GENERATION": FailedPreconditionError(Reason.ILLEGAL_GENERATION, "another generation"),
    "STALE_WRITER_EPOCH": FailedPreconditionError(Reason.STALE_WRITER_EPOCH, "stale epoch"),
}
_QUIET = (SetTimer, CancelTimer, instructions.WatchGroup)


class HerderScenario:
    """Runs commands against one herder; ``execute`` returns the trace of each."""

    def __init__(self) -> None:
        self._driver = HerderDriver()
        self._driver.observer = self._see
        self._trace: list[str] = []
        self._call_count = 0

    def execute(self, command: Command) -> Iterable[str]:
        """Run one command."""
        before = self._driver.stage
        self._trace = []
        commands: dict[str, Callable[[Command], object]] = {
            "ready": self._ready,
            "join": self._join,
            "sync": self._sync,
            "push": lambda c: self._step(events.GroupPushed("member-a", int(c.words[0]), True)),
            "grant": lambda _: self._driver.grant_writer(),
            "work": lambda _: self._driver.run_engine(),
            "fail": self._fail,
            "read": self._read,
            "put": lambda c: self._driver.put(c.words[0]),
            "commit": lambda c: self._driver.commit(
                c.words[0], task_configs(c.words[0], int(c.words[1]))
            ),
            "half": lambda c: self._driver.commit_half(c.words[0], int(c.words[1])),
            "remove": lambda c: self._driver.remove(c.words[0]),
            "target": lambda c: self._driver.target(c.words[0], TargetState(c.words[1])),
            "restart": lambda c: self._driver.restart_requested(
                c.words[0], only_failed="only-failed" in c.words, include_tasks="tasks" in c.words
            ),
            "seen": lambda _: self._driver.echo_statuses(),
            "lose-engine": lambda _: self._step(events.EngineLost("killed")),
            "regain-engine": lambda _: self._step(events.EngineReady()),
            "task-fails": lambda c: self._step(events.TaskFailed(*self._run(c), "boom")),
            "task-fenced": lambda c: self._step(events.TaskFenced(*self._run(c))),
            "ask": self._ask,
            "written": self._written,
            "advance": lambda c: self._driver.advance(int(c.words[0])),
            "stop": lambda _: self._step(events.StopRequested()),
        }
        commands[command.name](command)
        if self._driver.stage != before:
            self._trace.append(f"stage: {self._driver.stage}")
        return self._trace

    def _step(self, event: events.HerderEvent) -> None:
        self._driver.step(event)

    def _run(self, command: Command) -> tuple[TaskId, int]:
        task = _task(command.words[0])
        return task, self._driver.herder.work.tasks[task].run_id

    def _ready(self, command: Command) -> None:
        counts = {name: int(count) for name, count in command.options.items()}
        self._driver.ready(*(entry(name, tasks=count) for name, count in counts.items()))

    def _join(self, command: Command) -> None:
        others = {"member-b": MemberMetadata(OTHER, command.number("ahead", 0))}
        self._driver.join(
            generation=int(command.words[0]), leader="follower" not in command.words, others=others
        )

    def _sync(self, command: Command) -> None:
        call = self._driver.find(instructions.SyncGroup)[0]
        if call.assignments:
            self._driver.sync()
            return
        mismatch = "mismatch" in command.words
        self._driver.sync(
            self._driver.led_assignment(
                connectors=[n for n in command.options.get("connectors", "").split(",") if n],
                tasks=[_task(t) for t in command.options.get("tasks", "").split(",") if t],
                offset=command.number("offset", self._driver.offset),
                error=AssignmentError.CONFIG_MISMATCH if mismatch else AssignmentError.NO_ERROR,
            )
        )

    def _fail(self, command: Command) -> None:
        kind, reason = command.words
        call = next(i for i in self._driver.todo if type(i).__name__ == kind)
        self._driver.todo.remove(call)
        error = _ERRORS[reason]
        if isinstance(call, instructions.ClaimTask):
            self._step(events.TaskNotPrepared(call.task, call.run_id, error))
        else:
            self._driver.fail(getattr(call, "cause_id", ""), error)

    def _read(self, command: Command) -> None:
        call = self._driver.take(instructions.ReadConfigsToEnd)
        self._step(events.ReadToEnd(call.cause_id))

    def _ask(self, command: Command) -> None:
        what, name = command.words
        self._call_count += 1
        request_id = f"r{self._call_count}"
        made: dict[str, Callable[[], requests.Request]] = {
            "create": lambda: requests.CreateConnector(
                name, connector_config(name), TargetState.STARTED, request_id
            ),
            "delete": lambda: requests.DeleteConnector(name, request_id),
            "stop": lambda: requests.SetTargetState(name, TargetState.STOPPED, request_id),
            "pause": lambda: requests.SetTargetState(name, TargetState.PAUSED, request_id),
            "restart": lambda: requests.RestartConnector(name, False, False, request_id),
            "restart-task": lambda: requests.RestartTask(_task(name)),
        }
        self._driver.ask(made[what](), call_id=f"{what} {name}")
        for call in self._driver.take_all(instructions.ValidateConfig):
            self._driver.validated(call.cause_id)

    def _written(self, command: Command) -> None:
        call = next(
            i for i in self._driver.todo if type(i).__name__.startswith(("Write", "Remove"))
        )
        self._driver.todo.remove(call)
        self._driver.offset += 1
        cause_id = getattr(call, "cause_id", "")
        self._step(events.ConfigWritten(cause_id, self._driver.offset, self._driver.offset))
        self._step(events.ConfigsChanged([], self._driver.offset))

    def _see(self, instruction: HerderInstruction) -> None:
        if not isinstance(instruction, _QUIET):
            self._trace.append(_describe(instruction))


def _task(text: str) -> TaskId:
    connector, _, index = text.rpartition("-")
    return TaskId(connector, int(index))


def _describe(instruction: HerderInstruction) -> str:
    match instruction:
        case instructions.JoinGroup(member_id=member_id, reason=reason):
            return f"JoinGroup {member_id or '(new)'}: {reason}"
        case instructions.SyncGroup(generation=generation, assignments=assignments):
            return f"SyncGroup generation {generation}{_shares(assignments)}"
        case instructions.WriteStatus(write):
            safely = " safely" if write.safe else ""
            return f"status {write.status.key} {write.status.state}{safely}"
        case instructions.ClaimWriter(term=term):
            return f"ClaimWriter {term}"
        case instructions.StartTask(task, paused=paused):
            return f"StartTask {task}{' paused' if paused else ''}"
        case instructions.SetTaskPaused(task, paused=paused):
            return f"{'pause' if paused else 'resume'} {task}"
        case instructions.WriteTaskConfigs(connector=name, configs=configs):
            return f"WriteTaskConfigs {name} {len(configs)}"
        case instructions.SubmitToLeader(leader_url=url, connector=name, configs=configs):
            return f"SubmitToLeader {url} {name} {len(configs)}"
        case instructions.WriteTargetState(name=name, target_state=state):
            return f"WriteTargetState {name} {state}"
        case Complete(call_id, response):
            return f"answer to {call_id}: {response}"
        case Fail(call_id, error):
            return f"error to {call_id}: {error.reason}: {error.message}"
        case _:
            subject = getattr(instruction, "task", None) or getattr(instruction, "name", "")
            return f"{type(instruction).__name__} {subject}".rstrip()


def _shares(assignments: object) -> str:
    if not isinstance(assignments, dict) or not assignments:
        return ""
    shares = []
    for member, data in sorted(assignments.items()):
        part = decode_assignment(data)
        work = " ".join([*part.connectors, *map(str, part.tasks)]) or "nothing"
        shares.append(f"{member}: {part.error.name if part.error else work}")
    return "; " + "; ".join(shares)
