"""The JVMs that run Java plugins: one for the plugins of a connector, shared by its tasks and by
other connectors of the same plugins, or one for a single task.

Kafka Connect's runtime and the plugins are in a process of their own, so they share neither class
path nor memory with Spark's JVM, and its end concerns only the tasks that ran in it.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import structlog

from drover.java_plugins import places
from drover.java_plugins.describe import JavaHost, unwritable_temporary_files
from drover.java_plugins.values import JavaPluginError
from drover.java_plugins.wire import (
    END_FILE,
    Address,
    JavaCallError,
    JavaCallHangsError,
    JavaHostEndedError,
)
from drover.model.plugin_limits import PLUGIN_CALL_TIMEOUT_MS, PLUGIN_POLL_TIMEOUT_MS

#: The heap of each host, in MiB.
HEAP_VARIABLE = "DROVER_JAVA_HEAP_MIB"
_HEAP_MIB = 512
_DIRECT_MIB = 256
#: Java's exit code for ExitOnOutOfMemoryError.
_HEAP_USED_UP = 3
#: What JVMs print that cannot reserve their heap.
_NO_MEMORY = re.compile(
    r"Could not reserve enough space|insufficient memory|Cannot allocate memory"
    r"|Invalid maximum heap size|exceeds the maximum representable size"
)
#: Limits of the worker for calls of plugins, with their defaults in milliseconds.
CALL_LIMIT = ("DROVER_PLUGIN_CALL_TIMEOUT_MS", PLUGIN_CALL_TIMEOUT_MS)
POLL_LIMIT = ("DROVER_PLUGIN_POLL_TIMEOUT_MS", PLUGIN_POLL_TIMEOUT_MS)
#: A call ends before the engine abandons it: only the call knows the plugin's method.
_LIMIT_SHARE = 0.9
_START_S = 120.0
_STOP_S = 3.0
_LAST_LINES = 30
#: Never set: for short waits.
_PAUSE = threading.Event()
_LINE_CHARS = 2_000
#: Of an exception that a plugin logs: its class, its causes and its frames.
_TRACE_CHARS = 8_000
#: Longer lines are read in parts. Lines of the log are shorter: log4j2.xml limits their texts.
_LINE_BYTES_MAX = 256 * 1024
_LINKED_FOLDER = "plugins"
#: Becomes END_FILE.
_REASON_FILE = f"{END_FILE}.part"
_REASON_BYTES_MAX = 64 * 1024
#: The longest path of a Unix socket is 107 bytes.
_SOCKET_PATH_MAX = 100
#: Executes a command without the engine's limit of data: a host's memory has its own limits.
_WITHOUT_DATA_LIMIT = (
    "/bin/sh",
    "-c",
    'ulimit -S -d "$(ulimit -H -d)"; exec "$0" "$@"',
)
#: How long a host without users keeps running, so that a task that restarts gets a warm JVM.
_LINGER_S = 30.0
#: All that a plugin sees of the worker's environment,
_INHERITED = ("PATH", "LANG", "LC_ALL", "TZ", "JAVA_HOME")
#: besides the variables that the worker's operator names here.
ENVIRONMENT_VARIABLE = "DROVER_JAVA_ENVIRONMENT"
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: The worker's own settings, some of which are secrets, and folders that each JVM has.
_NEVER_INHERITED = re.compile(r"DROVER_.*|HOME|TMPDIR")
_LEVELS = {"TRACE": "debug", "DEBUG": "debug", "INFO": "info", "WARN": "warning"}
#: Names of levels that Java does not have.
_JAVA_LEVELS = {"WARNING": "WARN", "CRITICAL": "FATAL"}
_ROOT = "root"
#: The maximum number of Java loggers with a name of their own, and of levels that are set.
_LOGGERS_MAX = 2_000

log = structlog.get_logger(__name__)


class JavaHostError(JavaPluginError):
    """A host cannot be started; the message has the reason and the remedy."""


def host_jars(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the host's jars.

    Raises:
        JavaHostError: It is not built.
    """
    folder = places.host_jars(environ)
    if folder is None:
        raise JavaHostError(places.missing_host(environ))
    return folder


