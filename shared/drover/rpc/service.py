"""Running a service as a process: settings, logs, signals, and one clear line when it fails."""

import asyncio
import faulthandler
import os
import signal
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from typing import NoReturn, TypeVar

import structlog

from drover.errors import DroverError, InternalError, InvalidArgumentError
from drover.rpc.logs import configure_logging
from drover.rpc.open_files import raise_open_files
from drover.rpc.settings import ServiceSettings, load_settings

SettingsT = TypeVar("SettingsT", bound=ServiceSettings)

EXIT_FAILED = 1
EXIT_BAD_SETTINGS = 2
#: Longer than a store needs to end in order, brokers that are away included.
STOP_MAX_S = 45.0
TELL_TASKS_S = 1.0
_log = structlog.get_logger("drover.rpc")


def run_service(
    service: str,
    settings_type: type[SettingsT],
    serve: Callable[[SettingsT, asyncio.Event], Awaitable[None]],
    *,
    stop_max_s: float = STOP_MAX_S,
) -> NoReturn:
    """Run a service until SIGTERM or SIGINT; the whole of a ``__main__``.

    ``serve(settings, stopping)`` opens what it needs, starts its server, waits for ``stopping``,
    drains and returns; the process then exits with 0. A second signal exits at once. One that does
    not end in ``stop_max_s`` never would: it tells where its tasks and threads are, and exits with
    1. What goes wrong is one line on stderr: exit 2 for settings and other bad input, 1 for the
    rest. Only a defect is logged with its trace.

    Args:
        service: Such as "config-store"; in every log event and error line.
        settings_type: Read from the environment.
        serve: The service.
        stop_max_s: Longer than it needs to end in order.
    """
    try:
        settings = load_settings(settings_type)
    except InvalidArgumentError as error:
        for violation in error.violations:
            _complain(service, f"{violation.field}: {violation.description}")
        sys.exit(EXIT_BAD_SETTINGS)
    configure_logging(service, settings.log_level, settings.log_format)
    raise_open_files()
    try:
        asyncio.run(_run(settings, serve, stop_max_s))
    except BaseException as error:  # noqa: BLE001 - the process ends here either way
        sys.exit(_explain(service, error))
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
        loop.call_later(stop_max_s - TELL_TASKS_S, _tell_tasks, loop)
        # also where the loop stands still, or has ended
        faulthandler.dump_traceback_later(stop_max_s, exit=True)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    await serve(settings, stopping)


def _tell_tasks(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        _log.error("a task does not end", task=task.get_name(), at=_places(task.get_coro()))


def _places(waiting: object) -> list[str]:
    """Where a coroutine waits, and where what it waits for does."""
    places = []
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "ag_frame", None)
        if frame is not None:
            places.append(
                f"{frame.f_code.co_qualname} in {frame.f_code.co_filename}:{frame.f_lineno}"
            )
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "ag_await", None)
    return places


def _explain(service: str, error: BaseException) -> int:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else EXIT_FAILED
    if isinstance(error, KeyboardInterrupt):  # before the signal handlers were there
        return 128 + signal.SIGINT
    if isinstance(error, InvalidArgumentError):
        _complain(service, error.message)
        return EXIT_BAD_SETTINGS
    if isinstance(error, DroverError) and not isinstance(error, InternalError):
        _complain(service, error.message)
        return EXIT_FAILED
    if isinstance(error, OSError):
        _complain(service, _os_error_text(error))
        return EXIT_FAILED
    if isinstance(error, sqlite3.Error):
        _complain(service, f"SQLite: {error}")
        return EXIT_FAILED
    _log.error("the service failed by a defect", exc_info=error)
    _complain(service, f"failed by a defect: {type(error).__name__}: {error}")
    return EXIT_FAILED


def _os_error_text(error: OSError) -> str:
    text = error.strerror or str(error)
    return f"{error.filename}: {text}" if error.filename else text


def _complain(service: str, text: str) -> None:
    line = " ".join(text.split())
    print(f"drover {service}: {line}", file=sys.stderr, flush=True)  # noqa: T201
