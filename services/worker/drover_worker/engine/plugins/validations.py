"""The engine's side of the validation process."""

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NoReturn

from drover.api.engine.v1 import engine_pb2
from drover.dataplane.plane import DataPlane, TopicChecks
from drover.errors import PermissionDeniedError, Reason
from drover.log.storage import KafkaStorage
from drover.policy.own_cluster import OWN_CLUSTER_VARIABLE
from drover_worker.engine import framing
from drover_worker.engine.planes import open_plane
from drover_worker.engine.plugins import answers
from drover_worker.engine.plugins.storage_questions import answered, storage_facts
from drover_worker.engine.plugins.threads import TimedOut
from drover_worker.engine.plugins.validation_process import CLASS_MAX_BYTES, HEAD, WHAT
from drover_worker.engine.process_constants import DIRECTORY_VARIABLE
from drover_worker.engine.settings import EngineSettings

#: A child that asks more is given up.
_QUESTIONS_MAX = 10_000
#: Added to the time limit, so that the validation process kills the child first.
_MARGIN_S = 2.0

OpenChecks = Callable[[], TopicChecks]


class ValidationProcess:
    """Validates configs and runs SQL in new processes; thread-safe."""

    def __init__(self, control: socket.socket) -> None:
        """``control`` is the connection of ``start_validation_process``."""
        self._control = control
        self._lock = threading.Lock()
        self._plane: DataPlane | None = None

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
            settings: The engine's settings.
            environment: The engine's environment, each as NAME=value. It is sent only if systems
                are used, as are the settings of config providers.

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
        open_checks: OpenChecks = _closed
        if wanted.use_systems:
            open_checks = cache(partial(self._checks, settings))
            request.config_providers = json.dumps(settings.config_providers)
            request.storage.CopyFrom(storage_facts(open_checks))
            request.variables.extend(environment)
            if OWN_CLUSTER_VARIABLE in os.environ:  # the engine learns it later
                own = f"{OWN_CLUSTER_VARIABLE}={os.environ[OWN_CLUSTER_VARIABLE]}"
                request.variables.append(own.encode())
        return self._sent(request, settings.limits.validate_ms, open_checks)

    def start_queries(self) -> socket.socket:
        """Start a process that serves queries of the transform Sql until the connection is closed.

        Raises:
            OSError: The validation process does not run.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            self._start(HEAD.pack(0, 0), theirs)
        return ours

    def _checks(self, settings: EngineSettings) -> TopicChecks:
        """The plane for one validation; a new one on Kafka: it shares its connections with others,
        but not its caches.
        """
        with self._lock:
            if self._plane is None or isinstance(settings.storage, KafkaStorage):
                self._plane = open_plane(settings, Path(os.environ[DIRECTORY_VARIABLE]))
            return self._plane

    def _sent(
        self,
        request: engine_pb2.ValidationRequest,
        limit_ms: int,
        open_checks: OpenChecks,
    ) -> engine_pb2.EngineReport:
        name = request.validate.config.get("connector.class", "").encode()[:CLASS_MAX_BYTES]
        ours, theirs = socket.socketpair()
        ends_s = time.monotonic() + limit_ms / 1000
        with ours:
            with theirs:
                self._start(HEAD.pack(limit_ms, len(name)) + name, theirs)
            ours.settimeout(limit_ms / 1000 + _MARGIN_S)
            with contextlib.suppress(OSError, framing.FramingError):
                framing.send(ours, request)
                report = _report(ours, ends_s + _MARGIN_S, open_checks)
                if report is not None:
                    return report
        if time.monotonic() >= ends_s:
            return answers.failure_of(0, WHAT, TimedOut(limit_ms))
        text = f"{WHAT} ended its process: the connector's code or a library of it crashed"
        return answers.failed(0, text, trace=text)

    def _start(self, head: bytes, end: socket.socket) -> None:
        with self._lock:
            socket.send_fds(self._control, [head], [end.fileno()])


def _closed() -> NoReturn:
    """The topics, for a caller who may not use systems: plugin code could ask for them anyway."""
    raise PermissionDeniedError(Reason.MISSING_ROLE, "this needs the role ADMIN")


def _report(
    connection: socket.socket, ends_s: float, open_checks: OpenChecks
) -> engine_pb2.EngineReport | None:
    """Answer the questions of a child until it sends its report; None if it ends without one.

    Raises:
        OSError, FramingError: The child was too slow or sent something else.
    """
    for _ in range(_QUESTIONS_MAX):
        left_s = ends_s - time.monotonic()
        if left_s <= 0:
            break
        connection.settimeout(left_s)
        message = framing.receive(connection, engine_pb2.ValidationMessage)
        if message is None:
            return None
        if message.HasField("report"):
            return message.report
        framing.send(connection, answered(open_checks, message.question))
    return None