def find_java(environ: Mapping[str, str] = os.environ) -> str:
    """The Java to run hosts with.

    Raises:
        JavaHostError: There is none.
    """
    home = environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None or not os.access(found, os.X_OK):
        raise JavaHostError(
            "Java plugins need Java 17 or newer, and there is none in JAVA_HOME or PATH: install "
            "one on the worker, or set JAVA_HOME to its folder"
        )
    return found


def check_runnable(plugin: str, java_class: str, environ: Mapping[str, str] = os.environ) -> None:
    """Check that this worker has what a plugin's JVM needs.

    Raises:
        JavaHostError: Java or the host is missing; the message names the plugin and the remedy.
    """
    try:
        find_java(environ)
        host_jars(environ)
    except JavaHostError as error:
        raise JavaHostError(
            f"{java_class} of the Java plugin {plugin} cannot run on this worker: {error}"
        ) from error


def limit_s(limit: tuple[str, int], environ: Mapping[str, str] = os.environ) -> float:
    """How many seconds a call of a plugin may take, by CALL_LIMIT or POLL_LIMIT."""
    variable, default_ms = limit
    text = environ.get(variable, "")
    return (int(text) if text.isdecimal() else default_ms) / 1_000 * _LIMIT_SHARE


def describing_jvm() -> JavaHost:
    """The JVM that asks plugins for their settings and lets them validate configs.

    Raises:
        JavaHostError: There is no Java, or the host is not built.
    """
    return JavaHost(Path(find_java()), host_jars())


@dataclass(frozen=True, slots=True)
class Plugins:
    """The plugins of a host.

    Attributes:
        paths: The folders with the plugins' jars, each with its own class loader; or jars.
        name: The plugin to name in messages.
    """

    paths: tuple[Path, ...]
    name: str


