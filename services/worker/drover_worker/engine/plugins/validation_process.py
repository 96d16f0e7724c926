"""Validates configs in processes that are forked for one config each.

An engine forks the *validation process* when its modules are imported, before it has any secret and
any other thread. For each config the validation process forks a child, which validates the config
and sends the result. A child is killed with its own children when its time is up, so a validation
that hangs, crashes or uses a pattern without end costs nothing but its own result.
"""

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn, TextIO, cast

from drover.api.engine.v1 import engine_pb2
from drover.config.providers import ConfigProviderError
from drover.config.resolution import ConfigResolver, Resolution
from drover.connector.catalogue import PluginRegistry
from drover.connector.record_settings import with_worker_converters
from drover.log.storage import KafkaStorage
from drover.policy.own_cluster import OWN_CLUSTER_VARIABLE
from drover_worker.engine import framing, process_tree
from drover_worker.engine.planes import open_plane
from drover_worker.engine.plugins import answers
from drover_worker.engine.plugins.configs import EngineConfigs, HidingStream
from drover_worker.engine.plugins.threads import Raised, TimedOut
from drover_worker.engine.plugins.validation import TOPICS_SKIPPED, skip_unresolved, validate
from drover_worker.engine.settings import DIRECTORY_VARIABLE, EngineSettings

WHAT = "the validation"
#: The time limit of a validation in milliseconds, and the length of its connector.class.
_HEAD = struct.Struct("!II")
_HEAD_MAX_BYTES = 4 * 1024
#: Added to the time limit, so that the validation process kills the child first.
_MARGIN_S = 2.0
#: What the built-in connectors import when they check systems, by their packages.
_LIBRARIES = {
    "drover.connectors.files": ("obstore", "obstore.store", "fastavro"),
    "drover.connectors.http": ("drover.connectors.http.client",),
    "drover.connectors.jdbc": ("sqlalchemy", "psycopg", "pymysql"),
    "drover.connectors.kafka": ("confluent_kafka", "confluent_kafka.admin"),
    "drover.connectors.lakehouse": (
        "deltalake",
        "drover.connectors.lakehouse.delta_table",
        "drover.connectors.lakehouse.iceberg_table",
        "drover.connectors.lakehouse.rest_catalog",
    ),
    "drover.connectors.postgres": ("psycopg",),
}


class ValidationProcess:
    """The engine's side; thread-safe."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._lock = threading.Lock()

    def validate(
        self,
        wanted: engine_pb2.ValidateConfig,
        *,
        settings: EngineSettings,
        environment: Sequence[bytes],
    ) -> engine_pb2.EngineReport:
        """Validate a config in a new process, and wait for the result.

        Args:
            wanted: The config.
            settings: The engine's settings, used and sent only if systems are used.
            environment: The engine's environment, each as NAME=value; as for the settings.

        Raises:
            OSError: The validation process does not run.
        """
        request = engine_pb2.ValidationRequest(
            validate=wanted,
            converter_config=settings.converters,
            not_exactly_once=settings.source_limitation,
            providers=settings.config_providers,
            on_kafka=isinstance(settings.storage, KafkaStorage),
        )
        if wanted.use_systems:
            request.settings = settings.to_json()
            request.variables.extend(environment)
            if OWN_CLUSTER_VARIABLE in os.environ:  # the engine learns it later
                own = f"{OWN_CLUSTER_VARIABLE}={os.environ[OWN_CLUSTER_VARIABLE]}"
                request.variables.append(own.encode())
        return self._sent(request, settings.limits.validate_ms)

    def _sent(
        self, request: engine_pb2.ValidationRequest, limit_ms: int
    ) -> engine_pb2.EngineReport:
        name = request.validate.config.get("connector.class", "").encode()[:_HEAD_MAX_BYTES]
        ours, theirs = socket.socketpair()
        ends_s = time.monotonic() + limit_ms / 1000
        with ours:
            with theirs, self._lock:
                head = _HEAD.pack(limit_ms, len(name)) + name
                socket.send_fds(self._control, [head], [theirs.fileno()])
            ours.settimeout(limit_ms / 1000 + _MARGIN_S)
            with contextlib.suppress(OSError, framing.FramingError):
                framing.send(ours, request)
                report = framing.receive(ours, engine_pb2.EngineReport)
                if report is not None:
                    return report
        if time.monotonic() >= ends_s:
            return answers.failure_of(0, WHAT, TimedOut(limit_ms))
        text = f"{WHAT} ended its process: the connector's code or a library of it crashed"
        return answers.failed(0, text, trace=text)


def start_validation_process() -> ValidationProcess:
    """Fork the validation process. Call it while this process has one thread and no secrets."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    if os.fork():
        theirs.close()
        return ValidationProcess(ours)
    try:
        process_tree.die_with_parent()
        if os.getppid() == parent:
            _keep_only(theirs.fileno())
            _Server(theirs).serve()
    finally:
        os._exit(0)


@dataclass(frozen=True, slots=True)
class _Child:
    pid: int
    ends_s: float


