"""Runs one task of the real engine step by step on the caller's thread, with a store of its own."""

import itertools
import threading
import time
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

from pyspark.sql import SparkSession

from drover.api.coordinator.v1 import coordinator_service_pb2
from drover.api.engine.v1 import engine_pb2
from drover.codec.coordinator import decode_task_offsets
from drover.connector import SourceBatch
from drover.dataplane.embedded import EmbeddedPlane
from drover.dataplane.plane import PartitionKey
from drover.dataplane.store import EmbeddedStore
from drover.model.ids import TaskId
from drover.model.offsets import CommitOutcome
from drover_worker.engine.plugins.threads import PluginThreads
from drover_worker.engine.settings import EngineLimits
from drover_worker.engine.tasks.publisher import StagedBatch
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


class _Source(SourceRunner):
    """Records what the engine observes of the task."""

    error: BaseException | None = None
    batch_limit: int | None = None
    nothing_polled = False
    loses_batches = False
    lost = False

    def _run_batch(self) -> float | None:
        done = self.batch_limit is not None and self._progress.batch_count >= self.batch_limit
        return None if done else super()._run_batch()

    def _publish(self, polled: StagedBatch) -> float | None:
        if self.loses_batches:
            self.lost = True
            return None
        return super()._publish(polled)

    def _poll(self) -> SourceBatch | None:
        batch = super()._poll()
        self.nothing_polled = batch is None
        return batch

    def _after_error(self, error: BaseException) -> float | None:
        self.error = error
        return super()._after_error(error)


class _Sink(SinkRunner):
    """Records what the engine observes of the task."""

    error: BaseException | None = None
    batch_limit: int | None = None
    #: Whether the commit being sent comes before the first write.
    starts_partitions = False
    hooks = Hooks()

    def _commit_starts(self, partitions: Collection[PartitionKey]) -> bool:
        self.starts_partitions = True
        try:
            return super()._commit_starts(partitions)
        finally:
            self.starts_partitions = False

    def _run_batch(self) -> float | None:
        # the run that would start the next batch also completes the commit
        done = self.batch_limit is not None and self._progress.batch_count >= self.batch_limit
        return None if done else super()._run_batch()

    def _send_commit(self, *arguments: Any) -> float | None:
        self.hooks.after_write()
        return super()._send_commit(*arguments)

    def _after_error(self, error: BaseException) -> float | None:
        self.error = error
        return super()._after_error(error)

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
        self.runner.batch_limit = last
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
