"""FileStreamSource: the lines of files, as they grow, into a topic."""

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
    balanced_groups,
    core_count,
)
from drover.connectors.aliases import FILE_STREAM_SOURCE, file_stream_task_config
from drover.connectors.files.lines.line_reader import LINES_DDL, LineReader
from drover.connectors.files.lines.tailed_files import ByteRange, TailedFile
from drover.connectors.files.storage.file_identity import FileVanishedError
from drover.connectors.offset_changes import refuse_misshapen
from drover.connectors.paths import path_fault

FILE = "file"
TOPIC = "topic"
RESCAN_INTERVAL_MS = "rescan.interval.ms"
BATCH_SIZE = "batch.size"
#: What a task is given: its files, as a JSON list. Without it, it has the connector's file.
TASK_FILES = "task.files"

#: What an executor reads at once.
RANGE_BYTES = 4 * 1024 * 1024

_log = logging.getLogger(__name__)


class FileStreamSourceTask(SourceTask):
    """Tails some files; a batch takes from each in turn."""

    reads_ahead = True

    def start(self, context: SourceTaskContext) -> None:
        """Take up each file where its committed offset says."""
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

    Kafka Connect's FileStreamSource commits the same, without what tells a file that was replaced,
    and either goes on where the other has stopped. It counts characters, though (as Java does, in
    UTF-16 units), and skips as many bytes when it starts: the two are the same for ASCII only.
    Behind other text its position lies too early, here as there, and the first line that is read
    from it may be a part of one that was read before. It also ends lines at a lone ``\r``, and
    takes the ``\r`` of ``\r\n`` away, which stays in the record here.
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
            ConfigKey(
                BATCH_SIZE,
                ConfigType.INT,
                default=2_000,
                importance=Importance.LOW,
                group="Kafka Connect",
                documentation="As configs of Kafka Connect have it; a batch here has "
                "batch.max.records lines at most.",
                validator=InRange(1),
            ),
        )

    @classmethod
    def alter_offsets(cls, config: Mapping[str, Any], changes: Sequence[OffsetChange]) -> bool:
        """Nothing is kept elsewhere."""
        del config
        refuse_misshapen(changes, partition={"filename": str}, counts=("position",))
        return True

    def start(self, context: ConnectorContext, config: Mapping[str, Any]) -> None:
        """With a glob, begin to watch for new files."""
        self._config = config
        self._config_texts = context.config_texts
        if glob.has_magic(config[FILE]):
            self._watcher = threading.Thread(
                target=self._watch, args=(context,), name="file-stream-rescan", daemon=True
            )
            self._watcher.start()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """The files dealt out in turn; no task while a glob matches nothing."""
        self._files = matching_files(self._config[FILE])
        shared_config = file_stream_task_config(self._config_texts)
        if shared_config is not None and not glob.has_magic(self._config[FILE]):
            return [shared_config]
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
        return [pattern]  # as it is written, for committed offsets name it so
    found = glob.glob(pattern, recursive=True)  # noqa: PTH207 (Path.glob takes no absolute pattern)
    return sorted(path for path in found if _is_regular(path))


def _is_regular(path: str) -> bool:
    try:
        return stat.S_ISREG(Path(path).stat().st_mode)
    except OSError:
        return False
