"""The Spark jobs of the data plane: one pass over a batch, and one for warming up."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from drover.dataplane.arrow_rows import (
    ArrowFunction,
    ArrowRows,
    Composed,
    run_each_in_arrow,
    run_in_arrow,
)
from drover.dataplane.plane import OutgoingBatch
from drover.dataplane.shared_jobs import core_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_pass(
    batch: OutgoingBatch, write: ArrowFunction, *, at_once: bool = False
) -> list[dict[str, Any]]:
    """Run the batch's rows through its pipeline into ``write``, in one job; returns the resulting
    rows.

    With ``at_once`` one call of ``write`` gets all rows, in order.

    Raises:
        Exception: The error of the pipeline or of ``write``.
    """
    return run_in_arrow(batch.rows, Composed(batch.pipeline, write), at_once=at_once)


def run_pass_each(batch: OutgoingBatch, write: ArrowFunction, take: Callable[[Any], None]) -> None:
    """As ``run_pass``, but passes each row to ``take`` as it arrives (``ArrowRows.run_each``)."""
    run_each_in_arrow(batch.rows, Composed(batch.pipeline, write), take)


def warm_up(spark: "SparkSession", read_nothing: Callable[[int], Iterable[Any]]) -> None:
    """Run a pass without records on every core, and a small data frame in parallel.

    The first job takes seconds: Python workers start and import modules, and the JVM loads Spark
    SQL. (A frame with Python code starts its own workers: only plugins that use one wait for that.)
    """
    cores = core_count(spark.sparkContext)
    with ThreadPoolExecutor(1) as beside:
        frame = beside.submit(lambda: spark.range(1).selectExpr("cast(id AS string)").collect())
        ArrowRows(spark, read_nothing, cores, None).run(_count)
        frame.result()


def _count(batches: Iterable[Any]) -> Iterator[Any]:
    yield pa.RecordBatch.from_pydict({"count": [sum(batch.num_rows for batch in batches)]})
