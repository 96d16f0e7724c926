"""Supervises the engine process: keeps one running and sends it commands.

    supervisor = EngineSupervisor(settings, on_report=herder.report, on_exit=herder.engine_exit)
    await supervisor.start()
    await supervisor.wait_ready()
    report = await supervisor.call(command, timeout_s=35)
    await supervisor.close()

Commands that need no Spark (ListPlugins, ValidateConfig) are served while Spark starts. When the
engine ends, calls in flight fail with ENGINE_UNAVAILABLE, ``on_exit`` is called after the engine's
last report, and a new engine is started after a back-off.
"""

import asyncio
import itertools
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import structlog

from drover.api.engine.v1 import engine_pb2
from drover.backoff import Backoff
from drover.errors import DeadlineExceededError, Reason, UnavailableError
from drover.model.engines import ENGINE_MEMORY
from drover.model.sizes import size_text
from drover_worker.core.engine_slots import EngineSlot
from drover_worker.core.events import EndKind, EngineLost
from drover_worker.engine.in_flight import Mark
from drover_worker.engine.log_lines import as_logged
from drover_worker.engine.process_constants import LASTING_EXIT_CODES, ExitCode
from drover_worker.engine.settings import DEFAULT_DRIVER_MEMORY, DRIVER_MEMORY, EngineSettings
from drover_worker.shell.at_work import Suspects, busy_threads, suspects, thread_times_s
from drover_worker.shell.engine_child import EngineChild, write_to_stderr
from drover_worker.shell.engines import LimitsInForce
from drover_worker.shell.memory_kills import memory_kill_count, memory_limit_bytes

_BACKOFF_FIRST_S = 0.2
_BACKOFF_MAX_S = 30.0
#: An engine that was ready for this long resets the back-off.
_SOUND_AFTER_S = 60.0
#: Added to the plugins' stop limit, so that Spark can stop gracefully.
_STOP_MARGIN_MS = 10_000
#: How often the engine must answer, how long it may take, and how many answers in a row may be
#: missing before it is killed. Its command thread answers without waiting for plugins.
_PROBE_EVERY_S, _PROBE_TIMEOUT_S, _PROBES_MISSED_MAX = 5.0, 10.0, 4
#: How long the threads of an engine that does not answer are observed before it is killed.
_OBSERVED_S = 1.0
#: Exit codes when the engine or its JVM was killed.
_KILLED_CODES = frozenset({128 + signal.SIGKILL, int(ExitCode.SPARK_KILLED)})
_MEMORY_CODES = frozenset({int(ExitCode.HEAP_USED_UP), int(ExitCode.MEMORY_USED_UP)})
#: Exit codes with a meaning, before and after Spark is up.
_CODES_AT_START = frozenset(ExitCode) - {ExitCode.STOPPED}
_CODES_WHILE_READY = _CODES_AT_START - {*LASTING_EXIT_CODES, ExitCode.SPARK_NOT_STARTED}

log = structlog.get_logger(__name__)

ReportHandler = Callable[[engine_pb2.EngineReport], None]


class EngineState(StrEnum):
    """The state of the supervised engine."""

    #: Not started yet, or closed.
    STOPPED = "STOPPED"
    #: The process runs, Spark is starting.
    STARTING = "STARTING"
    #: Spark runs.
    READY = "READY"
    #: The engine ended; the next one starts after a back-off.
    BACKING_OFF = "BACKING_OFF"


@dataclass(frozen=True, slots=True)
class EngineExit:
    """The end of one engine process.

    Attributes:
        exit_code: As ExitCode, or 128 + N after signal N.
        message: One line for operators: the cause.
        stderr_tail: The last lines of its standard error.
        lasting: A new engine would end the same way until an operator acts (no Java, for
            example).
        requested: It ended because close() or restart() was called.
        kind: How it ended, if it was not requested.
        suspects: The connectors and tasks that may be the cause; none if the end was requested,
            unless plugin calls hung.
    """

    exit_code: int
    message: str
    stderr_tail: str
    lasting: bool
    requested: bool
    kind: EndKind = EndKind.CRASH
    suspects: Suspects = field(default_factory=Suspects)

    def event(self, engine: EngineSlot) -> EngineLost:
        """The event for the herder; ``engine`` is the slot of the engine that ended."""
        by_itself = not self.requested and self.kind is not EndKind.KILL
        found = self.suspects
        return EngineLost(self.message, found.at_work, self.kind, engine, by_itself, found.recent)


ExitHandler = Callable[[EngineExit], None]


