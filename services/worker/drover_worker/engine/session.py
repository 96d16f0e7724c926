"""Starting Spark: a JVM that cannot outlive the engine, and one session on it."""

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from pyspark.sql import SparkSession

from drover.local.java_check import Java, JavaUnusableError, find_java
from drover.local.spark_archive import ARCHIVE_NAME, ARCHIVE_PYTHON
from drover.log.storage import EmbeddedStorage, KafkaStorage
from drover.model.sizes import size_bytes
from drover.python_process import SAFE_PATH_VARIABLE
from drover_worker.engine.class_archive import NoArchiveError, options_of_engine
from drover_worker.engine.gateway import EngineStartError, Gateway, cause_of, start_gateway
from drover_worker.engine.jvm_options import quoted
from drover_worker.engine.process_constants import (
    EMBEDDED,
    ON_KAFKA,
    STORAGE_VARIABLE,
    ExitCode,
)
from drover_worker.engine.settings import (
    DEFAULT_DRIVER_MEMORY,
    DRIVER_MEMORY,
    JAVA_OPTIONS,
    LOCAL_JVM_OPTIONS,
    EngineSettings,
    is_local_master,
)
from drover_worker.engine.spark_protection import protection

_RESULT_LIMIT = "spark.driver.maxResultSize"
#: Bytes that Spark appends to the directory for its sockets: "/.", a UUID and ".sock".
_SOCKET_NAME_BYTES = 43
#: The shortest limit for a Unix socket's path (macOS; Linux allows 107 bytes).
_SOCKET_PATH_BYTES_MAX = 103
_TEXT_PATTERN = "%d{HH:mm:ss} spark %p %c{1}: %m%n%ex"
#: The event format of structlog.
_JSON_PATTERN = (
    '{"event": "%enc{%m}{JSON}", '
    '"level": "%level{FATAL=critical, WARN=warning, TRACE=debug, lowerCase=true}", '
    '"logger": "%enc{%c}{JSON}", "timestamp": "%d{yyyy-MM-dd\'T\'HH:mm:ss.SSSSSS}{UTC}Z", '
    '"service": "spark"%notEmpty{, "exception": "%enc{%ex}{JSON}"}}%n'
)
_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
logger.utils.name = org.apache.spark.util.Utils
logger.utils.level = error
# the engine logs the error of a task that failed; these repeat its traceback three times
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = fatal
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = fatal
# it misses a file of pools: batches are in pools that are made for them
logger.pools.name = org.apache.spark.scheduler.FairSchedulableBuilder
logger.pools.level = error
"""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """A running session and its JVM."""

    session: SparkSession
    gateway: Gateway

    def stop(self) -> None:
        """End the session and its JVM."""
        self.session.stop()
        self.gateway.close()


def spark_runs(session: SparkSession) -> bool:
    """Whether the session's JVM runs and is not shutting down."""
    context: Any = session.sparkContext
    try:
        return not context._jsc.sc().isStopped()
    except Exception:  # noqa: BLE001 - py4j raises various errors for a dead gateway
        return False


def check_settings(settings: EngineSettings) -> None:
    """Reject settings that contradict each other.

    Raises:
        EngineStartError: With BAD_SETTINGS.
    """
    storage = settings.storage
    if isinstance(storage, EmbeddedStorage) and not is_local_master(settings.spark_master):
        raise EngineStartError(
            ExitCode.BAD_SETTINGS,
            f"embedded storage ({storage.directory}) is a folder of this machine, and the "
            f"executors of Spark master {settings.spark_master} run elsewhere: set "
            "DROVER_SPARK_MASTER to local[*], or DROVER_STORAGE_URL to a Kafka cluster",
        )


def start_jvm(settings: EngineSettings, directory: Path) -> Gateway:
    """Start Spark's JVM; returns before it serves. Call from the main thread: it ends with that.

    Args:
        settings: The engine's settings.
        directory: For Spark's temporary files; the caller removes it.

    Raises:
        EngineStartError: No usable Java was found, or settings contradict each other.
    """
    check_settings(settings)
    try:
        # checked first: Spark's scripts and an old Java report it in many lines
        java = find_java()
    except JavaUnusableError as error:
        raise EngineStartError(ExitCode.JAVA_UNUSABLE, str(error)) from None
    log4j = directory / "log4j2.properties"
    pattern = _JSON_PATTERN if settings.log_format == "json" else _TEXT_PATTERN
    log4j.write_text(f"{_LOG4J}appender.stderr.layout.pattern = {pattern}\n")
    conf = spark_conf(settings, directory)
    own_options = (
        quoted(f"-Dlog4j2.configurationFile={log4j.as_uri()}"),
        quoted(f"-Djava.io.tmpdir={directory}"),
        "-XX:-UsePerfData",
        _class_archive_options(settings, conf, java),
        conf.get(JAVA_OPTIONS, ""),
    )
    conf[JAVA_OPTIONS] = " ".join(filter(None, own_options))
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": executor_python(settings),
        "SPARK_CONNECT_MODE": "0",
        "SPARK_LOCAL_DIRS": str(directory / "local"),
        STORAGE_VARIABLE: ON_KAFKA if isinstance(settings.storage, KafkaStorage) else EMBEDDED,
    }
    if is_local_master(settings.spark_master):
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"  # where Spark serves its UI
    return start_gateway(conf, directory, environment)


