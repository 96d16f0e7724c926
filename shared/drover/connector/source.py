"""How to write a source: from the outside world into topics.

Example:
    A source that counts::

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from drover.connector.connector import Connector
from drover.connector.offset_forms import OffsetForm
from drover.connector.offsets import offset_key, parse_offsets
from drover.connector.plain_rows import table_of
from drover.connector.task import TaskContext
from drover.dataplane.arrow_rows import ArrowRows
from drover.model.offsets import CommittedOffset
from drover.pipeline.layouts import TableRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTaskContext(TaskContext):
    """Where a source task runs, and how far its connector has come.

    ``committed`` are all offsets of the connector, those of its other tasks included, read after
    this task got its claim.

    ``config["batch.max.bytes"]`` may be another at each ``poll``: what a batch should carry, up to
    the operator's limit, by how long those before took.

    ``commits_with_records`` says that offsets are committed in the transaction that has the
    records, so that no batch comes again; else a crash between the two repeats one.
    """

    committed: Sequence[CommittedOffset] = ()
    commits_with_records: bool = True

    def offset(self, partition: Mapping[str, Any]) -> dict[str, Any] | None:
        """The committed offset of a source partition; None when there is none yet."""
        wanted = offset_key(partition)
        for known, offset in self.offsets():
            if offset_key(known) == wanted:
                return offset
        return None

    def offsets(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Every committed (partition, offset) of the connector."""
        return parse_offsets(self.committed)


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """Records for topics, and how far they bring the source.

    Rows with columns are best given by ``table``. Else ``frame`` has a column ``value`` and may
    have ``topic`` (string), ``partition`` (int), ``key``, ``headers``
    (array<struct<key:string,value:binary>>) and ``timestamp`` (timestamp, or milliseconds as an
    integer). Keys and values are binary or string, or of any type when a converter is set that
    writes it. ``topic`` here counts for a frame without that column. A partition that is given
    wins; else the key decides as in Kafka; records without both go to partition 0 unless
    ``partitioner.keyless`` says otherwise. A null value is a tombstone. The order of records is the
    frame's: Spark partition, then row. ORIGIN_COLUMN, ERROR_COLUMN and RAW_COLUMN of
    ``drover.connector.records`` say of a row what they say in a ``table``.

    Rows that a Python function makes on executors may come as ``ArrowRows`` instead of a frame:
    they are staged in the same pass.

    ``offsets`` are (partition, offset) pairs of JSON objects, committed together with the records
    or not at all; an offset of None forgets its partition. (On Kafka, where workers are told to do
    without transactions, they are committed once the records are durable: after a crash in between
    the batch comes again.)
    """

    frame: "DataFrame | ArrowRows | pa.Table"
    offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    topic: str | None = None
    #: The frame's rows are a table's; see ``table``.
    layout: TableRows | None = None

    @classmethod
    def table(
        cls,
        rows: "DataFrame | ArrowRows | pa.Table | Sequence[Mapping[str, Any]]",
        offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]],
        *,
        topic: str | None = None,
        key: str | Sequence[str] | None = None,
    ) -> "SourceBatch":
        """Rows whose columns are the fields of the records' values.

        Args:
            rows: a frame, rows that executors make, or some that are at hand, of which each may
                have fields of its own: what one does not have is null there. Columns of
                ``drover.connector.records`` (TOPIC_COLUMN, TIMESTAMP_COLUMN, ORIGIN_COLUMN,
                ERROR_COLUMN, RAW_COLUMN) say what they say of the record and are no fields.
            offsets: see the class.
            topic: where the records go that do not say it themselves.
            key: the column whose values are the keys, or several that are fields of the keys.

        Raises:
            RowsError: rows at hand are no table, as the values of a field are of different types.
        """
        names = key if isinstance(key, str) or key is None else tuple(key)
        if isinstance(rows, Sequence):
            rows = table_of(rows)
        return cls(rows, offsets, topic, TableRows(names))


class SourceTask(ABC):
    """Reads one share of a source, batch by batch, on one thread.

    It needs a constructor without arguments. An exception makes the task FAILED with its trace.
    """

    #: Whether poll may be called before the batch that it gave last is committed. Then the next
    #: batch is made while that one is published, which is faster. Not for a task that tells its
    #: system in poll what has arrived.
    reads_ahead: ClassVar[bool] = False

    def start(self, context: SourceTaskContext) -> None:  # noqa: B027 (optional)
        """Take up where ``context.committed`` says."""

    @abstractmethod
    def poll(self) -> SourceBatch | None:
        """The next batch; None when there is nothing now, and poll is called again a while later.

        A batch's frame is run once, after poll returned. Poll is called again only when the batch
        and its offsets are committed (unless ``reads_ahead``); when that fails, the task is started
        again from the last committed offsets. So a task may advance its own position here. Must not
        wait for data.
        """

    def committed(  # noqa: B027 (optional)
        self, offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> None:
        """A batch and its offsets, those of the last ``poll``, are durable: the time to acknowledge
        what was read, as to a queue that keeps it until then. Called before the next ``poll``.

        After a crash it may not be called for a batch that is committed: what comes again then is
        told by ``SourceTaskContext.offset``. ``RetriableError`` has it called again.
        """

    def stop(self) -> None:  # noqa: B027 (optional)
        """Release what ``start`` took; called once, also when ``start`` failed."""


class SourceConnector(Connector):
    """A connector from the outside world into topics; name its tasks' class in ``task_class``."""

    task_class: ClassVar[type[SourceTask]]
    #: Whether a poll changes the source, as one that takes messages off a queue does: then it is
    #: not polled for previews.
    poll_has_effects: ClassVar[bool] = False
    #: How its partitions and offsets look. A task whose connector has committed offsets of another
    #: form, which another connector wrote, does not start. Empty: all are given to the task.
    offset_forms: ClassVar[Sequence[OffsetForm]] = ()
