"""Runs a service as a process: settings, logs, signals, and one error line if it fails."""

import asyncio
import faulthandler
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import NoReturn, TypeVar

import structlog

from drover.errors import DroverError, InternalError, InvalidArgumentError
from drover.rpc.logs import configure_logging
from drover.rpc.open_files import raise_open_files
from drover.rpc.settings import ProcessSettings, load_settings

SettingsT = TypeVar("SettingsT", bound=ProcessSettings)

EXIT_FAILED = 1
EXIT_BAD_SETTINGS = 2
#: Longer than the graceful stop of a store takes, even if no broker responds.
STOP_MAX_S = 45.0
LOG_TASKS_S = 1.0
_log = structlog.get_logger("drover.rpc")


def run_service(
    service: str,
    settings_type: type[SettingsT],
    serve: Callable[[SettingsT, asyncio.Event], Awaitable[None]],
    *,
    stop_max_s: float = STOP_MAX_S,
) -> NoReturn:
    """Run a service until SIGTERM or SIGINT, and exit; the body of a ``__main__`` module.

    ``serve(settings, stopping)`` opens its resources, starts its server, waits for ``stopping``,
    drains and returns; the process then exits with 0. A second signal exits immediately. If the
    process does not end within ``stop_max_s``, it logs the stacks of its tasks and threads and
    exits with 1. An error is one line on stderr, with exit code 2 for settings and other invalid
    input, otherwise 1. Only a defect is logged with a traceback.

    Args:
        service: The name in every log event and error line, such as "config-store".
        settings_type: The type of settings to read from the environment.
        serve: Runs the service.
        stop_max_s: The time limit of a graceful stop.
    """
    try:
        settings = load_settings(settings_type)
    except InvalidArgumentError as error:
        for violation in error.violations:
            _print_error(service, f"{violation.field}: {violation.description}")
        sys.exit(EXIT_BAD_SETTINGS)
    configure_logging(service, settings.log_level, settings.log_format)
    raise_open_files()
    try:
        asyncio.run(_run(settings, serve, stop_max_s))
    except BaseException as error:  # noqa: BLE001 - the process ends here either way
        sys.exit(_report(service, error))
    sys.exit(0)


async def _run(
    settings: SettingsT,
    serve: Callable[[SettingsT, asyncio.Event], Awaitable[None]],
    stop_max_s: float,
) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        _log.info("stopping", signal=number.name)
        stopping.set()
        loop.call_later(stop_max_s - LOG_TASKS_S, _log_tasks, loop)
        # runs in a separate thread, so it works if the event loop is blocked or has ended
        faulthandler.dump_traceback_later(stop_max_s, exit=True)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    await serve(settings, stopping)


def _log_tasks(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        _log.error("a task does not end", task=task.get_name(), at=_await_stack(task.get_coro()))


def _await_stack(coroutine: object) -> list[str]:
    """The code locations of a coroutine and of the chain of coroutines that it awaits."""
    locations = []
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "ag_frame", None)
        if frame is not None:
            locations.append(
                f"{frame.f_code.co_qualname} in {frame.f_code.co_filename}:{frame.f_lineno}"
            )
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "ag_await", None)
    return locations


def _report(service: str, error: BaseException) -> int:
    """Print the error line of a failed service; returns the exit code."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else EXIT_FAILED
    if isinstance(error, KeyboardInterrupt):  # before the signal handlers were set
        return 128 + signal.SIGINT
    if isinstance(error, InvalidArgumentError):
        _print_error(service, error.message)
        return EXIT_BAD_SETTINGS
    if isinstance(error, DroverError) and not isinstance(error, InternalError):
        _print_error(service, error.message)
        return EXIT_FAILED
    if isinstance(error, OSError):
        _print_error(service, _os_error_text(error))
        return EXIT_FAILED
    import sqlite3  # only here: a service without a database does not load it

    if isinstance(error, sqlite3.Error):
        _print_error(service, f"SQLite: {error}")
        return EXIT_FAILED
    _log.error("the service failed by a defect", exc_info=error)
    _print_error(service, f"failed by a defect: {type(error).__name__}: {error}")
    return EXIT_FAILED


def _os_error_text(error: OSError) -> str:
    text = error.strerror or str(error)
    return f"{error.filename}: {text}" if error.filename else text


def _print_error(service: str, text: str) -> None:
    line = " ".join(text.split())
    print(f"drover {service}: {line}", file=sys.stderr, flush=True)  # noqa: T201
