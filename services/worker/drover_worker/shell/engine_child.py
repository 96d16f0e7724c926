"""One engine process from the herder's side: start, exchange of messages, end."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import structlog

import drover
import drover_worker
from drover.api.engine.v1 import engine_pb2
from drover.config.plugin_modules import MODULES_VARIABLE
from drover.policy.egress import PROXY_VARIABLES
from drover.python_process import python_command, python_environment
from drover_worker.engine import framing, process_tree
from drover_worker.engine.in_flight import Mark, new_table, read_table
from drover_worker.engine.process_constants import (
    DATA_LIMIT_VARIABLE,
    DIRECTORY_PREFIX,
    DIRECTORY_VARIABLE,
    GROUPS_VARIABLE,
    IN_FLIGHT_VARIABLE,
    TREE_VARIABLE,
)
from drover_worker.engine.settings import EngineSettings
from drover_worker.shell.control_groups import CORES, MEMORY, ControlGroup, create_group
from drover_worker.shell.engines import LimitKind, LimitsInForce

#: Variables of the herder that the engine's process has from its start, because Python, the dynamic
#: linker and libraries read them early; they contain no secrets. The others follow in the first
#: message.
_INHERITED = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"}
)
_INHERITED_PREFIXES = ("PYTHON", "LC_", "LD_", "GLIBC_", "MALLOC_", "OMP_")
_OUTGOING_MAX = 1024
_TAIL_LINES = 60
_LINE_MAX_BYTES = 64 * 1024
_SWEEP_LIMIT_S = 5.0
#: How long the guard may take to kill its tree before it is killed.
_KILL_LIMIT_S = 5.0
#: How long to read standard error after the end, as another process may hold it open.
_STDERR_LIMIT_S = 1.0

log = structlog.get_logger(__name__)


class EngineChild:
    """A guard process with an engine below it, and the stream to the engine."""

    def __init__(
        self,
        settings: EngineSettings,
        *,
        on_report: Callable[[engine_pb2.EngineReport], None],
        on_log_line: Callable[[bytes], None],
        guard_command: Sequence[str] = (),
        engine_command: Sequence[str] = (),
    ) -> None:
        """Start nothing yet.


        Args:
            settings: The engine's settings.
            on_report: Called on the event loop for each message of the engine, in order.
            on_log_line: Called for each line that the process tree writes to its output or error.
            guard_command: Replaces the real guard in tests.
            engine_command: Replaces the real engine in tests.
        """
        python = settings.python_executable
        self._settings = settings
        self._on_report = on_report
        self._on_log_line = on_log_line
        self._guard_command = guard_command or python_command("drover_worker.engine", python=python)
        self._engine_command = engine_command or python_command(
            "drover_worker.engine.process", python=python
        )
        self._tree_id = uuid.uuid4().hex
        self._directory = Path(tempfile.gettempdir()) / f"{DIRECTORY_PREFIX}{self._tree_id}"
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._outgoing: asyncio.Queue[bytes] = asyncio.Queue(_OUTGOING_MAX)
        self._process: asyncio.subprocess.Process | None = None
        self._lifeline: int | None = None
        self._in_flight: int | None = None
        self._ended_ns: int | None = None
        self._group: ControlGroup | None = None
        self._pumps: list[asyncio.Task[None]] = []
        self._writer: asyncio.StreamWriter | None = None
        self._stderr_transport: asyncio.ReadTransport | None = None

    @property
    def process_id(self) -> int | None:
        """The guard's process id, once started."""
        return self._process.pid if self._process else None

    @property
    def tree_id(self) -> str:
        """The mark in the environment (TREE_VARIABLE) of every process of this tree."""
        return self._tree_id

    @property
    def limits(self) -> LimitsInForce:
        """What enforces the limits of the settings, once started."""
        by_group = self._group.limits if self._group is not None else ()
        memory = cores = LimitKind.NONE
        if self._settings.memory_bytes is not None:
            memory = LimitKind.CONTROL_GROUP if MEMORY in by_group else LimitKind.RLIMIT
        if self._settings.cores is not None:
            cores = LimitKind.CONTROL_GROUP if CORES in by_group else LimitKind.SPARK
        return LimitsInForce(memory, cores)

    @property
    def stderr_tail(self) -> str:
        """The last lines of the process tree's standard error."""
        return "\n".join(self._tail)

    def marks(self) -> tuple[Mark, ...] | None:
        """What is at work now, and what was last; None if unknown."""
        return read_table(self._in_flight) if self._in_flight is not None else None

    def take_in_flight(self) -> tuple[Mark, ...] | None:
        """What was at work when the engine ended; None if unknown. Call once, at the end."""
        descriptor, self._in_flight = self._in_flight, None
        if descriptor is None:
            return None
        try:
            return read_table(descriptor)
        finally:
            os.close(descriptor)

    @property
    def ended_ns(self) -> int | None:
        """When the engine ended or closed its stream, by the monotonic clock; None before."""
        return self._ended_ns

    async def start(self) -> None:
        """Start the processes; does not wait for the engine."""
        ours, theirs = socket.socketpair()
        lifeline_read, lifeline_write = os.pipe2(os.O_CLOEXEC)
        # an own pipe: asyncio's wait() would wait for every process that holds its pipe open
        stderr_read, stderr_write = os.pipe2(os.O_CLOEXEC)
        self._in_flight = new_table()
        settings = self._settings
        self._group = create_group(
            f"{DIRECTORY_PREFIX}{self._tree_id}",
            memory_bytes=settings.memory_bytes,
            cores=settings.cores,
        )
        environment = {**self._environment(), **self._limit_variables()}
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._guard_command,
                str(os.getpid()),
                str(lifeline_read),
                str(theirs.fileno()),
                *self._engine_command,
                str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=stderr_write,  # plugins print to it
                stderr=stderr_write,
                pass_fds=(lifeline_read, theirs.fileno(), self._in_flight),
                env={**environment, IN_FLIGHT_VARIABLE: str(self._in_flight)},
                start_new_session=True,  # Ctrl-C reaches the herder only, which stops the engine
            )
        except BaseException:
            ours.close()
            os.close(lifeline_write)
            os.close(stderr_read)
            self.take_in_flight()
            if self._group is not None:
                self._group.remove()
            raise
        finally:
            theirs.close()
            os.close(lifeline_read)
            os.close(stderr_write)
        self._lifeline = lifeline_write
        ours.setblocking(False)
        reader, self._writer = await asyncio.open_connection(sock=ours)
        await self.send(self._start_command(environment))
        stderr = asyncio.StreamReader(limit=_LINE_MAX_BYTES)
        self._stderr_transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stderr), os.fdopen(stderr_read, "rb")
        )
        self._pumps = [
            asyncio.create_task(self._pump_reports(reader), name="engine-reports"),
            asyncio.create_task(self._pump_commands(self._writer), name="engine-commands"),
            asyncio.create_task(self._pump_stderr(stderr), name="engine-stderr"),
        ]

    async def send(self, command: engine_pb2.EngineCommand) -> None:
        """Queue a command; waits while the queue is full."""
        await self._outgoing.put(framing.encode_frame(command))

    def terminate(self) -> None:
        """Ask the engine to stop gracefully."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Make the guard kill the process tree immediately."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None

    async def wait(self) -> int:
        """Wait for the end and clean up; all reports have been delivered when it returns.

        Returns:
            The exit code, 128 + N after signal N.
        """
        assert self._process is not None
        code = await self._process.wait()
        self._note_end()
        reports, commands, stderr = self._pumps
        await asyncio.to_thread(self._sweep)
        await asyncio.wait([reports, stderr], timeout=_STDERR_LIMIT_S)
        for pump in (reports, commands, stderr):
            pump.cancel()
        await asyncio.gather(reports, commands, stderr, return_exceptions=True)
        self.kill()
        for open_end in (self._writer, self._stderr_transport):
            if open_end is not None:
                open_end.close()
        return code if code >= 0 else 128 - code

    async def stop(self, limit_s: float) -> None:
        """Stop gracefully within ``limit_s`` seconds, then kill; needs a concurrent ``wait``."""
        assert self._process is not None
        self.terminate()
        for force, patience_s in (
            (self.kill, limit_s),
            (self._kill_guard, _KILL_LIMIT_S),
        ):
            try:
                async with asyncio.timeout(patience_s):
                    await self._process.wait()
                return
            except TimeoutError:
                force()
        await self._process.wait()

    def _sweep(self) -> None:
        """Clean up after a guard that was killed."""
        process_tree.kill_marked(TREE_VARIABLE, self._tree_id, _SWEEP_LIMIT_S)
        shutil.rmtree(self._directory, ignore_errors=True)
        if self._group is not None:
            self._group.remove(_SWEEP_LIMIT_S)

    def _kill_guard(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def _environment(self) -> dict[str, str]:
        """The variables that the processes have from their start, without secrets."""
        roots = [str(Path(str(module.__file__)).parents[1]) for module in (drover, drover_worker)]
        inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        path = dict.fromkeys(part for part in (*roots, *inherited) if part)
        return {
            **{
                name: value
                for name, value in python_environment(os.environ).items()
                if name in _INHERITED or name.startswith(_INHERITED_PREFIXES)
            },
            **self._settings.policy_variables(),
            "PYTHONPATH": os.pathsep.join(path),
            "PYTHONUNBUFFERED": "1",
            MODULES_VARIABLE: self._settings.plugin_modules,
            TREE_VARIABLE: self._tree_id,
            DIRECTORY_VARIABLE: str(self._directory),
        }

    def _limit_variables(self) -> dict[str, str]:
        """Variables with the limits of the processes."""
        variables = {}
        if self._group is not None:
            variables[GROUPS_VARIABLE] = os.pathsep.join(self._group.member_files())
        if self.limits.memory is LimitKind.RLIMIT:
            variables[DATA_LIMIT_VARIABLE] = str(self._settings.memory_bytes)
            # Arrow's allocator would otherwise take a GiB at its start, which would count
            variables["MIMALLOC_ARENA_EAGER_COMMIT"] = "0"
        return variables

    def _start_command(self, environment: Mapping[str, str]) -> engine_pb2.EngineCommand:
        """The first message, with the variables that are not in ``environment``.

        Variables for proxies are left out: a proxy would connect without a check of hosts.
        """
        others = [
            name + b"=" + value
            for name, value in os.environb.items()
            if os.fsdecode(name) not in environment.keys() | PROXY_VARIABLES
        ]
        start = engine_pb2.StartEngine(variables=others, settings=self._settings.to_json())
        return engine_pb2.EngineCommand(start_engine=start)

    async def _pump_reports(self, reader: asyncio.StreamReader) -> None:
        while True:
            try:
                report = await framing.receive_async(reader, engine_pb2.EngineReport)
            except framing.FramingError as error:
                log.error("the stream from the engine is broken", error=str(error))
                self.kill()
                return
            except OSError:  # the engine ended before it read all commands
                report = None
            if report is None:
                self._note_end()
                return
            try:
                self._on_report(report)
            except Exception:
                # a defect in the handler must not end the stream
                log.exception(
                    "handling a report of the engine failed", report=report.WhichOneof("report")
                )

    def _note_end(self) -> None:
        if self._ended_ns is None:
            self._ended_ns = time.monotonic_ns()

    async def _pump_commands(self, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while True:
                writer.write(await self._outgoing.get())
                await writer.drain()

    async def _pump_stderr(self, stream: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await stream.readuntil(b"\n")
            except asyncio.IncompleteReadError as error:
                line = error.partial
                if not line:
                    return
            except asyncio.LimitOverrunError:
                line = await stream.read(_LINE_MAX_BYTES)
            self._tail.append(line.decode(errors="replace").rstrip("\n"))
            self._on_log_line(line)


def write_to_stderr(line: bytes) -> None:
    """Write a line of the engine to this process's standard error."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(line.decode(errors="replace"))
        sys.stderr.flush()
