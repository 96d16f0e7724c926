"""FileStreamSource: reads the lines of growing files into a topic."""

import glob
import json
import logging
import stat
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from drover.connector import (
    REPLAYED,
    TOPIC_NAME,
    All,
    ArrowRows,
    Check,
    ConfigDef,
    ConfigKey,
    ConfigType,
    ConnectorContext,
    Importance,
    InRange,
    NonEmpty,
    OffsetChange,
    OffsetForm,
    SourceBatch,
    SourceConnector,
    SourceTask,
    SourceTaskContext,
    Violation,
    balanced_groups,
    core_count,
)
from drover.connectors.aliases import FILE_STREAM_SOURCE, file_stream_task_config
from drover.connectors.files.lines.line_reader import LINES_DDL, LineReader
from drover.connectors.files.lines.tailed_files import ByteRange, TailedFile
from drover.connectors.files.storage.file_identity import FileVanishedError
from drover.connectors.files.storage.write_access import read_fault
from drover.connectors.offset_changes import refuse_misshapen
from drover.policy.files import in_allowed_directories, path_fault

FILE = "file"
TOPIC = "topic"
RESCAN_INTERVAL_MS = "rescan.interval.ms"
BATCH_SIZE = "batch.size"
#: The files of a task, as a JSON list; without it the task reads the connector's file.
TASK_FILES = "task.files"

#: The range that an executor reads at once.
RANGE_BYTES = 4 * 1024 * 1024

_log = logging.getLogger(__name__)


class FileStreamSourceTask(SourceTask):
    """Tails its files; batches take from the files in rotation."""

    reads_ahead = True

    def start(self, context: SourceTaskContext) -> None:
        """Resume each file at its committed offset."""
        self._context = context
        self._waits_for_files = not glob.has_magic(context.config[FILE])
        paths = (
            json.loads(context.config[TASK_FILES])
            if TASK_FILES in context.config
            else [context.config[FILE]]
        )
        self._files = [TailedFile(path, context.offset({"filename": path})) for path in paths]
        self._next_file = 0

    def poll(self) -> SourceBatch | None:
        """The new lines, up to the limits of a batch."""
        config = self._context.config
        spark = self._context.spark
        bytes_left: int = config["batch.max.bytes"]
        ranges: list[ByteRange] = []
        offsets = []
        for file in self._in_turn():
            if bytes_left <= 0:
                break
            planned = self._plan(file, bytes_left)
            if planned:
                ranges += planned
                offsets.append(({"filename": file.path}, file.offset()))
                bytes_left -= sum(each.size_bytes for each in planned)
        if not ranges:
            return None
        groups = balanced_groups(
            ranges,
            lambda each: each.size_bytes,
            group_count=core_count(spark.sparkContext),
        )
        rows = ArrowRows(spark, LineReader(groups), len(groups), LINES_DDL)
        return SourceBatch(rows, offsets, topic=config[TOPIC])

    def _plan(self, file: TailedFile, max_bytes: int) -> list[ByteRange]:
        try:
            return file.plan(
                max_bytes=max_bytes,
                max_lines=self._context.config["batch.max.records"],
                range_bytes=RANGE_BYTES,
            )
        except FileVanishedError:
            if self._waits_for_files or not file.read_to_end:
                raise
            # one of several files was read to its end and removed: the next scan drops it
            _log.info("%s was read to its end and has been removed", file.path)
            self._files.remove(file)
            return []

    def _in_turn(self) -> list[TailedFile]:
        """All files, starting with another one each time, so that none starves."""
        if not self._files:
            return []
        first = self._next_file % len(self._files)
        self._next_file = first + 1
        return self._files[first:] + self._files[:first]