class EngineSupervisor:
    """Keeps an engine process running. For one event loop; never blocks it."""

    def __init__(
        self,
        settings: EngineSettings,
        *,
        on_report: ReportHandler,
        on_exit: ExitHandler,
        on_log_line: Callable[[bytes], None] = write_to_stderr,
        engine_command: Sequence[str] = (),
        probe_every_s: float = _PROBE_EVERY_S,
        probe_timeout_s: float = _PROBE_TIMEOUT_S,
    ) -> None:
        """Start nothing yet.


        Args:
            settings: Settings of each engine.
            on_report: Called on the event loop for each report that answers no call: ready,
                failures, fences, progress, commit_offsets. Must not block.
            on_exit: Called when an engine ended, after its last report. Must not block.
            on_log_line: Receives each line that the engine's processes write, in the configured log
                format.
            engine_command: Replaces the real engine in tests.
            probe_every_s: The interval between two probes of the engine.
            probe_timeout_s: How long the engine may take to answer a probe.
        """
        self._settings = settings
        self._probe_every_s = probe_every_s
        self._probe_timeout_s = probe_timeout_s
        self._probes_missed = 0
        #: Whether the engine was killed because it did not answer, and the threads that were busy.
        self._given_up = False
        self._busy_threads: frozenset[int] = frozenset()
        #: What was at work when the engine requested its replacement, because plugin calls hang.
        self._hung: tuple[Mark, ...] = ()
        #: Set when the engine serves commands.
        self._serves = asyncio.Event()
        self._on_report = on_report
        self._on_exit = on_exit
        self._on_log_line = on_log_line
        self._engine_command = engine_command
        self._call_ids = itertools.count(1)
        self._calls: dict[int, asyncio.Future[engine_pb2.EngineReport]] = {}
        self._child: EngineChild | None = None
        self._state = EngineState.STOPPED
        self._spawned = asyncio.Event()
        self._ready = asyncio.Event()
        self._ready_report: engine_pb2.EngineReady | None = None
        self._start_failure = ""
        self._start_delay = ""
        self._last_exit: EngineExit | None = None
        self._stop_requested = False
        self._closing = False
        self._run_task: asyncio.Task[None] | None = None
        self._replacement: asyncio.Task[None] | None = None

    @property
    def state(self) -> EngineState:
        """The current state."""
        return self._state

    @property
    def process_id(self) -> int | None:
        """The guard's process id while an engine runs."""
        return self._child.process_id if self._child else None

    @property
    def limits(self) -> LimitsInForce | None:
        """See Engine."""
        return self._child.limits if self._child else None

    @property
    def stall(self) -> str:
        """What is wrong with an engine that does not answer, or why its start is delayed; empty for
        others.
        """
        if not self._probes_missed:
            return self._start_delay
        waited_s = self._probes_missed * self._probe_timeout_s
        return (
            f"the engine has not answered for {waited_s:g} s: code of a connector holds its Python "
            "interpreter, or the machine is overloaded"
        )

    async def start(self) -> None:
        """Start the engine and keep one running until ``close``.

        Returns when the first process has started or failed to start, before Spark is ready.
        """
        if self._run_task is None:
            self._run_task = asyncio.create_task(self._run(), name="engine-supervisor")
        await self._spawned.wait()

    async def wait_ready(self) -> engine_pb2.EngineReady:
        """Wait until Spark runs, across engine restarts."""
        while self._ready_report is None:
            await self._ready.wait()
        return self._ready_report

    async def call(
        self, command: engine_pb2.EngineCommand, timeout_s: float
    ) -> engine_pb2.EngineReport:
        """Send a command and wait for its answer; its call id is set here.

        Returns:
            The answer; a command that failed is answered by a report with ``failure``.

        Raises:
            UnavailableError: ENGINE_UNAVAILABLE, no engine runs or it ended during the call; the
                command may have been carried out.
            DeadlineExceededError: No answer within ``timeout_s`` seconds; a late one is dropped.
        """
        child = self._running_child()
        call_id = next(self._call_ids)
        sent = engine_pb2.EngineCommand()
        sent.CopyFrom(command)
        sent.call_id = call_id
        answer: asyncio.Future[engine_pb2.EngineReport] = asyncio.get_running_loop().create_future()
        self._calls[call_id] = answer
        try:
            async with asyncio.timeout(timeout_s):
                await child.send(sent)
                return await answer
        except TimeoutError:
            raise DeadlineExceededError(
                Reason.DEADLINE_EXCEEDED,
                f"the engine did not answer {command.WhichOneof('command')} within {timeout_s} s",
            ) from None
        finally:
            self._calls.pop(call_id, None)

    async def send(self, command: engine_pb2.EngineCommand) -> None:
        """Send a command that has no answer (a commit result), with the call id it carries.

        Raises:
            UnavailableError: ENGINE_UNAVAILABLE, no engine runs.
        """
        await self._running_child().send(command)

    async def restart(self, reason: str) -> None:
        """Stop the engine gracefully; returns when it has ended. A new one starts at once."""
        child = self._child
        if child is not None and not self._closing:
            log.warning("replacing the engine", reason=reason)
            self._stop_requested = True
            await child.stop(self._stop_limit_s())

    async def close(self) -> None:
        """Stop the engine gracefully and start no other; on_exit is called for it."""
        self._closing = True
        self._stop_requested = True
        if self._replacement is not None:
            self._replacement.cancel()
        if self._child is not None:
            await self._child.stop(self._stop_limit_s())
        elif self._run_task is not None:
            self._run_task.cancel()
        if self._run_task is not None:
            await asyncio.gather(self._run_task, return_exceptions=True)
        self._state = EngineState.STOPPED

    def _stop_limit_s(self) -> float:
        return (self._settings.limits.stop_ms + _STOP_MARGIN_MS) / 1000

    def _running_child(self) -> EngineChild:
        if self._child is None:
            why = f": {self._last_exit.message}" if self._last_exit else ""
            raise UnavailableError(Reason.ENGINE_UNAVAILABLE, f"the engine is not running{why}")
        return self._child

    async def _run(self) -> None:
        """Run one engine after another until ``close``."""
        backoff = Backoff(_BACKOFF_FIRST_S, _BACKOFF_MAX_S)
        loop = asyncio.get_running_loop()
        while True:
            started_s = loop.time()
            ended = await self._live_once()
            self._last_exit = ended
            try:
                self._on_exit(ended)
            except Exception:
                # a defect in the handler must not end the supervision
                log.exception("handling the end of an engine failed")
            if self._closing:
                break
            self._state = EngineState.BACKING_OFF
            if ended.requested or loop.time() - started_s > _SOUND_AFTER_S:
                backoff.reset()
            if not ended.requested:
                await asyncio.sleep(backoff.next_pause_s())
        self._state = EngineState.STOPPED

    async def _live_once(self) -> EngineExit:
        self._start_failure = ""
        self._stop_requested = False
        self._given_up, self._busy_threads, self._hung = False, frozenset(), ()
        self._serves.clear()
        kills_before = memory_kill_count()
        child = EngineChild(
            self._settings,
            on_report=self._take_report,
            on_log_line=self._take_log_line,
            engine_command=self._engine_command,
        )
        try:
            await child.start()
        except OSError as error:
            self._spawned.set()
            message = f"the engine process cannot be started: {error}"
            return EngineExit(ExitCode.FAILED, message, "", lasting=False, requested=False)
        self._child = child
        self._state = EngineState.STARTING
        self._spawned.set()
        if self._closing:  # close() was called while the process was starting
            child.kill()
        probing = asyncio.create_task(self._probe(child), name="engine-probe")
        try:
            code = await child.wait()
        finally:
            probing.cancel()
            self._probes_missed = 0
            child.kill()
            marks = child.take_in_flight()
            self._child = None
            was_ready = self._ready.is_set()
            self._ready.clear()
            self._ready_report = None
            self._start_delay = ""
        requested = self._stop_requested or self._closing
        kind = _kind_of(code, memory_kill_count() - kills_before, given_up=self._given_up)
        starved = kind is EndKind.MEMORY and not requested
        what = (
            _describe_starved(code, self._settings)
            if starved
            else _describe(code, requested=requested, was_ready=was_ready)
        )
        ended = EngineExit(
            exit_code=code,
            message=self._start_failure or what,
            stderr_tail=child.stderr_tail,
            lasting=code in LASTING_EXIT_CODES,
            requested=requested,
            kind=kind,
            suspects=self._suspects(marks, kind, child.ended_ns, requested=requested),
        )
        self._fail_calls(ended)
        if not ended.requested:
            log.error("the engine ended unexpectedly", exit_code=code, message=ended.message)
        return ended

    async def _probe(self, child: EngineChild) -> None:
        """Kill the engine if it does not answer, such as when a pattern holds its interpreter."""
        probe = engine_pb2.EngineCommand(list_loggers=engine_pb2.ListLoggers())
        await self._serves.wait()
        while self._probes_missed < _PROBES_MISSED_MAX:
            await asyncio.sleep(self._probe_every_s)
            try:
                await self.call(probe, self._probe_timeout_s)
            except DeadlineExceededError:
                self._probes_missed += 1
                log.warning("the engine does not answer", missed_count=self._probes_missed)
            except UnavailableError:
                return
            else:
                self._probes_missed = 0
        self._start_failure = f"{self.stall}; it was killed"
        self._given_up = True
        ids = [each.thread_id for each in child.marks() or () if each.ended_ns is None]
        before = thread_times_s(ids)
        await asyncio.sleep(_OBSERVED_S)
        self._busy_threads = busy_threads(before, thread_times_s(ids))
        child.kill()

    def _fail_calls(self, ended: EngineExit) -> None:
        calls, self._calls = self._calls, {}
        for answer in calls.values():
            if not answer.done():
                answer.set_exception(
                    UnavailableError(
                        Reason.ENGINE_UNAVAILABLE, f"the engine ended: {ended.message}"
                    )
                )

    def _take_report(self, report: engine_pb2.EngineReport) -> None:
        self._serves.set()
        kind = report.WhichOneof("report")
        if kind in ("commit_offsets", "fetch_offsets") or report.call_id == 0:
            if kind == "failure":
                self._start_failure = report.failure.message
                return
            if kind == "start_delayed":
                self._start_delay = f"the Spark engine is up, but {report.start_delayed.reason}"
                return
            if kind == "ready":
                self._start_delay = ""
                self._state = EngineState.READY
                self._ready_report = report.ready
                self._ready.set()
            self._on_report(report)
            if kind == "replacement_requested" and self._replacement is None:
                self._replacement = asyncio.create_task(
                    self._replace(report.replacement_requested.reason), name="engine-replacement"
                )
            return
        answer = self._calls.get(report.call_id)
        if answer is not None and not answer.done():
            answer.set_result(report)

    def _take_log_line(self, line: bytes) -> None:
        logged = as_logged(line, self._settings.log_format)
        if logged:
            self._on_log_line(logged)

    def _suspects(
        self,
        marks: tuple[Mark, ...] | None,
        kind: EndKind,
        ended_ns: int | None,
        *,
        requested: bool,
    ) -> Suspects:
        """What may have ended the engine; after a replacement, the plugin calls that hang."""
        if not requested:
            by_itself = None if self._given_up else ended_ns
            return suspects(marks, kind, self._busy_threads, ended_ns=by_itself)
        hung = [each for each in marks or () if each in self._hung]
        return Suspects() if self._closing else suspects(hung, kind)

    async def _replace(self, reason: str) -> None:
        self._start_failure = f"{reason}; it was replaced"
        self._hung = (self._child.marks() if self._child is not None else None) or ()
        try:
            await self.restart(reason)
        finally:
            self._replacement = None


