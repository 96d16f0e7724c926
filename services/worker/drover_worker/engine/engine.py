"""The engine: receives the herder's commands and dispatches them to connectors and tasks."""

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import structlog
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from drover.api.common.v1 import preview_pb2
from drover.api.engine.v1 import engine_pb2
from drover.clock import SystemClock
from drover.codec.common import decode_task_id
from drover.codec.coordinator import decode_offset, encode_offset
from drover.connector.catalogue import PluginRegistry
from drover.connector.offsets import parse_changes
from drover.dataplane.plane import DataPlane
from drover.dataplane.shared_jobs import SharedJobs, core_count
from drover.errors import DroverError
from drover.java_plugins.allowed import allowed_classes
from drover.java_plugins.host import HOSTS
from drover.model.ids import TaskId
from drover_worker.engine.data_limit import withdraw_reserve
from drover_worker.engine.engine_figures import engine_figures
from drover_worker.engine.executors import Executors
from drover_worker.engine.in_flight import InFlight
from drover_worker.engine.letter_requests import check_dead_letters, repair_dead_letters
from drover_worker.engine.plugins import answers
from drover_worker.engine.plugins.configs import EngineConfigs
from drover_worker.engine.plugins.connectors import ConnectorRegistry
from drover_worker.engine.plugins.offset_changes import alter_offsets
from drover_worker.engine.plugins.threads import Outcome, PluginThreads, Raised, Returned
from drover_worker.engine.plugins.validation import encode_plugins
from drover_worker.engine.preview import PreviewRefusedError, preview
from drover_worker.engine.process_watch import ProcessWatch
from drover_worker.engine.session import spark_runs
from drover_worker.engine.settings import PRODUCE_MS, EngineLimits
from drover_worker.engine.tasks.calls import Answer, fetch_offsets
from drover_worker.engine.tasks.offset_traces import TracedOffsets, trace_offsets
from drover_worker.engine.tasks.scheduler import Scheduler
from drover_worker.engine.tasks.sink_lag import watch_lags
from drover_worker.engine.tasks.task_runner import CLAIM_CHECK_S, TaskTools
from drover_worker.engine.tasks.task_table import TaskRegistry
from drover_worker.engine.tasks.topic_watcher import TopicWatcher
from drover_worker.engine.topics.reads import describe_topic, list_topics, read_topic
from drover_worker.engine.topics.writes import produce_records
from drover_worker.shell.process_loggers import ProcessLoggers

Send = Callable[[engine_pb2.EngineReport], None]
#: Validates a config in another process; raises OSError if there is none.
ValidateApart = Callable[[engine_pb2.ValidateConfig], engine_pb2.EngineReport]

#: How often the engine reports its own figures.
_FIGURES_EVERY_S = 5.0
#: Up to this many tasks (a source and its sink) get Spark jobs of their own, even on one core.
_TASKS_ALONE_MIN = 2
#: A hung preview blocks a thread, but does not count towards the engine's replacement: a caller
#: could restart all tasks by previews.
_HUNG_PREVIEWS_MAX = 8

log = structlog.get_logger(__name__)


