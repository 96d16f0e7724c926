"""The settings that the herder passes to an engine."""

import dataclasses
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drover.java_plugins.allowed import (
    ALLOWED_VARIABLE,
    EVERY_CLASS,
    NO_CLASS,
    PREFERRED_VARIABLE,
)
from drover.java_plugins.places import HOME_VARIABLE, PATH_VARIABLE, REMOTE_VARIABLE
from drover.log.storage import EmbeddedStorage, KafkaStorage, KafkaTopics, Storage
from drover.policy.client_settings import POLICY_VARIABLE
from drover.policy.egress import HOSTS_VARIABLE
from drover.policy.files import DENIED_VARIABLE, ROOTS_VARIABLE

#: The heap size of Spark's JVM, and its default.
DRIVER_MEMORY = "spark.driver.memory"
DEFAULT_DRIVER_MEMORY = "1g"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
#: The JVM beside local executors mostly plans and waits: GC threads would take cores from batches,
#: and the C2 compiler took more time than all jobs of the first minutes.
LOCAL_JVM_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
#: The setting without archives of Spark's classes.
NO_CLASS_ARCHIVES = "off"


def is_local_master(master: str) -> bool:
    """Whether executors run on this machine and share its file system."""
    return master == "local" or master.startswith("local[")


def default_class_archives(environ: Mapping[str, str] = os.environ) -> str:
    """The folder in the user's cache; ``off`` for a user without a home directory."""
    cache = environ.get("XDG_CACHE_HOME", "")
    if not cache.startswith("/"):
        home = environ.get("HOME", "")
        if not home.startswith("/"):
            return NO_CLASS_ARCHIVES
        cache = f"{home}/.cache"
    return f"{cache}/drover/spark-classes"


#: For the check and the write of an input of ProduceRecords.
PRODUCE_MS = 120_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """Limits for plugin code and batches.

    Attributes:
        start_ms: For a connector's or task's constructor and start().
        validate_ms: For config_def() and validate() of one config.
        task_configs_ms: For task_configs().
        stop_ms: For stop() of a connector or task; StopTask waits as long for the batch in
            flight.
        poll_ms: For one poll() of a source task, which only plans.
        abandoned_threads: With more hung threads than this the engine requests its replacement.
        batch_threads: Micro-batches that run concurrently.
        idle_poll_ms: The longest pause between two polls of an idle source.
        topic_watch_ms: How often idle sinks check for new records of other processes.
        progress_ms: How often progress is reported.
    """

    start_ms: int = 30_000
    validate_ms: int = 30_000
    task_configs_ms: int = 30_000
    stop_ms: int = 5_000
    poll_ms: int = 60_000
    abandoned_threads: int = 8
    batch_threads: int = 8
    idle_poll_ms: int = 1_000
    topic_watch_ms: int = 100
    progress_ms: int = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How to start an engine.

    Attributes:
        storage: The backend for topics and offsets.
        spark_master: As spark.master, such as ``local[*]``.
        spark_conf: Further Spark settings; they override the engine's.
        memory_bytes: The limit for all processes of the engine together; None without a limit.
        cores: The limit of cores; None without a limit.
        converters: Default converters for connectors that set none, with their settings.
        config_providers: The settings of each config provider, by name.
        class_archives: The folder with archives of Spark's classes; ``off`` for none.
        python_executable: Runs the engine and Spark's Python workers.
        not_exactly_once: The reason why sources write to Kafka at least once; empty when they
            write in transactions.
        file_roots: The directories that connectors may access, comma-separated; none when
            empty.
        plugin_modules: Modules that configs may name in addition to entry points,
            comma-separated.
        plugin_home: The folder of installed Java plugins.
        plugin_path: Further folders with Java plugins, comma-separated.
        java_preferred: Connectors that run as Java plugins although Drover has them too; as
            java_plugins.
        java_plugins: Java classes that configs may name, comma-separated, with ``*`` at the end of
            a name for the rest of it.
        denied_files: Files and directories that connectors must not access, although they may be
            below ``file_roots``.
        allowed_hosts: The hosts that connectors may connect to, comma-separated; None for the
            default.
        client_override_policy: Which settings of client libraries connectors may set: ``none``,
            ``allowlist`` or ``all``.
        log_level: DEBUG, INFO, WARNING or ERROR.
        log_format: ``json`` or ``text``.
        limits: Limits for plugin code and batches.
    """

    storage: Storage
    spark_master: str = "local[*]"
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    memory_bytes: int | None = None
    cores: int | None = None
    converters: Mapping[str, str] = field(default_factory=dict)
    config_providers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    class_archives: str = NO_CLASS_ARCHIVES
    python_executable: str = sys.executable
    not_exactly_once: str = "the engine's settings do not enable it"
    file_roots: str = "/"
    plugin_modules: str = ""
    plugin_home: str = ""
    plugin_path: str = ""
    java_plugins: str = EVERY_CLASS
    java_preferred: str = ""
    denied_files: tuple[str, ...] = ()
    allowed_hosts: str | None = None
    client_override_policy: str = "allowlist"
    log_level: str = "INFO"
    log_format: str = "json"
    limits: EngineLimits = field(default_factory=EngineLimits)

    @property
    def source_limitation(self) -> str:
        """The reason why sources deliver at least once; empty for exactly once."""
        return "" if isinstance(self.storage, EmbeddedStorage) else self.not_exactly_once

    def policy_variables(self) -> dict[str, str]:
        """The environment of engine and executors with the policies of connectors."""
        hosts = {} if self.allowed_hosts is None else {HOSTS_VARIABLE: self.allowed_hosts}
        return {
            # Spark drops a variable without a value
            ROOTS_VARIABLE: self.file_roots or ",",
            DENIED_VARIABLE: json.dumps(self.denied_files),
            POLICY_VARIABLE: self.client_override_policy,
            HOME_VARIABLE: self.plugin_home,
            PATH_VARIABLE: self.plugin_path,
            ALLOWED_VARIABLE: self.java_plugins or NO_CLASS,
            PREFERRED_VARIABLE: self.java_preferred or NO_CLASS,
            **({} if is_local_master(self.spark_master) else {REMOTE_VARIABLE: self.spark_master}),
            **hosts,
        }

    def to_json(self) -> str:
        """The settings as JSON text for ``from_json``; may contain passwords."""
        values = {**dataclasses.asdict(self), "storage": _encode_storage(self.storage)}
        return json.dumps(values)

    @classmethod
    def from_json(cls, text: str) -> "EngineSettings":
        """The settings that ``to_json`` wrote."""
        values = json.loads(text)
        return cls(
            **{
                **values,
                "storage": _decode_storage(values["storage"]),
                "denied_files": tuple(values["denied_files"]),
                "limits": EngineLimits(**values["limits"]),
            }
        )


def _encode_storage(storage: Storage) -> dict[str, Any]:
    if isinstance(storage, EmbeddedStorage):
        return {"directory": str(storage.directory)}
    return dataclasses.asdict(storage)


def _decode_storage(values: Mapping[str, Any]) -> Storage:
    if "directory" in values:
        return EmbeddedStorage(Path(values["directory"]))
    return KafkaStorage(**{**values, "topics": KafkaTopics(**values["topics"])})
