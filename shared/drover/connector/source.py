"""The API for sources, which read an external system and write to topics.

Example:
    A source of consecutive numbers::

        class CounterTask(SourceTask):
            def start(self, context: SourceTaskContext) -> None:
                self._context = context
                last = context.offset({"counter": "main"}) or {"next": 0}
                self._next = int(last["next"])

            def poll(self) -> SourceBatch | None:
                if self._next >= self._context.config["limit"]:
                    return None
                end = self._next + 1000
                frame = self._context.spark.range(self._next, end).selectExpr(
                    "'numbers' AS topic", "cast(id AS string) AS value"
                )
                self._next = end
                return SourceBatch(frame, [({"counter": "main"}, {"next": end})])


        class Counter(SourceConnector):
            version = "1.0"
            task_class = CounterTask

            @classmethod
            def config_def(cls) -> ConfigDef:
                return ConfigDef(ConfigKey("limit", ConfigType.LONG))

            def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
                return [{}]
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from drover.connector.connector import Connector
from drover.connector.offset_forms import OffsetForm
from drover.connector.offsets import offset_key, parse_offsets
from drover.connector.plain_rows import table_of
from drover.connector.task import SnapshotProgress, TaskContext
from drover.dataplane.arrow_rows import ArrowRows
from drover.dataplane.topic_creation import TopicRule
from drover.dataplane.values import Placement
from drover.model.offsets import CommittedOffset
from drover.pipeline.layouts import TableRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def _shows_nothing(_progress: SnapshotProgress | None) -> None:
    """The default of ``SourceTaskContext.report_snapshot``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTaskContext(TaskContext):
    """The context of a source task, with the connector's committed offsets.

    ``config["batch.max.bytes"]`` may change between calls of ``poll``: it is the target size of the
    next batch, at most the operator's limit, adapted to the duration of the previous batches.

    Attributes:
        committed: All committed offsets of the connector, including the offsets of its other tasks;
            read after this task was granted its claim.
        commits_with_records: Whether offsets are committed in the same transaction as the records,
            so that no batch is repeated. If False, a batch is repeated after a crash between the
            two.
        report_snapshot: ``report_snapshot(progress)`` shows in the task's status which table is
            being read completely, with the number of its records in topics; None ends it. Call it
            before the first batch of each table is returned.
    """

    committed: Sequence[CommittedOffset] = ()
    commits_with_records: bool = True
    report_snapshot: Callable[[SnapshotProgress | None], None] = _shows_nothing

    def offset(self, partition: Mapping[str, Any]) -> dict[str, Any] | None:
        """The committed offset of a source partition; None if there is none."""
        wanted = offset_key(partition)
        for known, offset in self.offsets():
            if offset_key(known) == wanted:
                return offset
        return None

    def offsets(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """All committed (partition, offset) pairs of the connector."""
        return parse_offsets(self.committed)


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """Records for topics, and the source offsets after them.

    For rows with columns use ``table``. Otherwise ``frame`` has a column ``value``, and optionally
    ``topic`` (string), ``partition`` (int), ``key``, ``headers``
    (array<struct<key:string,value:binary>>) and ``timestamp`` (timestamp, or milliseconds as an
    integer). Keys and values are binary or string, or any type that the configured converter can
    write. A null value is a tombstone. ORIGIN_COLUMN, ERROR_COLUMN and RAW_COLUMN of
    ``drover.connector.records`` have the same meaning as in a ``table``.

    The partition of a record is its ``partition``; else the key determines it, as in Kafka; else it
    is 0, unless ``partitioner.keyless`` is set otherwise. The topic has the records in the frame's
    order: Spark partition, then row.

    Rows that a Python function creates on executors may be ``ArrowRows`` instead of a frame; they
    are staged in the same pass.

    Attributes:
        frame: The records.
        offsets: (partition, offset) pairs of JSON objects, committed together with the records or
            not at all. The offset None removes a partition's offset. (On Kafka, if the workers'
            transactions are disabled, offsets are committed after the records are durable; after a
            crash in between, the batch is repeated.)
        topic: The topic, for a frame without the column.
        layout: Set by ``table``.
        originals: For copies of topics: the partition counts and the settings of the originals, by
            the names of the copies. Missing copies are created like them, and an existing copy gets
            partitions that it lacks.
    """

    frame: "DataFrame | ArrowRows | pa.Table"
    offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    topic: str | None = None
    layout: TableRows | None = None
    originals: Mapping[str, TopicRule] = field(default_factory=dict)

    @classmethod
    def table(
        cls,
        rows: "DataFrame | ArrowRows | pa.Table | Sequence[Mapping[str, Any]]",
        offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]],
        *,
        topic: str | None = None,
        key: str | Sequence[str] | None = None,
    ) -> "SourceBatch":
        """A batch of rows whose columns are the fields of the records' values.

        Args:
            rows: A frame, rows that executors create, an Arrow table, or rows in memory; rows in
                memory may have different fields, and missing fields are null. Columns of
                ``drover.connector.records`` (TOPIC_COLUMN, TIMESTAMP_COLUMN, ORIGIN_COLUMN,
                ERROR_COLUMN, RAW_COLUMN) describe the record and are not fields of its value.
            offsets: See the class.
            topic: The topic of records without TOPIC_COLUMN.
            key: The column whose values are the keys, or several columns that are the fields of the
                keys.

        Raises:
            RowsError: Rows in memory cannot form a table: the values of a field have different
                types.
        """
        names = key if isinstance(key, str) or key is None else tuple(key)
        if isinstance(rows, Sequence):
            rows = table_of(rows)
        return cls(rows, offsets, topic, TableRows(names))


