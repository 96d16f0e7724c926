"""Frames of Spark into topics and back."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from drover.connector import OffsetRange, SinkBatch
from drover.dataplane.frames import stage_frame, topic_frame, topic_rows
from drover.dataplane.staging import Stager
from drover.model.ids import TaskId
from tests.spark.pipeline import Pipeline

pytestmark = pytest.mark.spark

TASK = TaskId("frames", 0)


def stager(pipeline: Pipeline, partition_count: int = 1) -> Stager:
    claim = pipeline.claim(TASK)
    path = pipeline.store.path
    return Stager(path, TASK, claim, topic="topic", partition_count=partition_count)


def publish(pipeline: Pipeline, query: str, partition_count: int = 1) -> None:
    with_claim = stager(pipeline, partition_count)
    staged = stage_frame(pipeline.spark.sql(query), with_claim)
    pipeline.store.publish(TASK, with_claim.claim, staged)


def read(pipeline: Pipeline, partitions: int = 1) -> list[dict[str, object]]:
    plan = pipeline.store.plan_read({("topic", number): 0 for number in range(partitions)})
    frame = topic_frame(pipeline.spark, pipeline.store.path, plan)
    return [row.asDict(recursive=True) for row in frame.collect()]


def test_all_columns_cross_spark(pipeline: Pipeline) -> None:
    publish(
        pipeline,
        """SELECT 'topic' AS topic, 1 AS partition, 'key' AS key, X'FF00' AS value,
                  array(named_struct('key', 'h', 'value', X'01')) AS headers,
                  timestamp_millis(1234) AS timestamp""",
        partition_count=2,
    )
    (row,) = read(pipeline, 2)
    timestamp = row.pop("timestamp")
    assert isinstance(timestamp, datetime)
    assert timestamp.timestamp() == 1.234  # the instant, whatever the session's time zone
    assert row == {
        "topic": "topic",
        "partition": 1,
        "offset": 0,
        "key": b"key",
        "value": b"\xff\x00",
        "headers": [{"key": "h", "value": b"\x01"}],
    }


def test_a_frames_order_is_kept_over_its_partitions(pipeline: Pipeline) -> None:
    frame = pipeline.spark.range(0, 20_000, 1, 7).selectExpr("cast(id AS string) AS value")
    with_claim = stager(pipeline)
    staged = stage_frame(frame, with_claim)
    assert len({each.spark_partition for each in staged}) == 7
    pipeline.store.publish(TASK, with_claim.claim, staged)
    assert [(row["offset"], row["value"]) for row in read(pipeline)] == [
        (n, b"%d" % n) for n in range(20_000)
    ]


def test_an_empty_frame_is_an_empty_batch(pipeline: Pipeline) -> None:
    frame = pipeline.spark.sql("SELECT 'v' AS value WHERE false")
    assert stage_frame(frame, stager(pipeline)) == []
    assert read(pipeline) == []


def test_a_wrong_column_is_named(pipeline: Pipeline) -> None:
    frame = pipeline.spark.sql("SELECT 7 AS value")
    with pytest.raises(PySparkException, match="'value' must be binary or string, not int32"):
        stage_frame(frame, stager(pipeline))


def test_a_fenced_task_stages_nothing(pipeline: Pipeline) -> None:
    zombie = stager(pipeline)
    pipeline.claim(TASK)
    with pytest.raises(PySparkException, match="is stale"):
        stage_frame(pipeline.spark.sql("SELECT 'v' AS value"), zombie)


def test_a_sink_reads_a_batch_as_a_frame_or_in_one_pass(
    pipeline: Pipeline, spark: SparkSession
) -> None:
    publish(pipeline, "SELECT cast(id AS string) AS value FROM range(1000)")
    plan = pipeline.store.plan_read({("topic", 0): 0}, range_bytes=1)
    rows = topic_rows(spark, pipeline.store.path, plan)
    ranges = [OffsetRange("topic", 0, 0, 1000)]
    for records in (rows, rows.frame()):
        batch = SinkBatch(records, ranges)
        assert batch.frame.count() == 1000
        mapped = batch.map_in_arrow(_first_values, "value binary").collect()
        assert mapped[0]["value"] == b"0"


def _first_values(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        yield batch.select(["value"]).slice(0, 1)
