"""The two places where the data plane meets Spark's driver: a topic as a frame, a frame staged."""

from pathlib import Path
from typing import TYPE_CHECKING

from drover.dataplane.payload import READ_DDL
from drover.dataplane.reading import RangeReader
from drover.dataplane.staging import STAGED_DDL, Stager, staged_blobs
from drover.dataplane.values import ReadPlan, StagedBlob

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def topic_frame(spark: "SparkSession", path: Path, plan: ReadPlan) -> "DataFrame":
    """The records of a plan: topic, partition, offset, key, value, headers, timestamp.

    One Spark partition for each range, in the plan's order. Nothing runs before the frame is used.
    """
    ranges = tuple(plan.ranges)
    count = max(1, len(ranges))
    numbers = spark.range(0, len(ranges), 1, count)
    return numbers.mapInArrow(RangeReader(path, ranges), READ_DDL)


def stage_frame(frame: "DataFrame", stager: Stager) -> list[StagedBlob]:
    """Run the frame on the executors, which stage its records; what to publish, in order."""
    return staged_blobs(frame.mapInArrow(stager, STAGED_DDL).collect())
