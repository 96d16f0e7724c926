"""The API for sinks, which read topics and write to an external system.

Example:
    A sink that writes the records of each topic partition in a batch to a directory of Parquet
    files, named after the first offset. A batch that is retried starts at the same offsets, even if
    it ends elsewhere, and so overwrites the files of the first attempt::

        class ParquetTask(SinkTask):
            def start(self, context: SinkTaskContext) -> None:
                self._root = context.config["directory"]

            def write(self, batch: SinkBatch) -> str:
                for part in batch.parts(by="partition"):
                    (each,) = part.ranges
                    path = f"{self._root}/{each.topic}-{each.partition}-{each.start_offset}"
                    part.frame.write.mode("overwrite").parquet(path)
                return ""


        class Parquet(SinkConnector):
            version = "1.0"
            task_class = ParquetTask

            @classmethod
            def config_def(cls) -> ConfigDef:
                return ConfigDef(ConfigKey("directory", ConfigType.STRING))

            def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
                return [{} for _ in range(max_tasks)]
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from drover.connector.connector import Connector
from drover.connector.offsets import SinkOffset
from drover.connector.sink_control import ControlledContext, PredictedWrite, Written
from drover.connector.sink_records import SinkRecord, UnreadableRecord, packed, unpacked
from drover.connector.sink_rows import ValueRows, latest_rows
from drover.dataplane.arrow_rows import ArrowFunction, ArrowRows, run_in_arrow
from drover.dataplane.plane import ALL_COLUMNS
from drover.model.offsets import TopicPartition
from drover.pipeline.failures import RecordFailedError
from drover.pipeline.overwrites import OverwriteKey

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets ``start_offset`` to ``end_offset`` - 1 of a topic partition."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkTaskContext(ControlledContext):
    """The context of a sink task, with the requests that it may make to the engine.

    Attributes:
        committed: The connector's committed offsets by topic partition, with the metadata that
            ``write`` returned for them. Read after this task was granted its claim, and updated
            with each commit of this task. Only offsets in the topics that exist now: an offset in
            a deleted topic of the same name is left out.
        output_ids: Separates outputs that must not replace each other. Empty for the first output
            of a topic partition; 8 hexadecimal digits after its topic was deleted and created
            again, or its offsets were reset. A sink that finds its own uncommitted output by name
            has to include it in the names, and must not touch output with another id.
        assigned: Returns the topic partitions of this task, each with the next offset to read. They
            are found after ``start``, so they are known in ``write`` and ``idle``; further ones are
            added while the task runs.
    """

    committed: Mapping[TopicPartition, SinkOffset] = field(default_factory=dict)
    output_ids: Mapping[TopicPartition, str] = field(default_factory=dict)
    assigned: Callable[[], Mapping[TopicPartition, int]] = dict


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """A batch of records from topics.

    ``rows``, ``cut`` and ``on_reject`` are for the engine. Connectors use ``ranges``, ``records``,
    ``frame``, ``map_in_arrow``, ``run_in_arrow``, ``parts`` and ``reject``.

    Attributes:
        ranges: The offsets of the batch, one range for each topic partition, in the order of the
            records. Never empty, but transforms may have dropped any of the records.
    """

    rows: "DataFrame | ArrowRows"
    ranges: Sequence[OffsetRange]
    cut: "Callable[[str], Sequence[SinkBatch]] | None" = None
    on_reject: Callable[[str, int, int, str | Exception], None] | None = None

    @property
    def frame(self) -> "DataFrame":
        """The records as a frame with the columns topic, partition, offset, key, value, headers and
        timestamp, in the order of topic, partition and offset (Spark partition, then row).

        With transforms, which may rename topics, the frame also has a column original_topic: the
        topic from which the record was read, to which its partition and offset refer (KIP-793).

        Keys and values are bytes; in a structured sink they are the converters' results, and
        finding their columns runs the batch once.

        Raises:
            MixedSchemasError: The records do not all have the same columns.
        """
        return self.rows.frame() if isinstance(self.rows, ArrowRows) else self.rows

    def records(self) -> Iterator[SinkRecord]:
        """The records with keys, values, headers and deletions, one by one, on the driver.

        In the order of ``frame``::

            for record in batch.records():
                if record.is_tombstone:
                    store.delete(record.key)
                else:
                    store.set(record.key, json.dumps(record.value))

        Executors read and convert the records, and send them to the driver as Arrow data, which is
        held until it has been iterated: ``batch.max.bytes`` bounds it. At most 1,000 records exist
        as Python objects at a time. One thread handles all records of the task; for more than some
        10,000 records a second, use ``drover.connector.records.records_of`` in ``run_in_arrow``,
        which runs on executors.

        A record with a key or value for which Python has no object, such as a date after the year
        9999, is rejected (see ``reject``).

        Raises:
            RecordFailedError: A record was rejected, and the task fails. Do not catch it.
        """
        for each in unpacked(self.run_in_arrow(packed)):
            if isinstance(each, UnreadableRecord):
                self.reject(each.original_topic, each.partition, each.offset, each.reason)
            else:
                yield each

    def parts(self, by: Literal["topic", "partition"]) -> "Sequence[SinkBatch]":
        """This batch divided by topic or by topic partition, in order. Each part reads only its own
        records, so all parts together cost as much as the whole batch.
        """
        return [self] if self.cut is None else self.cut(by)

    @property
    def table(self) -> "DataFrame":
        """The records as a frame whose columns are the fields of their values, without tombstones.

        Raises:
            MixedSchemasError: The values do not all have the same fields.
            TypeError: The values have no fields: the sink is not structured, or they have no
                schema.
        """
        return self.arrow().frame()

    def arrow(self) -> ArrowRows:
        """The rows of ``table`` on executors.

        ``batch.arrow().run(function)`` passes them to a function as Arrow batches, each with its
        own schema, and returns the rows that the function yields, which should be few.
        ``run(iter)`` returns all rows, as dicts; ``records`` returns keys and deletions too.

        Raises:
            TypeError: The batch was created from a frame, as in tests.
        """
        if not isinstance(self.rows, ArrowRows):
            raise TypeError("the batch was created from a frame and has no Arrow rows: use frame")
        return replace(self.rows.through(ValueRows()), ddl=None)

    def latest_by_key(self) -> "SinkBatch":
        """This batch with only the last record of each key in each topic partition: all that an
        upsert needs. All records without a key are kept.

        The records of each topic partition are collected in one place, so this needs memory.

        Raises:
            TypeError: The batch was created from a frame, as in tests.
        """
        parts = [each.rows for each in self.parts("partition")]
        rows = [each for each in parts if isinstance(each, ArrowRows)]
        if len(rows) < len(parts):
            raise TypeError("the batch was created from a frame: latest_by_key needs Arrow rows")
        parts_of = self.cut

        def cut(by: str) -> "Sequence[SinkBatch]":
            assert parts_of is not None
            return [each.latest_by_key() for each in parts_of(by)]

        return replace(self, rows=latest_rows(rows), cut=cut if parts_of else None)

    def reject(self, topic: str, partition: int, offset: int, reason: str | Exception) -> None:
        """Reject a record of this batch that cannot be written (KIP-610); call it before ``write``
        returns.

        ``errors.*`` determines what follows, as for a record that a converter cannot read: the task
        fails; or the original record is dropped, and written to the dead letter queue if there is
        one.

        Raises:
            RecordFailedError: The task fails. Do not catch it.
            ValueError: The record is not in the batch.
        """
        if self.on_reject is None:
            raise RecordFailedError(f"record {topic}-{partition}@{offset} was rejected: {reason}")
        self.on_reject(topic, partition, offset, reason)

    def map_in_arrow(self, function: ArrowFunction, ddl: str) -> "DataFrame":
        """The result of ``frame.mapInArrow(function, ddl)``, but faster if the records are read
        directly from their topic: they do not pass through the JVM.

        In a structured sink each Arrow batch has its own schema (see drover.connector.records), so
        one call may receive records of several topics and schemas.
        """
        if isinstance(self.rows, ArrowRows):
            return self.rows.map_in_arrow(function, ddl)
        return self.rows.mapInArrow(function, ddl)

    def run_in_arrow(
        self, function: ArrowFunction, *, at_once: bool = False
    ) -> list[dict[str, Any]]:
        """Run ``function`` on executors now, and return the rows that it yields, which should be
        few.

        The result is that of ``map_in_arrow(function, …).collect()``, at half the cost for a small
        job.

        Args:
            function: Maps Arrow batches to Arrow batches.
            at_once: Pass all records to a single call, in order: for writes in one transaction.

        Raises:
            Exception: The exception that ``function`` raised on an executor, unchanged. So it may
                raise RetriableError.
        """
        return run_in_arrow(self.rows, function, at_once=at_once)


class SinkTask(ABC):
    """Writes a part of the topics, batch by batch, on one thread.

    The constructor must have no required arguments. An exception makes the task FAILED, with its
    trace.
    """

    #: Whether write may be called while the previous batch is still being committed. This is faster
    #: under load. ``context.committed`` may then be one batch behind, and after a crash up to two
    #: batches are redelivered, possibly with other boundaries.
    writes_ahead: ClassVar[bool] = False

    def start(self, context: SinkTaskContext) -> None:  # noqa: B027 (optional)
        """Resume at ``context.committed``."""

    def positions(self) -> Mapping[TopicPartition, int]:
        """Positions by topic partition at which to start reading, where the task's target has a
        more accurate position than the committed offsets: a table may contain how far it was
        written.

        Called once, after ``start``. May include partitions of other tasks. The positions override
        offsets that an operator has set, unless ``SinkConnector.alter_offsets`` changes the target
        as well.

        Records below a position are not read again. If the process is killed between a write and
        its commit, the dead letters of that batch are therefore lost, because they are written
        after the write. A task that reports bad records should instead skip known records in
        ``write``.
        """
        return {}

    @abstractmethod
    def write(self, batch: SinkBatch) -> str | Written:
        """Make the batch durable; its offsets are committed after that.

        Write is called again only after the batch is committed (unless ``writes_ahead``). If that
        fails, the task is restarted and receives records from the last committed offsets again,
        possibly in batches with other boundaries. To write each record once, make the write
        idempotent by offset, or use the metadata to undo uncommitted writes.

        Returns:
            Text of at most 4,048 bytes, committed as metadata with every offset of the batch; empty
            for none. ``Written(up_to=…)`` commits fewer records, or records of earlier batches that
            were not committed yet. Uncommitted records are redelivered when the task restarts.
        """

    def first_metadata(self) -> str:
        """The metadata of the offset that is committed before the first record of a topic partition
        is written, at most 4,048 bytes. With it a committed offset exists whenever there is output,
        so a missing one always means that the offset was lost.

        ``context.committed`` has such an offset only for sinks that define this method or
        ``SinkConnector.traced_offsets``; others see offsets of records that they wrote.
        """
        return ""

    def idle(self) -> Written | None:
        """Called without records after ``context.call_after``, for example to write buffered
        records.

        Returns:
            ``Written(up_to=…)`` to commit records; None to commit nothing.
        """
        return None

    def stop(self) -> None:  # noqa: B027 (optional)
        """Release what ``start`` acquired; called once, also if ``start`` failed."""


class SinkConnector(Connector):
    """A connector that reads topics and writes to an external system; set ``task_class``.

    The partitions of its topics are distributed over as many tasks as ``task_configs`` returns.
    """

    task_class: ClassVar[type[SinkTask]]
    #: Which of key, value, headers and timestamp ``write`` uses. Other columns may be null in its
    #: batches, which saves reading them. Topic, partition and offset are always present.
    columns: ClassVar[frozenset[str]] = ALL_COLUMNS

    @classmethod
    def overwrite_keys(cls, config: Mapping[str, Any]) -> Sequence[OverwriteKey]:
        """Which part of a record selects the data that it overwrites or deletes in the target, so
        that a replay of dead letters does not write older data over newer data.

        The default is the whole key of a record, which is safe for a sink that does not define it:
        a dead letter without a key is then replayed only by force. A sink that only appends, such
        as one that writes files, returns an empty sequence: nothing can be overwritten. With
        several keys, a record is newer if any of them is equal.

        Args:
            config: The parsed config.
        """
        del config
        return (OverwriteKey(),)

    @classmethod
    def traced_offsets(
        cls, connector: str, config: Mapping[str, Any], partitions: Mapping[TopicPartition, str]
    ) -> Mapping[TopicPartition, int]:
        """How far the output shows that records were written, without changing anything.

        Called for partitions without a committed offset: a task whose output has more than the
        offsets show does not start, because it would delete or repeat output. An operator then
        continues behind the output (``--adopt``) or leaves it and starts as configured
        (``--reset``).

        Args:
            connector: The connector's name.
            config: Its parsed config.
            partitions: The topic partitions to look for, with the id of their output (see
                ``SinkTaskContext.output_ids``).

        Returns:
            For each partition with output, the offset after the last record in it.
        """
        del connector, config, partitions
        return {}

    @classmethod
    def predicted_writes(
        cls, config: Mapping[str, Any], batches: "Sequence[pa.RecordBatch]"
    ) -> Iterable[PredictedWrite]:
        """What ``write`` would do with some records, for previews. Must change nothing, neither in
        the cluster nor in the sink's system.

        Args:
            config: The connector's parsed config.
            batches: The records after all transforms, in order, each batch with one schema (see
                drover.connector.records). Only structured sinks are asked.

        Returns:
            At most one prediction for each record.

        Raises:
            Exception: A task would fail with this error, whatever ``errors.tolerance`` is.
        """
        del config, batches
        return ()
