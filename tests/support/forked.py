"""Python programs in processes of their own, forked from one that has imported their modules.

The imports take most of the time of a short program, such as the ``drover`` command.
"""

import atexit
import importlib.util
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple

_ROOT = Path(__file__).parents[2]
_REQUEST_MAX_BYTES = 128 * 1024
#: Read when a process starts, so that a fork does not see a change.
_READ_AT_START = ("LD_PRELOAD", "PYTHONPATH", "PYTHONWARNINGS")


class Finished(NamedTuple):
    """A program that has ended, and what it wrote."""

    exit_code: int
    out: str
    err: str


class ForkedProcess:
    """A running program, which is killed when this process ends.

    Args:
        arguments: As Python's: ``-m``, a module and its arguments, or ``-c`` and a text.
        env: Its whole environment.
        out: Its stdout.
        err: Its stderr; by default this process's.
        stdin: Empty by default.
        cwd: Where it runs.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str],
        out: IO[Any],
        err: IO[Any] | None = None,
        stdin: IO[Any] | None = None,
        cwd: Path = _ROOT,
    ) -> None:
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.connect(str(_server()))
        request = json.dumps({"arguments": list(arguments), "cwd": str(cwd), "env": dict(env)})
        with Path(os.devnull).open("rb") as nothing:
            streams = [(stdin or nothing).fileno(), out.fileno(), err.fileno() if err else 2]
            socket.send_fds(self._connection, [request.encode()], streams)
        self.pid = int(self._connection.recv(32))
        self._exit_code: int | None = None

    def poll(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None while it runs."""
        if self._exit_code is None:
            self._connection.setblocking(False)
            with suppress(BlockingIOError):
                self._hear()
        return self._exit_code

    def wait(self, timeout_s: float | None = None) -> int:
        """As ``poll``, once it has ended.

        Raises:
            TimeoutError: It did not end in time.
        """
        if self._exit_code is None:
            self._connection.settimeout(timeout_s)
            self._hear()
        assert self._exit_code is not None
        return self._exit_code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _hear(self) -> None:
        self._exit_code = int(self._connection.recv(32))
        self._connection.close()


def may_fork(env: Mapping[str, str]) -> bool:
    """Whether a fork of this process's server sees all of an environment."""
    return all(env.get(name) == os.environ.get(name) for name in _READ_AT_START)


def run_forked(
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path = _ROOT,
    stdin: bytes = b"",
    timeout_s: float = 120.0,
) -> Finished:
    """Run a program to its end; ``arguments`` as of ``ForkedProcess``.

    Raises:
        TimeoutError or subprocess.TimeoutExpired: It did not end in time, and was killed.
    """
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        given.write(stdin)
        given.seek(0)
        process: ForkedProcess | subprocess.Popen[bytes]
        if may_fork(env):
            process = ForkedProcess(arguments, env=env, cwd=cwd, out=out, err=err, stdin=given)
        else:
            command = [sys.executable, *arguments]
            process = subprocess.Popen(
                command, stdin=given, stdout=out, stderr=err, env=env, cwd=cwd
            )
        try:
            exit_code = process.wait(timeout_s)
        finally:
            process.kill()
        return Finished(exit_code, text_of(out), text_of(err))


def text_of(file: IO[bytes]) -> str:
    """All that was written into a file."""
    file.seek(0)
    return file.read().decode()


@cache
def _server() -> Path:
    """Start the server of this process; where it listens."""
    directory = tempfile.TemporaryDirectory(prefix="drover-forks-")
    path = Path(directory.name) / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen(64)
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forked", str(listener.fileno())],
            cwd=_ROOT,
            env={**os.environ, "COLUMNS": "200"},
            stdin=subprocess.PIPE,  # ends with this process
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )

    def stop() -> None:
        server.kill()
        server.wait()
        directory.cleanup()

    atexit.register(stop)
    return path


def _serve(listener: socket.socket) -> None:
    """Fork for each request until stdin ends; returns in the forks, each of which is a program."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while sys.stdin.buffer not in select.select([listener, sys.stdin.buffer], [], [])[0]:
        connection, _ = listener.accept()
        text, streams, _, _ = socket.recv_fds(connection, _REQUEST_MAX_BYTES, 3)
        request = json.loads(text)
        if request["arguments"][0] == "-m":
            importlib.import_module(_module(request["arguments"][1]))
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if (pid := os.fork()) == 0:
                connection.close()
                return _run(request, streams)
            _close(streams)
            _watch(pid, connection)
        _close(streams)
        connection.close()
    return None


def _close(streams: Sequence[int]) -> None:
    for each in streams:
        os.close(each)


def _module(name: str) -> str:
    spec = importlib.util.find_spec(name)
    return f"{name}.__main__" if spec and spec.submodule_search_locations else name


def _watch(pid: int, connection: socket.socket) -> None:
    """Tell of a program's end; kill it when nobody waits for that any more."""
    connection.send(str(pid).encode())
    ended = os.pidfd_open(pid)
    if ended not in select.select([ended, connection.fileno()], [], [])[0]:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with suppress(OSError):
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _run(request: Mapping[str, Any], streams: Sequence[int]) -> None:
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
    _close(streams)
    os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    kind, program, *arguments = request["arguments"]
    sys.argv = [program, *arguments]
    if kind == "-m":
        del sys.modules[_module(program)]
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
