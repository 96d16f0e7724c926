"""The lifecycle of a task on its owner: claim, fetch offsets, start; repeated after fencing."""

import hashlib
from collections.abc import Mapping, Sequence

from drover.errors import (
    AbortedError,
    DeadlineExceededError,
    DroverError,
    ResourceExhaustedError,
    UnavailableError,
)
from drover.model.config import CONSUMER_GROUP_SETTING, TargetState, setting_text
from drover.model.ids import TaskId, Term
from drover.model.offsets import CommittedOffset
from drover.model.status import RecordCounts, RunState, Status
from drover_worker.core.context import Context
from drover_worker.core.events import TaskRetryDue
from drover_worker.core.instructions import (
    ClaimTask,
    FetchOffsets,
    SetTaskPaused,
    StartTask,
    StopTask,
)
from drover_worker.core.lifecycle.lifecycle import IN_ENGINE, Lifecycle, Phase, TaskProgress

#: Every sink has one of these settings, as in Kafka Connect.
TOPICS_KEYS = frozenset({"topics", "topics.regex"})
#: Transient errors: they are retried, and never make a task FAILED.
RETRIED_ERRORS = (UnavailableError, DeadlineExceededError, ResourceExhaustedError, AbortedError)


class TaskLifecycle(Lifecycle):
    """A task; while paused it stays in the engine and processes nothing."""

    def __init__(self, task: TaskId) -> None:
        super().__init__(task)
        self.task = task
        self.claim: Term | None = None
        self._paused = False
        self._pause_under_way = False
        self._attempt = 0
        #: The counts before the present run.
        self._counts_before = RecordCounts()
        #: The generation in which the task was assigned to this worker.
        self._first_generation = -1

    def claimed(self, context: Context, run_id: int, claim: Term) -> None:
        """Fetch the offsets under the granted claim, which excludes other committers."""
        if self.phase is Phase.CLAIMING and run_id == self.run_id:
            self.claim = claim
            self.phase = Phase.FETCHING
            self._attempt = 0
            self._emit_fetch(context)

    def fetched(self, context: Context, run_id: int, offsets: Sequence[CommittedOffset]) -> None:
        """Start the task from its committed offsets."""
        if self.phase is not Phase.FETCHING or run_id != self.run_id or self.claim is None:
            return
        self.phase = Phase.STARTING
        self._paused = self._should_pause(context)
        context.emit(
            StartTask(
                task=self.task,
                run_id=self.run_id,
                connector_config=context.view.config(self.task.connector) or {},
                task_config=context.view.tasks(self.task.connector).get(self.task.task, {}),
                claim=self.claim,
                offsets=offsets,
                paused=self._paused,
                engine=self.engine,
            )
        )

    def not_prepared(
        self, context: Context, run_id: int, error: DroverError, *, fenced: bool
    ) -> None:
        """Handle a failed claim or fetch.

        It is retried if the error is transient or the worker was ``fenced`` (its generation has
        ended, or it lags in the config log); otherwise the task is FAILED.
        """
        if self.phase not in (Phase.CLAIMING, Phase.FETCHING) or run_id != self.run_id:
            return
        if fenced or isinstance(error, RETRIED_ERRORS):
            delay_ms = context.call_backoff_ms(self._attempt)
            self._attempt += 1
            context.set_timer(
                f"task-retry:{self.task}", delay_ms, TaskRetryDue(self.task, self.run_id)
            )
        else:
            self.failed(context, run_id, f"the task could not be prepared: {error.message}")

    def retry_due(self, context: Context, run_id: int) -> None:
        """Retry the claim or the fetch after the back-off."""
        if run_id != self.run_id:
            return
        if self.phase is Phase.CLAIMING:
            self._emit_claim(context)
        elif self.phase is Phase.FETCHING:
            self._emit_fetch(context)

    def pause_set(self, context: Context, run_id: int, paused: bool) -> None:
        """Handle a completed pause or resume in the engine."""
        if self.phase is not Phase.RUNNING or run_id != self.run_id:
            return
        self._pause_under_way = False
        self._paused = paused
        if self.failure is None:
            self._report_running(context)

    def counted(self, run_id: int, counts: RecordCounts, figures: Mapping[str, int]) -> bool:
        """Record the progress of a run, the last of it during its stop; False if it has ended."""
        if self.phase not in IN_ENGINE or run_id != self.run_id:
            return False
        self._progress = TaskProgress(self._counts_before + counts, figures)
        return True

    def adopt_status(self, context: Context) -> None:
        """See Lifecycle; the counts continue too."""
        super().adopt_status(context)
        self._first_generation = context.status_generation
        stored = context.statuses.get(self.task)
        if stored is not None:
            self._progress = TaskProgress(stored.counts, self._progress.figures)

    def status_seen(self, context: Context, status: Status) -> bool:
        """Take over the last counts of the previous owner, which may arrive after the start."""
        if status.generation < self._first_generation and status.counts is not None:
            before = self._counts_before.at_least(status.counts)
            more = before - self._counts_before
            self._counts_before = before
            counts = self._progress.counts
            if more != RecordCounts():
                total = before if counts is None else counts + more
                self._progress = TaskProgress(total, self._progress.figures)
        return super().status_seen(context, status)

    def report_progress(self, context: Context) -> None:
        """Repeat the last report if the progress of the present run has changed.

        It is a safe write, because another worker may run the task already.
        """
        if self.phase is Phase.RUNNING and self._progress != self._reported_progress:
            self.report_again(context, safe=True)

    def fenced(self, run_id: int) -> None:
        """Claim again and restart after a later claim fenced the run of this owner.

        A FAILED task stays FAILED until a user restarts it.
        """
        if self.running and run_id == self.run_id:
            self.renew()

    def _config_offset(self, context: Context) -> int:
        entry = context.view.connectors.get(self.task.connector)
        return entry.task_config_generation if entry else -1

    def _should_pause(self, context: Context) -> bool:
        entry = context.view.connectors.get(self.task.connector)
        return entry is not None and entry.target_state is not TargetState.STARTED

    def _may_run(self, context: Context) -> bool:
        return True

    def _running_state(self, context: Context) -> RunState:
        return RunState.PAUSED if self._paused else RunState.RUNNING

    def _resting_state(self, context: Context) -> RunState:
        return RunState.PAUSED

    def _begin(self, context: Context) -> None:
        self.phase = Phase.CLAIMING
        self.claim = None
        self._counts_before = self._progress.counts or RecordCounts()
        self._progress = TaskProgress(self._progress.counts)
        self._attempt = 0
        self._pause_under_way = False
        self._emit_claim(context)

    def _emit_claim(self, context: Context) -> None:
        # a connector's name may have the full length of a request id, and characters that ids lack
        attempt = f"{context.member_id}/{context.claim_generation}/{self.task}/{self.run_id}"
        entry = context.view.connectors.get(self.task.connector)
        context.emit(
            ClaimTask(
                task=self.task,
                run_id=self.run_id,
                member_id=context.member_id,
                generation=context.claim_generation,
                task_config_generation=entry.task_config_generation if entry else -1,
                request_id=hashlib.sha256(attempt.encode("utf-8", "surrogatepass")).hexdigest(),
            )
        )

    def _emit_fetch(self, context: Context) -> None:
        config = context.view.config(self.task.connector) or {}
        reads_topics = not TOPICS_KEYS.isdisjoint(config)
        group = setting_text(config, CONSUMER_GROUP_SETTING) if reads_topics else ""
        context.emit(FetchOffsets(self.task, self.run_id, reads_topics, group))

    def _adjust(self, context: Context) -> None:
        should_pause = self._should_pause(context)
        if should_pause != self._paused and not self._pause_under_way:
            self._pause_under_way = True
            context.emit(SetTaskPaused(self.task, self.run_id, should_pause))

    def _emit_stop(self, context: Context) -> None:
        context.emit(StopTask(self.task, self.run_id))
