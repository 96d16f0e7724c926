"""Validates configs in processes that are forked for one config each, and runs SQL in others.

An engine forks the *validation process* at its start, before it has any secret and any other
thread. For each config the validation process forks a child, which validates the config
and sends the result. A child is killed with its own children when its time is up, so a validation
that hangs, crashes or uses a pattern without end costs nothing but its own result. A child
asks the engine about the cluster's topics, because the engine is connected to the brokers.

The queries of the transform Sql in the engine, such as the queries of previews, also run in
children, because a limit of memory or time applies to a whole process.
"""

import contextlib
import gc
import importlib
import json
import math
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.abc import MetaPathFinder
from typing import NoReturn, TextIO, cast

import pyarrow as pa

from drover.api.engine.v1 import engine_pb2
from drover.config.providers import ConfigProviderError
from drover.config.resolution import ConfigResolver, Resolution
from drover.connector.catalogue import PluginRegistry
from drover.connector.record_settings import with_worker_converters
from drover.connectors.java.finder import find_connector
from drover.connectors.java.step_finder import use_java_steps
from drover.errors import Reason, UnavailableError
from drover.java_plugins.allowed import is_preferred
from drover_worker.engine import framing, process_tree
from drover_worker.engine.plugins import answers
from drover_worker.engine.plugins.configs import EngineConfigs, HidingStream
from drover_worker.engine.plugins.storage_questions import AskedChecks
from drover_worker.engine.plugins.threads import Raised
from drover_worker.engine.plugins.validation import TOPICS_SKIPPED, skip_unresolved, validate

WHAT = "the validation"
#: The time limit of a validation in milliseconds, and the length of its connector.class. Both are
#: 0 for a process that runs SQL: it ends with its connection, and limits the time of each query.
HEAD = struct.Struct("!II")
CLASS_MAX_BYTES = 4 * 1024
#: Python imports it with the first host name.
_HOST_NAMES = "encodings.idna"
#: What the built-in connectors import when they check systems, by their packages.
_LIBRARIES = {
    "drover.connectors.files.lines": (),
    "drover.connectors.files": ("obstore", "obstore.store", "fastavro"),
    "drover.connectors.http": ("drover.connectors.http.client", "httpcore", _HOST_NAMES),
    "drover.connectors.jdbc": (
        "drover.connectors.jdbc.catalogue",
        "psycopg",
        "pymysql",
        "sqlalchemy.dialects.mysql.pymysql",
        "sqlalchemy.dialects.postgresql.psycopg",
        "sqlalchemy.dialects.sqlite.pysqlite",
        _HOST_NAMES,
    ),
    "drover.connectors.kafka": ("confluent_kafka", "confluent_kafka.admin"),
    "drover.connectors.lakehouse": (
        "deltalake",
        "drover.connectors.lakehouse.delta_table",
        "drover.connectors.lakehouse.iceberg_table",
        "drover.connectors.lakehouse.rest_catalog",
    ),
    "drover.connectors.postgres": (
        "drover.connectors.postgres.server_checks",
        "psycopg",
        _HOST_NAMES,
    ),
}
_SQL_LIBRARIES = ("duckdb", "drover.transform.sql.serve")


