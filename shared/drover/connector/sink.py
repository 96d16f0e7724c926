"""How to write a sink: from topics into the outside world.

Example:
    A sink that keeps what a batch has of a topic partition as a directory of Parquet files, named
    by its first offset. A batch that is written again begins at the same offsets, wherever it is
    cut then, and so replaces what was written before::

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from drover.connector.connector import Connector
from drover.connector.offsets import SinkOffset, TopicPartition
from drover.connector.sink_control import ControlledContext, Written
from drover.connector.sink_rows import ValueRows, latest_rows
from drover.dataplane.arrow_rows import ArrowFunction, ArrowRows, run_in_arrow
from drover.dataplane.plane import ALL_COLUMNS
from drover.pipeline.failures import RecordFailedError

if TYPE_CHECKING:
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
    """Where a sink task runs, and what it may ask for.

    ``committed`` has the connector's committed offsets with the metadata that ``write`` returned
    with them, by topic partition: read after this task got its claim, and kept up to date with
    what it commits since.
    """

    committed: Mapping[TopicPartition, SinkOffset] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SinkBatch:
    """Records of topics.

    ``ranges`` says which offsets it holds, one range for each topic partition, in the order of the
    records; it is never empty, but transforms may have dropped any of the records. ``records``,
    ``cut`` and ``on_reject`` are for the engine: take ``frame``, ``map_in_arrow``,
    ``run_in_arrow``, ``parts`` and ``reject``.
    """

    records: "DataFrame | ArrowRows"
    ranges: Sequence[OffsetRange]
    cut: "Callable[[str], Sequence[SinkBatch]] | None" = None
    on_reject: Callable[[str, int, int, str | Exception], None] | None = None

    @property
    def frame(self) -> "DataFrame":
        """The records as a frame with the columns topic, partition, offset, key, value, headers and
        timestamp, in the order of topic, partition and offset (Spark partition, then row).

        With transforms, which may rename topics, there is a column original_topic as well: the one
        that the record is from, whose partition and offset it has (KIP-793).

        Keys and values are bytes; in a structured sink they are what the converters make of them,
        and finding their columns runs the batch once.

        Raises:
            MixedSchemasError: the records have not all the same columns.
        """
        return self.records.frame() if isinstance(self.records, ArrowRows) else self.records

    def parts(self, by: Literal["topic", "partition"]) -> "Sequence[SinkBatch]":
        """This batch cut by topic or by topic partition, in order; each reads only its own records,
        so all together cost as much as the whole.
        """
        return [self] if self.cut is None else self.cut(by)

    @property
    def table(self) -> "DataFrame":
        """The records as a frame whose columns are the fields of their values; deletions, which
        have no value, are left out.

        Raises:
            MixedSchemasError: the values have not all the same fields.
            TypeError: they have none: the sink is not structured, or they have no schema.
        """
        return self.arrow().frame()

    def arrow(self) -> ArrowRows:
        """The rows of ``table`` on executors: ``batch.arrow().run(function)`` hands them to a
        function as Arrow batches, each with its own schema, and gives back the few rows that the
        function yields; ``run(iter)`` gives back all of them, as dicts.

        Raises:
            TypeError: the batch was made of a frame, as tests may do.
        """
        if not isinstance(self.records, ArrowRows):
            raise TypeError("a batch that was made of a frame has no Arrow rows: take its frame")
        return replace(self.records.through(ValueRows()), ddl=None)

    def latest_by_key(self) -> "SinkBatch":
        """This batch without the records that a later one of the same topic partition replaces,
        as it has the same key: what an upsert needs to see. Records without a key all stay.

        The records of each topic partition are gathered in one place, so this costs memory.

        Raises:
            TypeError: the batch was made of a frame, as tests may do.
        """
        parts = [each.records for each in self.parts("partition")]
        rows = [each for each in parts if isinstance(each, ArrowRows)]
        if len(rows) < len(parts):
            raise TypeError("a batch that was made of a frame cannot be thinned out")
        parts_of = self.cut

        def cut(by: str) -> "Sequence[SinkBatch]":
            assert parts_of is not None
            return [each.latest_by_key() for each in parts_of(by)]

        return replace(self, records=latest_rows(rows), cut=cut if parts_of else None)

    def reject(self, topic: str, partition: int, offset: int, reason: str | Exception) -> None:
        """Say, before ``write`` returns, that a record of this batch cannot be written (KIP-610).

        ``errors.*`` decides what becomes of it, as of records that no converter can read: it is
        left out and may go to the dead letter queue, as it came; or the task fails.

        Raises:
            RecordFailedError: the task fails: let it pass.
            ValueError: the batch holds no such record.
        """
        if self.on_reject is None:
            raise RecordFailedError(f"record {topic}-{partition}@{offset} was rejected: {reason}")
        self.on_reject(topic, partition, offset, reason)

    def map_in_arrow(self, function: ArrowFunction, ddl: str) -> "DataFrame":
        """What ``frame.mapInArrow(function, ddl)`` gives, but faster when the records come straight
        from their topic: they do not pass through the JVM.

        In a structured sink each Arrow batch has its own schema (see drover.connector.records), so
        records of several topics and schemas may come in one call.
        """
        if isinstance(self.records, ArrowRows):
            return self.records.map_in_arrow(function, ddl)
        return self.records.mapInArrow(function, ddl)

    def run_in_arrow(
        self, function: ArrowFunction, *, at_once: bool = False
    ) -> list[dict[str, Any]]:
        """What ``map_in_arrow(function, …).collect()`` gives, at half the cost of a small job:
        run ``function`` on executors now; the rows that it yields, which should be few.

        With ``at_once`` one call of the function gets all records, in order: for what has to be one
        transaction.

        Raises:
            Exception: what ``function`` raised on an executor, as it was. So it may raise
                RetriableError.
        """
        return run_in_arrow(self.records, function, at_once=at_once)


class SinkTask(ABC):
    """Writes one share of the topics, batch by batch, on one thread.

    It needs a constructor without arguments. An exception makes the task FAILED with its trace.
    """

    #: Whether write may be called while the batch before is still being committed, which is faster
    #: when there is much to write. Then what ``context.committed`` says may be one batch behind,
    #: and after a crash up to two batches come again, perhaps cut otherwise.
    writes_ahead: ClassVar[bool] = False

    def start(self, context: SinkTaskContext) -> None:  # noqa: B027 (optional)
        """Take up where ``context.committed`` says."""

    def positions(self) -> Mapping[TopicPartition, int]:
        """Where to go on, by topic partition, of those that the task knows better than the
        committed offsets do: a table may say how far it was written. Asked once, after ``start``.

        It overrides what an operator has set, unless ``SinkConnector.alter_offsets`` changes it
        there as well. Partitions of other tasks may be among them.

        Records below a position are not read again. So a kill between a write and its commit loses
        the dead letters of that batch, which are written after the write. A task that has bad
        records to report rather passes over in ``write`` what it has already.
        """
        return {}

    @abstractmethod
    def write(self, batch: SinkBatch) -> str | Written:
        """Make the batch durable; its offsets are committed after that.

        Returns text of at most 4,096 bytes, committed as metadata with every offset of the batch;
        empty for none. ``Written(up_to=…)`` commits less, or what earlier batches had left open:
        what is not committed comes again when the task starts again.

        Write is called again only when the batch is committed (unless ``writes_ahead``); when that
        fails, the task is started again and gets records again from the last committed offsets,
        perhaps in batches cut otherwise. To write each record once, make the write idempotent in
        the offsets, or keep in the metadata what is needed to undo the uncommitted.
        """

    def idle(self) -> Written | None:
        """Called without records, when ``context.call_after`` asked for it: time to write what was
        held back, for instance. ``Written(up_to=…)`` commits it; None commits nothing.
        """
        return None

    def stop(self) -> None:  # noqa: B027 (optional)
        """Release what ``start`` took; called once, also when ``start`` failed."""


class SinkConnector(Connector):
    """A connector from topics into the outside world; name its tasks' class in ``task_class``.

    The partitions of its topics are dealt out to as many tasks as ``task_configs`` returns.
    """

    task_class: ClassVar[type[SinkTask]]
    #: What of key, value, headers and timestamp ``write`` looks at; what it does not name may be
    #: null in its batches, which saves reading it. Topic, partition and offset are always there.
    columns: ClassVar[frozenset[str]] = ALL_COLUMNS
