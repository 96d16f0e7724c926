"""The two places where the data plane meets Spark's driver: a topic as a frame, a frame staged."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from drover.dataplane.arrow_rows import ArrowRows, balanced_groups
from drover.dataplane.payload import READ_DDL
from drover.dataplane.reading import RangeReader
from drover.dataplane.staging import STAGED_DDL, Stager, staged_blobs
from drover.dataplane.values import ReadPlan, StagedBlob

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COUNT_DDL = "count bigint"


def topic_rows(spark: "SparkSession", path: Path, plan: ReadPlan) -> ArrowRows:
    """The records of a plan: topic, partition, offset, key, value, headers, timestamp.

    At most as many Spark partitions as cores, in the plan's order.
    """
    groups = balanced_groups(
        plan.ranges,
        lambda each: each.size_bytes,
        group_count=spark.sparkContext.defaultParallelism,
    )
    return ArrowRows(spark, RangeReader(path, groups), len(groups), READ_DDL)


def topic_frame(spark: "SparkSession", path: Path, plan: ReadPlan) -> "DataFrame":
    """``topic_rows`` as a frame."""
    return topic_rows(spark, path, plan).frame()


def warm_up(spark: "SparkSession", read_nothing: Callable[[int], Iterable[Any]]) -> None:
    """Run, on every core, the two kinds of job that batches are made of, without a record.

    The first job of a kind takes seconds: Python workers start, classes load, code is generated.
    """
    rows = ArrowRows(spark, read_nothing, spark.sparkContext.defaultParallelism, READ_DDL)
    rows.map_in_arrow(_count, _COUNT_DDL).collect()
    rows.frame().mapInArrow(_count, _COUNT_DDL).collect()


def _count(batches: Iterable[Any]) -> Iterator[Any]:
    yield pa.RecordBatch.from_pydict({"count": [sum(batch.num_rows for batch in batches)]})


def stage_frame(frame: "DataFrame | ArrowRows", stager: Stager) -> list[StagedBlob]:
    """Run the frame on the executors, which stage its records; what to publish, in order."""
    if isinstance(frame, ArrowRows):
        staged = frame.map_in_arrow(stager, STAGED_DDL)
    else:
        staged = frame.mapInArrow(stager, STAGED_DDL)
    return staged_blobs(staged.collect())