class Host:
    """A JVM with some plugins; thread-safe."""

    def __init__(self, plugins: Plugins) -> None:
        """Start the JVM.

        Raises:
            JavaHostError: It cannot be started; the message has its last lines.
        """
        self._plugins = plugins
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._is_retired = False
        self._heap_mib = _heap_mib()
        self._inherited = (*_INHERITED, *_named_variables())
        java, jars = find_java(), host_jars()
        try:
            self._folder = _new_folder()
        except OSError as error:
            raise JavaHostError(unwritable_temporary_files(error)) from error
        self.address = Address(str(self._folder / "socket"), plugins.name)
        try:
            self._prepare_folder()
        except OSError as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise JavaHostError(unwritable_temporary_files(error)) from error
        try:
            self._process = self._launched(java, jars)
        except OSError as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise JavaHostError(f"{java} cannot be started: {error}") from error
        assert self._process.stdout is not None
        self._reader = threading.Thread(
            target=self._read, args=(self._process.stdout,), name="java-host", daemon=True
        )
        self._reader.start()
        self._await_start()

    @property
    def is_running(self) -> bool:
        """Whether the JVM runs."""
        return self._process.poll() is None

    @property
    def is_retired(self) -> bool:
        """Whether it gets no further tasks and connectors, and ends with its last user."""
        return self._is_retired

    def retire(self) -> None:
        """Give it no further tasks and connectors: a call hangs in it, and Java ends no thread."""
        self._is_retired = True

    @property
    def process_id(self) -> int:
        """The JVM's process id."""
        return self._process.pid

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """See Address."""
        return self.address.call(name, **arguments)

    def stop(self) -> None:
        """End the JVM."""
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_S)
        if self.is_running:
            self._process.kill()
            self._process.wait()
        self._reader.join(_STOP_S)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _prepare_folder(self) -> None:
        # takes the space of the reason of its end now: a plugin may fill the disk
        (self._folder / _REASON_FILE).write_bytes(bytes(_REASON_BYTES_MAX))
        linked = self._folder / _LINKED_FOLDER
        linked.mkdir()
        for number, path in enumerate(self._plugins.paths):
            # the parent of the plugins' folders, as plugin.path wants it, with these plugins only
            (linked / f"{number}-{path.name}").symlink_to(path.resolve())

    def _launched(self, java: str, jars: Path) -> subprocess.Popen[bytes]:
        command = [
            *_WITHOUT_DATA_LIMIT,
            java,
            f"-Xmx{self._heap_mib}m",
            f"-XX:MaxDirectMemorySize={_DIRECT_MIB}m",
            "-XX:+ExitOnOutOfMemoryError",
            "-XX:+UseSerialGC",
            "-XX:-UsePerfData",
            "--add-opens=java.base/java.nio=ALL-UNNAMED",
            "-Djava.awt.headless=true",
            f"-Djava.io.tmpdir={self._folder}",
            *("-cp", f"{jars}/*"),
            "io.drover.host.Main",
            *("serve", self.address.socket, str(self._folder / _LINKED_FOLDER)),
        ]
        kept = {name: os.environ[name] for name in self._inherited if name in os.environ}
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self._folder,
            env={**kept, "HOME": str(self._folder), "TMPDIR": str(self._folder)},
        )

    def _await_start(self) -> None:
        until = time.monotonic() + _START_S
        while not self._answers():
            if not self.is_running or time.monotonic() > until:
                ended = not self.is_running
                self.stop()
                what = "ended at its start" if ended else f"did not start within {_START_S:.0f} s"
                raise JavaHostError(
                    f"the JVM of the Java plugin {self._plugins.name} {what}"
                    f"{self._start_remedy()}; {self._last_lines()}"
                )
            _PAUSE.wait(0.02)

    def _start_remedy(self) -> str:
        """What to do about the lines of a JVM that did not start; empty if that is not known."""
        lines = "\n".join(self._lines)
        if _NO_MEMORY.search(lines):
            return (
                f", because the worker has no memory for its heap of {self._heap_mib} MiB: lower "
                f"{HEAP_VARIABLE} on the worker, or give the worker more memory"
            )
        if "UnsupportedClassVersionError" in lines:
            return ", because it is older than Java 17: set JAVA_HOME on the worker to a newer one"
        return ""

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, suppress(OSError):
            probe.connect(self.address.socket)
            return True
        return False

    def _read(self, stream: IO[bytes]) -> None:
        """Log the host's lines until it ends, then write why it ended for its callers."""
        while raw := stream.readline(_LINE_BYTES_MAX):
            self._lines.append(self._logged(raw.decode(errors="replace").rstrip("\n")))
        code = self._process.wait()
        with suppress(OSError):
            part = self._folder / _REASON_FILE
            with part.open("rb+") as stream_of_reason:
                stream_of_reason.write(self._reason(code).encode()[:_REASON_BYTES_MAX])
                stream_of_reason.truncate()
            part.rename(self._folder / END_FILE)

    def _logged(self, line: str) -> str:
        """Log a line; returns its text, shortened."""
        with suppress(ValueError, AttributeError):
            entry = json.loads(line)
            level = _LEVELS.get(entry.get("level", ""), "error")
            event = str(entry.get("event", "")).strip()[:_LINE_CHARS]
            trace = str(entry.get("trace", "")).strip()[:_TRACE_CHARS]
            getattr(_logger_of(str(entry.get("logger", ""))), level)(
                event,
                plugin=self._plugins.name,
                context=str(entry.get("context", "")).strip(" []|"),
                **({"trace": trace} if trace else {}),
            )
            text = f"{entry.get('level')} {entry.get('logger')}: {event}"
            return f"{text}\n{trace}"[:_LINE_CHARS] if trace else text
        line = line[:_LINE_CHARS]
        log.info(line, plugin=self._plugins.name)
        return line

    def _reason(self, code: int) -> str:
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        if code == -signal.SIGKILL:
            how += (
                " (the kernel does this if the worker's memory is used up: then lower "
                f"{HEAP_VARIABLE}, or give the worker more memory)"
            )
        if code == _HEAP_USED_UP:
            how = (
                f"used up its heap of {self._heap_mib} MiB (raise {HEAP_VARIABLE} on the worker, "
                "or give each task its own JVM with java.isolation=task)"
            )
        return f"the JVM of the Java plugin {self._plugins.name} {how}; {self._last_lines()}"

    def _last_lines(self) -> str:
        lines = "\n".join(self._lines)
        return f"its last lines:\n{lines}" if lines else "it printed nothing"


