"""The Spark jobs that the data plane runs: one pass over a batch, and one that warms up."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from drover.dataplane.arrow_rows import ArrowFunction, ArrowRows, Composed
from drover.dataplane.payload import READ_DDL
from drover.dataplane.plane import OutgoingBatch

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

_COUNT_DDL = "count bigint"


def run_pass(
    batch: OutgoingBatch, write: ArrowFunction, ddl: str, *, at_once: bool = False
) -> "list[Row]":
    """Run the batch's rows through its pipeline into ``write``, in one job; the rows it returns.

    With ``at_once`` one call of ``write`` gets all rows, in order.
    """
    function = Composed(batch.pipeline, write)
    rows = batch.rows
    if isinstance(rows, ArrowRows):
        return rows.map_in_arrow(function, ddl, at_once=at_once).collect()
    return (rows.coalesce(1) if at_once else rows).mapInArrow(function, ddl).collect()


def warm_up(spark: "SparkSession", read_nothing: Callable[[int], Iterable[Any]]) -> None:
    """Run, on every core, the two kinds of job that batches are made of, without a record.

    The first job of a kind takes seconds: Python workers start, classes load, code is generated.
    """
    rows = ArrowRows(spark, read_nothing, spark.sparkContext.defaultParallelism, READ_DDL)
    rows.map_in_arrow(_count, _COUNT_DDL).collect()
    rows.frame().mapInArrow(_count, _COUNT_DDL).collect()


def _count(batches: Iterable[Any]) -> Iterator[Any]:
    yield pa.RecordBatch.from_pydict({"count": [sum(batch.num_rows for batch in batches)]})
