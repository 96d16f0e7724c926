"""The common part of source and sink tasks: start, runs, pauses, failures, end."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import structlog
from pyspark.sql import SparkSession

from drover.api.engine.v1 import engine_pb2
from drover.backoff import Backoff
from drover.clock import Clock, SystemClock
from drover.codec.common import encode_task_id
from drover.codec.failures import encode_cause
from drover.config.plugin_errors import error_text
from drover.connector import RetriableError, SinkTask, SourceTask
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
from drover.errors import DroverError, FailedPreconditionError, Reason, UnavailableError
from drover.model.config import CONSUMER_GROUP_SETTING
from drover.model.failures import FailureCause
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommittedOffset
from drover.model.times import DAY_MS
from drover.pipeline import PassReport
from drover.rpc.logs import log_context
from drover_worker.engine.in_flight import InFlight
from drover_worker.engine.plugins.answers import timed_out_message
from drover_worker.engine.plugins.failure_causes import cause_of_failure
from drover_worker.engine.plugins.threads import PluginThreads
from drover_worker.engine.process_watch import ProcessWatch
from drover_worker.engine.settings import EngineLimits
from drover_worker.engine.tasks.activity import Step, TaskActivity
from drover_worker.engine.tasks.commits import Answer, TaskCommits
from drover_worker.engine.tasks.error_rate import ErrorRate, TooManyErrorsError
from drover_worker.engine.tasks.fair_pools import FairPools
from drover_worker.engine.tasks.faults import (
    Fault,
    failure_text,
    fault_of,
)
from drover_worker.engine.tasks.progress import RunProgress
from drover_worker.engine.tasks.rate_limit import RateLimit
from drover_worker.engine.tasks.record_path import RecordPath
from drover_worker.engine.tasks.scheduler import Scheduler
from drover_worker.engine.tasks.task_times import TaskTimes
from drover_worker.engine.tasks.topic_watcher import TopicWatcher

_RETRY_FIRST_S = 0.1
_RETRY_MAX_S = 5.0
_RETRIABLE_FIRST_S = 0.3
#: After this many consecutive batches during which a Spark process ended, the plugin is blamed.
_LOSSES_MAX = 5
_DAY_S = 86_400.0
#: How long a task waits for the coordinator's answer before it retries.
CLAIM_CHECK_S = 5.0

#: What is retried after a RetriableError, by the step in which it was raised.
_CALLS = {
    Step.STARTING: "start()",
    Step.POLLING: "poll()",
    Step.CONVERTING: "reading a batch",
    Step.WRITING: "write()",
    Step.NOTIFYING: "committed() or idle()",
}

log = structlog.get_logger(__name__)


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
    """

    def __init__(self, spec: TaskSpec, tools: TaskTools, *, paused: bool) -> None:
        self.spec = spec
        self._tools = tools
        self._paused = paused
        self._lock = threading.Lock()
        self._over = False
        self._stopping = False
        self._instance: SourceTask | SinkTask | None = None
        self._restart_wanted = False
        self._retries = Backoff(_RETRY_FIRST_S, _RETRY_MAX_S)
        #: Consecutive batches during which a Spark process ended.
        self._loss_count = 0
        self._deadline: float | None = None
        self._deadline_what = ""
        self._deadline_limit_ms = 0
        self._times = TaskTimes()
        self._progress = RunProgress(self._times)
        self._activity = TaskActivity(tools.clock)
        #: The step of the wait after the present run; None for the usual one.
        self._wait_step: Step | None = None
        #: The plugin's own figures.
        self._figures = TaskFigures()
        merged = task_config(spec.connector_class, spec.connector_config, spec.own_config)
        self._commits = TaskCommits(
            spec.task,
            spec.claim,
            spec.committed,
            send=tools.send,
            answers=tools.commits,
            wake=self._wake,
            consumer_group=merged.get(CONSUMER_GROUP_SETTING) or "",
        )
        self._rate = RateLimit(merged[RATE_MAX_RECORDS], merged[RATE_MAX_BYTES])
        # limits for plugins and plans
        self._config: Mapping[str, Any] = {
            **merged,
            BATCH_MAX_RECORDS: self._rate.batch_max_records(merged[BATCH_MAX_RECORDS]),
            BATCH_MAX_BYTES: self._rate.batch_max_bytes(merged[BATCH_MAX_BYTES]),
        }
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
        self._error_rate = ErrorRate(self._path.errors)
        longest_ms = self._path.errors.retry_delay_max_ms
        longest_s = (longest_ms if longest_ms >= 0 else DAY_MS) / 1000
        self._call_retries = Backoff(min(_RETRIABLE_FIRST_S, longest_s), longest_s)
        #: When the first of the current consecutive retries was; None when there are none.
        self._retrying_since_s: float | None = None

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
        return self._over

    @property
    def stopping(self) -> bool:
        """Whether the task is stopping or has ended."""
        return self._stopping or self._over

    def prepare(self) -> None:
        """Create and start the task object, or defer that to the first run; runs plugin code."""
        try:
            committed = self._position(self.spec.committed)
        except (UnavailableError, FailedPreconditionError) as error:
            if fault_of(error) is None:
                raise
            log.warning("a task's start is retried", task=self.name, error=error.message)
            self._activity.failed("start", error.message, 0)
            self._restart_wanted = True
            return
        self._make_instance(committed)

    def cause_of_failed_start(self, error: BaseException) -> FailureCause:
        """The cause to report when ``prepare`` raised ``error``."""
        lost = fault_of(error) is Fault.LOST or not self._tools.is_spark_running()
        return FailureCause.ENGINE if lost else cause_of_failure(error)

    def begin(self, *, paused: bool) -> None:
        """Add the task to the scheduler."""
        self._paused = paused
        self._activity.enter(Step.QUEUED)
        self._tools.scheduler.add(self)

    def disown(self, *, in_use: bool) -> None:
        """End without a report after a failed start; ``in_use`` if a hung thread has the task
        object.
        """
        with self._lock:
            self._over = True
        if not in_use:
            self._discard_instance()
            self._release()

    def set_paused(self, paused: bool) -> None:
        """Pause after the batch in flight, or resume."""
        self._paused = paused
        self._wake()

    def run_once(self) -> float | None:
        """See scheduler.Job."""
        if self.stopping:
            return None
        at_work = self._tools.in_flight.at_work(self.spec.task, is_run=True)
        self._activity.run_began()
        self._wait_step = None
        with log_context(**self.spec.log_fields), at_work:
            try:
                pause_s = self._run_step()
            except BaseException as error:  # noqa: BLE001 - plugin code may raise anything
                pause_s = self._after_error(error)
                self._activity.enter(Step.WAITING_TO_RETRY)
            else:
                self._activity.enter(self._step_after(pause_s))
            finally:
                self._deadline = None
                self._activity.run_ended()
        return pause_s

    def _step_after(self, pause_s: float | None) -> Step:
        """The step between two runs."""
        if self._commits.open_count and pause_s is None:
            return Step.COMMITTING
        if self._paused:
            return Step.PAUSED
        if pause_s == 0:
            return Step.QUEUED
        return self._wait_step or Step.WAITING_FOR_RECORDS

    def _run_step(self) -> float | None:
        """Process the answers to commits, then do the next batch or restart."""
        self._commits.settle()
        # the answer to a commit wakes the task, however late it arrives
        if self._commits.open_count and (self._restart_wanted or not self._may_run_ahead):
            return None
        if self._restart_wanted:
            self._restart()
        if self.stopping:
            return None
        pause_s = self._rate.pause_s(time.monotonic())
        if pause_s:
            self._wait_step = Step.RATE_LIMITED
            return pause_s
        return self._run_batch()

    def run_overdue(self) -> None:
        """See scheduler.Job."""
        message = timed_out_message(
            self._deadline_what, self._deadline_limit_ms, self._activity.stack()
        )
        log.warning("a call hangs and is abandoned", task=self.name, why=message)
        with self._lock:
            self._instance = None  # a hung thread is still using it
        self._end_failed(message)

    def stop(self, limit_s: float) -> None:
        """Wait for the batch in flight, then stop the task object; blocks.

        A batch that does not end within ``limit_s`` is abandoned with its thread: the next claim
        fences its writes, and its reports are dropped.
        """
        deadline = time.monotonic() + limit_s
        self._stopping = True
        ended = self._tools.scheduler.remove(self)
        if not ended.wait(limit_s) or not self._wait_settled(deadline - time.monotonic()):
            log.warning("abandoning a batch", task=self.name, limit_s=limit_s)
        with self._lock:
            self._over = True
        if not ended.is_set():
            self._tools.scheduler.give_up(self)
            self._tools.spark.sparkContext.cancelJobGroup(self._job_group)
            return
        instance = self._take_instance()
        if instance is not None:
            instance.stop()
        self._release()

    def progress(self) -> engine_pb2.TaskProgress.Entry | None:
        """The task's progress, if it changed since the last call."""
        activity = self._activity.encode()
        activity.process_change = self._tools.watch.note_of(self.spec.task.connector)
        return self._progress.report(
            self.spec.task, self.spec.run_id, self._figures.values(), activity
        )

    @abstractmethod
    def _run_batch(self) -> float | None:
        """Do at most one micro-batch; returns as Job.run_once."""

    @abstractmethod
    def _start_instance(self, instance: Any, committed: Sequence[CommittedOffset]) -> None:
        """Start a new task object at the ``committed`` offsets."""

    def _position(self, committed: Sequence[CommittedOffset]) -> Sequence[CommittedOffset]:
        """The offsets to start from; ``committed`` are the last known ones. Blocks, within bounds.

        Raises:
            UnavailableError: STORAGE_UNAVAILABLE.
            FailedPreconditionError: STALE_CLAIM, another worker has claimed the task; or a problem
                that an operator has to fix.
        """
        return committed

    def _release(self) -> None:  # noqa: B027 (optional)
        """Release the task's resources when the task has ended."""

    @property
    def _may_run_ahead(self) -> bool:
        """Whether the next batch may run before the last one is committed."""
        return False

    def _wait_settled(self, limit_s: float) -> bool:
        """Wait for asynchronous work of the last batch; whether it ended in time."""
        return self._commits.wait_settled(limit_s)

    def _wake(self) -> None:
        self._tools.scheduler.wake(self)

    def _commit(
        self,
        offsets: Sequence[CommittedOffset],
        on_committed: Callable[[], None],
        *,
        refreshes_marks: bool = False,
    ) -> None:
        """Commit offsets; the next batch waits for it unless ``_may_run_ahead``."""
        began_s = time.monotonic()

        def committed() -> None:
            self._times.commits.add(time.monotonic() - began_s)
            on_committed()

        with self._lock:
            if not self._over:  # otherwise the batch was abandoned
                self._commits.send(offsets, committed, refreshes_marks=refreshes_marks)

    @property
    def _job_group(self) -> str:
        return f"{self.name}#{self.spec.run_id}"

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

        With ``passes_only`` both are set by the first pass with a job of its own: setting them
        takes as long as many a pass.
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

    def _moved(
        self, report: PassReport, started_s: float, topics: Iterable[str], size_bytes: int
    ) -> None:
        """Account for a committed batch with records of these topics.


        Raises:
            TooManyErrorsError: More of the records failed than errors.max.rate allows.
        """
        self._retries.reset()
        self._loss_count = 0
        self._recovered()
        self._progress.moved(report, started_s, topics, size_bytes)
        self._rate.moved(report.read_count, size_bytes, started_s)
        self._error_rate.add(report, time.monotonic())

    def _recovered(self) -> None:
        """End the retries: the operation succeeded."""
        self._retrying_since_s = None
        self._activity.recovered()

    def _make_instance(self, committed: Sequence[CommittedOffset]) -> None:
        # source and sink connectors both define task_class
        made: SourceTask | SinkTask = self.spec.connector_class.task_class()  # type: ignore[attr-defined]
        with self._lock:
            self._instance = made
        self._start_instance(made, committed)

    def _restart(self) -> None:
        """Restart from the committed offsets after a failed batch."""
        self._activity.enter(Step.STARTING)
        instance = self._take_instance()
        with self._time_limit("restart", self._tools.limits.start_ms):
            if instance is not None:
                instance.stop()
            fetched = self._tools.plane.fetch_offsets(self.spec.task.connector)
        committed = self._position(self._commits.committed if fetched is None else fetched)
        with self._time_limit("restart", self._tools.limits.start_ms):
            self._make_instance(committed)
        self._restart_wanted = False

    def _after_error(self, error: BaseException) -> float | None:
        fault = fault_of(error)
        try:
            fenced = fault is Fault.STALE_CLAIM or not self._holds_claim()
        except DroverError:  # the store cannot be read at all
            fenced = False
        if fenced:
            self._end_fenced()
            return None
        reason = self._reason_to_wait(fault)
        if reason is not None:
            self._times.retry_count += 1
            wait_s = self._retries.next_pause_s()
            log.warning(reason, error=error_text(error)[:500], pause_s=wait_s)
            self._activity.failed("batch", f"{reason}: {error_text(error)}", wait_s)
            return wait_s
        pause_s = self._pause_before_retry(error)
        if pause_s is None:
            too_many = isinstance(error, TooManyErrorsError)
            self._end_failed(
                failure_text(error, fault, self._loss_count),
                FailureCause.LIMIT if too_many else cause_of_failure(error),
            )
        return pause_s

    def _reason_to_wait(self, fault: Fault | None) -> str | None:
        """Why the batch is retried later; None when the failure is the task's."""
        if fault is Fault.LOST:
            self._loss_count += 1
        # without Spark the engine is about to end, so every error is due to that
        engine_ends = not self._tools.is_spark_running()
        if engine_ends:
            self._tools.in_flight.keep(self.spec.task)
        if engine_ends or (fault is Fault.LOST and self._loss_count < _LOSSES_MAX):
            self._restart_wanted = True
            return "a Spark process ended during a batch; the batch is retried"
        return (
            "the store is unavailable; the batch is retried" if fault is Fault.UNAVAILABLE else None
        )

    def _pause_before_retry(self, error: BaseException) -> float | None:
        """How long to wait before the failed call is retried; None for no retry."""
        if not isinstance(error, RetriableError):
            return None
        errors, now_s = self._path.errors, time.monotonic()
        since_s = self._retrying_since_s
        if since_s is None:
            self._call_retries.reset()
            self._retrying_since_s = since_s = now_s
        left_s = errors.retry_timeout_ms / 1000 - (now_s - since_s)
        if errors.retry_timeout_ms >= 0 and left_s <= 0:
            return None
        self._times.retry_count += 1
        pause_s = self._call_retries.next_pause_s()
        if errors.retry_timeout_ms >= 0:
            pause_s = min(pause_s, left_s)
        log.warning("a call failed and is retried", error=error_text(error)[:500], pause_s=pause_s)
        self._activity.failed(self._call_in_step, error_text(error), pause_s)
        return pause_s

    @property
    def _call_in_step(self) -> str:
        """The plugin's call in the present step."""
        return _CALLS.get(self._activity.step, "batch")

    def _holds_claim(self) -> bool:
        """False only if the data plane shows another worker's claim."""
        try:
            return self._tools.plane.current_claim(self.spec.task) in (self.spec.claim, None)
        except UnavailableError:
            return True

    def _check_claim(self) -> None:
        current = self._tools.plane.current_claim(self.spec.task)
        if current is None:  # only the coordinator has the claims
            self._commits.check_claim(CLAIM_CHECK_S)
        elif current != self.spec.claim:
            raise FailedPreconditionError(
                Reason.STALE_CLAIM, f"task {self.name} was claimed by another owner"
            )

    def _end_failed(self, trace: str, cause: FailureCause = FailureCause.PLUGIN) -> None:
        self._end(
            engine_pb2.EngineReport(
                task_failed=engine_pb2.TaskFailed(
                    task=encode_task_id(self.spec.task),
                    run_id=self.spec.run_id,
                    trace=trace,
                    cause=encode_cause(cause),
                )
            )
        )

    def _end_fenced(self) -> None:
        self._end(
            engine_pb2.EngineReport(
                task_fenced=engine_pb2.TaskFenced(
                    task=encode_task_id(self.spec.task), run_id=self.spec.run_id
                )
            )
        )

    def _end(self, report: engine_pb2.EngineReport) -> None:
        with self._lock:
            over, self._over = self._over, True
        if over:
            return
        log.info("a task ended", task=self.name, how=report.WhichOneof("report"))
        self._tools.send(report)
        self._tools.scheduler.remove(self)
        self._discard_instance()
        self._release()

    def _discard_instance(self) -> None:
        """Stop the task object on another thread, without waiting for it."""
        instance = self._take_instance()
        if instance is not None:
            self._tools.threads.run(
                f"stop:{self.name}",
                instance.stop,
                limit_ms=self._tools.limits.stop_ms,
                on_done=lambda _outcome: None,
                key=self.spec.task,
            )

    def _take_instance(self) -> SourceTask | SinkTask | None:
        """Take the task object, so that it is stopped only once."""
        with self._lock:
            instance, self._instance = self._instance, None
        return instance
