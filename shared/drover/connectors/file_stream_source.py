"""FileStreamSource: the lines of files, as they grow, into a topic."""

import glob
import json
import logging
import os
import stat
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from drover.connector import (
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
    SourceBatch,
    SourceConnector,
    SourceTask,
    SourceTaskContext,
    balanced_groups,
)
from drover.connectors.line_files import ByteRange, FileVanishedError, TailedFile
from drover.connectors.line_reader import LINES_DDL, LineReader
from drover.connectors.paths import path_fault

FILE = "file"
TOPIC = "topic"
RESCAN_INTERVAL_MS = "rescan.interval.ms"
#: What a task is given: its files, as a JSON list.
TASK_FILES = "task.files"

#: What an executor reads at once.
RANGE_BYTES = 4 * 1024 * 1024

_log = logging.getLogger(__name__)


class FileStreamSourceTask(SourceTask):
    """Tails some files; a batch takes from each in turn."""

    def start(self, context: SourceTaskContext) -> None:
        """Take up each file where its committed offset says."""
        self._context = context
        self._waits_for_files = not glob.has_magic(context.config[FILE])
        self._files = [
            TailedFile(path, context.offset({"filename": path}))
            for path in json.loads(context.config[TASK_FILES])
        ]
        self._next_file = 0

    def poll(self) -> SourceBatch | None:
        """The lines that were added, up to the limits of a batch."""
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
            group_count=spark.sparkContext.defaultParallelism,
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
            # one of many that was read to its end: the connector's next look drops it
            _log.info("%s was read to its end and is gone", file.path)
            self._files.remove(file)
            return []

    def _in_turn(self) -> list[TailedFile]:
        """Every file, each time beginning with another, so that none starves."""
        if not self._files:
            return []
        first = self._next_file % len(self._files)
        self._next_file = first + 1
        return self._files[first:] + self._files[:first]


class FileStreamSource(SourceConnector):
    r"""Reads files line by line and tails them as they grow.

    A record's value is the bytes of a line, split on ``\n`` only; a last line without it waits.
    Renamed (rotated) files are read to their end before their successor, truncated ones from their
    start; a file that does not exist yet is waited for. A glob over several files splits them
    across tasks; it should not match the names that rotation gives.

    Each file is a source partition ``{"filename": path}``; its offset has the byte ``position``.
    """

    version = "0.1.0"
    aliases = ("FileStreamSource", "FileStreamSourceConnector")
    task_class = FileStreamSourceTask

    def __init__(self) -> None:
        self._config: Mapping[str, Any] = {}
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
                "/data/*.csv; ** crosses directories.",
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
                documentation="How often a glob is looked at for new files.",
                validator=InRange(100, 3_600_000),
            ),
        )

    def start(self, context: ConnectorContext, config: Mapping[str, Any]) -> None:
        """With a glob, begin to watch for new files."""
        self._config = config
        if glob.has_magic(config[FILE]):
            self._watcher = threading.Thread(
                target=self._watch, args=(context,), name="file-stream-rescan", daemon=True
            )
            self._watcher.start()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """The files dealt out in turn; no task while a glob matches nothing."""
        self._files = matching_files(self._config[FILE])
        count = min(max_tasks, len(self._files))
        return [{TASK_FILES: json.dumps(self._files[index::count])} for index in range(count)]

    def stop(self) -> None:
        """End watching."""
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
    """The regular files that match a glob, sorted; a path without wildcards is itself."""
    if not glob.has_magic(pattern):
        return [os.path.normpath(pattern)]
    found = glob.glob(pattern, recursive=True)  # noqa: PTH207 (Path.glob takes no absolute pattern)
    return sorted(path for path in found if _is_regular(path))


def _is_regular(path: str) -> bool:
    try:
        return stat.S_ISREG(Path(path).stat().st_mode)
    except OSError:
        return False