_loggers: dict[str, Any] = {}


def _logger_of(name: str) -> Any:
    """The logger with the name of a Java logger, which is listed and set like the others."""
    found = _loggers.get(name)
    if found is None:
        if not name or len(_loggers) >= _LOGGERS_MAX:
            return log
        found = _loggers[name] = structlog.get_logger(name)
    return found


class _Shared:
    """A host and how many tasks and connectors use it."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.use_count = 0
        #: Stops the host some time after its last use.
        self.end: threading.Timer | None = None


class Lease:
    """The use of a host until it is released."""

    def __init__(self, hosts: "Hosts", key: "_Key", shared: _Shared) -> None:
        self._hosts = hosts
        self._key = key
        self._shared: _Shared | None = shared
        self.host = shared.host

    def release(self) -> None:
        """End the use. Repeated calls have no effect."""
        shared, self._shared = self._shared, None
        if shared is not None:
            self._hosts.released(self._key, shared)


_Key = tuple[tuple[Path, ...], str, int]


class Hosts:
    """The hosts of this process; thread-safe."""

    def __init__(self, linger_s: float = _LINGER_S) -> None:
        """A host stops ``linger_s`` seconds after its last use; one for a single task at once."""
        self._linger_s = linger_s
        self._lock = threading.Lock()
        self._starting: dict[_Key, threading.Lock] = {}
        self._hosts: dict[_Key, _Shared] = {}
        #: Retired hosts that have users.
        self._retired: set[_Shared] = set()
        #: The levels of Java loggers by name, in the order in which they were set.
        self._levels: dict[str, str] = {}
        self._sending = threading.Lock()

    def use(self, plugins: Plugins, owner: str = "") -> Lease:
        """Use the running host of these plugins; starts one if there is none.

        Args:
            plugins: The plugins.
            owner: The task that has its own host; empty for the shared one.

        Raises:
            JavaHostError: It cannot be started.
        """
        key = (plugins.paths, owner, os.getpid())
        with self._lock:
            starting = self._starting.setdefault(key, threading.Lock())
        with starting:
            with self._lock:
                found = self._hosts.get(key)
                if found is not None and found.host.is_retired and found.use_count:
                    self._retired.add(self._hosts.pop(key))
                    found = None
                if found is not None and found.host.is_running and not found.host.is_retired:
                    return self._lease(key, found)
            if found is not None:
                found.host.stop()
            started = _Shared(Host(plugins))
            with self._lock:
                self._hosts[key] = started
                lease = self._lease(key, started)
                names = list(self._levels)
            self._send_levels([started.host], names)
            return lease

    def set_levels(self, levels: Mapping[str, str]) -> None:
        """Set Java loggers and their descendants in all present and later hosts.

        Args:
            levels: Levels of Java or Python by the logger's name, ``root`` for the root.
        """
        with self._lock:
            for name, level in levels.items():
                self._levels.pop(name, None)
                self._levels[name] = _JAVA_LEVELS.get(level.upper(), level.upper())
            while len(self._levels) > _LOGGERS_MAX:
                del self._levels[next(iter(self._levels))]
            hosts = [each.host for each in (*self._hosts.values(), *self._retired)]
        if hosts:
            arguments = (hosts, list(levels))
            threading.Thread(
                target=self._send_levels, args=arguments, name="java-loggers", daemon=True
            ).start()

    def _send_levels(self, hosts: Sequence[Host], names: Sequence[str]) -> None:
        """Set the present levels of loggers."""
        with self._sending:
            with self._lock:
                levels = [(name, self._levels[name]) for name in names if name in self._levels]
            for host in hosts:
                # a host that has ended, or that does not answer, has no loggers to set
                with suppress(JavaHostEndedError, JavaCallError, JavaCallHangsError):
                    for name, level in levels:
                        logger = "" if name == _ROOT else name
                        host.address.call_within(_STOP_S, "set_logger", logger=logger, level=level)

    def released(self, key: _Key, shared: _Shared) -> None:
        """Called by leases."""
        with self._lock:
            shared.use_count -= 1
            if shared.use_count:
                return
            is_done = bool(key[1]) or shared.host.is_retired
            if not is_done:
                shared.end = threading.Timer(self._linger_s, self._end_unused, (key, shared))
                shared.end.daemon = True
                shared.end.start()
        if is_done:
            self._end_unused(key, shared)

    def stop(self) -> None:
        """Stop all hosts."""
        with self._lock:
            shared = [*self._hosts.values(), *self._retired]
            self._hosts.clear()
            self._retired.clear()
        for each in shared:
            if each.end is not None:
                each.end.cancel()
            each.host.stop()

    def _lease(self, key: _Key, shared: _Shared) -> Lease:
        if shared.end is not None:
            shared.end.cancel()
            shared.end = None
        shared.use_count += 1
        return Lease(self, key, shared)

    def _end_unused(self, key: _Key, shared: _Shared) -> None:
        with self._lock:
            if shared.use_count:
                return
            self._retired.discard(shared)
            if self._hosts.get(key) is shared:
                del self._hosts[key]
        shared.host.stop()


#: The hosts of this engine.
HOSTS = Hosts()


def hanging_message(
    method: str, java_class: str, plugin: str, *, seconds: float, limit: str, stack: str = ""
) -> str:
    """The message for a method of a plugin that does not return; its host is retired.

    Args:
        method: What does not return.
        java_class: Its class.
        plugin: The plugin.
        seconds: For how long.
        limit: The setting that limits it.
        stack: Where its thread is; empty if that is not known.
    """
    message = (
        f"{method} of {java_class} ({plugin}) has not returned for {seconds:.0f} s: check the "
        f"system that it waits for and the plugin's own timeouts, or raise {limit}. A restart runs "
        "in a new JVM"
    )
    return f"{message}; its thread is at\n{stack}" if stack else message


@contextmanager
def disposable(plugins: Plugins) -> Iterator[Host]:
    """A host without other connectors' configs, for one validation.

    Raises:
        JavaHostError: It cannot be started.
    """
    host = Host(plugins)
    try:
        yield host
    finally:
        host.stop()


def _named_variables() -> list[str]:
    """The environment variables that plugins see by the operator's choice."""
    text = os.environ.get(ENVIRONMENT_VARIABLE, "")
    names = [each.strip() for each in text.split(",") if each.strip()]
    for each in names:
        if not _VARIABLE_NAME.fullmatch(each) or _NEVER_INHERITED.fullmatch(each):
            raise JavaHostError(
                f"{ENVIRONMENT_VARIABLE} must be names of environment variables, separated by "
                f"commas, without HOME, TMPDIR and Drover's own: remove {each!r} from it"
            )
    return names


def _heap_mib() -> int:
    text = os.environ.get(HEAP_VARIABLE, "")
    if not text:
        return _HEAP_MIB
    if not text.isdecimal() or int(text) < 32:
        raise JavaHostError(f"{HEAP_VARIABLE} must be a number of MiB from 32, not {text!r}")
    return int(text)


def _new_folder() -> Path:
    """A folder of this user; its paths are short enough for a socket."""
    for parent in (tempfile.gettempdir(), "/tmp"):
        folder = Path(tempfile.mkdtemp(prefix="jh-", dir=parent))
        if len(str(folder / "socket")) <= _SOCKET_PATH_MAX:
            return folder
        with contextlib.suppress(OSError):
            folder.rmdir()
    raise JavaHostError("the path of the folder for temporary files (TMPDIR) is too long")