def _kind_of(code: int, memory_kill_count: int, *, given_up: bool) -> EndKind:
    """How an engine with exit code ``code`` ended."""
    if given_up:
        return EndKind.CRASH
    if code in _KILLED_CODES:
        return EndKind.MEMORY if memory_kill_count > 0 else EndKind.KILL
    return EndKind.MEMORY if code in _MEMORY_CODES else EndKind.CRASH


def _describe_starved(code: int, settings: EngineSettings) -> str:
    if code == ExitCode.HEAP_USED_UP:
        heap = settings.spark_conf.get(DRIVER_MEMORY, DEFAULT_DRIVER_MEMORY)
        by_connector = settings.memory_bytes is not None
        where = ENGINE_MEMORY if by_connector else f"{DRIVER_MEMORY} in DROVER_SPARK_CONF"
        return f"Spark's JVM ran out of its heap of {heap}: raise {where}"
    if settings.memory_bytes is not None:
        of = f" of {size_text(settings.memory_bytes)} ({ENGINE_MEMORY})"
    else:
        limit = memory_limit_bytes()
        of = f" of {size_text(limit)}" if limit is not None else ""
    if code == ExitCode.MEMORY_USED_UP:
        return f"the engine ended because the memory{of} was exhausted"
    what = "Spark's JVM" if code == ExitCode.SPARK_KILLED else "the engine"
    return f"the kernel killed {what} because the memory{of} was exhausted"


def _describe(code: int, *, requested: bool, was_ready: bool) -> str:
    """The meaning of an exit code without a message; a plugin may end the engine with any code."""
    if code == ExitCode.STOPPED and requested:
        return "the engine stopped"
    if code == ExitCode.DAMAGED:
        return (
            "the engine ended because code of a connector closed its connections or lowered a"
            f" limit of its process (exit code {code})"
        )
    if code > 128:
        return f"the engine was killed by signal {code - 128}"
    named = _CODES_WHILE_READY if was_ready else _CODES_AT_START
    meaning = f" ({ExitCode(code).name})" if code in named else ""
    return f"the engine ended with exit code {code}{meaning}"
