"""FilesSink: topics as files of rows."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from drover.connector import (
    All,
    Check,
    ConfigDef,
    ConfigKey,
    ConfigType,
    ConnectorContext,
    Importance,
    InRange,
    NonEmpty,
    OneOf,
    SinkBatch,
    SinkConnector,
    SinkTask,
    SinkTaskContext,
    TopicPartition,
    Violation,
)
from drover.connectors.output_directory import OutputDirectory, StagedFile
from drover.connectors.paths import directory_fault
from drover.connectors.row_files import (
    CSV,
    JSON,
    PARQUET,
    FileLayout,
    PartitionBy,
    RowFileWriter,
)

PATH = "path"
FORMAT = "format"
PARTITION_BY = "partition.by"
FLUSH_SIZE = "flush.size"
ROLL_BYTES = "roll.bytes"

#: What is left of a file's name, whose other parts have fixed lengths.
_TOPIC_MAX_CHARS = 180

_log = logging.getLogger(__name__)


class FilesSinkTask(SinkTask):
    """Writes each batch as files that are named by its offsets.

    Whatever has not been committed of a topic partition is removed before anything of it is
    written, so that every record is in one file, wherever batches are cut.
    """

    def start(self, context: SinkTaskContext) -> None:
        """Open the directory; topic partitions are taken over when their first records come."""
        config = context.config
        self._directory: OutputDirectory | None = OutputDirectory(
            config[PATH],
            task=context.task,
            term=context.claim,
            extension=config[FORMAT],
        )
        self._layout = FileLayout(
            config[FORMAT],
            tuple(PartitionBy.parse(each) for each in config[PARTITION_BY] or []),
            rows_max=config[FLUSH_SIZE] or 0,
            bytes_max=config[ROLL_BYTES] or 0,
        )
        self._written: dict[TopicPartition, int] = {}

    def write(self, batch: SinkBatch) -> str:
        """Write the batch and put its files in place."""
        directory = self._directory
        assert directory is not None
        for each in batch.ranges:
            key = TopicPartition(each.topic, each.partition)
            written = self._written.get(key)
            if written is None or each.start_offset < written:
                # what is read begins where the committed offset is
                directory.take_over(each.topic, each.partition, each.start_offset)
            else:
                directory.check_owner(each.topic, each.partition)
        writer = RowFileWriter(str(directory.staging), directory.owner, self._layout)
        try:
            rows = batch.run_in_arrow(writer)
        except Exception:
            for each in batch.ranges:  # an error that comes of a take-over says so
                directory.check_owner(each.topic, each.partition)
            raise
        directory.publish(
            StagedFile(
                row["staged"],
                row["directory"],
                row["topic"],
                row["partition"],
                row["start_offset"],
                row["end_offset"],
            )
            for row in rows
        )
        for each in batch.ranges:
            self._written[TopicPartition(each.topic, each.partition)] = each.end_offset
        return ""

    def stop(self) -> None:
        """Leave nothing but the files."""
        if getattr(self, "_directory", None) is not None:
            assert self._directory is not None
            self._directory.close()


class FilesSink(SinkConnector):
    """Writes topics into a directory, as Parquet, JSON lines or csv: a record is a row.

    Each batch becomes a file of each topic partition, or one in each directory that
    ``partition.by`` asks for; records of different schemas are in different files. Files are named
    by their offsets and appear when they are complete. Each record is written once: what a task
    that was killed has not committed is removed before its successor writes.

    Records whose value is null (tombstones) are left out. The directory is on a disk that driver
    and executors share.
    """

    version = "0.1.0"
    aliases = ("FilesSink",)
    structured: ClassVar[bool] = True
    task_class = FilesSinkTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See the documentation of each key."""
        return ConfigDef(
            ConfigKey(
                PATH,
                ConfigType.STRING,
                importance=Importance.HIGH,
                group="Files",
                documentation="The directory to write to, as an absolute path; it is created.",
                validator=All(NonEmpty(), Check(directory_fault)),
            ),
            ConfigKey(
                FORMAT,
                ConfigType.STRING,
                default=PARQUET,
                importance=Importance.HIGH,
                group="Files",
                documentation="What the files are.",
                validator=OneOf(PARQUET, JSON, CSV),
            ),
            ConfigKey(
                PARTITION_BY,
                ConfigType.LIST,
                default=None,
                group="Files",
                documentation="Directories, one below the other: of a field's values (city makes "
                "city=Oslo, and the field is not in the file), or of the year, month, day or hour "
                "of a time (month(at) makes month=2024-01); month alone is of the record's "
                "timestamp.",
                validator=All(NonEmpty(), Check(_partition_by_fault)),
            ),
            ConfigKey(
                FLUSH_SIZE,
                ConfigType.INT,
                default=None,
                importance=Importance.LOW,
                group="Files",
                documentation="At most so many records are in a file; a batch of more becomes "
                "several files.",
                validator=InRange(1),
            ),
            ConfigKey(
                ROLL_BYTES,
                ConfigType.LONG,
                default=None,
                importance=Importance.LOW,
                group="Files",
                documentation="A file that has about so many bytes is closed, and the batch goes "
                "on in the next.",
                validator=InRange(1024),
            ),
        )

    @classmethod
    def validate(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """Names of topics fit into names of files."""
        return [
            Violation(
                "topics",
                f"has {topic[:40]!r}…, which is too long for the names of files: "
                f"{_TOPIC_MAX_CHARS} characters at most",
            )
            for topic in config.get("topics") or []
            if len(topic) > _TOPIC_MAX_CHARS
        ]

    def start(self, context: ConnectorContext, config: Mapping[str, Any]) -> None:
        """Nothing runs here."""

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Tasks differ in the partitions that they are given."""
        return [{} for _ in range(max_tasks)]


def _partition_by_fault(items: list[str]) -> str | None:
    try:
        names = [PartitionBy.parse(each).name for each in items]
    except ValueError as error:
        return str(error)
    doubled = sorted({name for name in names if names.count(name) > 1})
    return f"names {doubled[0]!r} twice" if doubled else None
