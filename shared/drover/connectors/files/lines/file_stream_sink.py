"""FileStreamSink: a topic as the lines of a file."""

import json
import logging
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from drover.connector import (
    ONCE,
    All,
    Check,
    ConfigDef,
    ConfigKey,
    ConfigType,
    ConnectorContext,
    Importance,
    NonEmpty,
    SinkBatch,
    SinkConnector,
    SinkOffset,
    SinkTask,
    SinkTaskContext,
    TopicPartition,
)
from drover.connectors.aliases import FILE_STREAM_SINK, file_stream_task_config
from drover.connectors.files.lines.output_file import OutputFile
from drover.connectors.files.lines.part_writer import PartWriter
from drover.connectors.paths import path_fault

FILE = "file"

_log = logging.getLogger(__name__)


class FileStreamSinkTask(SinkTask):
    """Writes each batch at the place that its offsets have in the file.

    Executors write parts beside the file; the task copies them to their place under a lock. The
    file's length is committed as metadata of the offsets, so that the next owner knows where the
    committed bytes end, whatever was written after them.
    """

    writes_ahead: ClassVar[bool] = True

    def __init__(self) -> None:
        self._file: OutputFile | None = None
        self._length = 0
        self._batch_count = 0

    def start(self, context: SinkTaskContext) -> None:
        """Take the file over and cut it to its committed length, or go on at its end."""
        self._file = OutputFile(
            context.config[FILE], connector=context.task.connector, term=context.claim
        )
        topics = context.config["topics"] or {key.topic for key in context.committed}
        length = committed_length(context.committed, topics)
        if length is None:
            length = self._file.open_at_end(described(context.committed))
        else:
            self._file.open(length)
        self._length = length
        _log.info("%s is taken over at %d bytes", self._file.path, self._length)

    def write(self, batch: SinkBatch) -> str:
        """Append the batch; returns the file's new length."""
        assert self._file is not None
        self._batch_count += 1
        directory = self._file.parts_directory / str(self._batch_count)
        directory.mkdir(parents=True, exist_ok=True)
        try:
            rows = batch.run_in_arrow(PartWriter(str(directory)))
            rows.sort(key=lambda row: row["spark_partition"])
            self._length = self._file.append(self._length, [Path(row["path"]) for row in rows])
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        return json.dumps({"length": self._length})

    def stop(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()


class FileStreamSink(SinkConnector):
    r"""Writes topics into a file: each value and a ``\n``, in the order of the topic.

    With one partition the file is exactly the topic; with several, order holds within each. The
    file is Drover's: nobody else may write it. It is on a disk that driver and executors share.

    Offsets without the file's length, which Kafka Connect's FileStreamSink or an operator has
    committed, say that the file is another's work up to there: this connector goes on at the
    file's end, behind the last line that is whole. A line without its end was not committed, as
    Kafka Connect commits after it has written, and comes again. After a clean stop of Kafka Connect
    nothing is lost or doubled; after a kill its lines since the last commit come again, as they do
    there. Kafka Connect writes "null" where this connector leaves a line empty.
    """

    version = "0.1.0"
    aliases = ("FileStreamSink", "FileStreamSinkConnector", FILE_STREAM_SINK)
    guarantees = ONCE
    columns = frozenset({"value"})
    task_class = FileStreamSinkTask

    def __init__(self) -> None:
        self._config_texts: Mapping[str, str] = {}

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See the documentation of each key."""
        return ConfigDef(
            ConfigKey(
                FILE,
                ConfigType.STRING,
                importance=Importance.HIGH,
                group="File",
                documentation="The file to write, as an absolute path; it is created.",
                validator=All(NonEmpty(), Check(path_fault)),
            ),
            ConfigKey(
                "tasks.max",
                ConfigType.INT,
                default=1,
                group="Common",
                documentation="Always 1: a file has one writer.",
                validator=Check(
                    lambda value: (
                        None if value == 1 else f"must be 1, as a file has one writer, not {value}"
                    )
                ),
            ),
        )

    def start(self, context: ConnectorContext, config: Mapping[str, Any]) -> None:
        """Nothing runs here."""
        del config
        self._config_texts = context.config_texts

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """One task."""
        del max_tasks
        return [file_stream_task_config(self._config_texts) or {}]


def committed_length(
    committed: Mapping[TopicPartition, SinkOffset], topics: Collection[str]
) -> int | None:
    """How many bytes of the file are committed: the longest that any offset's metadata says.

    None when an offset of one of the connector's topics has no metadata: somebody else has
    committed it, and written the file.

    Raises:
        ValueError: an offset's metadata is not this connector's.
    """
    lengths = [0]
    for (topic, partition), offset in committed.items():
        if not offset.metadata:
            if topic in topics:
                return None
            continue
        try:
            length: Any = json.loads(offset.metadata)["length"]
            if not isinstance(length, int) or length < 0:
                raise ValueError
            lengths.append(length)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"the committed offset {offset.offset} of {topic}-{partition} does not say how "
                f"long the file was (metadata {offset.metadata[:80]!r}): reset the connector's "
                "offsets to write the file anew"
            ) from error
    return max(lengths)


def described(committed: Mapping[TopicPartition, SinkOffset]) -> str:
    """Equal for equal offsets, and for no others."""
    return json.dumps(
        [[*key, each.offset, each.metadata] for key, each in sorted(committed.items())]
    )