def start_session(
    gateway: Gateway,
    settings: EngineSettings,
    *,
    stop: threading.Event,
    on_lost: Callable[[int], None],
) -> SparkEngine | None:
    """Start a session in a JVM that was started, once it serves.

    Args:
        gateway: The JVM.
        settings: The engine's settings.
        stop: Aborts the start when set; the result is None then.
        on_lost: Called on another thread with the JVM's exit code when it ended.

    Raises:
        EngineStartError: The JVM ended, or Spark rejected its settings.
    """
    if not gateway.wait(stop):
        return None
    gateway.use()
    os.environ["PYSPARK_PYTHON"] = executor_python(settings)
    jvm = gateway.jvm
    threading.Thread(target=lambda: on_lost(jvm.wait()), name="jvm-watch", daemon=True).start()
    return SparkEngine(_build_session(settings.spark_master), gateway)


def executor_python(settings: EngineSettings) -> str:
    """The Python of executors: of the archive in spark.archives, else at the engine's path."""
    archives = settings.spark_conf.get("spark.archives", "").split(",")
    packed = any(each.strip().endswith(f"#{ARCHIVE_NAME}") for each in archives)
    return ARCHIVE_PYTHON if packed else settings.python_executable


def spark_conf(settings: EngineSettings, directory: Path) -> dict[str, str]:
    """Spark's settings for an engine; the user's settings take precedence."""
    conf = {
        "spark.app.name": "drover",
        DRIVER_MEMORY: DEFAULT_DRIVER_MEMORY,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # many small tasks share the cores with large batches
        "spark.scheduler.mode": "FAIR",
        "spark.pyspark.python": executor_python(settings),
        "spark.pyspark.driver.python": settings.python_executable,
        "spark.python.worker.reuse": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        # plans are never inspected afterwards, and an engine creates one every few milliseconds
        "spark.sql.ui.retainedExecutions": "10",
        "spark.ui.retainedJobs": "10",
        "spark.ui.retainedStages": "10",
        "spark.ui.retainedTasks": "100",
        "spark.cleaner.periodicGC.interval": "5min",
    }
    if is_local_master(settings.spark_master):
        conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = "127.0.0.1"
        conf["spark.python.daemon.module"] = "drover_worker.engine.python_daemon"
        conf[JAVA_OPTIONS] = LOCAL_JVM_OPTIONS
        if len(os.fsencode(directory)) + _SOCKET_NAME_BYTES <= _SOCKET_PATH_BYTES_MAX:
            conf["spark.python.unix.domain.socket.enabled"] = "true"
            conf["spark.python.unix.domain.socket.dir"] = str(directory)
    else:
        # remote executors call the driver at this machine's host name, which Spark resolves; local
        # ones inherit the engine's environment, remote ones need these variables
        for name, value in settings.policy_variables().items():
            conf[f"spark.executorEnv.{name}"] = value
        conf[f"spark.executorEnv.{SAFE_PATH_VARIABLE}"] = "1"
        conf[_RESULT_LIMIT] = _result_limit(settings.spark_conf)
    conf |= protection(settings.spark_master, settings.spark_conf)
    return {**conf, **settings.spark_conf, "spark.master": settings.spark_master}


def _result_limit(conf: Mapping[str, str]) -> str:
    """Half of the heap: a batch above this fails with its remedy, before it fills the heap."""
    heap_bytes = size_bytes(conf.get(DRIVER_MEMORY, DEFAULT_DRIVER_MEMORY))
    return "512m" if heap_bytes is None else f"{heap_bytes // 2 >> 20}m"


def _class_archive_options(settings: EngineSettings, conf: Mapping[str, str], java: Java) -> str:
    try:
        return options_of_engine(settings.class_archives, conf, java)
    except NoArchiveError as error:
        log.warning("engines start without an archive of Spark's classes", reason=str(error))
        return ""


def _build_session(master: str) -> SparkSession:
    try:
        return SparkSession.builder.getOrCreate()  # uses the settings of the running JVM
    except Exception as error:
        cause = cause_of(error)
        text = f"Spark did not start: {cause}"
        if not is_local_master(master):
            text = (
                f"Spark did not start with the master {master}: {cause.rstrip('.')}; check that it "
                "runs, that it has this worker's version of Spark and the secret in "
                "DROVER_SPARK_CONF, and that it and this machine can reach each other "
                "(DROVER_SPARK_MASTER)"
            )
        raise EngineStartError(ExitCode.SPARK_NOT_STARTED, text) from error
