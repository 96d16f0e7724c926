"""The two places where the data plane meets Spark's driver: a topic as a frame, a frame staged."""

from pathlib import Path
from typing import TYPE_CHECKING

from drover.dataplane.arrow_rows import ArrowRows, balanced_groups
from drover.dataplane.payload import READ_DDL
from drover.dataplane.reading import RangeReader
from drover.dataplane.staging import STAGED_DDL, Stager, staged_blobs
from drover.dataplane.values import ReadPlan, StagedBlob

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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


def stage_frame(frame: "DataFrame | ArrowRows", stager: Stager) -> list[StagedBlob]:
    """Run the frame on the executors, which stage its records; what to publish, in order."""
    if isinstance(frame, ArrowRows):
        staged = frame.map_in_arrow(stager, STAGED_DDL)
    else:
        staged = frame.mapInArrow(stager, STAGED_DDL)
    return staged_blobs(staged.collect())
