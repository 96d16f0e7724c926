"""One supervised process: its start, health check, restart and stop."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import psutil

from drover.backoff import Backoff
from drover.errors import InvalidArgumentError
from drover.local import health
from drover.local.state import ClusterError
from drover.private_files import open_private
from drover.python_process import python_environment, script_command
from drover.security.certificates import Certificate

_LAUNCHER = Path(__file__).with_name("launch.py")
_TAIL_BYTES = 64 * 1024
_KILL_WAIT_S = 5.0
_LAST_ASK_S = 5.0


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """A process to run.

    Attributes:
        name: Such as "worker-1".
        argv: The program and its arguments.
        address: host:port of its server, which answers health checks: ``grpc.health.v1``, or
            ``/health`` over HTTP.
        env: Added to the supervisor's environment.
        stop_grace_s: Time between SIGTERM and SIGKILL.
        metrics_address: host:port of its metrics; empty for none.
        over_http: Whether its server is an HTTP server.
    """

    name: str
    argv: Sequence[str]
    address: str
    env: Mapping[str, str] = field(default_factory=dict)
    stop_grace_s: float = 15.0
    metrics_address: str = ""
    over_http: bool = False


@dataclass(frozen=True, slots=True)
class ProcessRestartPolicy:
    """Restart back-off: the pause doubles after each exit, and is reset after a stable run.

    Attributes:
        first_s: The first pause.
        max_s: The longest pause.
        recovered_after_s: A process that ran this long has recovered; the back-off is reset.
        serving_timeout_s: At the first start, the time until the process serves, including the
            start of a worker's Spark. After a restart, the time until it answers health checks.
        wait_reported_after_s: A start that takes longer is reported, with the reason.
    """

    first_s: float = 1.0
    max_s: float = 30.0
    recovered_after_s: float = 30.0
    serving_timeout_s: float = 120.0
    wait_reported_after_s: float = 2.0


class ProcessPhase(StrEnum):
    """The state of a supervised process."""

    STARTING = "starting"
    SERVING = "serving"
    DEAD = "dead"
    STOPPED = "stopped"


class StartTimeoutError(ClusterError):
    """A process did not serve in time at its first start, and was killed.

    Attributes:
        name: The process.
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class SupervisedProcess:
    """Keeps one process running until ``stop``; its output is appended to ``log``."""

    def __init__(
        self,
        spec: ProcessSpec,
        log: Path,
        *,
        policy: ProcessRestartPolicy,
        on_change: Callable[["SupervisedProcess", str], None],
    ) -> None:
        self.spec = spec
        self.log = log
        self.phase = ProcessPhase.STOPPED
        self.pid: int | None = None
        self.start_count = 0
        #: Monotonic time of the last start.
        self.started_s = 0.0
        self._policy = policy
        self._on_change = on_change
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        #: Whether a wait with a reason, and one without, were reported since the last start.
        self._reported: set[bool] = set()
        #: Why the supervisor killed it before it served; empty otherwise.
        self._given_up = ""
        self._stopping = asyncio.Event()
        self._may_start = asyncio.Event()
        self._may_start.set()

    async def start(self) -> None:
        """Start the process and return when it serves; after that it is restarted when it exits.

        Raises:
            ClusterError: The process exited before it served.
            StartTimeoutError: It did not serve in time.
        """
        served = asyncio.get_running_loop().create_future()
        self._keeper = asyncio.create_task(self._keep(served), name=f"keep {self.spec.name}")
        await served

    def hold(self) -> None:
        """Do not restart the process after an exit until ``release``."""
        self._may_start.clear()

    def release(self) -> None:
        """End a ``hold``."""
        self._may_start.set()

    def kill(self) -> None:
        """Send SIGKILL to the process, without its children, as in a crash."""
        self.send(signal.SIGKILL)

    def send(self, signal_number: signal.Signals) -> None:
        """Send a signal to the process, without its children; no effect if it does not run."""
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal_number)

    async def stop(self) -> None:
        """Stop it: SIGTERM, then SIGKILL of its process tree after the grace."""
        self._stopping.set()
        keeper, process = self._keeper, self._process
        if keeper is None:
            return
        if process is not None and process.returncode is None:
            tree = descendants(process.pid)
            self.send(signal.SIGTERM)
            # a process suspended by SIGSTOP does not handle SIGTERM
            self.send(signal.SIGCONT)
            try:
                async with asyncio.timeout(self.spec.stop_grace_s):
                    await process.wait()
            except TimeoutError:
                self._on_change(self, f"did not stop in {self.spec.stop_grace_s:g} s: killed")
                tree += descendants(process.pid)
                self.send(signal.SIGKILL)
                await process.wait()
            await kill_all(tree)
        keeper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeper
        self.phase = ProcessPhase.STOPPED
        self.pid = None

    async def _keep(self, served: asyncio.Future[None]) -> None:
        backoff = Backoff(self._policy.first_s, self._policy.max_s)
        while not self._stopping.is_set():
            try:
                process = await self._spawn()
            except OSError as error:
                text = f"cannot start {self.spec.name}: {error.strerror or error}"
                if not served.done():
                    served.set_exception(ClusterError(text))
                    return
                self._change(ProcessPhase.DEAD, text)
                await asyncio.sleep(backoff.next_pause_s())
                continue
            exit_code = await self._watch(process, served)
            self.pid = None
            if self._stopping.is_set():
                return
            if not served.done():
                served.set_exception(self._early_death(exit_code))
                return
            if time.monotonic() - self.started_s > self._policy.recovered_after_s:
                backoff.reset()
            pause_s = backoff.next_pause_s()
            self._change(
                ProcessPhase.DEAD, f"died ({describe_exit(exit_code)}), restart in {pause_s:g} s"
            )
            await asyncio.sleep(pause_s)
            await self._may_start.wait()

    async def _spawn(self) -> asyncio.subprocess.Process:
        self.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open_private(self.log) as output:
            stamp = time.strftime("%Y-%m-%d %H:%M:%S")
            size_kib = output.tell() // 1024
            output.write(f"--- {stamp} start of {self.spec.name}, log {size_kib} KiB\n".encode())
            output.flush()
            self._process = await asyncio.create_subprocess_exec(
                *script_command(_LAUNCHER, str(os.getpid()), *self.spec.argv),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={
                    **python_environment({**os.environ, **self.spec.env}),
                    "PYTHONUNBUFFERED": "1",
                },
                # keeps Ctrl-C from the children: the supervisor stops them in order
                start_new_session=True,
            )
        self.pid = self._process.pid
        self.start_count += 1
        self._reported.clear()
        self.started_s = time.monotonic()
        self._change(ProcessPhase.STARTING, f"started, pid {self.pid}")
        return self._process

    async def _watch(
        self, process: asyncio.subprocess.Process, served: asyncio.Future[None]
    ) -> int:
        """Wait until the process exits; reports when it serves."""
        certificate = self._certificate()

        def over() -> bool:
            return self._stopping.is_set() or process.returncode is not None

        while not over():
            if await health.wait_until_serving(
                self.spec.address,
                self._policy.serving_timeout_s,
                certificate=certificate,
                over_http=self.spec.over_http,
                given_up=over,
                on_wait=self._report_wait,
            ):
                self._serves(process, served)
                break
            if over():
                break
            async with health.open_channel(
                self.spec.address, certificate, over_http=self.spec.over_http
            ) as channel:
                answer = await channel.ask(_LAST_ASK_S)
            if answer.status == "UNREACHABLE" or not served.done():
                await self._give_up(process.pid, answer)
                break
            self._change(ProcessPhase.STARTING, f"is {answer}")
        return await process.wait()

    def _report_wait(self, answer: health.Health) -> None:
        """Report once for each start, if it takes long, what the process waits for.

        That it does not answer yet is reported later: most processes answer within seconds.
        """
        after_s = self._policy.wait_reported_after_s * (1 if answer.why else 5)
        text = f"waits: {answer.why}" if answer.why else "is still starting"
        has_reason = bool(answer.why)
        if has_reason in self._reported or time.monotonic() - self.started_s < after_s:
            return
        self._reported.add(has_reason)
        self._on_change(self, text)

    def _serves(self, process: asyncio.subprocess.Process, served: asyncio.Future[None]) -> None:
        if process.returncode is None:
            self._change(ProcessPhase.SERVING, f"serves at {self.spec.address}")
            if not served.done():
                served.set_result(None)

    async def _give_up(self, pid: int, answer: health.Health) -> None:
        after_s = self._policy.serving_timeout_s
        self._given_up = f"does not serve after {after_s:g} s, is {answer}"
        self._change(ProcessPhase.DEAD, f"{self._given_up}: killed")
        tree = descendants(pid)
        self.send(signal.SIGKILL)
        await kill_all(tree)

    def _certificate(self) -> Certificate | None:
        """The process's certificate; None if it is unusable, as the process then exits at once."""
        with contextlib.suppress(InvalidArgumentError):
            return health.own_certificate({**os.environ, **self.spec.env})
        return None

    def _early_death(self, exit_code: int) -> ClusterError:
        name, log = self.spec.name, f"log: {self.log}"
        if self._given_up:
            return StartTimeoutError(name, f"{name} {self._given_up} — {log}")
        cause = last_line(self.log) or "no output"
        return ClusterError(
            f"{name} stopped at its start ({describe_exit(exit_code)}): {cause} — {log}"
        )

    def _change(self, phase: ProcessPhase, text: str) -> None:
        self.phase = phase
        self._on_change(self, text)


def describe_exit(exit_code: int) -> str:
    """An exit code for people: "exit 1", "SIGKILL"."""
    if exit_code >= 0:
        return f"exit {exit_code}"
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"


def last_line(log: Path) -> str:
    """The last non-empty line of a log, except start marks; empty if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    output = [line.strip() for line in lines if line.strip() and not line.startswith("--- ")]
    return output[-1] if output else ""


def descendants(pid: int) -> list[psutil.Process]:
    """Every descendant process of ``pid`` that runs, deepest last."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


async def kill_all(processes: Sequence[psutil.Process], wait_s: float = _KILL_WAIT_S) -> None:
    """Kill the processes, and wait at most ``wait_s`` until they have ended."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    await wait_until_gone(processes, wait_s)


async def wait_until_gone(
    processes: Sequence[psutil.Process], wait_s: float
) -> list[psutil.Process]:
    """Wait at most ``wait_s`` until the processes have ended; returns the remaining ones."""
    end_s = time.monotonic() + wait_s
    while left := [process for process in processes if is_alive(process)]:
        if time.monotonic() > end_s:
            return left
        await asyncio.sleep(0.02)
    return []


def is_alive(process: psutil.Process) -> bool:
    """Whether the process runs; False for a zombie."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
