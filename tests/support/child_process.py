"""A child process that ends when this process ends, for any reason."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import psutil

from tests.support.forked import ForkedProcess, may_fork
from tests.support.freezing import suspend
from tests.support.waiting import wait_until

START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 60
_SHOWN_BYTES = 4_000

#: The kernel sends the parent-death signal when the starting *thread* ends; this thread lives as
#: long as the process.
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="child-starter")


class ChildProcess:
    """A process that can be started, stopped and killed repeatedly; all output goes to one log
    file.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log_path: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log_path = log_path
        self._environment = {**os.environ, **(environment or {})}
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None

    def start(self, *, ready: Callable[[], object]) -> None:
        """Start it, and wait until ``ready`` is true; if the process ends before that, show its
        output.
        """
        assert not self.is_alive, f"{self.name} runs already"
        with self.log_path.open("ab") as log:
            self._process = self._launched(log)

        def is_ready() -> object:
            assert self.is_alive, f"{self.name} ended at its start: {self.shown_log()}"
            return ready()

        try:
            wait_until(is_ready, timeout_s=START_TIMEOUT_S, describe=self.shown_log)
        except BaseException:
            self.kill()
            raise

    def _launched(self, log: IO[bytes]) -> "subprocess.Popen[bytes] | ForkedProcess":
        python, *arguments = self._command
        if python == sys.executable and may_fork(self._environment):
            return ForkedProcess(arguments, env=self._environment, out=log, err=log)
        launch = [sys.executable, "-m", "drover.local.launch", str(os.getpid()), *self._command]
        return _starter.submit(
            subprocess.Popen,
            launch,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for us; we stop it in order
        ).result()

    def stop(self) -> int | None:
        """Stop gracefully with SIGTERM; returns the exit code, or None if it did not run.

        Raises:
            AssertionError: It did not end in time, and was killed.
        """
        if self._process is None or not self.is_alive:
            return None
        self._process.send_signal(signal.SIGTERM)
        self._process.send_signal(signal.SIGCONT)
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except (subprocess.TimeoutExpired, TimeoutError):
            self.kill()
            raise AssertionError(f"{self.name} did not stop: {self.shown_log()}") from None

    def kill(self) -> None:
        """Kill with SIGKILL; does nothing if the process does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def freeze(self) -> None:
        """Pause with SIGSTOP: connections stay open, no request is answered."""
        suspend(self._running().pid)

    def thaw(self) -> None:
        """Resume with SIGCONT."""
        self._running().send_signal(signal.SIGCONT)

    @property
    def is_alive(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id, also of the last process after it ended."""
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    def memory_bytes(self) -> int:
        """Its resident memory."""
        return int(psutil.Process(self._running().pid).memory_info().rss)

    def log(self) -> str:
        """Its whole output."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def shown_log(self) -> str:
        """The path of its log, and the last lines."""
        return f"see {self.log_path}, which ends with:\n{self.log()[-_SHOWN_BYTES:]}"

    def _running(self) -> subprocess.Popen[bytes] | ForkedProcess:
        assert self._process is not None
        assert self.is_alive, f"{self.name} does not run: {self.shown_log()}"
        return self._process
