"""run_service in a child process: signals, exit codes and one-line errors."""

import os
import signal
import socket
import tempfile
from collections.abc import Iterator

import pytest

from tests.support.forked import ForkedProcess, text_of

pytestmark = pytest.mark.e2e

PROGRAM = """
import asyncio, sqlite3, sys
from drover.errors import *
from drover.rpc.server import RpcServer
from drover.rpc.service import run_service
from drover.rpc.settings import ListenAddress, PositiveMs, ServiceSettings

class Settings(ServiceSettings):
    test_listen: ListenAddress = "127.0.0.1:0"
    pause_ms: PositiveMs = 10

async def serve(settings, stopping):
    {before}
    server = RpcServer(listen=settings.test_listen, internal=True)
    address = await server.start()
    print("ready", address, flush=True)
    await stopping.wait()
    {after}
    await server.drain(1)
    print("drained", flush=True)

run_service("test-service", Settings, serve, stop_max_s={stop_max_s})
"""


class Service:
    def __init__(
        self, before: str = "pass", after: str = "pass", stop_max_s: int = 60, **environment: str
    ) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("DROVER_")}
        program = PROGRAM.format(before=before, after=after, stop_max_s=stop_max_s)
        reading, writing = os.pipe()
        self._out = os.fdopen(reading)
        self._err = tempfile.TemporaryFile()  # noqa: SIM115 - closed in end()
        with os.fdopen(writing, "w") as out:
            self.process = ForkedProcess(
                ("-c", program),
                env={**clean, "DROVER_LOG_LEVEL": "WARNING", **environment},
                out=out,
                err=self._err,
            )

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def line(self) -> str:
        return self._out.readline().strip()

    def end(self) -> tuple[int, str, str]:
        """Wait for the exit; returns the exit code, the unread stdout and stderr."""
        with self._out, self._err:
            return self.process.wait(60), self._out.read(), text_of(self._err)


@pytest.fixture
def taken_address() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        yield f"127.0.0.1:{holder.getsockname()[1]}"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_exits_with_0(number: signal.Signals) -> None:
    service = Service()
    assert service.line().startswith("ready 127.0.0.1:")
    service.process.send_signal(number)
    assert service.end() == (0, "drained\n", "")


def test_a_second_signal_exits_at_once() -> None:
    service = Service(after='print("stuck", flush=True); await asyncio.Event().wait()')
    service.line()
    service.terminate()
    assert service.line() == "stuck"
    service.terminate()
    assert service.end() == (128 + signal.SIGTERM, "", "")


@pytest.mark.parametrize(
    ("after", "told"),
    [
        ("await asyncio.Event().wait()", ['"a task does not end"', "serve"]),
        ("import threading; threading.Event().wait()", ["in wait"]),
        ("asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)", ["in wait"]),
    ],
    ids=["a task", "the loop", "a thread"],
)
def test_one_that_does_not_end_tells_where_it_is_and_exits(after: str, told: list[str]) -> None:
    service = Service(before="import threading", after=after, stop_max_s=2)
    service.line()
    service.terminate()
    code, _, err = service.end()
    assert code == 1
    assert [text for text in told if text not in err] == []


def test_bad_settings_are_a_line_each() -> None:
    service = Service(DROVER_PAUSE_MS="many", DROVER_TEST_LISTEN="nowhere", DROVER_LOG_LEVEL="LOUD")
    code, out, err = service.end()
    assert (code, out) == (2, "")
    lines = err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("drover test-service: DROVER_") for line in lines)


def test_a_port_in_use_is_one_line(taken_address: str) -> None:
    code, out, err = Service(DROVER_TEST_LISTEN=taken_address).end()
    assert (code, out) == (1, "")
    assert err == (
        f"drover test-service: cannot listen on {taken_address}: the port is in use: "
        "stop the process that uses it, or choose another port\n"
    )


@pytest.mark.parametrize(
    ("fault", "expected_code", "text"),
    [
        ('raise DataLossError(Reason.LOG_CORRUPT, "record 5\\nof x")', 1, "record 5 of x"),
        ('raise InvalidArgumentError(Reason.INVALID_CONFIG, "ftp:// no")', 2, "ftp:// no"),
        ('raise PermissionError(13, "Permission denied", "/data")', 1, "/data: Permission denied"),
        ('raise sqlite3.DatabaseError("file is not a database")', 1, "file is not a database"),
        ('raise ExceptionGroup("g", [OSError(28, "No space left")])', 1, "No space left"),
        ("sys.exit(7)", 7, ""),
    ],
)
def test_a_fault_at_start_is_one_line(fault: str, expected_code: int, text: str) -> None:
    code, _, err = Service(before=fault).end()
    assert code == expected_code
    assert "Traceback" not in err
    if text:
        (line,) = err.splitlines()
        assert line.startswith("drover test-service: ")
        assert text in line
    else:
        assert err == ""


def test_a_defect_is_logged_with_its_trace_and_told_in_one_line() -> None:
    code, _, err = Service(before="dict()['missing']").end()
    assert code == 1
    logged, told = err.splitlines()
    assert '"exception"' in logged
    assert told == "drover test-service: failed by a defect: KeyError: 'missing'"


def test_a_child_process_does_not_disturb_grpc() -> None:
    service = Service(
        after=(
            "import subprocess; print(subprocess.run(['echo', 'child'], "
            "capture_output=True, text=True).stdout, end='', flush=True)"
        )
    )
    service.line()
    service.terminate()
    assert service.end() == (0, "child\ndrained\n", "")
