"""Runs one task of the real engine step by step on the caller's thread, with a store of its own."""

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from pyspark.sql import SparkSession

from drover.api.coordinator.v1 import coordinator_service_pb2
from drover.api.engine.v1 import engine_pb2
from drover.codec.coordinator import decode_task_offsets
from drover.dataplane.embedded import EmbeddedPlane
from drover.dataplane.plane import PartitionKey
from drover.dataplane.store import EmbeddedStore
from drover.model.ids import TaskId
from drover.model.offsets import CommitOutcome
from drover_worker.engine.core import events, instructions
from drover_worker.engine.core.commits import DoneBatch
from drover_worker.engine.core.events import TaskEvent
from drover_worker.engine.core.failures import Failure
from drover_worker.engine.core.instructions import TaskInstruction
from drover_worker.engine.core.sink import SinkCore
from drover_worker.engine.core.source import SourceCore
from drover_worker.engine.core.task import TaskCore
from drover_worker.engine.plugins.threads import PluginThreads
from drover_worker.engine.settings import EngineLimits
from drover_worker.engine.tasks.scheduler import Job, Scheduler
from drover_worker.engine.tasks.sink_runner import SinkRunner
from drover_worker.engine.tasks.source_runner import SourceRunner
from drover_worker.engine.tasks.task_runner import TaskSpec, TaskTools
from drover_worker.engine.tasks.topic_watcher import TopicWatcher

_OUTCOMES = {
    CommitOutcome.COMMITTED: coordinator_service_pb2.COMMIT_OUTCOME_COMMITTED,
    CommitOutcome.STALE_CLAIM: coordinator_service_pb2.COMMIT_OUTCOME_STALE_CLAIM,
    CommitOutcome.INVALID: coordinator_service_pb2.COMMIT_OUTCOME_INVALID,
}
_STOP_LIMIT_S = 30.0
_BUSY_LIMIT_S = 120.0
#: The limit of a single pause of the engine in a test.
_PAUSE_MAX_S = 0.2
_requests = itertools.count()


class TaskFailedError(AssertionError):
    """The task FAILED; the message is its trace, the cause is the exception that it raised."""


class TaskFencedError(AssertionError):
    """The task ended because another owner has claimed it."""


class _ByHand(Scheduler):
    """Runs no jobs; the test runs them."""

    def __init__(self) -> None:
        self.woken = False

    def add(self, job: Job) -> None:
        """See Scheduler."""

    def wake(self, job: Job) -> None:
        """See Scheduler."""
        self.woken = True

    def remove(self, job: Job) -> threading.Event:
        """See Scheduler."""
        ended = threading.Event()
        ended.set()
        return ended

    def give_up(self, job: Job) -> None:
        """See Scheduler."""


