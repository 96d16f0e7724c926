"""FileStreamSink: writes a topic as lines of a file."""

import contextlib
import json
import logging
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from drover.connector import (
    ONCE,
    All,
    Caution,
    Check,
    ConfigDef,
    ConfigKey,
    ConfigType,
    ConnectorContext,
    Importance,
    NonEmpty,
    OffsetChange,
    OverwriteKey,
    SinkBatch,
    SinkConnector,
    SinkOffset,
    SinkTask,
    SinkTaskContext,
    StaleClaimError,
    TopicPartition,
    Violation,
)
from drover.connectors.aliases import FILE_STREAM_SINK, file_stream_task_config
from drover.connectors.files.lines.output_file import OutputFile, traced_offsets
from drover.connectors.files.lines.part_writer import PartWriter
from drover.connectors.files.lines.written_offsets import WrittenOffset
from drover.connectors.files.storage.write_access import directory_write_fault, file_write_fault
from drover.policy.files import path_fault

FILE = "file"

_log = logging.getLogger(__name__)


class FileStreamSinkTask(SinkTask):
    """Writes each batch at the file position that belongs to its offsets.

    Executors write parts beside the file; the task copies them into it under a lock. The file's
    length is committed as metadata of the offsets, so that the next owner knows where the committed
    bytes end and truncates the file there.

    Where offsets are missing, the length in the others may be too short: offsets are lost together
    with their topics. The file then continues at its end.
    """

    writes_ahead: ClassVar[bool] = True

    def __init__(self) -> None:
        self._file: OutputFile | None = None
        self._length = 0
        self._batch_count = 0
        #: The committed offsets, as text, under which the file was taken over; None once others are
        #: committed.
        self._taken_under: str | None = None

    def start(self, context: SinkTaskContext) -> None:
        """Take over the file and truncate it to its committed length, or continue at its end."""
        self._context = context
        self._file = OutputFile(
            context.config[FILE], connector=context.task.connector, term=context.claim
        )
        topics = context.config["topics"] or {key.topic for key in context.committed}
        committed = context.committed
        length = committed_length(committed, topics)
        self._written: Mapping[TopicPartition, WrittenOffset] = self._file.written()
        self._taken_under = described(committed)
        if not committed:
            length = self._file.open_at_end()
        elif length is None:
            length = self._file.open_at_end(self._taken_under, cuts_last_line=True)
        elif any(not each.is_covered for key, each in self._written.items() if self._is_lost(key)):
            length = self._file.open_at_end(self._taken_under)
        else:
            self._file.open(length)
        self._length = length
        _log.info("%s was taken over at %d bytes", self._file.path, self._length)

    def first_metadata(self) -> str:
        """The file's length so far."""
        return json.dumps({"length": self._length})

    def write(self, batch: SinkBatch) -> str:
        """Append the batch; returns the file's new length."""
        assert self._file is not None
        self._batch_count += 1
        self._note_commits()
        written = self._with_ranges(batch)
        directory = self._file.parts_directory / str(self._batch_count)
        directory.mkdir(parents=True, exist_ok=True)
        try:
            rows = batch.run_in_arrow(PartWriter(str(directory)))
            rows.sort(key=lambda row: row["spark_partition"])
            parts = [Path(row["path"]) for row in rows]
            self._length = self._file.append(self._length, parts, written)
            self._written = written
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        return json.dumps({"length": self._length})

    def stop(self) -> None:
        """Release the file."""
        if self._file is not None:
            with contextlib.suppress(StaleClaimError, OSError):  # the next owner does the same
                self._note_commits()
            self._file.close()

    def _is_lost(self, key: TopicPartition) -> bool:
        """Whether no committed offset belongs to what the file has of a topic partition."""
        output_id = self._context.output_ids.get(key, "")
        return key not in self._context.committed or self._written[key].output_id != output_id

    def _note_commits(self) -> None:
        """After the first commit, its length covers the whole file, also the records whose offsets
        were missing at the start.
        """
        if self._taken_under in (None, described(self._context.committed)):
            return
        assert self._file is not None
        self._taken_under = None
        self._written = {
            key: replace(each, is_covered=True) if self._is_lost(key) else each
            for key, each in self._written.items()
        }
        self._file.forget_take_over()

    def _with_ranges(self, batch: SinkBatch) -> Mapping[TopicPartition, WrittenOffset]:
        """The topic partitions in the file after a batch; new ones are noted before it."""
        assert self._file is not None
        ids = self._context.output_ids
        ends = {
            TopicPartition(each.topic, each.partition): each.end_offset for each in batch.ranges
        }
        begun = {
            key: WrittenOffset(ids.get(key, ""))
            for key in ends
            if key not in self._written or self._written[key].output_id != ids.get(key, "")
        }
        if begun:
            self._written = {**self._written, **begun}
            self._file.note_written(self._written)
        after = {key: WrittenOffset(ids.get(key, ""), end) for key, end in ends.items()}
        return {**self._written, **after}