class FileStreamSource(SourceConnector):
    r"""Reads files line by line and tails them as they grow.

    A record's value is the bytes of a line, split on ``\n`` only; an incomplete last line waits.
    Renamed (rotated) files are read to their end before their successor, truncated files from their
    start; a missing file is waited for. The files of a glob are distributed over tasks; the glob
    should not match the names of rotated files.

    Each file is a source partition ``{"filename": path}``; its offset has the byte ``position``.
    Kafka Connect's FileStreamSource commits the same offsets without file identity, and either
    connector continues where the other stopped. Kafka Connect counts characters (UTF-16 units, as
    Java), and skips as many bytes when it starts: that agrees for ASCII only. After other text its
    position is too low, for both connectors, and the first line read from it may be part of a line
    that was already read. Kafka Connect also ends lines at a lone ``\r``, and removes the ``\r`` of
    ``\r\n``, which this connector keeps.
    """

    version = "0.1.0"
    aliases = (
        "FileStreamSource",
        "FileStreamSourceConnector",
        FILE_STREAM_SOURCE,
    )
    guarantees = REPLAYED
    offset_forms = (OffsetForm({"filename": str}, {"position": int}),)
    text = True
    task_class = FileStreamSourceTask

    def __init__(self) -> None:
        self._config: Mapping[str, Any] = {}
        self._config_texts: Mapping[str, str] = {}
        self._stopping = threading.Event()
        self._files: list[str] = []
        self._watcher: threading.Thread | None = None

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See the documentation of each key."""
        return ConfigDef(
            ConfigKey(
                FILE,
                ConfigType.STRING,
                importance=Importance.HIGH,
                group="File",
                documentation="The file to read, as an absolute path, or a glob such as "
                "/data/*.csv; ** matches any number of directories.",
                validator=All(NonEmpty(), Check(path_fault)),
            ),
            ConfigKey(
                TOPIC,
                ConfigType.STRING,
                importance=Importance.HIGH,
                group="Topic",
                documentation="The topic to write to.",
                validator=TOPIC_NAME,
            ),
            ConfigKey(
                RESCAN_INTERVAL_MS,
                ConfigType.INT,
                default=2_000,
                importance=Importance.LOW,
                group="File",
                documentation="How often a glob is checked for new files.",
                validator=InRange(100, 3_600_000),
            ),
            ConfigKey(
                BATCH_SIZE,
                ConfigType.INT,
                default=2_000,
                importance=Importance.LOW,
                group="Kafka Connect",
                documentation="Accepted for configs of Kafka Connect; a batch here has at most "
                "batch.max.records lines.",
                validator=InRange(1),
            ),
        )

    @classmethod
    def check_systems(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """A file that exists must be readable."""
        fault = None if glob.has_magic(config[FILE]) else read_fault(config[FILE])
        return [] if fault is None else [Violation(FILE, fault)]

    @classmethod
    def alter_offsets(cls, config: Mapping[str, Any], changes: Sequence[OffsetChange]) -> bool:
        """No state exists outside the offsets."""
        del config
        refuse_misshapen(changes, partition={"filename": str}, counts=("position",))
        return True

    def start(self, context: ConnectorContext, config: Mapping[str, Any]) -> None:
        """With a glob, start to watch for new files."""
        self._config = config
        self._config_texts = context.config_texts
        if glob.has_magic(config[FILE]):
            self._watcher = threading.Thread(
                target=self._watch, args=(context,), name="file-stream-rescan", daemon=True
            )
            self._watcher.start()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """The files, assigned round-robin; no task while a glob matches nothing."""
        self._files = matching_files(self._config[FILE])
        shared_config = file_stream_task_config(self._config_texts)
        if shared_config is not None and not glob.has_magic(self._config[FILE]):
            return [shared_config]
        count = min(max_tasks, len(self._files))
        return [{TASK_FILES: json.dumps(self._files[index::count])} for index in range(count)]

    def stop(self) -> None:
        """Stop watching."""
        self._stopping.set()
        if self._watcher is not None:
            self._watcher.join(timeout=5)

    def _watch(self, context: ConnectorContext) -> None:
        told: list[str] | None = None
        while not self._stopping.wait(self._config[RESCAN_INTERVAL_MS] / 1000):
            found = matching_files(self._config[FILE])
            if found == self._files:
                told = None
            elif found != told:
                told = found
                context.request_reconfiguration()


def matching_files(pattern: str) -> list[str]:
    """The regular files that match a glob, sorted; a path without wildcards is returned as is."""
    if not glob.has_magic(pattern):
        return [pattern]  # unchanged, because committed offsets contain it
    found = in_allowed_directories(
        glob.glob(pattern, recursive=True)  # noqa: PTH207 (Path.glob takes no absolute pattern)
    )
    return sorted(path for path in found if _is_regular(path))


def _is_regular(path: str) -> bool:
    try:
        return stat.S_ISREG(Path(path).stat().st_mode)
    except OSError:
        return False
