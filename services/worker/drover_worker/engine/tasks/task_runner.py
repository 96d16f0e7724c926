"""The common part of source and sink tasks: runs the instructions of a core, and reports events.

A runner decides nothing: ``engine/core`` does. It has the threads, Spark, the data plane, the
clock, and the connection to the herder.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

import structlog
from pyspark.sql import SparkSession

from drover.api.engine.v1 import engine_pb2
from drover.clock import Clock, SystemClock
from drover.codec.common import encode_task_id
from drover.codec.failures import encode_cause
from drover.connector import SinkTask, SourceTask
from drover.connector.connector import Connector
from drover.connector.settings import (
    BATCH_MAX_BYTES,
    BATCH_MAX_RECORDS,
    RATE_MAX_BYTES,
    RATE_MAX_RECORDS,
    task_config,
)
from drover.connector.task import TaskFigures
from drover.dataplane.plane import DataPlane
from drover.dataplane.shared_jobs import Rider, SharedJobs, riding
from drover.model.config import CONSUMER_GROUP_SETTING
from drover.model.failures import FailureCause
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommittedOffset
from drover.rpc.logs import log_context
from drover_worker.engine.core import events, instructions
from drover_worker.engine.core.events import TaskEvent
from drover_worker.engine.core.failures import Failure, Fault
from drover_worker.engine.core.instructions import Operation, TaskInstruction
from drover_worker.engine.core.rate_limit import RateLimit
from drover_worker.engine.core.steps import Step
from drover_worker.engine.core.task import TaskCore, TaskLimits
from drover_worker.engine.in_flight import InFlight
from drover_worker.engine.plugins.answers import timed_out_message
from drover_worker.engine.plugins.failure_causes import cause_of_failure
from drover_worker.engine.plugins.threads import PluginThreads
from drover_worker.engine.process_watch import ProcessWatch
from drover_worker.engine.settings import EngineLimits
from drover_worker.engine.tasks.activity import TaskActivity
from drover_worker.engine.tasks.calls import Answer, TaskCalls
from drover_worker.engine.tasks.fair_pools import FairPools
from drover_worker.engine.tasks.faults import failure_of, failure_text, fault_of
from drover_worker.engine.tasks.progress import RunProgress
from drover_worker.engine.tasks.record_path import RecordPath
from drover_worker.engine.tasks.scheduler import Scheduler
from drover_worker.engine.tasks.task_times import TaskTimes
from drover_worker.engine.tasks.topic_watcher import TopicWatcher

#: How long a task waits for the coordinator's answer before it retries.
CLAIM_CHECK_S = 5.0

log = structlog.get_logger(__name__)
#: Executes an instruction; an operation returns its result.
Execution = Callable[[Any, Any], TaskEvent | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """A task to run, as the herder's start command defines it."""

    task: TaskId
    run_id: int
    claim: Term
    connector_class: type[Connector]
    connector_config: Mapping[str, str]
    own_config: Mapping[str, str]
    committed: Sequence[CommittedOffset]

    @property
    def log_fields(self) -> Mapping[str, str | int]:
        """Fields for every log event of the task."""
        return {
            "connector": self.task.connector,
            "task": str(self.task),
            "generation": self.claim.generation,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTools:
    """Objects that the tasks of an engine share."""

    spark: SparkSession
    plane: DataPlane
    scheduler: Scheduler
    threads: PluginThreads
    watcher: TopicWatcher
    limits: EngineLimits
    send: Callable[[engine_pb2.EngineReport], None]
    #: Whether Spark is running; the engine ends soon after it.
    is_spark_running: Callable[[], bool]
    #: Receivers of the answers to commits, by call id.
    commits: dict[int, Answer]
    #: Since when Spark has no executors, in milliseconds since the epoch; None while it has.
    without_executors_ms: Callable[[], int | None] = lambda: None
    in_flight: InFlight = field(default_factory=InFlight)
    watch: ProcessWatch = field(default_factory=ProcessWatch)
    #: Runs small passes of several tasks in one job; None gives each pass its own job.
    shared_jobs: SharedJobs | None = None
    pools: FairPools = field(default_factory=FairPools)
    clock: Clock = field(default_factory=SystemClock)


class TaskRunner(ABC):
    """A task as a job of the scheduler.

    ``prepare`` runs once on a plugin thread; then the scheduler calls ``run_once``, which does at
    most one micro-batch. A failure or a lost claim ends the task; ``stop`` ends it gracefully.
    Events of other threads reach the core between the operations of the task's thread.
    """

    #: The executions of the subclass.
    _OWN_EXECUTIONS: ClassVar[Mapping[type[Any], Execution]] = {}
    #: The step that an operation begins.
    _STEPS: ClassVar[Mapping[type[Any], Step]] = {}
    #: The step that runs Spark jobs.
    _JOB_STEP: ClassVar[Step]

    def __init__(self, spec: TaskSpec, tools: TaskTools, *, paused: bool) -> None:
        self.spec = spec
        self._tools = tools
        #: Guards the core, and the task object until it is taken.
        self._lock = threading.Lock()
        self._core_stepped = threading.Condition(self._lock)
        self._instance: SourceTask | SinkTask | None = None
        self._is_running = False
        #: Whether the run hangs and was given up: its end releases the task object.
        self._is_given_up = False
        self._deadline: float | None = None
        self._deadline_what = ""
        self._deadline_limit_ms = 0
        self._times = TaskTimes()
        self._progress = RunProgress(self._times)
        self._activity = TaskActivity(tools.clock, self._JOB_STEP)
        #: The plugin's own figures.
        self._figures = TaskFigures()
        #: When a stop ends to wait, as time.monotonic().
        self._stop_deadline_s = 0.0
        merged = task_config(spec.connector_class, spec.connector_config, spec.own_config)
        self._calls = TaskCalls(
            spec.task,
            spec.claim,
            send=tools.send,
            answers=tools.commits,
            consumer_group=merged.get(CONSUMER_GROUP_SETTING) or "",
        )
        rate = RateLimit(merged[RATE_MAX_RECORDS], merged[RATE_MAX_BYTES])
        # limits for plugins and plans
        self._config: Mapping[str, Any] = {
            **merged,
            BATCH_MAX_RECORDS: rate.batch_max_records(merged[BATCH_MAX_RECORDS]),
            BATCH_MAX_BYTES: rate.batch_max_bytes(merged[BATCH_MAX_BYTES]),
        }
        self._limits = TaskLimits(
            rate_max_records=merged[RATE_MAX_RECORDS],
            rate_max_bytes=merged[RATE_MAX_BYTES],
            batch_max_records=self._config[BATCH_MAX_RECORDS],
            batch_max_bytes=self._config[BATCH_MAX_BYTES],
        )
        self._path = RecordPath(
            spec.connector_class,
            merged,
            spec.task,
            tools.spark,
            record_bytes_max=tools.plane.record_bytes_max,
            record_bytes_max_of=tools.plane.record_bytes_max_of,
            plane=tools.plane,
        )
        self._rider = Rider(tools.shared_jobs, abandoned=lambda: self.over)
        self._executions = {**EXECUTIONS, **self._OWN_EXECUTIONS}
        self._core = self._make_core(paused=paused)

    @property
    def name(self) -> str:
        """See scheduler.Job."""
        return str(self.spec.task)

    @property
    def run_deadline(self) -> float | None:
        """See scheduler.Job."""
        return self._deadline

    @property
    def over(self) -> bool:
        """Whether the task has ended; its reports are dropped then."""
        return self._core.is_over

    @property
    def stopping(self) -> bool:
        """Whether the task is stopping or has ended."""
        return self._core.is_stopping

    def prepare(self) -> None:
        """Create and start the task object, or defer that to the first run; runs plugin code."""
        self._run(events.StartRequested(self.spec.committed))

    def cause_of_failed_start(self, error: BaseException) -> FailureCause:
        """The cause to report when ``prepare`` raised ``error``."""
        lost = fault_of(error) in (Fault.LOST, Fault.EXECUTOR)
        lost = lost or not self._tools.is_spark_running()
        return FailureCause.ENGINE if lost else cause_of_failure(error)

    def begin(self, *, paused: bool) -> None:
        """Add the task to the scheduler."""
        self._deliver(events.PauseSet(paused))
        self._activity.enter(Step.QUEUED)
        self._tools.scheduler.add(self)

    def disown(self, *, in_use: bool) -> None:
        """End without a report after a failed start; ``in_use`` if a hung thread has the task
        object.
        """
        self._deliver(events.Abandoned())
        if not in_use:
            self._release_instance()

    def set_paused(self, paused: bool) -> None:
        """Pause after the batch in flight, or resume."""
        self._deliver(events.PauseSet(paused))

    def run_once(self) -> float | None:
        """See scheduler.Job."""
        with self._lock:
            if self._core.is_stopping:
                return None
            self._is_running = True
        try:
            return self._run_batch()
        finally:
            with self._lock:
                self._is_running = False
                returns_late = self._is_given_up
            if returns_late:
                log.info("an abandoned run returned", task=self.name)
                self._release_instance()

    def _run_batch(self) -> float | None:
        at_work = self._tools.in_flight.at_work(self.spec.task, is_run=True)
        self._activity.run_began()
        end: instructions.EndRun | instructions.EndStop | None = None
        with log_context(**self.spec.log_fields), at_work:
            try:
                end = self._run(events.RunBegan())
            finally:
                self._deadline = None
                if isinstance(end, instructions.EndRun):
                    self._activity.enter(end.step)
                self._activity.run_ended()
        if not isinstance(end, instructions.EndRun) or end.pause_ms is None:
            return None
        return end.pause_ms / 1000

    def run_overdue(self) -> None:
        """See scheduler.Job."""
        message = timed_out_message(
            self._deadline_what, self._deadline_limit_ms, self._activity.stack()
        )
        log.warning("a call hangs and is abandoned", task=self.name, why=message)
        self._deliver(events.Overdue(message))

    def stop(self, limit_s: float) -> None:
        """Wait for the batch in flight, then stop the task object; blocks.

        A batch that does not end within ``limit_s`` is abandoned with its thread: the next claim
        fences its writes, its reports are dropped, and the task object is stopped when it ends.
        """
        self._stop_deadline_s = time.monotonic() + limit_s
        self._deliver(events.StopRequested())
        ended = self._tools.scheduler.remove(self)
        if not ended.wait(limit_s) or not self._has_settled():
            log.warning("abandoning a batch", task=self.name, limit_s=limit_s)
        self._deliver(events.Abandoned())
        if not ended.is_set() and self._give_up_run():
            self._tools.scheduler.give_up(self)
            self._tools.spark.sparkContext.cancelJobGroup(self._job_group)
            return
        self._stop_task_object(self._take_instance())
        self._deliver(events.InstanceReleased())

    def progress(self) -> engine_pb2.TaskProgress.Entry | None:
        """The task's progress, if it changed since the last call."""
        activity = self._activity.encode(without_executors_ms=self._tools.without_executors_ms())
        activity.process_change = self._tools.watch.note_of(self.spec.task.connector)
        return self._progress.report(
            self.spec.task, self.spec.run_id, self._figures.values(), activity
        )

    @abstractmethod
    def _make_core(self, *, paused: bool) -> TaskCore:
        """The core that decides what the task does."""

    # --- events and instructions -------------------------------------------------------------

    def _run(self, event: TaskEvent) -> instructions.EndRun | instructions.EndStop | None:
        """Pass an event to the core, execute its instructions, and pass on their results; returns
        how the run or the stop ends.
        """
        end: instructions.EndRun | instructions.EndStop | None = None
        note_failed = False
        todo = deque(self._step(event))
        while todo:
            instruction = todo.popleft()
            if isinstance(instruction, instructions.EndRun | instructions.EndStop):
                end = instruction
                continue
            if isinstance(instruction, instructions.RefuseStart):
                raise instruction.error
            try:
                found = self._execute(instruction)
            except BaseException as error:
                is_note = not isinstance(instruction, Operation)
                if self.over or (is_note and note_failed):
                    raise  # otherwise a report that fails each time would have no end
                note_failed = note_failed or is_note
                todo.clear()
                end = None
                found = events.OperationFailed(self._failure(error))
            if found is not None:
                todo.extend(self._step(found))
        return end

    def _deliver(self, event: TaskEvent) -> None:
        """Pass an event of another thread to the core."""
        for instruction in self._step(event):
            self._execute(instruction)

    def _step(self, event: TaskEvent) -> Sequence[TaskInstruction]:
        with self._lock:
            found = self._core.step(event, round(time.monotonic() * 1000))
            self._core_stepped.notify_all()
            return found

    def _wait_until(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Wait until events of other threads have made a condition of the core true."""
        with self._core_stepped:
            return self._core_stepped.wait_for(condition, limit_s)

    def _execute(self, instruction: TaskInstruction) -> TaskEvent | None:
        kind = type(instruction)
        step = self._STEPS.get(kind)
        if step is not None:
            self._activity.enter(step)
        return self._executions[kind](self, instruction)

    def _failure(self, error: BaseException) -> Failure:
        return failure_of(error, spark_is_running=self._tools.is_spark_running())

    def _has_settled(self) -> bool:
        """Whether asynchronous work of the last batches ended in time; blocks."""
        end = self._run(events.SettleRequested())
        return not isinstance(end, instructions.EndStop) or end.in_time

    # --- executions --------------------------------------------------------------------------

    def _wake(self, _instruction: instructions.Wake | None = None) -> None:
        self._tools.scheduler.wake(self)

    def _examine(self, instruction: instructions.Examine) -> TaskEvent:
        return events.OperationFailed(self._failure(instruction.error))

    def _read_claim(self, _instruction: instructions.ReadClaim) -> TaskEvent:
        return events.ClaimRead(self._tools.plane.current_claim(self.spec.task))

    def _confirm_claim(self, _instruction: instructions.ConfirmClaim) -> TaskEvent:
        self._calls.check_claim(CLAIM_CHECK_S)
        return events.ClaimConfirmed()

    def _stop_instance(self, _instruction: instructions.StopInstance) -> TaskEvent:
        instance = self._take_instance()
        with self._time_limit("restart", self._tools.limits.start_ms):
            if instance is not None:
                instance.stop()
            return events.InstanceStopped(self._tools.plane.fetch_offsets(self.spec.task.connector))

    def _fetch_offsets(self, instruction: instructions.FetchOffsets) -> TaskEvent:
        found = self._calls.fetch(CLAIM_CHECK_S, with_positions=instruction.with_positions)
        return events.OffsetsFetched(found)

    def _send_commit(self, instruction: instructions.SendCommit) -> None:
        number = instruction.number
        self._calls.commit(
            instruction.offsets,
            lambda outcome, message: self._deliver(events.CommitAnswered(number, outcome, message)),
            refreshes_marks=instruction.refreshes_marks,
        )

    def _await_commits(self, _instruction: instructions.AwaitCommits) -> TaskEvent:
        commits = self._core.commits
        in_time = self._wait_until(lambda: not commits.is_in_flight, self._stop_left_s)
        return events.CommitsAwaited(in_time)

    def _note_committed(self, instruction: instructions.NoteCommitted) -> None:
        self._times.commits.add(instruction.took_ms / 1000)

    def _note_retry(self, instruction: instructions.NoteRetry) -> None:
        self._times.retry_count += 1
        pause_s = instruction.pause_ms / 1000
        log.warning(instruction.reason, error=instruction.error[:500], pause_s=pause_s)
        self._activity.failed(instruction.operation, instruction.message, pause_s)

    def _note_recovery(self, _instruction: instructions.NoteRecovery) -> None:
        self._activity.recovered()

    def _defer_start(self, instruction: instructions.DeferStart) -> None:
        log.warning("a task's start is retried", task=self.name, error=instruction.message)
        self._activity.failed("start", instruction.message, 0)

    def _keep_in_flight(self, _instruction: instructions.KeepInFlight) -> None:
        self._tools.in_flight.keep(self.spec.task)

    def _log(self, instruction: instructions.Log) -> None:
        write = log.warning if instruction.is_warning else log.info
        write(instruction.text, **instruction.fields)

    def _count_batch(self, instruction: instructions.CountBatch) -> None:
        self._progress.moved(
            instruction.report,
            instruction.started_ms / 1000,
            instruction.topics,
            instruction.size_bytes,
        )

    def _end_failed(self, instruction: instructions.EndFailed) -> None:
        error = instruction.error
        trace = instruction.message
        if error is not None:
            trace = failure_text(error, instruction.fault, instruction.loss_count)
        self._end(
            engine_pb2.EngineReport(
                task_failed=engine_pb2.TaskFailed(
                    task=encode_task_id(self.spec.task),
                    run_id=self.spec.run_id,
                    trace=trace,
                    cause=encode_cause(instruction.cause),
                )
            ),
            keeps_instance=instruction.keeps_instance,
        )

    def _end_fenced(self, _instruction: instructions.EndFenced) -> None:
        self._end(
            engine_pb2.EngineReport(
                task_fenced=engine_pb2.TaskFenced(
                    task=encode_task_id(self.spec.task), run_id=self.spec.run_id
                )
            )
        )

    def _end(self, report: engine_pb2.EngineReport, *, keeps_instance: bool = False) -> None:
        log.info("a task ended", task=self.name, how=report.WhichOneof("report"))
        self._tools.send(report)
        self._tools.scheduler.remove(self)
        if not (keeps_instance and self._give_up_run()):
            self._discard_instance()

    # --- helpers -----------------------------------------------------------------------------

    @property
    def _job_group(self) -> str:
        return f"{self.name}#{self.spec.run_id}"

    @property
    def _stop_left_s(self) -> float:
        return max(0.0, self._stop_deadline_s - time.monotonic())

    @contextmanager
    def _time_limit(self, what: str, limit_ms: int) -> Iterator[None]:
        """Abandon the run when the plugin does not return in time."""
        self._deadline_what = f"{what} of task {self.name}"
        self._deadline_limit_ms = limit_ms
        self._deadline = time.monotonic() + limit_ms / 1000
        try:
            with self._tools.in_flight.plugin_call():
                yield
        finally:
            self._deadline = None

    @contextmanager
    def _spark_jobs(self, *, passes_only: bool = False) -> Iterator[None]:
        """Run the block's Spark jobs in this task's job group and a fair pool.

        With ``passes_only`` both are set by the first pass that runs a job: setting them
        takes the time of a short pass.
        """
        with ExitStack() as begun:
            begin = cache(lambda: self._begin_jobs(begun))
            if not passes_only:
                begin()
            with riding(self._rider, on_own_job=begin):
                yield

    def _begin_jobs(self, begun: ExitStack) -> None:
        context = self._tools.spark.sparkContext
        context.setJobGroup(self._job_group, f"task {self.name}")
        pool = begun.enter_context(self._tools.pools.lent())
        context.setLocalProperty("spark.scheduler.pool", pool)
        # the thread will run other tasks
        begun.callback(context.setLocalProperty, "spark.jobGroup.id", None)  # type: ignore[arg-type]
        begun.callback(context.setLocalProperty, "spark.scheduler.pool", None)  # type: ignore[arg-type]

    def _new_instance(self, start: Callable[[Any], object], *, is_restart: bool) -> object:
        """Create a task object and start it; returns what ``start`` returns."""
        with ExitStack() as limits:
            if is_restart:  # the first start has its own limit
                limits.enter_context(self._time_limit("restart", self._tools.limits.start_ms))
            # source and sink connectors both define task_class
            made: SourceTask | SinkTask = self.spec.connector_class.task_class()  # type: ignore[attr-defined]
            with self._lock:
                self._instance = made
            return start(made)

    def _give_up_run(self) -> bool:
        """Let the run in progress release the task object when it returns; whether there is one."""
        with self._lock:
            self._is_given_up = self._is_running
            return self._is_given_up

    def _release_instance(self) -> None:
        self._discard_instance()
        self._deliver(events.InstanceReleased())

    def _stop_task_object(self, instance: SourceTask | SinkTask | None) -> None:
        """Stop the task object, and release what its record path holds, also if that fails."""
        try:
            if instance is not None:
                instance.stop()
        finally:
            self._path.close()

    def _discard_instance(self) -> None:
        """Stop the task object on another thread, without waiting for it."""
        instance = self._take_instance()
        if instance is not None or self._path.holders:
            self._tools.threads.run(
                f"stop:{self.name}",
                lambda: self._stop_task_object(instance),
                limit_ms=self._tools.limits.stop_ms,
                on_done=lambda _outcome: None,
                key=self.spec.task,
            )

    def _take_instance(self) -> SourceTask | SinkTask | None:
        """Take the task object, so that it is stopped only once."""
        with self._lock:
            instance, self._instance = self._instance, None
        return instance


EXECUTIONS: Mapping[type[Any], Execution] = {
    instructions.Wake: TaskRunner._wake,
    instructions.Examine: TaskRunner._examine,
    instructions.ReadClaim: TaskRunner._read_claim,
    instructions.ConfirmClaim: TaskRunner._confirm_claim,
    instructions.StopInstance: TaskRunner._stop_instance,
    instructions.FetchOffsets: TaskRunner._fetch_offsets,
    instructions.SendCommit: TaskRunner._send_commit,
    instructions.AwaitCommits: TaskRunner._await_commits,
    instructions.NoteCommitted: TaskRunner._note_committed,
    instructions.NoteRetry: TaskRunner._note_retry,
    instructions.NoteRecovery: TaskRunner._note_recovery,
    instructions.DeferStart: TaskRunner._defer_start,
    instructions.KeepInFlight: TaskRunner._keep_in_flight,
    instructions.Log: TaskRunner._log,
    instructions.CountBatch: TaskRunner._count_batch,
    instructions.EndFailed: TaskRunner._end_failed,
    instructions.EndFenced: TaskRunner._end_fenced,
}
