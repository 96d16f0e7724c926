"""The tasks of this engine."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from drover.api.engine.v1 import engine_pb2
from drover.codec.common import decode_task_id, decode_term
from drover.codec.coordinator import decode_offset
from drover.config.resolution import Resolution
from drover.connector.catalogue import PluginRegistry, connector_type
from drover.model.failures import FailureCause
from drover.model.ids import TaskId
from drover.rpc.logs import log_context
from drover_worker.engine.plugins import answers
from drover_worker.engine.plugins.configs import EngineConfigs
from drover_worker.engine.plugins.expiry import watch_expiry
from drover_worker.engine.plugins.threads import Outcome, PluginThreads, Raised, Returned, TimedOut
from drover_worker.engine.settings import EngineLimits
from drover_worker.engine.tasks.sink_runner import SinkRunner
from drover_worker.engine.tasks.source_runner import SourceRunner
from drover_worker.engine.tasks.task_runner import TaskRunner, TaskSpec, TaskTools

#: A stop may wait for the batch in flight and as long again for the task's stop().
_STOP_PARTS = 2
_STOP_MARGIN_MS = 1_000

log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Slot:
    """A task, from its start command on."""

    task: TaskId
    paused: bool
    runner: TaskRunner | None = None
    started: bool = False
    #: A stop command that arrived during the start; it is carried out after it.
    stop_call_id: int | None = None
    #: The connector's config and the task's, with placeholders resolved.
    resolutions: tuple[Resolution, ...] = ()
    #: Cancels the timer for the expiry of provider values.
    unwatch: Callable[[], object] = bool
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def active(self) -> bool:
        return not self.started or (self.runner is not None and not self.runner.over)


class TaskRegistry:
    """Starts, pauses and stops tasks."""

    def __init__(
        self,
        plugins: PluginRegistry,
        threads: PluginThreads,
        limits: EngineLimits,
        send: Callable[[engine_pb2.EngineReport], None],
        wait_for_tools: Callable[[], TaskTools],
        configs: EngineConfigs | None = None,
    ) -> None:
        self._configs = configs or EngineConfigs()
        self._plugins = plugins
        self._threads = threads
        self._limits = limits
        self._send = send
        self._wait_for_tools = wait_for_tools
        self._lock = threading.Lock()
        self._slots: dict[TaskId, _Slot] = {}

    def start(self, call_id: int, command: engine_pb2.StartTask) -> None:
        """Create the task object and start it; answers when the start has ended."""
        task = decode_task_id(command.task)
        slot = _Slot(task, command.paused)
        with self._lock:
            earlier = self._slots.get(task)
            if earlier is not None and earlier.active:
                self._send(
                    answers.failed(call_id, f"task {task} is already running: stop it first")
                )
                return
            self._slots[task] = slot
        generation = decode_term(command.claim).generation
        with log_context(connector=task.connector, task=str(task), generation=generation):
            self._threads.run(
                f"start:{task}",
                lambda: self._prepare(slot, command),
                limit_ms=self._limits.start_ms,
                key=task,
                on_done=lambda outcome: self._started(call_id, slot, outcome),
                on_late=lambda: self._started_late(slot),
            )

    def stop(self, call_id: int, task: TaskId) -> None:
        """Stop the task; answers when its last batch has ended or was abandoned."""
        with self._lock:
            slot = self._slots.pop(task, None)
        if slot is None:
            self._send(answers.done(call_id))
            return
        with slot.lock:
            if not slot.started:
                slot.stop_call_id = call_id
                return
        self._stop_runner(slot, call_id)

    def set_paused(self, call_id: int, task: TaskId, paused: bool) -> None:
        """Pause or resume a task."""
        slot = self._slots.get(task)
        if slot is None or not slot.active:
            self._send(answers.failed(call_id, f"task {task} is not running"))
            return
        with slot.lock:
            slot.paused = paused
            if slot.runner is not None:
                slot.runner.set_paused(paused)
        self._send(answers.done(call_id))

    def progress(self) -> list[engine_pb2.TaskProgress.Entry]:
        """The progress of tasks that changed since the last call."""
        runners = [slot.runner for slot in list(self._slots.values()) if slot.runner is not None]
        entries = [runner.progress() for runner in runners]
        return [entry for entry in entries if entry is not None]

    def sinks(self) -> list[SinkRunner]:
        """The sink tasks that run or are paused."""
        runners = [slot.runner for slot in list(self._slots.values()) if slot.started]
        return [each for each in runners if isinstance(each, SinkRunner) and not each.over]

    def close(self) -> list[threading.Event]:
        """Stop every task.

        Returns:
            An event for each, set when the task has ended or was abandoned.
        """
        with self._lock:
            slots, self._slots = list(self._slots.values()), {}
        ended = []
        for slot in slots:
            if slot.runner is not None and slot.started:
                event = threading.Event()
                ended.append(event)
                self._run_stop(slot.runner, event.set)
        return ended

    def _prepare(self, slot: _Slot, command: engine_pb2.StartTask) -> None:
        tools = self._wait_for_tools()
        connector_class = self._plugins.find_of(command.connector_config)
        config = dict(command.connector_config)
        connector = self._configs.resolve_connector(config)
        own = self._configs.resolve(dict(command.task_config), slot.task.connector)
        spec = TaskSpec(
            task=slot.task,
            run_id=command.run_id,
            claim=decode_term(command.claim),
            connector_class=connector_class,
            connector_config=self._configs.whole(connector_class, config, connector).config,
            own_config=self._configs.whole(connector_class, config, own).config,
            committed=tuple(decode_offset(each) for each in command.offsets),
        )
        kind = SinkRunner if connector_type(connector_class) == "sink" else SourceRunner
        runner = kind(spec, tools, paused=slot.paused)
        slot.runner = runner
        runner.prepare()
        slot.resolutions = (connector, own)

    def _expired(self, slot: _Slot, run_id: int) -> None:
        if slot.active:
            report = engine_pb2.ConfigExpired(
                connector=slot.task.connector, task=slot.task.task, run_id=run_id
            )
            self._send(engine_pb2.EngineReport(config_expired=report))

    def _started(self, call_id: int, slot: _Slot, outcome: Outcome) -> None:
        with slot.lock:
            slot.started = True
            stop_call_id = slot.stop_call_id
            runner = slot.runner
            if isinstance(outcome, Returned) and stop_call_id is None:
                assert runner is not None
                self._send(answers.done(call_id))  # before any report of its runs
                runner.begin(paused=slot.paused)  # later commands see a started task
                slot.unwatch = watch_expiry(
                    *slot.resolutions, expired=lambda: self._expired(slot, runner.spec.run_id)
                )
                return
        if isinstance(outcome, Returned):
            message = f"task {slot.task} was stopped while it was starting"
            self._send(answers.failed(call_id, message))
        else:
            self._forget(slot)
            what = f"start() of task {slot.task}" if runner else f"task {slot.task}"
            cause = FailureCause.PLUGIN
            if runner is not None and isinstance(outcome, Raised):
                cause = runner.cause_of_failed_start(outcome.error)
            self._send(answers.failure_of(call_id, what, outcome, cause=cause))
        if runner is not None:
            runner.disown(in_use=isinstance(outcome, TimedOut))
        if stop_call_id is not None:
            self._send(answers.done(stop_call_id))

    def _started_late(self, slot: _Slot) -> None:
        """The start was abandoned and has returned: its task object is stopped."""
        if slot.runner is not None:
            slot.runner.disown(in_use=False)

    def _stop_runner(self, slot: _Slot, call_id: int) -> None:
        slot.unwatch()
        if slot.runner is None or slot.runner.over:
            if slot.runner is not None:
                self._report_last(slot.runner)
            self._send(answers.done(call_id))
        else:
            self._run_stop(slot.runner, lambda: self._send(answers.done(call_id)))

    def _run_stop(self, runner: TaskRunner, on_ended: Callable[[], object]) -> None:
        limit_ms = self._limits.stop_ms

        def finish(outcome: Outcome) -> None:
            if not isinstance(outcome, Returned):
                log.warning("stopping a task failed", task=runner.name, how=str(outcome))
            self._report_last(runner)
            on_ended()

        with log_context(**runner.spec.log_fields):
            self._threads.run(
                f"stop:{runner.name}",
                lambda: runner.stop(limit_ms / 1000),
                limit_ms=_STOP_PARTS * limit_ms + _STOP_MARGIN_MS,
                key=runner.spec.task,
                on_done=finish,
            )

    def _report_last(self, runner: TaskRunner) -> None:
        """Send the final progress: the task is not polled again."""
        for entry in iter(runner.progress, None):
            progress = engine_pb2.TaskProgress(entries=[entry])
            self._send(engine_pb2.EngineReport(task_progress=progress))

    def _forget(self, slot: _Slot) -> None:
        with self._lock:
            if self._slots.get(slot.task) is slot:
                del self._slots[slot.task]