class _Waiting(TopicWatcher):
    """Records that a sink waits for records."""

    def __init__(self) -> None:
        self.waiting = False

    def wait(
        self,
        wake: Callable[[], None],
        starts: Mapping[PartitionKey, int],
        partition_counts: Mapping[str, int],
        topic_ids: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """See TopicWatcher."""
        self.waiting = True

    def forget(self, wake: Callable[[], None]) -> None:
        """See TopicWatcher."""

    def published(self) -> None:
        """See TopicWatcher."""


class Hooks:
    """Test actions at certain points of a batch; by default none."""

    def after_write(self) -> None:
        """A sink's write has returned; its offsets are not committed."""

    def after_commit(self) -> None:
        """The offsets are committed; the task has not received the response."""


class _Counting(TaskCore):
    """Begins no batch beyond a limit."""

    batch_count = 0
    batch_limit: int | None = None

    def _go_on(self) -> None:
        if self.batch_limit is not None and self.batch_count >= self.batch_limit:
            self._end_run(None)
        else:
            super()._go_on()

    def _moved(self, batch: DoneBatch) -> None:
        self.batch_count += 1
        super()._moved(batch)


class _SourceCore(_Counting, SourceCore[Any]):
    """A core for tests."""


class _SinkCore(_Counting, SinkCore):
    """A core for tests."""


class _Source(SourceRunner):
    """Records what the engine observes of the task."""

    _core: _SourceCore
    _core_class = _SourceCore
    error: BaseException | None = None
    nothing_polled = False
    loses_batches = False
    lost = False

    def limit_batches(self, count: int | None) -> None:
        """Begin no batch beyond so many."""
        self._core.batch_limit = count

    def _execute(self, instruction: TaskInstruction) -> TaskEvent | None:
        if isinstance(instruction, instructions.Publish) and self.loses_batches:
            self.lost = True
            return None
        found = super()._execute(instruction)
        if isinstance(found, events.Polled):
            self.nothing_polled = found.batch is None
        return found

    def _failure(self, error: BaseException) -> Failure:
        self.error = error
        return super()._failure(error)


class _Sink(SinkRunner):
    """Records what the engine observes of the task."""

    _core: _SinkCore
    _core_class = _SinkCore
    error: BaseException | None = None
    #: Whether the commit being sent comes before the first write.
    starts_partitions = False
    hooks = Hooks()

    def limit_batches(self, count: int | None) -> None:
        """Begin no batch beyond so many; the run after the last one completes its commit."""
        self._core.batch_limit = count

    def _execute(self, instruction: TaskInstruction) -> TaskEvent | None:
        if isinstance(instruction, instructions.SendCommit):
            self.starts_partitions = instruction.are_starts
        try:
            found = super()._execute(instruction)
        finally:
            self.starts_partitions = False
        has_letters = isinstance(found, events.BatchWritten) and found.report.dead_letter_rows
        if isinstance(found, events.BatchWritten | events.LettersPublished) and not has_letters:
            self.hooks.after_write()
        return found

    def _failure(self, error: BaseException) -> Failure:
        self.error = error
        return super()._failure(error)

    def let_time_pass(self) -> bool:
        """Make the call without records due now; False if the task did not request one."""
        if self._control.idle_in_s() is None:
            return False
        self._control.call_after(0)
        return True


class RunningTask:
    """A task under a claim: it runs, and is then stopped or dropped."""

    def __init__(
        self,
        spec: TaskSpec,
        spark: SparkSession,
        store: EmbeddedStore,
        hooks: Hooks,
        *,
        is_sink: bool,
    ) -> None:
        """Create the task and start it.

        Raises:
            Exception: The exception of its start.
        """
        self._store = store
        self._hooks = hooks
        self._scheduler = _ByHand()
        self._watcher = _Waiting()
        #: Whether commits are lost, as if the task were killed before they arrive.
        self.loses_commits = False
        self._lost = False
        self._ended: engine_pb2.EngineReport | None = None
        self._commits: dict[int, Callable[[engine_pb2.CommitResult], None]] = {}
        limits = EngineLimits()
        tools = TaskTools(
            spark=spark,
            plane=EmbeddedPlane(store),
            scheduler=self._scheduler,
            threads=PluginThreads(abandoned_max=8, on_exhausted=lambda _reason: None),
            watcher=self._watcher,
            limits=limits,
            send=self._take,
            is_spark_running=lambda: True,
            commits=self._commits,
        )
        made = _Sink(spec, tools, paused=False) if is_sink else _Source(spec, tools, paused=False)
        if isinstance(made, _Sink):
            made.hooks = hooks
        self.runner: _Sink | _Source = made
        try:
            made.prepare()
        except BaseException:
            made.disown(in_use=False)
            raise

    @property
    def instance(self) -> Any:
        """The connector's task object."""
        return self.runner._instance

    @property
    def batch_count(self) -> int:
        """The number of completed batches."""
        return self.runner._progress.batch_count

    def run(self, *, batches: int | None, until: Callable[[], bool] | None) -> None:
        """Run until no work is left, ``batches`` are done, or ``until`` is true.

        Raises:
            TaskFailedError: The task failed.
            TaskFencedError: Another owner has claimed the task.
            AssertionError: It takes too long.
        """
        last = None if batches is None else self.batch_count + batches
        self.runner.limit_batches(last)
        deadline_s = time.monotonic() + _BUSY_LIMIT_S
        while not ((last is not None and self.batch_count >= last) or (until and until())):
            if time.monotonic() > deadline_s:
                raise AssertionError(
                    f"the task is still busy after {_BUSY_LIMIT_S:.0f} s and {self.batch_count} "
                    f"batches; its last error: {self.runner.error!r}"
                )
            pause_s = self._step()
            if self._lost:
                return
            if self._is_idle() and until is None:
                return
            if pause_s is not None and pause_s > 0 and not self._scheduler.woken:
                threading.Event().wait(min(pause_s, _PAUSE_MAX_S))

    def stop(self) -> None:
        """Stop the task in order."""
        if self._ended is None:
            self.runner.stop(_STOP_LIMIT_S)

    def drop(self) -> None:
        """Abandon the task without its stop()."""
        self.runner.disown(in_use=True)

    def _step(self) -> float | None:
        self._scheduler.woken = self._watcher.waiting = False
        if isinstance(self.runner, _Source):
            self.runner.nothing_polled = False
            self.runner.loses_batches = self.loses_commits
        pause_s = self.runner.run_once()
        self._lost |= isinstance(self.runner, _Source) and self.runner.lost
        if self._ended is not None:
            if self._ended.WhichOneof("report") == "task_fenced":
                raise TaskFencedError("another owner has claimed the task")
            raise TaskFailedError(self._ended.task_failed.trace) from self.runner.error
        return pause_s

    def _is_idle(self) -> bool:
        if self._scheduler.woken:
            return False
        if isinstance(self.runner, _Source):
            return self.runner.nothing_polled
        return self._watcher.waiting

    def _take(self, report: engine_pb2.EngineReport) -> None:
        kind = report.WhichOneof("report")
        if kind in ("task_failed", "task_fenced"):
            self._ended = report
        if kind != "commit_offsets":
            return
        if self.loses_commits and not (
            isinstance(self.runner, _Sink) and self.runner.starts_partitions
        ):
            self._lost = True
            return
        (result,) = self._store.commit_offsets([decode_task_offsets(report.commit_offsets)])
        self._hooks.after_commit()
        self._commits.pop(report.call_id)(
            engine_pb2.CommitResult(outcome=_OUTCOMES[result.outcome], message=result.message)
        )


def claimed_spec(
    store: EmbeddedStore,
    connector_class: Any,
    config: Mapping[str, str],
    own: Mapping[str, str],
    number: int,
) -> TaskSpec:
    """A task under a new claim, with the committed offsets, as an engine receives it."""
    task = TaskId(config["name"], number)
    request = f"run-{time.time_ns()}-{next(_requests)}"
    claim = store.claim_task(task, generation=1, owner="test", request_id=request)
    return TaskSpec(
        task=task,
        run_id=1,
        claim=claim,
        connector_class=connector_class,
        connector_config=config,
        own_config=own,
        committed=store.fetch_offsets(task.connector, with_marks=True),
    )