class Engine:
    """Carries out commands. Its methods never block on a plugin or on Spark: the thread that reads
    commands only dispatches them.
    """

    def __init__(
        self,
        limits: EngineLimits,
        send: Send,
        plugins: PluginRegistry,
        configs: EngineConfigs,
        validate: ValidateApart,
        *,
        not_exactly_once: str = "",
        in_flight: InFlight | None = None,
        watch: ProcessWatch | None = None,
    ) -> None:
        """``not_exactly_once`` is the reason why sources deliver at least once; empty for exactly
        once.
        """
        self._not_exactly_once = not_exactly_once
        self._limits = limits
        self._configs = configs
        self._validate_apart = validate
        send = configs.hiding(send)
        self._send = send
        self._plugins = plugins
        self._loggers = ProcessLoggers(SystemClock().now_ms)
        self._in_flight = in_flight or InFlight()
        self._watch = watch or ProcessWatch()
        self._threads = PluginThreads(
            abandoned_max=limits.abandoned_threads,
            on_exhausted=self._ask_for_replacement,
            in_flight=self._in_flight,
        )
        self._plane: DataPlane | None = None
        self._plane_ready = threading.Event()
        self._tools: TaskTools | None = None
        self._tools_ready = threading.Event()
        self._closed = threading.Event()
        self._commits: dict[int, Answer] = {}
        self._connectors = ConnectorRegistry(
            plugins,
            self._threads,
            limits,
            send,
            configs,
            lambda name: fetch_offsets(name, CLAIM_CHECK_S, send=send, answers=self._commits),
        )
        self._tasks = TaskRegistry(
            plugins, self._threads, limits, send, self._wait_for_tools, configs
        )

    def topics_ready(self, plane: DataPlane) -> None:
        """Start to answer requests about topics."""
        self._plane = plane
        self._plane_ready.set()

    def start_delayed(self, reason: str) -> None:
        """Report why the engine cannot run jobs yet."""
        delayed = engine_pb2.StartDelayed(reason=reason)
        self._send(engine_pb2.EngineReport(start_delayed=delayed))

    def spark_ready(self, spark: SparkSession, plane: DataPlane, executors: Executors) -> None:
        """Start to run tasks, including those the herder requested while Spark was starting."""
        # now, so that the first task does not pay for it
        plane.warm_up(spark)
        scheduler = Scheduler(
            place_count=self._limits.batch_threads,
            on_hung=self._threads.write_off,
            on_returned=self._threads.written_off_ended,
        )
        self._tools = TaskTools(
            spark=spark,
            plane=plane,
            scheduler=scheduler,
            threads=self._threads,
            watcher=TopicWatcher(plane, interval_ms=self._limits.topic_watch_ms),
            limits=self._limits,
            send=self._send,
            is_spark_running=partial(spark_runs, spark),
            without_executors_ms=lambda: executors.missing_since_ms,
            commits=self._commits,
            in_flight=self._in_flight,
            watch=self._watch,
            shared_jobs=SharedJobs(
                spark.sparkContext,
                cloudpickle.dumps,
                on_wait=scheduler.give_place,
                alone_max=max(_TASKS_ALONE_MIN, core_count(spark.sparkContext)),
            ),
        )
        self._watch.adopt()  # Spark has set variables
        self._tools_ready.set()
        threading.Thread(
            target=self._watch_progress, args=(executors,), name="progress", daemon=True
        ).start()
        watch = partial(watch_lags, self._tasks.sinks, plane.end_offsets, self._closed)
        threading.Thread(target=watch, name="lags", daemon=True).start()
        self._send(
            engine_pb2.EngineReport(
                ready=engine_pb2.EngineReady(
                    spark_version=spark.version,
                    spark_master=spark.sparkContext.master or "",
                    process_id=os.getpid(),
                )
            )
        )

    def handle(self, command: engine_pb2.EngineCommand) -> None:
        """Dispatch a command; another thread sends the answer."""
        kind = command.WhichOneof("command")
        try:
            self._dispatch(kind, command)
        except DroverError as error:
            self._send(answers.failed(command.call_id, error.message))
        except Exception as error:
            log.exception("handling a command failed", command=kind)
            self._send(answers.failed(command.call_id, f"a defect of the engine: {error!r}"))

    def close(self) -> None:
        """Stop every task and connector; waits within the time limit of stop()."""
        self._closed.set()
        ended = self._tasks.close() + self._connectors.close()
        limit_s = 2 * self._limits.stop_ms / 1000
        for event in ended:
            event.wait(limit_s)
        if self._tools is not None:
            self._tools.scheduler.close()
            if self._tools.shared_jobs is not None:
                self._tools.shared_jobs.close()

    def _dispatch(self, kind: str | None, command: engine_pb2.EngineCommand) -> None:
        call_id = command.call_id
        if kind == "list_plugins":
            self._list_plugins(call_id)
        elif kind == "validate_config":
            self._validate(call_id, command.validate_config)
        elif kind == "start_connector":
            self._connectors.start(call_id, command.start_connector)
        elif kind == "stop_connector":
            self._connectors.stop(call_id, command.stop_connector.connector)
        elif kind == "generate_task_configs":
            self._connectors.generate_task_configs(call_id, command.generate_task_configs)
        elif kind == "start_task":
            self._tasks.start(call_id, command.start_task)
        elif kind == "stop_task":
            self._tasks.stop(call_id, decode_task_id(command.stop_task.task))
        elif kind == "set_paused":
            self._set_paused(call_id, command.set_paused)
        elif kind == "list_loggers":
            self._send(answers.loggers(call_id, self._loggers.states()))
        elif kind == "set_logger_levels":
            self._set_logger_levels(call_id, command.set_logger_levels)
        elif kind == "preview_connector":
            self._preview(call_id, command.preview_connector)
        elif kind == "alter_offsets":
            self._alter_offsets(call_id, command.alter_offsets)
        elif kind == "trace_offsets":
            self._trace_offsets(call_id, command.trace_offsets)
        elif kind == "list_end_offsets":
            self._list_end_offsets(call_id, command.list_end_offsets)
        elif kind == "check_dead_letters":
            self._check_dead_letters(call_id, command.check_dead_letters)
        elif kind == "repair_dead_letters":
            self._repair_dead_letters(call_id, command.repair_dead_letters)
        elif kind in ("list_topics", "describe_topic", "read_topic", "produce_records"):
            self._run_topics_command(command)
        elif kind == "commit_result":
            self._take_answer(call_id, command.commit_result)
        elif kind == "fetched_offsets":
            self._take_answer(call_id, command.fetched_offsets)
        else:
            self._send(
                answers.failed(call_id, "unknown command: herder and engine differ in version")
            )

    def _take_answer(self, call_id: int, answer: Any) -> None:
        take = self._commits.pop(call_id, None)
        if take is not None:
            take(answer)

    def _list_plugins(self, call_id: int) -> None:
        def finish(outcome: Outcome) -> None:
            if isinstance(outcome, Returned):
                assert isinstance(outcome.value, engine_pb2.PluginList)
                self._send(engine_pb2.EngineReport(call_id=call_id, plugins=outcome.value))
            else:
                self._send(answers.failure_of(call_id, "listing the plugins", outcome))

        self._threads.run(
            "list-plugins",
            lambda: encode_plugins(
                *self._plugins.list(),
                not_exactly_once=self._not_exactly_once,
                java_classes=allowed_classes(),
            ),
            limit_ms=self._limits.validate_ms,
            on_done=finish,
        )

    def _validate(self, call_id: int, wanted: engine_pb2.ValidateConfig) -> None:
        def run() -> None:
            try:
                report = self._validate_apart(wanted)
            except OSError as error:
                text = f"the engine's validation process has ended: {error}"
                self._ask_for_replacement(text)
                report = answers.failed(0, text)
            report.call_id = call_id
            self._send(report)

        name = f"validate:{wanted.config.get('name', '')[:80]}"
        threading.Thread(target=run, name=name, daemon=True).start()

    def _alter_offsets(self, call_id: int, command: engine_pb2.AlterOffsets) -> None:
        def finish(outcome: Outcome) -> None:
            if isinstance(outcome, Returned):
                assert isinstance(outcome.value, bool)
                altered = engine_pb2.OffsetsAltered(complete=outcome.value)
                self._send(engine_pb2.EngineReport(call_id=call_id, offsets_altered=altered))
            else:
                self._send(answers.failure_of(call_id, "the plugin's alter_offsets", outcome))

        config = dict(command.config)
        changes = parse_changes(decode_offset(each) for each in command.offsets)
        self._threads.run(
            f"alter-offsets:{config.get('name', '')[:80]}",
            lambda: alter_offsets(self._plugins, self._resolved(config), changes),
            limit_ms=self._limits.validate_ms,
            on_done=finish,
        )

    def _trace_offsets(self, call_id: int, command: engine_pb2.TraceOffsets) -> None:
        def finish(outcome: Outcome) -> None:
            if isinstance(outcome, Returned):
                assert isinstance(outcome.value, TracedOffsets)
                traced = engine_pb2.TracedOffsets(
                    offsets=[encode_offset(each) for each in outcome.value.offsets],
                    untraced_partitions=[
                        engine_pb2.TopicPartition(topic=each.topic, partition=each.partition)
                        for each in outcome.value.untraced
                    ],
                )
                self._send(engine_pb2.EngineReport(call_id=call_id, traced_offsets=traced))
            else:
                self._send(answers.failure_of(call_id, "the plugin's traced_offsets", outcome))

        if self._tools is None:
            self._send(answers.failed(call_id, "Spark is not up yet"))
            return
        plane, config = self._tools.plane, dict(command.config)
        committed = [decode_offset(each) for each in command.offsets]
        self._threads.run(
            f"trace-offsets:{config.get('name', '')[:80]}",
            lambda: trace_offsets(self._plugins, plane, self._resolved(config), committed),
            limit_ms=self._limits.validate_ms,
            on_done=finish,
        )

    def _list_end_offsets(self, call_id: int, command: engine_pb2.ListEndOffsets) -> None:
        def finish(outcome: Outcome) -> None:
            if isinstance(outcome, Returned):
                assert isinstance(outcome.value, engine_pb2.EndOffsetList)
                self._send(engine_pb2.EngineReport(call_id=call_id, end_offsets=outcome.value))
            else:
                self._send(answers.failure_of(call_id, "finding end offsets", outcome))

        if self._tools is None:
            self._send(answers.failed(call_id, "Spark is not up yet"))
            return
        plane = self._tools.plane
        wanted = {(each.topic, each.partition) for each in command.partitions}
        self._threads.run(
            "end-offsets",
            lambda: answers.end_offset_list(plane.end_offsets(wanted)),
            limit_ms=self._limits.validate_ms,
            on_done=finish,
        )

    def _resolved(self, config: Mapping[str, str]) -> Mapping[str, str]:
        resolution = self._configs.resolve_connector(config)
        if not resolution.faults:
            return resolution.config
        connector_class = self._plugins.find_of(config)
        return self._configs.whole(connector_class, config, resolution).config

    def _preview(self, call_id: int, command: engine_pb2.PreviewConnector) -> None:
        def finish(outcome: Outcome) -> None:
            if isinstance(outcome, Returned):
                assert isinstance(outcome.value, preview_pb2.Preview)
                self._send(engine_pb2.EngineReport(call_id=call_id, preview=outcome.value))
            elif isinstance(outcome, Raised) and isinstance(outcome.error, PreviewRefusedError):
                self._send(answers.failed(call_id, str(outcome.error)))
            else:
                self._send(answers.failure_of(call_id, "the preview", outcome))

        if self._threads.abandoned_uncounted_count >= _HUNG_PREVIEWS_MAX:
            text = f"{_HUNG_PREVIEWS_MAX} previews hang in this engine: reload the plugins"
            self._send(answers.failed(call_id, f"{text}, which replaces it"))
            return
        config = dict(command.config)
        self._threads.run(
            f"preview:{config.get('name', '')[:80]}",
            lambda: preview(
                self._plugins,
                self._wait_for_tools(),
                self._resolved(config),
                command.row_count,
                dead_letters=command.dead_letters,
                wait=self._closed.wait,
                repairs=command.repairs,
            ),
            limit_ms=self._limits.start_ms,
            on_done=finish,
            counted=False,
        )

    def _check_dead_letters(self, call_id: int, command: engine_pb2.CheckDeadLetters) -> None:
        def finish(outcome: Outcome) -> None:
            if isinstance(outcome, Returned):
                assert isinstance(outcome.value, engine_pb2.CheckedDeadLetters)
                self._send(
                    engine_pb2.EngineReport(call_id=call_id, checked_dead_letters=outcome.value)
                )
            elif isinstance(outcome, Raised) and isinstance(outcome.error, DroverError):
                self._send(answers.refused(call_id, outcome.error))
            else:
                self._send(answers.failure_of(call_id, "the check of the dead letters", outcome))

        config = dict(command.config)
        self._threads.run(
            f"check-dead-letters:{config.get('name', '')[:80]}",
            lambda: check_dead_letters(
                self._plugins, self._wait_for_tools(), self._resolved(config), command
            ),
            limit_ms=self._limits.start_ms,
            on_done=finish,
            counted=False,
        )

    def _repair_dead_letters(self, call_id: int, command: engine_pb2.RepairDeadLetters) -> None:
        def finish(outcome: Outcome) -> None:
            if isinstance(outcome, Returned):
                assert isinstance(outcome.value, engine_pb2.RepairedDeadLetters)
                self._send(
                    engine_pb2.EngineReport(call_id=call_id, repaired_dead_letters=outcome.value)
                )
            elif isinstance(outcome, Raised) and isinstance(outcome.error, DroverError):
                self._send(answers.refused(call_id, outcome.error))
            else:
                self._send(answers.failure_of(call_id, "the repair of dead letters", outcome))

        config = dict(command.config)
        self._threads.run(
            f"repair-dead-letters:{config.get('name', '')[:80]}",
            lambda: repair_dead_letters(
                self._plugins, self._wait_for_tools(), self._resolved(config), command
            ),
            limit_ms=self._limits.start_ms,
            on_done=finish,
            counted=False,
        )

    def _run_topics_command(self, command: engine_pb2.EngineCommand) -> None:
        call_id = command.call_id

        def finish(outcome: Outcome) -> None:
            if isinstance(outcome, Returned):
                assert isinstance(outcome.value, engine_pb2.EngineReport)
                outcome.value.call_id = call_id
                self._send(outcome.value)
            elif isinstance(outcome, Raised) and isinstance(outcome.error, DroverError):
                self._send(answers.refused(call_id, outcome.error))
            else:
                self._send(answers.failure_of(call_id, "the use of the topic", outcome))

        kind = command.WhichOneof("command")
        self._threads.run(
            f"topics:{kind}",
            lambda: self._topics_report(command),
            limit_ms=PRODUCE_MS if kind == "produce_records" else self._limits.start_ms,
            on_done=finish,
        )

    def _topics_report(self, command: engine_pb2.EngineCommand) -> engine_pb2.EngineReport:
        self._plane_ready.wait()
        plane = self._plane
        assert plane is not None
        match command.WhichOneof("command"):
            case "list_topics":
                wanted = command.list_topics
                return engine_pb2.EngineReport(
                    topics=list_topics(plane, wanted.after, wanted.count_max)
                )
            case "describe_topic":
                return engine_pb2.EngineReport(
                    topic=describe_topic(plane, command.describe_topic.topic)
                )
            case "produce_records":
                produced = command.produce_records
                config = dict(produced.connector_config)
                return engine_pb2.EngineReport(
                    produced_records=produce_records(
                        plane, produced, self._resolved(config) if config else {}
                    )
                )
            case _:
                config = dict(command.read_topic.connector_config)
                resolved = self._resolved(config) if config else {}
                return engine_pb2.EngineReport(
                    topic_records=read_topic(plane, command.read_topic, resolved)
                )

    def _set_logger_levels(self, call_id: int, command: engine_pb2.SetLoggerLevels) -> None:
        changed: set[str] = set()
        for each in command.levels:
            changed.update(self._loggers.set_level(each.name, each.level))
        HOSTS.set_levels({each.name: each.level for each in command.levels})
        states = [state for state in self._loggers.states() if state.name in changed]
        self._send(answers.loggers(call_id, states))

    def _set_paused(self, call_id: int, command: engine_pb2.SetPaused) -> None:
        if command.HasField("task"):
            task = TaskId(command.connector, command.task)
            self._tasks.set_paused(call_id, task, command.paused)
        else:
            self._connectors.set_paused(call_id, command.connector, command.paused)

    def _wait_for_tools(self) -> TaskTools:
        self._tools_ready.wait()
        assert self._tools is not None
        return self._tools

    def _watch_progress(self, executors: Executors) -> None:
        spark_alive = True
        figures_due_s = 0.0
        while not self._closed.wait(self._limits.progress_ms / 1000):
            now_s = time.monotonic()
            with_engine = spark_alive and now_s >= figures_due_s
            if with_engine:
                figures_due_s = now_s + _FIGURES_EVERY_S
            if spark_alive:
                with suppress(Exception):  # Spark may be about to end
                    executors.look()
            self._report_progress(with_engine=with_engine)
            withdraw_reserve()
            if spark_alive and self._spark_was_stopped():
                spark_alive = False
                self._ask_for_replacement("a plugin stopped the shared Spark session")

    def _spark_was_stopped(self) -> bool:
        return self._tools is not None and self._tools.spark.sparkContext._jsc is None

    def _report_progress(self, *, with_engine: bool) -> None:
        report = engine_pb2.TaskProgress(entries=self._tasks.progress())
        figures = self._figures() if with_engine else None
        if figures is not None:
            report.engine.CopyFrom(figures)
        if report.entries or figures is not None:
            self._send(engine_pb2.EngineReport(task_progress=report))

    def _figures(self) -> engine_pb2.EngineFigures | None:
        """The engine's figures; None while Spark does not answer."""
        if self._tools is None or not self._tools.is_spark_running():
            return None
        try:
            return engine_figures(self._tools.spark, abandoned_count=self._threads.abandoned_count)
        except Exception as error:  # noqa: BLE001 - Spark may be about to end
            log.debug("Spark's figures are not available", error=repr(error)[:200])
            return None

    def _ask_for_replacement(self, reason: str) -> None:
        log.error("the engine requests its replacement", reason=reason)
        report = engine_pb2.ReplacementRequested(reason=reason)
        self._send(engine_pb2.EngineReport(replacement_requested=report))
