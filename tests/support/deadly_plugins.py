"""Connectors that end, block or disturb the process of their engine, and well-behaved ones.

``how`` names what a deadly connector does, ``where`` the call in which it does it.
"""

import ctypes
import decimal
import gc
import io
import locale
import logging
import os
import re
import resource
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from drover.connector import (
    ConfigDef,
    ConfigKey,
    ConfigType,
    SinkBatch,
    SinkConnector,
    SinkTask,
    SinkTaskContext,
    SourceBatch,
    SourceConnector,
    SourceTask,
    SourceTaskContext,
)
from tests.support.plugins_for_tests import Idle, IdleTask

_EXIT_CODE = 3
_ALLOCATED_BYTES = 1 << 24
_THREADS_AT_ONCE = 1_000


def _close_all() -> None:
    os.closerange(3, 4096)


@cache
def _close_stdout() -> None:
    """Only once: the number is soon that of another descriptor."""
    os.close(1)


def _fork_often() -> None:
    for _ in range(5):
        os.fork()


def _allocate() -> None:
    held = []
    while True:
        held.append(os.urandom(_ALLOCATED_BYTES))


@cache
def _start_threads() -> None:
    """Only once: endless threads use up the machine's."""
    for _ in range(_THREADS_AT_ONCE):
        threading.Thread(target=threading.Event().wait, daemon=True).start()


class _Unwritable(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(f"{len(text)} characters cannot be written")


def _replace_streams() -> None:
    sys.stdout = sys.stderr = _Unwritable()


def _change_process() -> None:
    """Change what all threads of the process share."""
    os.umask(0o777)
    sys.setswitchinterval(10)
    sys.setrecursionlimit(60)
    socket.setdefaulttimeout(0.001)
    locale.setlocale(locale.LC_ALL, "C")
    decimal.getcontext().prec = 1


def _delete_directory() -> None:
    directory = tempfile.mkdtemp()
    os.chdir(directory)
    Path(directory).rmdir()


def _silence() -> None:
    """Silence the log and the errors of all code."""
    logging.disable()
    logging.root.handlers.clear()
    warnings.simplefilter("error")
    gc.disable()
    sys.excepthook = lambda *_arguments: None
    threading.excepthook = lambda _arguments: None


def _lower_limits() -> None:
    for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC):
        resource.setrlimit(limit, (1, resource.getrlimit(limit)[1]))


#: What a deadly connector may do.
DEEDS: Mapping[str, Callable[[], object]] = {
    "exit": lambda: os._exit(_EXIT_CODE),
    "exit a second later": lambda: threading.Timer(1, os._exit, [_EXIT_CODE]).start(),
    "exit with 0": lambda: os._exit(0),
    "exit with the code of a missing Java": lambda: os._exit(81),
    "segfault": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "terminate": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "spin": lambda: re.match(r"(a+)+$", "a" * 64 + "b"),
    "sleep with the interpreter lock": lambda: ctypes.PyDLL(None).sleep(3600),
    "close all descriptors": _close_all,
    "fork": os.fork,
    "fork often": _fork_often,
    "close stdout": _close_stdout,
    "close sys.stdout": lambda: sys.stdout.close(),
    "hang": lambda: threading.Event().wait(),
    "allocate": _allocate,
    "start threads": _start_threads,
    "replace sys.stdout": _replace_streams,
    "change the process": _change_process,
    "clear sys.path": lambda: sys.path.clear(),
    "clear sys.modules": lambda: sys.modules.clear(),
    "clear os.environ": os.environ.clear,
    "delete the working directory": _delete_directory,
    "silence the log": _silence,
    "lower limits": _lower_limits,
    # a signal handler of Python is accepted on the main thread only
    "ignore SIGTERM": lambda: ctypes.CDLL(None).signal(signal.SIGTERM, 1),
}


class _Deadly:
    """Does its deed in one of the calls."""

    _how = ""
    _where = ""
    _delay_s = 0.0

    def prepare(self, config: Mapping[str, Any]) -> None:
        self._how, self._where = config["how"], config["where"]
        self._delay_s = float(config["delay.s"])

    def reach(self, where: str) -> None:
        if where == self._where:
            threading.Event().wait(self._delay_s)
            DEEDS[self._how]()


class _DeadlySourceTask(_Deadly, SourceTask):
    def start(self, context: SourceTaskContext) -> None:
        self.prepare(context.config)
        self.reach("start")

    def poll(self) -> SourceBatch | None:
        self.reach("poll")
        return None

    def stop(self) -> None:
        self.reach("stop")


class _DeadlySinkTask(_Deadly, SinkTask):
    def start(self, context: SinkTaskContext) -> None:
        self.prepare(context.config)
        self.reach("start")

    def write(self, batch: SinkBatch) -> str:
        self.reach("write")
        return ""

    def stop(self) -> None:
        self.reach("stop")


_KEYS = (
    ConfigKey("how", ConfigType.STRING),
    ConfigKey("where", ConfigType.STRING, "poll"),
    ConfigKey("delay.s", ConfigType.STRING, "0"),
)


class DeadlySource(SourceConnector):
    """A source that does its deed."""

    version = "1.0"
    task_class: ClassVar[type[SourceTask]] = _DeadlySourceTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(*_KEYS)

    def start(self, context: Any, config: Mapping[str, Any]) -> None:
        self._config = {name: str(config[name]) for name in ("how", "where", "delay.s")}

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [self._config for _ in range(max_tasks)]


class DeadlySink(SinkConnector):
    """A sink that does its deed."""

    version = "1.0"
    task_class: ClassVar[type[SinkTask]] = _DeadlySinkTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(*_KEYS)

    def start(self, context: Any, config: Mapping[str, Any]) -> None:
        self._config = {name: str(config[name]) for name in ("how", "where", "delay.s")}

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [self._config for _ in range(max_tasks)]


class _NotingTask(IdleTask):
    def start(self, context: SourceTaskContext) -> None:
        with Path(context.config["starts"]).open("a") as starts:
            starts.write("started\n")


class Noting(Idle):
    """A good connector; each start of its task adds a line to the file ``starts``."""

    task_class = _NotingTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef(ConfigKey("starts", ConfigType.STRING))

    def start(self, context: Any, config: Mapping[str, Any]) -> None:
        self._starts = str(config["starts"])

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [{"starts": self._starts} for _ in range(max_tasks)]
