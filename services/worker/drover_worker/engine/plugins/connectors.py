"""The connector instances of this engine."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from drover.api.engine.v1 import engine_pb2
from drover.codec.failures import encode_cause
from drover.config.resolution import Resolution
from drover.connector import ConnectorContext
from drover.connector.catalogue import PluginRegistry
from drover.connector.connector import Connector
from drover.connector.offsets import parse_offsets
from drover.connector.settings import parse_config
from drover.model.failures import FailureCause
from drover.model.offsets import CommittedOffset
from drover.rpc.logs import log_context
from drover_worker.engine.core.sink_starts import TASK_COUNT
from drover_worker.engine.plugins import answers
from drover_worker.engine.plugins.configs import EngineConfigs
from drover_worker.engine.plugins.expiry import watch_expiry
from drover_worker.engine.plugins.failure_causes import cause_of_failure
from drover_worker.engine.plugins.threads import (
    Outcome,
    PluginThreads,
    Raised,
    Returned,
    TimedOut,
    format_trace,
)
from drover_worker.engine.settings import EngineLimits

Send = Callable[[engine_pb2.EngineReport], None]

log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Run:
    """One connector instance, from its start command on."""

    connector: str
    run_id: int
    instance: Connector | None = None
    #: Its config with placeholders resolved.
    resolution: Resolution | None = None
    #: Cancels the timer for the expiry of provider values.
    unwatch: Callable[[], object] = bool
    #: start() has succeeded or failed.
    started: bool = False
    #: A stop command that arrived during start(); it is carried out after it.
    stop_call_id: int | None = None
    paused: bool = False
    #: Stopped, failed or abandoned: its reports are dropped.
    over: bool = False
    #: The connector requested new task configs, and the herder has not asked for them yet.
    requested: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class ConnectorRegistry:
    """Starts, stops and queries connectors; each plugin call runs on its own thread."""

    def __init__(
        self,
        plugins: PluginRegistry,
        threads: PluginThreads,
        limits: EngineLimits,
        send: Send,
        configs: EngineConfigs | None = None,
        fetch_offsets: Callable[[str], Sequence[CommittedOffset]] = lambda _connector: (),
    ) -> None:
        """``fetch_offsets`` returns the committed offsets of a connector."""
        self._configs = configs or EngineConfigs()
        self._fetch_offsets = fetch_offsets
        self._plugins = plugins
        self._threads = threads
        self._limits = limits
        self._send = send
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}

    def start(self, call_id: int, command: engine_pb2.StartConnector) -> None:
        """Create and start the connector; answers when the plugin call has ended."""
        name = command.connector
        run = _Run(name, command.run_id)
        with self._lock:
            earlier = self._runs.get(name)
            if earlier is not None and not earlier.over:
                message = f"connector {name!r} is already running: stop it first"
                self._send(answers.failed(call_id, message))
                return
            self._runs[name] = run
        config = dict(command.config)

        with log_context(connector=name):
            self._threads.run(
                f"start:{name}",
                lambda: self._start(run, config),
                limit_ms=self._limits.start_ms,
                key=name,
                on_done=lambda outcome: self._started(call_id, run, outcome),
                # otherwise nothing stops the instance
                on_late=lambda: self._stop_instance(run),
            )

    def stop(self, call_id: int, name: str) -> None:
        """Stop the connector; answers when the plugin call has ended or was abandoned."""
        with self._lock:
            run = self._runs.pop(name, None)
        if run is None:
            self._send(answers.done(call_id))
            return
        with run.lock:
            over, run.over = run.over, True
            if not over and not run.started:
                run.stop_call_id = call_id
                return
        if over:
            self._send(answers.done(call_id))
        else:
            self._stop_instance(run, lambda: self._send(answers.done(call_id)))

    def generate_task_configs(self, call_id: int, command: engine_pb2.GenerateTaskConfigs) -> None:
        """Ask a started connector for its task configs."""
        name = command.connector
        run = self._runs.get(name)
        if run is None or run.instance is None or run.over or not run.started:
            self._send(answers.failed(call_id, f"connector {name!r} is not started"))
            return
        instance, max_tasks = run.instance, command.max_tasks
        with run.lock:
            run.requested = False

        def finish(outcome: Outcome) -> None:
            if not isinstance(outcome, Returned):
                what = f"task_configs() of connector {name!r}"
                self._send(answers.failure_of(call_id, what, outcome))
                return
            answer = engine_pb2.EngineReport(call_id=call_id)
            answer.task_configs.SetInParent()
            assert isinstance(outcome.value, list)
            for config in outcome.value:
                written = run.resolution.unresolved(config) if run.resolution else config
                answer.task_configs.task_configs.add(config=written)
            self._send(answer)

        with log_context(connector=name):
            self._threads.run(
                f"task-configs:{name}",
                lambda: checked_task_configs(instance.task_configs(max_tasks), max_tasks),
                limit_ms=self._limits.task_configs_ms,
                key=name,
                on_done=finish,
            )

    def set_paused(self, call_id: int, name: str, paused: bool) -> None:
        """Pause or resume a connector; a paused connector's requests are sent when it resumes."""
        run = self._runs.get(name)
        if run is None or run.over:
            self._send(answers.failed(call_id, f"connector {name!r} is not started"))
            return
        with run.lock:
            run.paused = paused
            send = run.requested and not paused
        self._send(answers.done(call_id))
        if send:
            self._send_reconfiguration_request(run)

    def close(self) -> list[threading.Event]:
        """Stop every connector.

        Returns:
            An event for each, set when the connector has stopped or was abandoned.
        """
        with self._lock:
            runs, self._runs = list(self._runs.values()), {}
        ended = []
        for run in runs:
            with run.lock:
                over, run.over = run.over, True
            if not over:
                event = threading.Event()
                ended.append(event)
                self._stop_instance(run, event.set)
        return ended

    def _start(self, run: _Run, config: Mapping[str, str]) -> None:
        connector_class = self._plugins.find_of(config)
        resolution = self._configs.resolve_connector(config)
        run.resolution = self._configs.whole(connector_class, config, resolution)
        parsed = parse_config(connector_class, run.resolution.config)
        run.instance = connector_class()
        context = ConnectorContext(
            connector=run.connector,
            request_reconfiguration=lambda: self._reconfigure(run),
            fail=lambda error: self._fail(run, error),
            config_texts=run.resolution.config,
            offsets=lambda: parse_offsets(self._fetch_offsets(run.connector)),
        )
        run.instance.start(context, parsed.require_valid(run.connector))

    def _expired(self, run: _Run) -> None:
        with run.lock:
            if run.over:
                return
        report = engine_pb2.ConfigExpired(connector=run.connector, run_id=run.run_id)
        self._send(engine_pb2.EngineReport(config_expired=report))

    def _started(self, call_id: int, run: _Run, outcome: Outcome) -> None:
        with run.lock:
            run.started = True
            stop_call_id = run.stop_call_id
            if not isinstance(outcome, Returned):
                run.over = True
        name = run.connector
        if not isinstance(outcome, Returned):
            self._forget(run)
            what = f"start() of connector {name!r}" if run.instance else f"connector {name!r}"
            self._send(answers.failure_of(call_id, what, outcome, cause=_cause_of(outcome)))
        elif stop_call_id is not None:
            message = f"connector {name!r} was stopped while it was starting"
            self._send(answers.failed(call_id, message))
        else:
            self._send(answers.done(call_id))
            assert run.resolution is not None
            run.unwatch = watch_expiry(run.resolution, expired=lambda: self._expired(run))
            return
        if isinstance(outcome, TimedOut):  # a hung thread is still using the instance
            if stop_call_id is not None:
                self._send(answers.done(stop_call_id))
        elif stop_call_id is not None:
            answer = answers.done(stop_call_id)
            self._stop_instance(run, lambda: self._send(answer))
        else:
            self._stop_instance(run)

    def _reconfigure(self, run: _Run) -> None:
        with run.lock:
            if run.over or run.requested:
                return
            run.requested = True
            if run.paused:
                return
        self._send_reconfiguration_request(run)

    def _send_reconfiguration_request(self, run: _Run) -> None:
        report = engine_pb2.ReconfigurationRequested(connector=run.connector, run_id=run.run_id)
        self._send(engine_pb2.EngineReport(reconfiguration_requested=report))

    def _fail(self, run: _Run, error: BaseException) -> None:
        with run.lock:
            over, run.over = run.over, True
        if over:
            return
        report = engine_pb2.ConnectorFailed(
            connector=run.connector,
            run_id=run.run_id,
            trace=format_trace(error),
            cause=encode_cause(cause_of_failure(error)),
        )
        self._send(engine_pb2.EngineReport(connector_failed=report))
        self._stop_instance(run)

    def _stop_instance(self, run: _Run, on_ended: Callable[[], object] = lambda: None) -> None:
        """Call stop(), then ``on_ended``, also when the call was abandoned."""

        def finish(outcome: Outcome) -> None:
            if not isinstance(outcome, Returned):
                log.warning(
                    "a connector's stop() failed", connector=run.connector, how=str(outcome)
                )
            on_ended()

        run.unwatch()
        with log_context(connector=run.connector):
            self._threads.run(
                f"stop:{run.connector}",
                run.instance.stop if run.instance is not None else lambda: None,
                limit_ms=self._limits.stop_ms,
                key=run.connector,
                on_done=finish,
            )

    def _forget(self, run: _Run) -> None:
        with self._lock:
            if self._runs.get(run.connector) is run:
                del self._runs[run.connector]


def checked_task_configs(found: object, max_tasks: int) -> list[dict[str, str]]:
    """The result of task_configs(), as it is sent to the herder.

    Raises:
        TypeError: It is not a sequence of mappings from text to text.
        ValueError: It has more than ``max_tasks`` entries.
    """
    if not isinstance(found, Sequence) or isinstance(found, str | bytes):
        raise TypeError(f"task_configs() must return a list of dicts, not {type(found).__name__}")
    if len(found) > max_tasks:
        raise ValueError(
            f"task_configs() returned {len(found)} configs, but tasks.max is {max_tasks}"
        )
    configs = []
    for index, config in enumerate(found):
        if not isinstance(config, Mapping):
            raise TypeError(f"task config {index} must be a dict, not {type(config).__name__}")
        for name, value in config.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise TypeError(f"task config {index} must hold text only, not {name!r}: {value!r}")
        configs.append(dict(config) if len(found) == 1 else {**config, TASK_COUNT: str(len(found))})
    return configs


def _cause_of(outcome: Outcome) -> FailureCause:
    return cause_of_failure(outcome.error) if isinstance(outcome, Raised) else FailureCause.PLUGIN
