"""Settings that the herder gives an engine at its start, and the engine's exit codes."""

import dataclasses
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from drover.log.storage import EmbeddedStorage, KafkaStorage, KafkaTopics, Storage

#: The environment variable that carries EngineSettings as JSON to the engine process.
SETTINGS_VARIABLE = "DROVER_ENGINE_SETTINGS"
#: Marks every process of one engine's tree, so that a sweep finds what outlived its guard.
TREE_VARIABLE = "DROVER_ENGINE_TREE"
#: Names the directory of an engine's temporary files; its guard makes and removes it.
DIRECTORY_VARIABLE = "DROVER_ENGINE_DIRECTORY"
#: What such a directory's name begins with.
DIRECTORY_PREFIX = "drover-engine-"
#: The descriptor of the table of what is at work in the engine (``in_flight``).
IN_FLIGHT_VARIABLE = "DROVER_ENGINE_IN_FLIGHT"


class ExitCode(IntEnum):
    """How an engine process ends by itself. A signal shows as 128 + its number."""

    STOPPED = 0
    #: A defect of the engine.
    FAILED = 1
    #: The settings contradict each other.
    BAD_SETTINGS = 80
    #: There is no Java that Spark can run on.
    JAVA_UNUSABLE = 81
    #: Java runs, the Spark session does not come up.
    SPARK_NOT_STARTED = 82
    #: The JVM ended under a running engine.
    SPARK_LOST = 83
    #: The herder is gone.
    ORPHANED = 84
    #: The JVM had used up its heap.
    HEAP_USED_UP = 85
    #: The JVM was killed (SIGKILL) under a running engine.
    SPARK_KILLED = 86


#: The heap of Spark's JVM, and what it is where nobody says.
DRIVER_MEMORY = "spark.driver.memory"
DEFAULT_DRIVER_MEMORY = "1g"
#: Starting again does not help before somebody changes the machine or the settings.
LASTING_EXIT_CODES = frozenset({ExitCode.BAD_SETTINGS, ExitCode.JAVA_UNUSABLE})


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """Bounds on plugin code.

    Attributes:
        start_ms: A connector's or task's constructor and start().
        validate_ms: config_def() and validate() of one config.
        task_configs_ms: task_configs().
        stop_ms: stop() of a connector or task; also how long StopTask waits for a batch in flight.
        poll_ms: One poll() of a source task, which only plans.
        abandoned_threads: More hung threads than this, and the engine asks to be replaced.
        batch_threads: Micro-batches that run at once.
        idle_poll_ms: The longest pause between two polls of an idle source.
        topic_watch_ms: How often idle sinks look for new records of other processes.
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
        storage: Where topics and offsets are.
        spark_master: As spark.master, such as ``local[*]``.
        spark_conf: More Spark settings; they win over the engine's own.
        converters: The converters of connectors that name none, with their settings.
        config_providers: The settings of each config provider, by its name.
        python_executable: Runs the engine and Spark's Python workers.
        not_exactly_once: Why sources write to Kafka at least once; empty where they write in
            transactions.
        file_roots: The directories in which connectors may use files, with commas between; none
            when empty.
        plugin_modules: The modules that configs may name beside entry points, with commas between.
        http_allowed_hosts: The hosts that connectors may call over HTTP, with commas between; None
            for all but a few.
        log_level: DEBUG, INFO, WARNING or ERROR.
        log_format: ``json`` or ``text``.
        limits: Bounds on plugin code.
    """

    storage: Storage
    spark_master: str = "local[*]"
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    converters: Mapping[str, str] = field(default_factory=dict)
    config_providers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    python_executable: str = sys.executable
    not_exactly_once: str = "the engine was not told to"
    file_roots: str = "/"
    plugin_modules: str = ""
    http_allowed_hosts: str | None = None
    log_level: str = "INFO"
    log_format: str = "json"
    limits: EngineLimits = field(default_factory=EngineLimits)

    def to_json(self) -> str:
        """The settings as JSON text, for ``from_json``; it may hold passwords."""
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