class FileStreamSink(SinkConnector):
    r"""Writes topics into a file: each value and a ``\n``, in the order of the topic.

    With one partition the file equals the topic; with several, the order holds within each. No
    other program may write the file. It is on a disk that driver and executors share.

    Without a committed offset the sink appends to its file, as Kafka Connect's does: after a reset,
    or when a topic was deleted and created again.

    Committed offsets without the file's length, from Kafka Connect's FileStreamSink or an operator,
    mean that another program wrote the file up to these offsets: this connector continues after the
    last complete line. An incomplete last line was not committed, because Kafka Connect commits
    after writing, and is written again. After a clean stop of Kafka Connect no record is lost or
    duplicated; after a kill, lines since the last commit are duplicated, as with Kafka Connect. For
    a null value Kafka Connect writes "null", this connector an empty line.
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

    @classmethod
    def alter_offsets(cls, config: Mapping[str, Any], changes: Sequence[OffsetChange]) -> bool:
        """The file belongs to the offsets: the next start truncates it or continues at its end."""
        del config, changes
        return True

    @classmethod
    def check_systems(cls, config: Mapping[str, Any]) -> Sequence[Violation]:
        """The file must be writable, and its directory, which also has the lock and the parts."""
        path = Path(config[FILE])
        fault = file_write_fault(str(path)) or directory_write_fault(str(path.parent))
        if fault is not None:
            return [Violation(FILE, fault)]
        if not path.parent.is_dir():
            text = f"is in {path.parent}, which does not exist on this worker: create it"
            return [Caution(FILE, text)]
        return []

    @classmethod
    def traced_offsets(
        cls, connector: str, config: Mapping[str, Any], partitions: Mapping[TopicPartition, str]
    ) -> Mapping[TopicPartition, int]:
        """What is noted beside the file."""
        return {
            key: each.next_offset
            for key, each in traced_offsets(config[FILE], connector).items()
            if partitions.get(key) == each.output_id and each.next_offset is not None
        }

    def start(self, context: ConnectorContext, config: Mapping[str, Any]) -> None:
        """The connector object does no work."""
        del config
        self._config_texts = context.config_texts

    @classmethod
    def overwrite_keys(cls, config: Mapping[str, Any]) -> Sequence[OverwriteKey]:
        """Lines are only added."""
        del config
        return ()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """One task."""
        del max_tasks
        return [file_stream_task_config(self._config_texts) or {}]


def committed_length(
    committed: Mapping[TopicPartition, SinkOffset], topics: Collection[str]
) -> int | None:
    """The committed length of the file in bytes: the largest in the metadata of any offset.

    None if an offset of one of the connector's topics has no metadata: another program committed it
    and wrote the file.

    Raises:
        ValueError: An offset has metadata of another connector.
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
                f"the committed offset {offset.offset} of {topic}-{partition} has no file "
                f"length (metadata {offset.metadata[:80]!r}): reset the connector's "
                "offsets to write its topics again, after what the file has"
            ) from error
    return max(lengths)


def described(committed: Mapping[TopicPartition, SinkOffset]) -> str:
    """A text that is equal exactly for equal offsets."""
    return json.dumps(
        [[*key, each.offset, each.metadata] for key, each in sorted(committed.items())]
    )
