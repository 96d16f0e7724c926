"""The tasks alone, on a local Spark session: `pytest` in this folder."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from drover.connector import (
    OffsetRange,
    SinkBatch,
    SinkTaskContext,
    SourceTaskContext,
    TaskId,
    Term,
)
from json_files import JsonFilesTask, JsonFolderTask

TASK = TaskId("example", 0)
CLAIM = Term(generation=1, sequence=1)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    started = session.getOrCreate()
    yield started
    started.stop()


def test_the_source_reads_each_file_once(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text('{"n": 1}\n{"n": 2}\n')
    task = JsonFilesTask()
    config = {"directory": str(tmp_path), "topic": "rows"}
    task.start(SourceTaskContext(task=TASK, claim=CLAIM, config=config, spark=spark))
    batch = task.poll()
    assert batch is not None
    assert [row.value for row in batch.frame.collect()] == ['{"n":1}', '{"n":2}']
    assert batch.offsets == [({"directory": str(tmp_path)}, {"last": "1.json"})]
    assert task.poll() is None


def test_a_batch_that_comes_again_replaces_what_it_wrote(
    spark: SparkSession, tmp_path: Path
) -> None:
    task = JsonFolderTask()
    config = {"directory": str(tmp_path)}
    task.start(SinkTaskContext(task=TASK, claim=CLAIM, config=config, spark=spark))
    rows = [("rows", 0, 7, b'{"n":1}'), ("rows", 0, 8, b'{"n":2}')]
    frame = spark.createDataFrame(rows, "topic string, partition int, offset bigint, value binary")
    for _ in range(2):
        task.write(SinkBatch(frame, [OffsetRange("rows", 0, 7, 9)]))
    (folder,) = tmp_path.iterdir()
    assert folder.name == "rows-0-00000000000000000007"
    written = spark.read.text(str(folder)).collect()  # files in any order
    assert sorted(row.value for row in written) == ['{"n":1}', '{"n":2}']
