"""Rows that a Python function creates on executors, one Spark partition per number.

They can be used as a frame. When the next step is also a Python function over Arrow batches
(staging, or a sink in Python), both run in one pass and no row enters the JVM, which is three to
five times as fast.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from drover.dataplane.answers import (
    ANSWER,
    ANSWER_DDL,
    Answering,
    AnsweringInArrow,
    PassLostError,
    read_answers,
    rows_of,
)
from drover.dataplane.shared_jobs import begin_own_job, current_rider, numbers_below, rides

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ItemT = TypeVar("ItemT")

#: A function from record batches to record batches, as for mapInArrow; picklable.
ArrowFunction = Callable[[Iterator[Any]], Iterator[Any]]


@dataclass(frozen=True)
class ArrowRows:
    """Rows by Spark partition.

    ``read(n)`` returns the record batches of Spark partition n, in order; it is pickled and runs on
    executors. ``ddl`` has the columns and their types, as for mapInArrow; None if only the rows
    define them.

    Example:
        >>> def squares(number):
        ...     yield pa.RecordBatch.from_pydict({"value": [str(number * number).encode()]})
        >>> rows = ArrowRows(spark, squares, partition_count=3, ddl="value binary")
    """

    spark: "SparkSession"
    read: Callable[[int], Iterable[Any]]
    partition_count: int
    ddl: str | None

    def frame(self) -> "DataFrame":
        """The rows as a data frame, evaluated lazily.

        Without ``ddl`` the rows are computed once now, to find their columns.

        Raises:
            MixedSchemasError: The rows have several schemas.
        """
        if self.ddl is not None:
            return self.map_in_arrow(iter, self.ddl)
        found = self.run(_distinct_schemas)
        schemas = list(dict.fromkeys(row["schema"] for row in found))
        if len(schemas) > 1:
            raise MixedSchemasError(
                "the batch has records of several schemas, but a frame has one: use "
                "map_in_arrow, whose batches have one schema each, or parts(by='topic'). The "
                f"schemas: {'; '.join(_described(each) for each in schemas[:3])}"
            )
        # an empty table gives Spark's types
        schema = pa.ipc.read_schema(pa.py_buffer(schemas[0])) if schemas else _NO_ROWS
        ddl = self.spark.createDataFrame(schema.empty_table()).schema
        return self.map_in_arrow(CastTo(schema), ddl)

    def map_in_arrow(self, function: ArrowFunction, ddl: "str | StructType") -> "DataFrame":
        """The result of ``frame().mapInArrow(function, ddl)``, in one pass."""
        numbers = self.spark.range(0, self.partition_count, 1, max(1, self.partition_count))
        return numbers.mapInArrow(Composed(_numbers_of_frame, self._pass(function)), ddl)

    def run(self, function: ArrowFunction, *, at_once: bool = False) -> list[dict[str, Any]]:
        """Run these rows through ``function`` now; returns the (few) rows that it yields.

        This costs half of ``map_in_arrow(…).collect()``, without query planning and without rows in
        the JVM. With ``at_once`` one call of the function gets all rows, in order. A small pass may
        share its job with other tasks (see shared_jobs).

        Raises:
            Exception: The exception raised on an executor, unchanged.
            PassLostError: The call has no answer.
        """
        work = self._pass(function)
        rider = current_rider() if self.partition_count <= 1 else None
        answer = rider.answer(_Bound(work, self.partition_count)) if rider is not None else None
        answers = self._run_alone(work, at_once=at_once) if answer is None else [answer]
        rows, took_s = read_answers(answers)
        if rider is not None:
            rider.took(took_s)
        return rows

    def _run_alone(self, work: "Composed", *, at_once: bool) -> list[bytes]:
        # imported lazily, for users without Spark
        from py4j.protocol import Py4JError

        begin_own_job()
        spark_partitions = 1 if at_once else max(1, self.partition_count)
        numbers = numbers_below(self.spark.sparkContext, self.partition_count, spark_partitions)
        try:
            return numbers.mapPartitions(Answering(work)).collect()
        except Py4JError as error:
            # exceptions of the function are answers
            raise PassLostError(f"a call on an executor was lost: {_of_java(error)}") from error

    def through(self, function: ArrowFunction) -> "ArrowRows":
        """These rows passed through ``function``, which is pickled and keeps the columns in
        ``ddl``.
        """
        return replace(self, read=Composed(self.read, function))

    def _pass(self, function: ArrowFunction) -> "Composed":
        """From numbers of Spark partitions to the results of ``function`` for their rows."""
        return Composed(_ReadEach(self.read), function)


def _of_java(error: Exception) -> str:
    """The JVM's message; its first line only names the method called."""
    return " ".join(str(error).splitlines()[1:2]).lstrip(": ")[:1_000] or str(error)[:1_000]


