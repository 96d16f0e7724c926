"""Spark batches to topics and back, through pipelines."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from drover.connector import ArrowRows, OffsetRange, RetriableError, SinkBatch
from drover.dataplane.payload import FrameError
from drover.dataplane.plane import Destination, OutgoingBatch, Receipt
from drover.dataplane.topic_creation import TopicCreation, TopicRule
from drover.errors import FailedPreconditionError, Reason
from drover.model.ids import TaskId
from drover.pipeline import RecordFailedError, Step, sink_pipeline, source_pipeline
from tests.spark.pipeline import Pipeline

pytestmark = pytest.mark.spark

TASK = TaskId("frames", 0)


def write(
    pipeline: Pipeline,
    rows: DataFrame | ArrowRows,
    *,
    steps: tuple[Step, ...] = (),
    partition_count: int = 1,
) -> Receipt:
    writer = pipeline.plane.writer(TASK, pipeline.claim(TASK), abandoned=lambda: False)
    return writer.publish([writer.stage(outgoing(rows, steps, partition_count))], ())


def outgoing(
    rows: DataFrame | ArrowRows, steps: tuple[Step, ...] = (), partition_count: int = 1
) -> OutgoingBatch:
    destination = Destination(topic="topic", creation=TopicCreation(TopicRule(partition_count)))
    return OutgoingBatch(rows, source_pipeline(transforms=steps), destination)


def read(pipeline: Pipeline, partitions: int = 1) -> list[dict[str, object]]:
    plan = pipeline.store.plan_read({("topic", number): 0 for number in range(partitions)})
    frame = pipeline.plane.rows(pipeline.spark, plan).frame()
    return [row.asDict(recursive=True) for row in frame.collect()]


def test_all_columns_cross_spark(pipeline: Pipeline) -> None:
    row_of_all_columns = pipeline.spark.sql(
        """SELECT 'topic' AS topic, 1 AS partition, 'key' AS key, X'FF00' AS value,
                  array(named_struct('key', 'h', 'value', X'01')) AS headers,
                  timestamp_millis(1234) AS timestamp"""
    )
    write(pipeline, row_of_all_columns, partition_count=2)
    (row,) = read(pipeline, 2)
    timestamp = row.pop("timestamp")
    assert isinstance(timestamp, datetime)
    assert timestamp.timestamp() == 1.234  # the instant, independent of the session's time zone
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
    assert frame.rdd.getNumPartitions() == 7
    assert write(pipeline, frame).record_count == 20_000
    assert [(row["offset"], row["value"]) for row in read(pipeline)] == [
        (n, b"%d" % n) for n in range(20_000)
    ]


def test_an_empty_frame_is_an_empty_batch(pipeline: Pipeline) -> None:
    frame = pipeline.spark.sql("SELECT 'v' AS value WHERE false")
    receipt = write(pipeline, frame)
    assert (receipt.record_count, receipt.topics, receipt.uncommitted) == (0, (), ())
    assert receipt.placement is not None
    assert not receipt.placement.ranges
    assert read(pipeline) == []


def test_a_wrong_column_is_named(pipeline: Pipeline) -> None:
    frame = pipeline.spark.sql("SELECT 7 AS value")
    with pytest.raises(FrameError, match="'value' must be binary or string, not int32"):
        write(pipeline, frame)


def test_a_fenced_task_stages_nothing(pipeline: Pipeline) -> None:
    zombie = pipeline.plane.writer(TASK, pipeline.claim(TASK), abandoned=lambda: False)
    pipeline.claim(TASK)
    with pytest.raises(FailedPreconditionError, match="is stale") as caught:
        zombie.stage(outgoing(pipeline.spark.sql("SELECT 'v' AS value")))
    assert caught.value.reason is Reason.STALE_CLAIM


@dataclass(frozen=True)
class Upper:
    """A transform that fails on non-ASCII text."""

    name: str = "shout"

    def __call__(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        values = [each.encode("ascii").upper() for each in batch.column("value").to_pylist()]
        yield pa.RecordBatch.from_pydict({"value": values})


def test_steps_run_in_the_pass_that_writes(pipeline: Pipeline, spark: SparkSession) -> None:
    frame = spark.sql("SELECT explode(array('a', 'b')) AS value")
    tracker = spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup("one pass", "")
    try:
        write(pipeline, frame, steps=(Upper(),))
        write(pipeline, ArrowRows(spark, _letters, 1, "value string"), steps=(Upper(),))
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert [row["value"] for row in read(pipeline)] == [b"A", b"B", b"C"]
    assert len(tracker.getJobIdsForGroup("one pass")) == 2


def _letters(_number: int) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"value": ["c"]})


def test_a_step_that_fails_is_named(pipeline: Pipeline) -> None:
    frame = pipeline.spark.sql("SELECT 'é' AS value")
    with pytest.raises(RecordFailedError, match="failed in shout: "):
        write(pipeline, frame, steps=(Upper(),))
    assert read(pipeline) == []


def test_a_sink_reads_a_batch_as_a_frame_or_in_one_pass(
    pipeline: Pipeline, spark: SparkSession
) -> None:
    write(pipeline, spark.sql("SELECT cast(id AS string) AS value FROM range(1000)"))
    plan = pipeline.store.plan_read({("topic", 0): 0}, range_bytes=1)
    rows = pipeline.plane.rows(spark, plan).through(sink_pipeline())
    ranges = [OffsetRange("topic", 0, 0, 1000)]
    for records in (rows, rows.frame()):
        batch = SinkBatch(records, ranges)
        assert batch.frame.count() == 1000
        mapped = batch.map_in_arrow(_first_values, "value binary").collect()
        assert mapped[0]["value"] == b"0"
        assert batch.run_in_arrow(_first_values)[0] == {"value": b"0"}


def test_rows_run_by_spark_partition_or_at_once(spark: SparkSession) -> None:
    rows = ArrowRows(spark, _numbered, partition_count=3, ddl=None)
    apart = [{"sum": sum(range(number * 10, number * 10 + 5))} for number in range(3)]
    assert rows.run(_sum) == apart
    assert rows.run(_sum, at_once=True) == [{"sum": sum(each["sum"] for each in apart)}]
    assert ArrowRows(spark, _numbered, partition_count=0, ddl=None).run(iter) == []


def test_an_error_of_an_executor_is_the_callers(spark: SparkSession) -> None:
    rows = ArrowRows(spark, _numbered, partition_count=3, ddl=None)
    for batch in (SinkBatch(rows, []), SinkBatch(spark.range(3), [])):
        with pytest.raises(RetriableError, match="too early") as caught:
            batch.run_in_arrow(_too_early)
        assert "in _too_early" in caught.value.__notes__[0]


def _numbered(number: int) -> Iterator[Any]:
    yield pa.RecordBatch.from_pydict({"number": range(number * 10, number * 10 + 5)})


def _sum(batches: Iterator[Any]) -> Iterator[Any]:
    total = sum(sum(batch.column(0).to_pylist()) for batch in batches)
    yield pa.RecordBatch.from_pydict({"sum": [total]})


def _too_early(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches
    raise RetriableError("too early")


def _first_values(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        yield batch.select(["value"]).slice(0, 1)
