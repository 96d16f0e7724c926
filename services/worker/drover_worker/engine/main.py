"""Runs the engine process from start to exit."""

import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TextIO, cast

import structlog
from pyspark.sql import SparkSession

from drover.api.engine.v1 import engine_pb2
from drover.connector.catalogue import PluginRegistry
from drover.connectors.java.finder import find_connector
from drover.connectors.java.step_finder import use_java_steps
from drover.dataplane.embedded import EmbeddedPlane
from drover.dataplane.plane import DataPlane
from drover.errors import DroverError
from drover.java_plugins.allowed import is_preferred
from drover.log.storage import KafkaStorage
from drover.policy.own_cluster import OWN_CLUSTER_VARIABLE
from drover.rpc.logs import LogFormat, LogLevel, configure_logging
from drover_worker.engine.compacting import start_compaction
from drover_worker.engine.data_limit import end_without_memory
from drover_worker.engine.engine import Engine, ValidateApart
from drover_worker.engine.executors import Executors, why_not_started
from drover_worker.engine.forked_processes import EndedForks, keep_connections_in_forks
from drover_worker.engine.gateway import EngineStartError
from drover_worker.engine.in_flight import InFlight
from drover_worker.engine.link import HerderLink
from drover_worker.engine.log_lines import use_own_descriptors, write_whole_lines
from drover_worker.engine.own_cluster import announce_own_cluster
from drover_worker.engine.planes import open_plane
from drover_worker.engine.plugins import answers
from drover_worker.engine.plugins.configs import EngineConfigs, HidingStream
from drover_worker.engine.process_constants import DIRECTORY_VARIABLE, IN_FLIGHT_VARIABLE, ExitCode
from drover_worker.engine.process_state import ProcessState
from drover_worker.engine.process_watch import ProcessWatch
from drover_worker.engine.session import SparkEngine, start_jvm, start_session
from drover_worker.engine.settings import EngineSettings, is_local_master

log = structlog.get_logger(__name__)


#: Exit codes of a JVM without free heap: Spark's, and Java's for ExitOnOutOfMemoryError.
_JVM_HEAP_CODES = frozenset({52, 3})


def run(
    settings: EngineSettings,
    sock: socket.socket,
    stop: threading.Event,
    validate: ValidateApart,
) -> int:
    """Serve the herder until ``stop`` is set; returns the exit code.

    Must be called from the main thread. ``validate`` validates configs in other processes.
    """
    use_own_descriptors()
    write_whole_lines()
    keep_connections_in_forks()
    end_without_memory()
    configs = EngineConfigs(settings.converters, settings.config_providers)
    sys.stdout = cast("TextIO", HidingStream(sys.stdout, configs.hidden))
    sys.stderr = cast("TextIO", HidingStream(sys.stderr, configs.hidden))
    configure_logging(
        "engine", cast("LogLevel", settings.log_level), cast("LogFormat", settings.log_format)
    )
    use_java_steps(in_engine=True)
    link = HerderLink(sock)
    os.environ.pop(OWN_CLUSTER_VARIABLE, None)
    if isinstance(settings.storage, KafkaStorage):
        announce_own_cluster(
            settings.storage, stop, lambda found: link.send(answers.own_cluster_found(found))
        )
    watch = ProcessWatch(ProcessState((sock.fileno(),)))
    engine = Engine(
        settings.limits,
        link.send,
        PluginRegistry(
            find_other=partial(find_connector, in_engine=True), prefers_other=is_preferred
        ),
        configs,
        validate,
        not_exactly_once=settings.source_limitation,
        in_flight=InFlight(int(os.environ.pop(IN_FLIGHT_VARIABLE)), watch),
        watch=watch,
    )
    watch.adopt()
    link.send(engine_pb2.EngineReport(started=engine_pb2.EngineStarted()))
    threading.Thread(target=_serve, args=(link, engine), name="commands", daemon=True).start()
    try:
        spark = _start(settings, engine, stop)
    except EngineStartError as error:
        link.send(answers.failed(0, str(error)))  # the herder logs it and returns it to its callers
        return error.exit_code
    if spark is None:
        return ExitCode.STOPPED
    reap = EndedForks().reap_until
    threading.Thread(target=reap, args=(stop,), name="ended-forks", daemon=True).start()
    stop.wait()
    log.info("the engine is stopping")
    engine.close()
    spark.stop()
    return ExitCode.STOPPED


def _serve(link: HerderLink, engine: Engine) -> None:
    while True:
        engine.handle(link.receive())


def _start(settings: EngineSettings, engine: Engine, stop: threading.Event) -> SparkEngine | None:
    """Start Spark, then the tasks; None when ``stop`` was set during the start."""

    def lost(exit_code: int) -> None:
        if not stop.is_set():
            log.error("the engine's JVM ended unexpectedly", exit_code=exit_code)
            os._exit(_exit_code_after(exit_code))

    temporary = Path(os.environ[DIRECTORY_VARIABLE])
    jvm = start_jvm(settings, temporary)
    plane: DataPlane | None = None
    with suppress(DroverError):  # the coordinator creates the store and may still be starting
        plane = open_plane(settings, temporary)
        engine.topics_ready(plane)
    spark = start_session(jvm, settings, stop=stop, on_lost=lost)
    if spark is None:
        return None
    try:
        if plane is None:
            plane = open_plane(settings, temporary)
            engine.topics_ready(plane)
        if not _start_tasks(settings.spark_master, engine, spark.session, plane, stop):
            spark.stop()
            return None
        if isinstance(plane, EmbeddedPlane):
            start_compaction(plane.store, stop)
    except DroverError as error:
        raise EngineStartError(ExitCode.FAILED, error.message) from error
    return spark


def _start_tasks(
    master: str, engine: Engine, session: SparkSession, plane: DataPlane, stop: threading.Event
) -> bool:
    """Wait for an executor, then let the engine run tasks; False when ``stop`` was set first."""
    remote = not is_local_master(master)
    executors = Executors(session, master, remote=remote)
    try:
        if not executors.wait_for_first(stop, engine.start_delayed):
            return False
        engine.spark_ready(session, plane, executors)
    except DroverError:
        raise
    except Exception as error:
        if not remote:
            raise
        message = why_not_started(error, master)
        raise EngineStartError(ExitCode.SPARK_NOT_STARTED, message) from error
    return True


def _exit_code_after(jvm_exit_code: int) -> ExitCode:
    """The engine's exit code when its JVM ended with ``jvm_exit_code``."""
    if jvm_exit_code in _JVM_HEAP_CODES:
        return ExitCode.HEAP_USED_UP
    return ExitCode.SPARK_KILLED if jvm_exit_code == -signal.SIGKILL else ExitCode.SPARK_LOST