def run_in_arrow(
    rows: "DataFrame | ArrowRows", function: ArrowFunction, *, at_once: bool = False
) -> list[dict[str, Any]]:
    """As ``ArrowRows.run``, for frames as well.

    Raises:
        Exception: The exception of ``function``, unchanged; for errors of the frame, Spark's.
        PassLostError: The call has no answer; only for ArrowRows.
    """
    if isinstance(rows, ArrowRows):
        return rows.run(function, at_once=at_once)
    begin_own_job()
    frame = rows.coalesce(1) if at_once else rows
    answers = frame.mapInArrow(AnsweringInArrow(function), ANSWER_DDL).collect()
    return rows_of(bytes(row[ANSWER]) for row in answers)


@dataclass(frozen=True)
class _Slices:
    """The batches of a table; ``partition_count`` is 1."""

    table: "pa.Table"

    def __call__(self, number: int) -> "list[pa.RecordBatch]":
        del number
        batches: list[pa.RecordBatch] = self.table.to_batches()
        return batches


def rows_of_table(spark: "SparkSession", table: "pa.Table") -> ArrowRows:
    """Rows from the driver; few, because they are sent with the job."""
    return ArrowRows(spark, _Slices(table), 1, "value binary")


@dataclass(frozen=True)
class _Bound:
    """A pass over all of its numbers."""

    work: "Composed"
    count: int

    def __call__(self) -> Iterator[Any]:
        return self.work(iter(range(self.count)))


@dataclass(frozen=True)
class _ReadEach:
    read: Callable[[int], Iterable[Any]]

    def __call__(self, numbers: Iterable[int]) -> Iterator[Any]:
        for number in numbers:
            yield from self.read(number)


def _numbers_of_frame(batches: Iterable[Any]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


@dataclass(frozen=True)
class Composed:
    """``second(first(argument))``, picklable: two functions in one pass."""

    first: Callable[[Any], Iterable[Any]]
    second: ArrowFunction

    def __call__(self, argument: Any) -> Iterator[Any]:
        """Lazy if the functions are."""
        return self.second(iter(self.first(argument)))


class MixedSchemasError(ValueError):
    """The rows have several schemas where only one is allowed."""


#: The columns of a frame without rows.
_NO_ROWS = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])


def _distinct_schemas(batches: Iterator[Any]) -> Iterator[Any]:
    found = dict.fromkeys(frame_schema(batch.schema).serialize().to_pybytes() for batch in batches)
    yield pa.RecordBatch.from_pydict({"schema": list(found)}, schema=_SCHEMA_ROWS)


_SCHEMA_ROWS = pa.schema([("schema", pa.binary())])


@dataclass(frozen=True)
class CastTo:
    """Converts batches to the columns and types of ``schema``; a function for mapInArrow."""

    schema: Any

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Lazy."""
        for batch in batches:
            yield batch.cast(self.schema)


def frame_schema(schema: Any) -> Any:
    """The schema with types of Spark frames, all nullable, without metadata."""
    return pa.schema([pa.field(each.name, _frame_type(each.type)) for each in schema])


def _frame_type(kind: Any) -> Any:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz)
    if pa.types.is_time(kind):
        return pa.time64("ns")
    if pa.types.is_struct(kind):
        return pa.struct(
            [(kind.field(n).name, _frame_type(kind.field(n).type)) for n in range(kind.num_fields)]
        )
    if pa.types.is_map(kind):
        return pa.map_(_frame_type(kind.key_type), _frame_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_frame_type(kind.value_type))
    return kind


def _described(serialized: bytes) -> str:
    schema = pa.ipc.read_schema(pa.py_buffer(serialized))
    return ", ".join(f"{each.name} {each.type}" for each in schema if each.name in ("key", "value"))


def balanced_groups(
    items: Sequence[ItemT],
    size_bytes: Callable[[ItemT], int],
    *,
    group_count: int,
    group_bytes_min: int = 1024 * 1024,
) -> tuple[tuple[ItemT, ...], ...]:
    """Group consecutive items into at most ``group_count`` groups of similar size.

    A group is a Spark partition, which costs some milliseconds: there should be no more groups than
    cores, and no group for a few bytes.
    """
    total = sum(size_bytes(item) for item in items)
    wanted = max(group_bytes_min, -(-total // max(1, group_count)))
    groups: list[list[ItemT]] = []
    size = wanted
    for item in items:
        if size >= wanted and len(groups) < group_count:
            groups.append([])
            size = 0
        groups[-1].append(item)
        size += size_bytes(item)
    return tuple(tuple(group) for group in groups)


def current_spark_partition() -> int:
    """The Spark partition that this process works on; 0 outside of Spark, and in a shared job,
    which has one partition.

    Does not import pyspark: in a Spark task it is already imported.
    """
    pyspark = sys.modules.get("pyspark")
    context = pyspark.TaskContext.get() if pyspark is not None and not rides() else None
    return int(context.partitionId()) if context is not None else 0
