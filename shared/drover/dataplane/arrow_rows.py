"""Rows that a Python function creates on executors, one Spark partition per number.

They can be used as a frame. When the next step is also a Python function over Arrow batches
(staging, or a sink in Python), both run in one pass and no row enters the JVM, which is three to
five times as fast.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from drover.dataplane.answers import (
    ANSWER,
    ANSWER_DDL,
    Answering,
    AnsweringEach,
    AnsweringEachInArrow,
    AnsweringInArrow,
    AnswerTooLargeError,
    ExecutorFilesError,
    PassLostError,
    read_answers,
    rows_of,
)
from drover.dataplane.parallel_jobs import run_on_threads
from drover.dataplane.shared_jobs import (
    Rider,
    begin_own_job,
    core_count,
    current_rider,
    numbers_below,
    one_number,
    rides,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ItemT = TypeVar("ItemT")

#: The number of this Python worker's Spark partition, if the partition has its own job.
_partition: int | None = None

#: A function from record batches to record batches, as for mapInArrow; picklable.
ArrowFunction = Callable[[Iterator[Any]], Iterator[Any]]
#: In Spark's error for results above its limit.
_RESULT_LIMIT = "spark.driver.maxResultSize"
#: In Spark's error for a task whose executor cannot use files. No code of a plugin runs in that
#: process, the JVM.
_NO_FILES = re.compile(
    r"Lost task \S+ in stage \S+ \(TID \d+\) \([^)\n]*\): "
    r"(java\.nio\.file\.\w+|java\.io\.FileNotFoundException|java\.io\.IOException: "
    r"(?:Cannot run program|No space left on device|Read-only file system|Input/output error"
    r"|Failed to create))"
)


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
        rider, answer = self._ridden(work)
        answers = self._run_alone(work, at_once=at_once) if answer is None else [answer]
        rows, took_s = read_answers(answers)
        if rider is not None:
            rider.took(took_s)
        return rows

    def run_each(self, function: ArrowFunction, take: Callable[[Any], None]) -> None:
        """As ``run``, but passes each row to ``take`` as it arrives, so that the rows may be large.

        Each Spark partition has its own job, and only its rows are in memory at once. ``take``
        gets the rows of a partition in order; several threads call it for different partitions.

        Raises:
            Exception: The exception raised on an executor, or by ``take``, unchanged.
            PassLostError: The call has no answer.
            AnswerTooLargeError: The rows of a partition do not fit into the driver.
        """
        work = self._pass(function)
        rider, answer = self._ridden(work)
        if answer is not None:
            rows, took_s = read_answers([answer])
            for row in rows:
                take(row)
        else:
            begin_own_job()
            took_s = run_on_threads(
                range(self.partition_count),
                lambda number: self._run_partition(work, number, take),
                thread_count=core_count(self.spark.sparkContext),
            )
        if rider is not None:
            rider.took(took_s)

    def _ridden(self, work: "Composed") -> tuple[Rider | None, bytes | None]:
        """The task's Rider, if the pass is small enough to share a job, and the pass's answer if it
        did.
        """
        rider = current_rider() if self.partition_count <= 1 else None
        answer = rider.answer(_Bound(work, self.partition_count)) if rider is not None else None
        return rider, answer

    def _run_partition(self, work: "Composed", number: int, take: Callable[[Any], None]) -> float:
        """Returns the seconds on the executor."""
        wanted = one_number(self.spark.sparkContext, number)
        answering = AnsweringEach(_InOwnJob(work, number))
        took_s = 0.0
        with _lost_passes():
            for answer in wanted.mapPartitions(answering).toLocalIterator():
                rows, took_s = read_answers([answer])
                for row in rows:
                    take(row)
        return took_s

    def _run_alone(self, work: "Composed", *, at_once: bool) -> list[bytes]:
        begin_own_job()
        spark_partitions = 1 if at_once else max(1, self.partition_count)
        numbers = numbers_below(self.spark.sparkContext, self.partition_count, spark_partitions)
        with _lost_passes():
            return numbers.mapPartitions(Answering(work)).collect()

    def through(self, function: ArrowFunction) -> "ArrowRows":
        """These rows passed through ``function``, which is pickled and keeps the columns in
        ``ddl``.
        """
        return replace(self, read=Composed(self.read, function))

    def _pass(self, function: ArrowFunction) -> "Composed":
        """From numbers of Spark partitions to the results of ``function`` for their rows."""
        return Composed(_ReadEach(self.read), function)


@contextmanager
def _lost_passes() -> Iterator[None]:
    """Convert Spark's errors: exceptions of the function are answers."""
    # imported lazily, for users without Spark
    from py4j.protocol import Py4JError

    try:
        yield
    except Py4JError as error:
        raise lost_pass(str(error)) from error


def lost_pass(java_error: str) -> Exception:
    """The error of a call without an answer, by the text of Spark's exception with its causes."""
    limit = next((line for line in java_error.splitlines() if _RESULT_LIMIT in line), "")
    if limit:
        return AnswerTooLargeError(
            "a batch is too large for the memory of the Spark driver: lower batch.max.bytes, "
            f"or raise spark.driver.memory in DROVER_SPARK_CONF ({limit.strip()[:1_000]})"
        )
    no_files = _NO_FILES.search(java_error)
    if no_files:
        told = java_error[no_files.start(1) :].splitlines()[0][:1_000]
        return ExecutorFilesError(f"an executor cannot use its files: {told}")
    return PassLostError(f"a call on an executor was lost: {_of_java(java_error)}")


def _of_java(error: str) -> str:
    """The JVM's message; its first line only names the method called."""
    return " ".join(error.splitlines()[1:2]).lstrip(": ")[:1_000] or error[:1_000]


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


def run_each_in_arrow(
    rows: "DataFrame | ArrowRows", function: ArrowFunction, take: Callable[[Any], None]
) -> None:
    """As ``ArrowRows.run_each``, for frames as well; their partitions run two at a time.

    Raises:
        Exception: As ``run_in_arrow`` and ``ArrowRows.run_each``.
    """
    if isinstance(rows, ArrowRows):
        rows.run_each(function, take)
        return
    begin_own_job()
    answers = rows.mapInArrow(AnsweringEachInArrow(function), ANSWER_DDL)
    for answer in answers.toLocalIterator(prefetchPartitions=True):
        for row in rows_of([bytes(answer[ANSWER])]):
            take(row)


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
class _InOwnJob:
    """A pass over one number, whose job has no other Spark partition."""

    work: "Composed"
    number: int

    def __call__(self, numbers: Iterable[int]) -> Iterator[Any]:
        global _partition
        _partition = self.number
        try:
            yield from self.work(numbers)
        finally:
            _partition = None


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
    if _partition is not None:
        return _partition
    pyspark = sys.modules.get("pyspark")
    context = pyspark.TaskContext.get() if pyspark is not None and not rides() else None
    return int(context.partitionId()) if context is not None else 0