class SourceTask(ABC):
    """Reads a part of a source, batch by batch, on one thread.

    The constructor must have no required arguments. An exception makes the task FAILED, with its
    trace.
    """

    #: Whether poll may be called before the previous batch is committed. This is faster: the next
    #: batch is created while the previous one is published. Do not set it for a task that
    #: acknowledges records to its system in poll.
    reads_ahead: ClassVar[bool] = False

    def start(self, context: SourceTaskContext) -> None:  # noqa: B027 (optional)
        """Resume at ``context.committed``."""

    @abstractmethod
    def poll(self) -> SourceBatch | None:
        """The next batch, or None if there is no data now; then poll is called again later.

        Must not wait for data. The frame of a batch is run once, after poll has returned. Poll is
        called again only after the batch and its offsets are committed (unless ``reads_ahead``). If
        that fails, the task is restarted from the last committed offsets. So a task may advance its
        own position here.
        """

    def placed(self, placement: Placement, batch_count: int) -> None:  # noqa: B027 (optional)
        """Called before ``committed`` of the first of the next ``batch_count`` batches, which were
        written together, if the storage reported the offsets of their records.
        """

    def committed(  # noqa: B027 (optional)
        self, offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> None:
        """Called before the next ``poll``, after the last batch and its offsets are durable.

        Acknowledge the records here, for example to a queue that keeps them until then. After a
        crash it may not have been called for a committed batch; ``SourceTaskContext.offset`` then
        shows what was committed. After a ``RetriableError`` it is called again.
        """

    def stop(self) -> None:  # noqa: B027 (optional)
        """Release what ``start`` acquired; called once, also if ``start`` failed."""


class SourceConnector(Connector):
    """A connector that reads an external system and writes to topics; set ``task_class``."""

    task_class: ClassVar[type[SourceTask]]
    #: Whether a poll changes the source, such as one that removes messages from a queue. Such a
    #: source is not polled for previews.
    poll_has_effects: ClassVar[bool] = False
    #: The task that previews use, if it is another one: it gives the first records that a new task
    #: would give, and changes nothing. It is started without offsets.
    preview_task_class: ClassVar[type[SourceTask] | None] = None
    #: The forms of its partitions and offsets. If committed offsets have another form, because
    #: another connector wrote them, tasks do not start. Empty: offsets of any form are passed to
    #: tasks.
    offset_forms: ClassVar[Sequence[OffsetForm]] = ()

    @classmethod
    def preview_refusal(cls, config: Mapping[str, Any]) -> str:
        """Why a preview may not poll this source; empty if it may. ``config`` is parsed."""
        del config
        if cls.poll_has_effects and cls.preview_task_class is None:
            return f"{cls.__name__} cannot be previewed: poll() of its source has side effects"
        return ""