def start_validation_process() -> socket.socket:
    """Fork the validation process; returns the connection for ``ValidationProcess``.

    Call it while this process has one thread and no secrets, and before it imports what validations
    do not need: each fork copies the page tables of all that is imported.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    if os.fork():
        theirs.close()
        return ours
    try:
        process_tree.die_with_parent()
        if os.getppid() == parent:
            _keep_only(theirs.fileno())
            _leave_out_pandas()
            _Server(theirs).serve()
    finally:
        os._exit(0)


class _NoPandas(MetaPathFinder):
    """Makes the import of pandas fail."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """See MetaPathFinder."""
        if fullname == "pandas":
            raise ImportError("left out")


def _leave_out_pandas() -> None:
    """Make pyarrow convert values without pandas, which it imports at the first one if it can.

    No validation needs pandas, and it is a third of the memory that each fork copies. Later imports
    of it succeed.
    """
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.scalar(0)
    finally:
        sys.meta_path.remove(finder)


@dataclass(frozen=True, slots=True)
class _Child:
    pid: int
    ends_s: float


class _Server:
    """The validation process: forks, kills and reaps."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._plugins = PluginRegistry(find_other=find_connector, prefers_other=is_preferred)
        use_java_steps(in_engine=False)
        #: By the descriptors of the processes.
        self._children: dict[int, _Child] = {}
        #: Modules of built-in connectors, and the first of those for SQL.
        self._imported: set[str] = set()

    def serve(self) -> None:
        """Serve until the engine ends."""
        while True:
            now_s = time.monotonic()
            ends = [each.ends_s for each in self._children.values()]
            first_s = min(ends, default=math.inf)
            wait_s = None if first_s == math.inf else max(0.0, first_s - now_s)
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
        head, descriptors, _, _ = socket.recv_fds(self._control, HEAD.size + CLASS_MAX_BYTES, 1)
        if not descriptors:
            return False
        limit_ms, length = HEAD.unpack_from(head)
        if limit_ms:
            self._import(head[HEAD.size : HEAD.size + length].decode(errors="replace"))
        else:
            self._import_libraries(_SQL_LIBRARIES)
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            if limit_ms:
                _run(socket.socket(fileno=descriptors[0]), server, self._plugins)
            _run_queries(descriptors[0], server)
        with contextlib.suppress(OSError):  # the child does the same: it may be slower
            os.setpgid(pid, pid)
        os.close(descriptors[0])
        ends_s = time.monotonic() + limit_ms / 1000 if limit_ms else math.inf
        self._children[os.pidfd_open(pid)] = _Child(pid, ends_s)
        return True

    def _import(self, connector_class: str) -> None:
        """Import a built-in connector, so that the children do not need to."""
        module = self._plugins.built_in_module(connector_class)
        if module is None or module in self._imported:
            return
        libraries = next((each for name, each in _LIBRARIES.items() if module.startswith(name)), ())
        self._import_libraries((module, *libraries))
        # fills the caches of definitions and entry points
        config = {"connector.class": connector_class}
        validate(self._plugins, Resolution(config, config), use_systems=False)
        _freeze()

    def _import_libraries(self, libraries: Sequence[str]) -> None:
        if libraries[0] in self._imported:
            return
        self._imported.add(libraries[0])
        for each in libraries:
            with contextlib.suppress(ImportError):  # an extra that is not installed
                importlib.import_module(each)
        _freeze()


def _freeze() -> None:
    """Keep collections in the children from copying the memory of the present objects."""
    gc.collect()
    gc.freeze()


def _run(connection: socket.socket, server: int, plugins: PluginRegistry) -> NoReturn:
    """A child: answer one request."""
    try:
        os.setpgid(0, 0)
        process_tree.die_with_parent()
        if os.getppid() == server:
            _keep_only(connection.fileno())
            request = framing.receive(connection, engine_pb2.ValidationRequest)
            if request is not None:
                report = _answer(request, plugins, partial(_ask, connection))
                framing.send(connection, engine_pb2.ValidationMessage(report=report))
    finally:
        os._exit(0)


def _run_queries(descriptor: int, server: int) -> NoReturn:
    """A child: answer requests of the transform Sql."""
    try:
        os.setpgid(0, 0)
        process_tree.die_with_parent()
        if os.getppid() == server:
            _keep_only(descriptor)
            from drover.transform.sql.serve import serve_queries

            serve_queries(socket.socket(fileno=descriptor))
    finally:
        os._exit(0)


_Ask = Callable[[engine_pb2.StorageQuestion], engine_pb2.StorageAnswer]


def _ask(
    connection: socket.socket, question: engine_pb2.StorageQuestion
) -> engine_pb2.StorageAnswer:
    framing.send(connection, engine_pb2.ValidationMessage(question=question))
    answer = framing.receive(connection, engine_pb2.StorageAnswer)
    if answer is None:
        raise UnavailableError(Reason.STORAGE_UNAVAILABLE, "the engine has ended")
    return answer


def _answer(
    request: engine_pb2.ValidationRequest, plugins: PluginRegistry, ask: _Ask
) -> engine_pb2.EngineReport:
    for each in request.variables:
        name, _, value = each.partition(b"=")
        os.environb[name] = value
    providers = json.loads(request.config_providers) if request.config_providers else {}
    configs = EngineConfigs(request.converter_config, providers)
    sys.stdout = cast("TextIO", HidingStream(sys.stdout, configs.hidden))
    sys.stderr = cast("TextIO", HidingStream(sys.stderr, configs.hidden))
    hidden: list[engine_pb2.EngineReport] = []
    configs.hiding(hidden.append)(_validated(request, plugins, configs, ask))
    return hidden[0]


def _validated(
    request: engine_pb2.ValidationRequest,
    plugins: PluginRegistry,
    configs: EngineConfigs,
    ask: _Ask,
) -> engine_pb2.EngineReport:
    config = dict(request.validate.config)
    try:
        if not request.validate.use_systems:
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
                open_plane=lambda: AskedChecks(request.storage, ask),
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