class _Server:
    """The validation process: forks, kills and reaps."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._plugins = PluginRegistry()
        #: By the descriptors of the processes.
        self._children: dict[int, _Child] = {}
        #: Modules of built-in connectors.
        self._imported: set[str] = set()

    def serve(self) -> None:
        """Serve until the engine ends."""
        while True:
            now_s = time.monotonic()
            ends = [each.ends_s for each in self._children.values()]
            wait_s = max(0.0, min(ends) - now_s) if ends else None
            control = self._control.fileno()
            ready, _, _ = select.select([control, *self._children], [], [], wait_s)
            for ended in self._children.keys() & ready:
                os.waitpid(self._children.pop(ended).pid, 0)
                os.close(ended)
            self._kill_late()
            if control in ready and not self._fork():
                return

    def _kill_late(self) -> None:
        for child in self._children.values():
            if child.ends_s <= time.monotonic():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)

    def _fork(self) -> bool:
        """Fork for the next request; False if the engine has ended."""
        head, descriptors, _, _ = socket.recv_fds(self._control, _HEAD.size + _HEAD_MAX_BYTES, 1)
        if not descriptors:
            return False
        limit_ms, length = _HEAD.unpack_from(head)
        self._import(head[_HEAD.size : _HEAD.size + length].decode(errors="replace"))
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            _run(socket.socket(fileno=descriptors[0]), server, self._plugins)
        with contextlib.suppress(OSError):  # the child does the same: it may be slower
            os.setpgid(pid, pid)
        os.close(descriptors[0])
        ends_s = time.monotonic() + limit_ms / 1000
        self._children[os.pidfd_open(pid)] = _Child(pid, ends_s)
        return True

    def _import(self, connector_class: str) -> None:
        """Import a built-in connector, so that the children do not need to."""
        module = self._plugins.built_in_module(connector_class)
        if module is None or module in self._imported:
            return
        self._imported.add(module)
        libraries = next((each for name, each in _LIBRARIES.items() if module.startswith(name)), ())
        for each in (module, *libraries):
            with contextlib.suppress(ImportError):  # an extra that is not installed
                importlib.import_module(each)
        # fills the caches of definitions and entry points
        config = {"connector.class": connector_class}
        validate(self._plugins, Resolution(config, config), use_systems=False)
        gc.collect()
        gc.freeze()  # collections in the children would copy the memory of these objects


def _run(connection: socket.socket, server: int, plugins: PluginRegistry) -> NoReturn:
    """A child: answer one request."""
    try:
        os.setpgid(0, 0)
        process_tree.die_with_parent()
        if os.getppid() == server:
            _keep_only(connection.fileno())
            request = framing.receive(connection, engine_pb2.ValidationRequest)
            if request is not None:
                framing.send(connection, _answer(request, plugins))
    finally:
        os._exit(0)


def _answer(
    request: engine_pb2.ValidationRequest, plugins: PluginRegistry
) -> engine_pb2.EngineReport:
    for each in request.variables:
        name, _, value = each.partition(b"=")
        os.environb[name] = value
    settings = EngineSettings.from_json(request.settings) if request.settings else None
    configs = EngineConfigs(request.converter_config, settings.config_providers if settings else {})
    sys.stdout = cast("TextIO", HidingStream(sys.stdout, configs.hidden))
    sys.stderr = cast("TextIO", HidingStream(sys.stderr, configs.hidden))
    answered: list[engine_pb2.EngineReport] = []
    configs.hiding(answered.append)(_validated(request, plugins, configs, settings))
    return answered[0]


def _validated(
    request: engine_pb2.ValidationRequest,
    plugins: PluginRegistry,
    configs: EngineConfigs,
    settings: EngineSettings | None,
) -> engine_pb2.EngineReport:
    config = dict(request.validate.config)
    try:
        if settings is None:
            closed = ConfigResolver({name: {} for name in request.providers}, _closed_provider)
            written = with_worker_converters(config, request.converter_config)
            found = validate(
                plugins,
                closed.resolve(written, config.get("name", "")),
                not_exactly_once=request.not_exactly_once,
                use_systems=False,
                on_kafka=request.on_kafka,
            )
            skip_unresolved(found, set(request.providers))
            if request.on_kafka:
                found.skipped_checks.add(reason=TOPICS_SKIPPED)
        else:
            found = validate(
                plugins,
                configs.resolve_connector(config),
                not_exactly_once=request.not_exactly_once,
                on_kafka=request.on_kafka,
                open_plane=partial(open_plane, settings, Path(os.environ[DIRECTORY_VARIABLE])),
            )
    except BaseException as error:  # noqa: BLE001 - plugin code may raise anything
        return answers.failure_of(0, WHAT, Raised(error))
    return engine_pb2.EngineReport(validation=found)


def _closed_provider(name: str, settings: Mapping[str, str]) -> NoReturn:
    """A provider that gives nothing, so that only placeholders of unknown ones are checked."""
    del name, settings
    raise ConfigProviderError("is not resolved")


def _keep_only(kept: int) -> None:
    """Close inherited descriptors, such as the engine's stream to its herder."""
    highest = os.sysconf("SC_OPEN_MAX")
    os.closerange(3, kept)
    os.closerange(kept + 1, highest)
