"""What a task does at present: its step, a retry, a snapshot, and where a long step is."""

import threading
from dataclasses import dataclass

from drover.api.common.v1 import activity_pb2
from drover.clock import Clock
from drover.codec.common import EnumCodec, encode_timestamp
from drover.connector.task import SnapshotProgress
from drover_worker.engine.core.steps import Step
from drover_worker.engine.plugins.stacks import stack_of

#: An idle source's polls up to this duration are part of its wait for records.
_IDLE_POLL_MS = 2_000
#: A step from this duration on is reported with the calls of its thread, and how often they are
#: looked up again.
_LONG_STEP_MS = 10_000
_STACK_EVERY_MS = 10_000
_MESSAGE_MAX_CHARS = 500


#: Steps in which the task's thread executes code that may block.
EXECUTING = frozenset({Step.STARTING, Step.POLLING, Step.CONVERTING, Step.WRITING, Step.NOTIFYING})
STEPS = EnumCodec(activity_pb2.TaskStep, "TASK_STEP_", Step)


@dataclass(frozen=True, slots=True)
class Retry:
    """An operation that failed and is retried; times in milliseconds since the epoch."""

    operation: str
    since_ms: int
    failure_count: int
    next_ms: int
    message: str


class TaskActivity:
    """The activity of one task.

    The task's thread writes it, and the thread of progress reports reads it. A value is replaced as
    a whole, so a reader sees at worst the step before.
    """

    def __init__(self, clock: Clock, job_step: Step | None = None) -> None:
        """``job_step`` is the step that runs Spark jobs."""
        self._clock = clock
        self._job_step = job_step
        self._step = (Step.STARTING, clock.now_ms())
        #: Since when there are no records; None while there are.
        self._idle_since_ms: int | None = None
        self._retry: Retry | None = None
        self._thread_id: int | None = None
        self._stack = ""
        self._stack_ms = 0
        self._snapshot: SnapshotProgress | None = None
        self._snapshot_row_count = 0

    @property
    def step(self) -> Step:
        """The present step."""
        return self._step[0]

    @property
    def step_ms(self) -> int:
        """How long the present step has taken, in milliseconds."""
        return max(self._clock.now_ms() - self._step[1], 0)

    def enter(self, step: Step) -> None:
        """Begin a step; the same step again continues."""
        now_ms = self._clock.now_ms()
        if step is Step.WAITING_FOR_RECORDS:
            if self._idle_since_ms is None:
                self._idle_since_ms = now_ms
            self._step = (step, self._idle_since_ms)
            return
        if step not in (Step.POLLING, Step.QUEUED):
            self._idle_since_ms = None
        if step is not self._step[0] or step in EXECUTING:
            self._step = (step, now_ms)

    def run_began(self) -> None:
        """The present thread starts a run of the task."""
        self._thread_id = threading.get_ident()

    def run_ended(self) -> None:
        """The run has ended."""
        self._thread_id = None

    def failed(self, operation: str, message: str, pause_s: float) -> None:
        """An operation failed and is tried again after ``pause_s``."""
        now_ms = self._clock.now_ms()
        before = self._retry
        self._retry = Retry(
            operation,
            before.since_ms if before is not None else now_ms,
            before.failure_count + 1 if before is not None else 1,
            now_ms + round(pause_s * 1000),
            shortened(message),
        )

    def recovered(self) -> None:
        """An operation succeeded: no operation is retried now."""
        self._retry = None

    @property
    def snapshot(self) -> SnapshotProgress | None:
        """The table that is being read completely; None if there is none."""
        return self._snapshot

    def report_snapshot(self, progress: SnapshotProgress | None) -> None:
        """See ``SourceTaskContext.report_snapshot``."""
        before = self._snapshot
        if progress is None or before is None or before.table != progress.table:
            self._snapshot_row_count = 0
        self._snapshot = progress

    def batch_written(self, snapshot: SnapshotProgress | None, record_count: int) -> None:
        """A batch that was made during ``snapshot`` is in its topics."""
        present = self._snapshot
        if snapshot is not None and present is not None and snapshot.table == present.table:
            self._snapshot_row_count += record_count

    def stack(self) -> str:
        """The calls of the task's thread at present, without the engine's own; empty without a
        run.
        """
        thread_id = self._thread_id
        return "" if thread_id is None else stack_of(thread_id)

    def encode(self, *, without_executors_ms: int | None = None) -> activity_pb2.TaskActivity:
        """The activity as a message.

        ``without_executors_ms`` is since when there are no executors for the task's Spark jobs, in
        milliseconds since the epoch; None while there are.
        """
        step, since_ms = self._shown_step()
        if step is self._job_step and without_executors_ms is not None:
            step, since_ms = Step.WAITING_FOR_EXECUTORS, max(since_ms, without_executors_ms)
        message = activity_pb2.TaskActivity(
            step=STEPS.encode(step),
            step_time=encode_timestamp(since_ms),
            stack=self._long_stack(step, since_ms),
        )
        retry, snapshot = self._retry, self._snapshot
        if retry is not None:
            message.retry.CopyFrom(
                activity_pb2.TaskRetry(
                    operation=retry.operation,
                    begin_time=encode_timestamp(retry.since_ms),
                    failure_count=retry.failure_count,
                    next_attempt_time=encode_timestamp(retry.next_ms),
                    message=retry.message,
                )
            )
        if snapshot is not None:
            message.snapshot.table = snapshot.table
            message.snapshot.row_count = self._snapshot_row_count
            message.snapshot.remaining_table_count = snapshot.remaining_table_count
            if snapshot.estimated_row_count is not None:
                message.snapshot.estimated_row_count = snapshot.estimated_row_count
        return message

    def _shown_step(self) -> tuple[Step, int]:
        """The step to report: a short poll of an idle source is a part of its wait, so that idle
        tasks do not report changes.
        """
        step, since_ms = self._step
        idle_ms = self._idle_since_ms
        if idle_ms is None or step not in (Step.POLLING, Step.QUEUED):
            return step, since_ms
        is_short = self._clock.now_ms() - since_ms < _IDLE_POLL_MS
        return (Step.WAITING_FOR_RECORDS, idle_ms) if is_short else (step, since_ms)

    def _long_stack(self, step: Step, since_ms: int) -> str:
        now_ms = self._clock.now_ms()
        if step not in EXECUTING or now_ms - since_ms < _LONG_STEP_MS:
            self._stack = ""
        elif not self._stack or now_ms - self._stack_ms >= _STACK_EVERY_MS:
            self._stack, self._stack_ms = self.stack(), now_ms
        return self._stack


def shortened(message: str) -> str:
    """The first lines of an error, at most 500 characters."""
    text = message.strip()
    if len(text) <= _MESSAGE_MAX_CHARS:
        return text
    return f"{text[: _MESSAGE_MAX_CHARS - 1]}…"
