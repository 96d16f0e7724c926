"""Rows that a Python function makes on executors, one Spark partition for each number.

As a frame they are like any other. When the next step is a Python function over Arrow batches as
well (staging, or a sink that writes with Python), both run in one pass and the rows never become
rows of the JVM: measured, that is three to five times as fast.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ItemT = TypeVar("ItemT")

#: From record batches to record batches, as mapInArrow takes it; has to be picklable.
ArrowFunction = Callable[[Iterator[Any]], Iterator[Any]]


@dataclass(frozen=True)
class ArrowRows:
    """Rows by Spark partition.

    ``read(n)`` gives the record batches of Spark partition n, in order; it is pickled and runs on
    executors. ``ddl`` names the columns and their types, as for mapInArrow.

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
        """The rows as a frame; nothing runs before it is used."""
        return self._numbers().mapInArrow(_Pass(self.read, None), self.ddl or "value binary")

    def map_in_arrow(
        self, function: ArrowFunction, ddl: str, *, at_once: bool = False
    ) -> "DataFrame":
        """What ``frame().mapInArrow(function, ddl)`` gives, in one pass.

        With ``at_once`` one call of the function gets all rows, in order.
        """
        return self._numbers(at_once).mapInArrow(_Pass(self.read, function), ddl)

    def through(self, function: ArrowFunction) -> "ArrowRows":
        """These rows after ``function``, which is pickled and leaves columns as ``ddl`` says."""
        return replace(self, read=Composed(self.read, function))

    def _numbers(self, at_once: bool = False) -> "DataFrame":
        spark_partitions = 1 if at_once else max(1, self.partition_count)
        return self.spark.range(0, self.partition_count, 1, spark_partitions)


@dataclass(frozen=True)
class _Pass:
    read: Callable[[int], Iterable[Any]]
    function: ArrowFunction | None

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        rows = self._rows(batches)
        yield from rows if self.function is None else self.function(rows)

    def _rows(self, batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.read(number)


@dataclass(frozen=True)
class Composed:
    """``second(first(argument))``, picklable: two functions that run in one pass."""

    first: Callable[[Any], Iterable[Any]]
    second: ArrowFunction

    def __call__(self, argument: Any) -> Iterator[Any]:
        """Lazy, as far as the functions are."""
        return self.second(iter(self.first(argument)))


def balanced_groups(
    items: Sequence[ItemT],
    size_bytes: Callable[[ItemT], int],
    *,
    group_count: int,
    group_bytes_min: int = 1024 * 1024,
) -> tuple[tuple[ItemT, ...], ...]:
    """Neighbours together, in order, as at most ``group_count`` groups of about the same size.

    One group is one Spark partition: each costs some milliseconds, so there should be no more of
    them than cores, and none for a few bytes.
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
    """The Spark partition that this process works on; 0 outside of Spark.

    Whoever runs as a Spark task has pyspark loaded; it is not imported for those who do not.
    """
    pyspark = sys.modules.get("pyspark")
    context = pyspark.TaskContext.get() if pyspark is not None else None
    return int(context.partitionId()) if context is not None else 0
