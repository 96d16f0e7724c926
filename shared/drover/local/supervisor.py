"""Runs a cluster as child processes, for `drover up` and `make run`.

The processes start in stages: coordinators and stores, then workers. A stage starts once all
processes of the previous one serve. A process that exits is restarted at the same address. A
process that is suspended while it holds a write lock of the storage is killed. The stages stop in
reverse order. If the supervisor is killed, the kernel kills its children.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

import psutil

from drover.local.process import (
    ProcessPhase,
    ProcessRestartPolicy,
    ProcessSpec,
    StartTimeoutError,
    SupervisedProcess,
)
from drover.local.state import (
    DATA_DIRECTORY,
    LOGS_DIRECTORY,
    ClusterError,
    ClusterState,
    DirectoryLock,
    ProcessState,
    remove_state,
    write_state,
)
from drover.local.suspended_writers import SuspendedWriters

#: Phases of a process that was started and has not served yet.
_NOT_SERVING = frozenset({ProcessPhase.STARTING, ProcessPhase.DEAD})
#: Called with a process's name and a description of its change.
EventHandler = Callable[[str, str], None]


def _ignore(_name: str, _text: str) -> None:
    return


class Supervisor:
    """Runs a cluster in one directory, which it locks from ``start`` to ``stop``."""

    def __init__(
        self,
        directory: Path,
        stages: Sequence[Sequence[ProcessSpec]],
        *,
        policy: ProcessRestartPolicy | None = None,
        on_event: EventHandler = _ignore,
        certificates: Path | None = None,
    ) -> None:
        self.directory = directory
        self._certificates = "" if certificates is None else str(certificates)
        self._on_event = on_event
        self._lock: DirectoryLock | None = None
        self._started_s = psutil.Process().create_time()
        self._stages = [
            [
                SupervisedProcess(
                    spec,
                    directory / LOGS_DIRECTORY / f"{spec.name}.log",
                    policy=policy or ProcessRestartPolicy(),
                    on_change=self._on_change,
                )
                for spec in stage
            ]
            for stage in stages
        ]
        self.processes = {p.spec.name: p for stage in self._stages for p in stage}
        self._freeing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start every process and return when all serve; on failure all are stopped.

        Raises:
            ClusterError: The directory is locked or cannot be written, or a process exited.
            StartTimeoutError: A process did not serve in time; the message names all of them.
        """
        self._lock = DirectoryLock(self.directory, self._on_event)
        writers = SuspendedWriters(self.directory / DATA_DIRECTORY, self._names, self._on_event)
        self._freeing = asyncio.create_task(writers.run())
        try:
            self._write_state()
            for stage in self._stages:
                await _all_or_first_error(process.start() for process in stage)
        except OSError as error:
            await self.stop()
            raise ClusterError(f"cannot use {self.directory}: {error.strerror}") from error
        except StartTimeoutError as error:
            begun = {n: p.phase for n, p in self.processes.items() if n != error.name}
            await self.stop()
            late = [n for n, phase in begun.items() if phase in _NOT_SERVING]
            text = f"{error}; does not serve either: {', '.join(late)}" if late else str(error)
            raise StartTimeoutError(error.name, text) from None
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop every process, the last stage first, and release the directory."""
        for stage in reversed(self._stages):
            await asyncio.gather(*(process.stop() for process in stage))
        if self._freeing is not None:
            self._freeing.cancel()
            self._freeing = None
        if self._lock is not None:
            remove_state(self.directory)
            self._lock.close()
            self._lock = None

    def process(self, name: str) -> SupervisedProcess:
        """The process with this name, such as "worker-1"."""
        return self.processes[name]

    def process_at(self, address: str) -> SupervisedProcess:
        """The process that serves at ``address``.

        Raises:
            KeyError: No process serves there.
        """
        for process in self.processes.values():
            if process.spec.address == address:
                return process
        raise KeyError(address)

    def addresses(self, prefix: str) -> list[str]:
        """The addresses of the processes whose names start with ``prefix``."""
        return [p.spec.address for name, p in self.processes.items() if name.startswith(prefix)]

    async def wait_until_serving(
        self, name: str, *, start_count: int = 1, timeout_s: float = 120.0
    ) -> None:
        """Wait until a process serves and was started at least ``start_count`` times.

        Raises:
            ClusterError: The timeout expired.
        """
        process = self.processes[name]
        end_s = time.monotonic() + timeout_s
        while process.phase is not ProcessPhase.SERVING or process.start_count < start_count:
            if time.monotonic() > end_s:
                raise ClusterError(f"{name} is {process.phase} after {timeout_s:g} s")
            await asyncio.sleep(0.05)

    def _names(self) -> dict[int, str]:
        return {p.pid: name for name, p in self.processes.items() if p.pid is not None}

    def _on_change(self, process: SupervisedProcess, text: str) -> None:
        if self._lock is not None:
            # a full disk must not stop a running cluster
            with contextlib.suppress(OSError):
                self._write_state()
        self._on_event(process.spec.name, text)

    def _write_state(self) -> None:
        processes = {
            name: ProcessState(
                process.pid, process.spec.address, str(process.log), process.spec.metrics_address
            )
            for name, process in self.processes.items()
        }
        state = ClusterState(os.getpid(), self._started_s, processes, self._certificates)
        write_state(self.directory, state)


async def _all_or_first_error(starts: Iterable[Awaitable[None]]) -> None:
    tasks = [asyncio.ensure_future(start) for start in starts]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def run_until_signal(supervisor: Supervisor, on_started: Callable[[], None]) -> None:
    """Run a cluster until SIGTERM or SIGINT.

    Raises:
        ClusterError: The cluster did not start.
    """
    loop = asyncio.get_running_loop()
    signalled = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled.set)
    start = asyncio.create_task(supervisor.start())
    end = asyncio.create_task(signalled.wait())
    try:
        await asyncio.wait({start, end}, return_when=asyncio.FIRST_COMPLETED)
        if start.done():
            await start
            on_started()
            await end
            await supervisor.stop()
        else:
            start.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await start
    finally:
        end.cancel()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
