"""The herder's connection to its engine: sends commands, receives reports, tracks plugins."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from drover.api.common.v1.preview_pb2 import Preview
from drover.api.coordinator.v1 import coordinator_service_pb2 as coordinator_pb
from drover.api.engine.v1 import engine_pb2 as pb
from drover.clock import SystemClock
from drover.codec.common import decode_counts, decode_figures, encode_task_id, encode_term
from drover.codec.coordinator import COMMIT_OUTCOMES, decode_task_offsets, encode_offset
from drover.codec.failures import decode_cause
from drover.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    Reason,
    UnavailableError,
    Violation,
)
from drover.model.failures import FailureCause
from drover.model.ids import TaskId
from drover.model.offsets import CommitResult, CommittedOffset, TaskOffsets, TopicPartition
from drover.model.status import RecordCounts
from drover_worker.core import events, instructions
from drover_worker.core.engine_slots import SHARED, EngineSlot
from drover_worker.engine.settings import EngineLimits
from drover_worker.shell.call_slots import CallSlots
from drover_worker.shell.engine_supervisor import EngineExit
from drover_worker.shell.engine_violations import add_violations, violations_of, violations_on_all
from drover_worker.shell.engines import EngineDescription, Engines
from drover_worker.shell.known_plugins import KnownPlugins
from drover_worker.shell.process_loggers import LoggerState
from drover_worker.shell.topic_commands import TopicCommands

#: Added to the plugins' limits, so that the engine can report a timeout first.
_MARGIN_S = 5.0
#: How long a read waits for the plugin list, which defines the settings to mask.
_PLUGINS_PATIENCE_S = 1.0
#: Short, because the engine's command thread answers without waiting for plugins.
_LOGGERS_TIMEOUT_S = 2.0
#: Each validation is a process; a caller's third one waits.
_VALIDATIONS_OF_CALLER_MAX, _VALIDATIONS_MAX = 2, 16
#: Previews use Spark, and block a thread of the engine if they hang.
_PREVIEWS_MAX = 2

_log = structlog.get_logger("drover.worker")


#: See ``OffsetFetcher.fetch``.
Fetch = Callable[[int, str, str | None], None]
#: Faults of the settings of the engine that a config asks for.
EngineFaults = Callable[[Mapping[str, str]], list[Violation]]
#: Receives each progress report, with its engine.
ProgressHandler = Callable[[EngineSlot, pb.TaskProgress], None]
#: Faults, cautions and skipped checks of the classes that a config names, on all workers.
ClusterFaults = Callable[[Mapping[str, str]], Awaitable[list[Violation]]]


class EngineLink(TopicCommands):
    """Turns instructions into commands and reports into events.

    Attributes:
        spark_version: Of the shared engine; empty while Spark does not run.
        plugins: Known connector classes.
        fatal: Set to the reason when no engine can run here until an operator acts.
    """

    def __init__(
        self,
        *,
        limits: EngineLimits,
        post: Callable[[events.HerderEvent], None],
    ) -> None:
        self._limits = limits
        self._post = post
        self._commit: Callable[[int, TaskOffsets], None] | None = None
        self._forget_commits: Callable[[], None] | None = None
        self._fetch: Fetch | None = None
        self._forget_fetches: Callable[[], None] | None = None
        self._on_started: Callable[[], None] | None = None
        self._on_progressed: ProgressHandler | None = None
        self._cluster_faults: ClusterFaults | None = None
        self._engine_faults: EngineFaults | None = None
        self._engine: Engines | None = None
        self.spark_version = ""
        self.kafka_cluster_id = ""
        self.plugins = KnownPlugins()
        self.fatal: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._was_ready = False
        self._plugins_loading = asyncio.Lock()
        self._validations = CallSlots(per_caller=_VALIDATIONS_OF_CALLER_MAX, total=_VALIDATIONS_MAX)
        self._previews = asyncio.Semaphore(_PREVIEWS_MAX)

    def attach(self, engines: Engines) -> None:
        """Use these engines; call it first."""
        self._engine = engines

    def attach_commits(
        self, commit: Callable[[int, TaskOffsets], None], forget: Callable[[], None]
    ) -> None:
        """Pass commits to ``commit``; ``forget`` is called when an engine ends, to drop its
        commits.
        """
        self._commit, self._forget_commits = commit, forget

    def attach_fetches(self, fetch: Fetch, forget: Callable[[], None]) -> None:
        """Pass requests for a connector's offsets to ``fetch``; ``forget`` as for commits."""
        self._fetch, self._forget_fetches = fetch, forget

    def attach_start(self, on_started: Callable[[], None]) -> None:
        """Call ``on_started`` for each engine that starts to take commands."""
        self._on_started = on_started

    def attach_progress(self, on_progressed: ProgressHandler) -> None:
        """Call ``on_progressed`` with each progress report of an engine."""
        self._on_progressed = on_progressed

    def attach_cluster(self, faults: ClusterFaults) -> None:
        """Use ``faults`` to check whether the other workers have the classes of a config."""
        self._cluster_faults = faults

    def attach_engine_faults(self, faults: EngineFaults) -> None:
        """Use ``faults`` to check whether this worker can run the engine of a config."""
        self._engine_faults = faults

    # Reports

    def on_report(self, engine: EngineSlot, report: pb.EngineReport) -> None:
        """Handle a report of an engine that answers no command."""
        match report.WhichOneof("report"):
            case "started":
                if engine == SHARED:
                    self.plugins.loaded_ms = SystemClock().now_ms()
                if self._on_started is not None:
                    self._on_started()
            case "ready":
                if engine == SHARED:
                    self._was_ready = True
                    self.spark_version = report.ready.spark_version
                _log.info(
                    "the engine is ready",
                    engine=str(engine),
                    spark_master=report.ready.spark_master,
                )
                self._post(events.EngineReady(engine))
            case "own_cluster_found":
                self.kafka_cluster_id = report.own_cluster_found.cluster_id
            case "connector_failed":
                failed = report.connector_failed
                cause = decode_cause(failed.cause)
                self._post(
                    events.ConnectorFailed(failed.connector, failed.run_id, failed.trace, cause)
                )
            case "reconfiguration_requested":
                wanted = report.reconfiguration_requested
                self._post(events.ReconfigurationRequested(wanted.connector, wanted.run_id))
            case "task_failed":
                task = report.task_failed
                cause = decode_cause(task.cause)
                self._post(events.TaskFailed(_task(task.task), task.run_id, task.trace, cause))
            case "task_fenced":
                fenced = report.task_fenced
                self._post(events.TaskFenced(_task(fenced.task), fenced.run_id))
            case "config_expired":
                expired = report.config_expired
                name = expired.connector
                key = TaskId(name, expired.task) if expired.HasField("task") else name
                self._post(events.ConfigExpired(key, expired.run_id))
            case "task_progress":
                for entry in report.task_progress.entries:
                    self._on_progress(entry)
                if self._on_progressed is not None:
                    self._on_progressed(engine, report.task_progress)
            case "commit_offsets" if self._commit is not None:
                self._commit(report.call_id, decode_task_offsets(report.commit_offsets))
            case "fetch_offsets" if self._fetch is not None:
                fetch = report.fetch_offsets
                group = fetch.consumer_group if fetch.with_positions else None
                self._fetch(report.call_id, fetch.connector, group)
            case "replacement_requested":
                fields = {"engine": str(engine), "reason": report.replacement_requested}
                _log.warning("the engine requests its replacement", **fields)
            case _:
                pass

    def _on_progress(self, entry: pb.TaskProgress.Entry) -> None:
        task, run_id = _task(entry.task), entry.run_id
        if entry.topics:
            self._post(events.TopicsUsed(task, run_id, tuple(entry.topics)))
        counts, figures = decode_counts(entry.counts), decode_figures(entry.figures)
        if counts != RecordCounts() or figures:  # the first report of a run has neither
            self._post(events.TaskCounted(task, run_id, counts, figures))

    def on_exit(self, engine: EngineSlot, ended: EngineExit) -> None:
        """Handle the end of an engine; the supervisor starts the next one."""
        if engine == SHARED:
            self.spark_version = ""
            self.plugins.engine_ended()
        if self._forget_commits is not None:
            self._forget_commits()
        if self._forget_fetches is not None:
            self._forget_fetches()
        self._post(ended.event(engine))
        is_fatal = engine == SHARED and ended.lasting and not self._was_ready
        if is_fatal and not self.fatal.done():
            self.fatal.set_result(ended.message)

    async def answer_commit(self, call_id: int, result: CommitResult) -> None:
        """Send the result of a commit to the engine."""
        outcome: coordinator_pb.CommitOutcome.ValueType = COMMIT_OUTCOMES.encode(result.outcome)
        command = pb.EngineCommand(
            call_id=call_id,
            commit_result=pb.CommitResult(outcome=outcome, message=result.message),
        )
        await self._send_answer(command)

    async def answer_fetch(self, call_id: int, offsets: Sequence[CommittedOffset]) -> None:
        """Send a connector's committed offsets to the engine."""
        fetched = pb.FetchedOffsets(offsets=[encode_offset(each) for each in offsets])
        await self._send_answer(pb.EngineCommand(call_id=call_id, fetched_offsets=fetched))

    async def _send_answer(self, command: pb.EngineCommand) -> None:
        try:
            await self._running().send(command)
        except UnavailableError:
            _log.info("an answer was dropped: no engine is running", call_id=command.call_id)

    # Loggers, as EngineLoggers

    async def list_loggers(self) -> list[LoggerState]:
        """The loggers of the engines' processes, by name; the shared engine's if several have one.

        Raises:
            UnavailableError: ENGINE_UNAVAILABLE.
            DeadlineExceededError: The engine did not answer.
        """
        return await self._loggers(pb.EngineCommand(list_loggers=pb.ListLoggers()))

    async def set_logger_levels(self, levels: Mapping[str, str]) -> list[str]:
        """Set levels in order; returns the names of the loggers that changed.

        Raises:
            UnavailableError: ENGINE_UNAVAILABLE.
            DeadlineExceededError: The engine did not answer; it may still apply the levels.
        """
        entries = [pb.SetLoggerLevels.Entry(name=n, level=level) for n, level in levels.items()]
        command = pb.EngineCommand(set_logger_levels=pb.SetLoggerLevels(levels=entries))
        return [state.name for state in await self._loggers(command)]

    async def _loggers(self, command: pb.EngineCommand) -> list[LoggerState]:
        """The loggers in the answers of all engines that run."""
        reports = [await self._running().call(command, _LOGGERS_TIMEOUT_S)]
        for each in self.describe_engines():
            if each.up and each.slot != SHARED:
                with suppress(UnavailableError, DeadlineExceededError):
                    reports.append(
                        await self._running().call_in(each.slot, command, _LOGGERS_TIMEOUT_S)
                    )
        found: dict[str, LoggerState] = {}
        for logger in [logger for report in reports for logger in report.loggers.loggers]:
            changed = logger.HasField("last_change_time")
            changed_ms = logger.last_change_time.ToMilliseconds() if changed else None
            found.setdefault(logger.name, LoggerState(logger.name, logger.level, changed_ms))
        return list(found.values())

    # Plugins

    async def load_plugins(self) -> KnownPlugins:
        """The plugins, listed by the current engine.

        Raises:
            UnavailableError: ENGINE_UNAVAILABLE.
        """
        async with self._plugins_loading:
            if not self.plugins.listed:
                report = await self._call(
                    pb.EngineCommand(list_plugins=pb.ListPlugins()), self._limits.validate_ms
                )
                for problem in report.plugins.problems:
                    _log.warning(
                        "a plugin could not be loaded",
                        plugin=problem.entry_point,
                        why=problem.message,
                    )
                found = report.plugins
                parts = found.record_settings, found.record_plugins, found.problems
                self.plugins.set_installed(found.plugins, *parts, found.java_classes)
        return self.plugins

    async def try_know_plugins(self, class_names: Iterable[str]) -> None:
        """Ask the engine about unknown classes, without waiting long."""
        if self.plugins.listed and not self.plugins.unasked(class_names):
            return
        with suppress(TimeoutError, UnavailableError, DeadlineExceededError):
            async with asyncio.timeout(_PLUGINS_PATIENCE_S):
                await self.load_plugins()
                for name in self.plugins.unasked(class_names):
                    self.plugins.note_asked(name)
                    await self.validate({"connector.class": name}, use_systems=False)

    async def find_faults(self, config: Mapping[str, str], caller: str) -> list[Violation]:
        """Every fault of a config, including that other workers lack the plugin.

        Raises:
            UnavailableError: ENGINE_UNAVAILABLE.
        """
        return await self.with_cluster_faults(config, await self.validate(config, caller))

    async def with_cluster_faults(
        self, config: Mapping[str, str], answer: pb.ConfigValidation | pb.Failure
    ) -> list[Violation]:
        """The faults of a validation, and that other workers lack classes."""
        if self._cluster_faults is None or not config.get("connector.class", ""):
            return violations_of(answer)
        return violations_on_all(answer, await self._cluster_faults(config))

    async def validate(
        self, config: Mapping[str, str], caller: str = "", *, use_systems: bool = True
    ) -> pb.ConfigValidation | pb.Failure:
        """A config's faults, or the reason why it could not be checked.

        Args:
            config: The config.
            caller: Who asks for it: validations of one caller wait for each other.
            use_systems: Resolve placeholders, and check the systems that the config names. Only
                for callers who may change the connector.

        Raises:
            UnavailableError: ENGINE_UNAVAILABLE.
            DeadlineExceededError: The engine did not answer in time.
        """
        wanted = pb.ValidateConfig(config=config, use_systems=use_systems)
        async with self._validations.slot(caller):
            report = await self._call(
                pb.EngineCommand(validate_config=wanted), self._limits.validate_ms
            )
        if report.WhichOneof("report") == "failure":
            return report.failure
        self.plugins.learn(config.get("connector.class", ""), report.validation)
        if self._engine_faults is not None:
            add_violations(report.validation, self._engine_faults(config))
        return report.validation

    async def preview(self, wanted: pb.PreviewConnector) -> Preview:
        """Preview a connector on some records, or on the dead letters that the config replays.

        Raises:
            FailedPreconditionError: PREVIEW_FAILED.
            DeadlineExceededError: The engine did not answer in time.
            UnavailableError: ENGINE_UNAVAILABLE.
        """
        command = pb.EngineCommand(preview_connector=wanted)
        async with self._previews:
            report = await self._call(command, self._limits.start_ms)
        if report.WhichOneof("report") == "failure":
            raise FailedPreconditionError(Reason.PREVIEW_FAILED, report.failure.message)
        return report.preview

    async def alter_offsets(
        self, config: Mapping[str, str], offsets: Sequence[CommittedOffset]
    ) -> bool:
        """Notify a connector's plugin of changed offsets; a None offset means removal.

        Returns:
            Whether no system outside of Drover needs a change.

        Raises:
            FailedPreconditionError: OFFSETS_REFUSED by the plugin.
            DeadlineExceededError: The engine did not answer in time.
            UnavailableError: ENGINE_UNAVAILABLE.
        """
        wanted = pb.AlterOffsets(config=config, offsets=[encode_offset(each) for each in offsets])
        report = await self._ask_about_offsets(pb.EngineCommand(alter_offsets=wanted))
        return report.offsets_altered.complete

    async def trace_offsets(
        self, config: Mapping[str, str], offsets: Sequence[CommittedOffset]
    ) -> pb.TracedOffsets:
        """How far a sink's output was written, for topic partitions without one of the committed
        ``offsets`` (which include marks). Errors as ``alter_offsets``.
        """
        wanted = pb.TraceOffsets(config=config, offsets=[encode_offset(each) for each in offsets])
        report = await self._ask_about_offsets(pb.EngineCommand(trace_offsets=wanted))
        return report.traced_offsets

    async def _ask_about_offsets(self, command: pb.EngineCommand) -> pb.EngineReport:
        report = await self._call(command, self._limits.validate_ms)
        if report.WhichOneof("report") == "failure":
            raise FailedPreconditionError(Reason.OFFSETS_REFUSED, report.failure.message)
        return report

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_s: float
    ) -> dict[TopicPartition, int]:
        """The end offsets of topic partitions; missing partitions are left out.

        Raises:
            UnavailableError: ENGINE_UNAVAILABLE, no engine runs, or it cannot read them.
            DeadlineExceededError: The engine did not answer.
        """
        wanted = pb.ListEndOffsets(
            partitions=[pb.TopicPartition(topic=p.topic, partition=p.partition) for p in partitions]
        )
        report = await self._running().call(pb.EngineCommand(list_end_offsets=wanted), timeout_s)
        if report.WhichOneof("report") == "failure":
            raise UnavailableError(Reason.ENGINE_UNAVAILABLE, report.failure.message)
        return {
            TopicPartition(each.partition.topic, each.partition.partition): each.end_offset
            for each in report.end_offsets.entries
        }

    # Instructions

    def start_engine(self, slot: EngineSlot) -> None:
        """Carry out StartEngine."""
        self._running().start_engine(slot)

    def stop_engine(self, slot: EngineSlot) -> None:
        """Carry out StopEngine."""
        self._running().stop_engine(slot)

    def describe_engines(self) -> Sequence[EngineDescription]:
        """The engines of this worker, the shared one first."""
        return self._running().describe()

    async def validate_config(
        self, instruction: instructions.ValidateConfig
    ) -> events.HerderEvent | None:
        """Carry out ValidateConfig."""
        answer = await self.validate(
            instruction.config, instruction.author, use_systems=instruction.use_systems
        )
        return events.ConfigValidated(
            instruction.cause_id,
            await self.with_cluster_faults(instruction.config, answer),
            answer.connector_type if isinstance(answer, pb.ConfigValidation) else "",
        )

    async def start_connector(
        self, instruction: instructions.StartConnector
    ) -> events.HerderEvent | None:
        """Carry out StartConnector."""
        command = pb.EngineCommand(
            start_connector=pb.StartConnector(
                connector=instruction.name, config=instruction.config, run_id=instruction.run_id
            )
        )
        name, run_id = instruction.name, instruction.run_id
        failure = await self._try(command, self._limits.start_ms, instruction.engine)
        if failure is not None:
            return events.ConnectorFailed(name, run_id, failure.trace, failure.cause)
        return events.ConnectorStarted(name, run_id)

    async def stop_connector(
        self, instruction: instructions.StopConnector
    ) -> events.HerderEvent | None:
        """Carry out StopConnector."""
        command = pb.EngineCommand(stop_connector=pb.StopConnector(connector=instruction.name))
        await self._stop(command, instruction.name)
        return events.ConnectorStopped(instruction.name, instruction.run_id)

    async def generate_task_configs(
        self, instruction: instructions.GenerateTaskConfigs
    ) -> events.HerderEvent | None:
        """Carry out GenerateTaskConfigs."""
        name, run_id = instruction.name, instruction.run_id
        command = pb.EngineCommand(
            generate_task_configs=pb.GenerateTaskConfigs(
                connector=name, max_tasks=instruction.tasks_max
            )
        )
        try:
            report = await self._call(command, self._limits.task_configs_ms)
        except DeadlineExceededError as error:
            return events.TaskConfigsNotGenerated(name, run_id, error.message)
        if report.WhichOneof("report") == "failure":
            return events.TaskConfigsNotGenerated(name, run_id, _trace(report.failure))
        configs = [dict(entry.config) for entry in report.task_configs.task_configs]
        return events.TaskConfigsGenerated(name, run_id, configs)

    async def start_task(self, instruction: instructions.StartTask) -> events.HerderEvent | None:
        """Carry out StartTask."""
        command = pb.EngineCommand(
            start_task=pb.StartTask(
                task=encode_task_id(instruction.task),
                connector_config=instruction.connector_config,
                task_config=instruction.task_config,
                claim=encode_term(instruction.claim),
                offsets=[encode_offset(offset) for offset in instruction.offsets],
                paused=instruction.paused,
                run_id=instruction.run_id,
            )
        )
        failure = await self._try(command, self._limits.start_ms, instruction.engine)
        if failure is not None:
            return events.TaskFailed(
                instruction.task, instruction.run_id, failure.trace, failure.cause
            )
        return events.TaskStarted(instruction.task, instruction.run_id)

    async def set_task_paused(
        self, instruction: instructions.SetTaskPaused
    ) -> events.HerderEvent | None:
        """Carry out SetTaskPaused."""
        task = instruction.task
        command = pb.EngineCommand(
            set_paused=pb.SetPaused(
                connector=task.connector, task=task.task, paused=instruction.paused
            )
        )
        failure = await self._try(command, self._limits.stop_ms)
        if failure is not None:
            return events.TaskFailed(task, instruction.run_id, failure.trace, failure.cause)
        return events.TaskPauseSet(task, instruction.run_id, instruction.paused)

    async def stop_task(self, instruction: instructions.StopTask) -> events.HerderEvent | None:
        """Carry out StopTask."""
        command = pb.EngineCommand(stop_task=pb.StopTask(task=encode_task_id(instruction.task)))
        await self._stop(command, str(instruction.task))
        return events.TaskStopped(instruction.task, instruction.run_id)

    async def _stop(self, command: pb.EngineCommand, what: str) -> None:
        """Stop a connector or task; on failure it is abandoned: its claim protects the data."""
        try:
            # the limit applies to the batch in flight and again to the plugin's stop()
            report = await self._call(command, 2 * self._limits.stop_ms)
        except (UnavailableError, DeadlineExceededError) as error:
            _log.warning("a stop failed; the work is abandoned", what=what, why=error.message)
            return
        if report.WhichOneof("report") == "failure":
            _log.warning(
                "a stop failed; the work is abandoned", what=what, why=report.failure.message
            )

    async def _try(
        self, command: pb.EngineCommand, limit_ms: int, engine: EngineSlot | None = None
    ) -> "_Failed | None":
        """Why a command failed; None if it succeeded. Raises if the engine ended.

        It is sent to ``engine``, or as ``Engines.call`` does.
        """
        try:
            report = await self._call(command, limit_ms, engine)
        except DeadlineExceededError as error:
            return _Failed(error.message, FailureCause.PLUGIN)
        if report.WhichOneof("report") == "failure":
            return _Failed(_trace(report.failure), decode_cause(report.failure.cause))
        return None

    async def _call(
        self, command: pb.EngineCommand, limit_ms: int, engine: EngineSlot | None = None
    ) -> pb.EngineReport:
        timeout_s = limit_ms / 1000 + _MARGIN_S
        if engine is not None:
            return await self._running().call_in(engine, command, timeout_s)
        return await self._running().call(command, timeout_s)

    def _running(self) -> Engines:
        if self._engine is None:
            raise UnavailableError(Reason.ENGINE_UNAVAILABLE, "the engine is not started yet")
        return self._engine


@dataclass(frozen=True, slots=True)
class _Failed:
    """Why a command failed, and who is at fault."""

    trace: str
    cause: FailureCause


Handler = Callable[[Any], Coroutine[Any, Any, events.HerderEvent | None]]


def engine_handlers(link: EngineLink) -> dict[type, Handler]:
    """The handler of each instruction that the engine carries out."""
    return {
        instructions.ValidateConfig: link.validate_config,
        instructions.StartConnector: link.start_connector,
        instructions.StopConnector: link.stop_connector,
        instructions.GenerateTaskConfigs: link.generate_task_configs,
        instructions.StartTask: link.start_task,
        instructions.SetTaskPaused: link.set_task_paused,
        instructions.StopTask: link.stop_task,
    }


def _task(message: Any) -> TaskId:
    return TaskId(message.connector, message.task)


def _trace(failure: pb.Failure) -> str:
    return failure.trace or failure.message
