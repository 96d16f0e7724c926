"""Generated rows and files of rows through tasks on real Spark."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from drover.connector import (
    ArrowRows,
    OffsetRange,
    SinkBatch,
    SinkOffset,
    SinkTaskContext,
    SourceBatch,
    SourceTaskContext,
    TopicPartition,
)
from drover.connector.offsets import source_offsets
from drover.connector.settings import task_config
from drover.connectors.datagen.row_generator import QUICKSTARTS, RowGenerator
from drover.connectors.datagen.source import TASK_LANES, DatagenSource, DatagenSourceTask
from drover.connectors.files.files_sink import FilesSink, FilesSinkTask
from drover.connectors.files.files_source import TASK_SHARE, FilesSource, FilesSourceTask
from drover.model.ids import TaskId, Term
from drover.record.batch import ERROR_COLUMN, make_batch
from tests.spark.pipeline import Pipeline

pytestmark = pytest.mark.spark

ROWS_DDL = "rows binary"


def as_stream(batches: Iterator[Any]) -> Iterator[Any]:
    """Rows of any schema as bytes, for transfer to the driver."""
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.RecordBatch.from_pydict({"rows": [sink.getvalue().to_pybytes()]})


def rows_of(batch: SourceBatch) -> list[pa.Table]:
    """The rows that executors read for a batch, in order."""
    rows: Any = batch.frame
    assert isinstance(rows, ArrowRows)
    found = rows.map_in_arrow(as_stream, ROWS_DDL).collect()
    return [pa.ipc.open_stream(bytes(row["rows"])).read_all() for row in found]


@dataclass(frozen=True)
class Cut:
    """Rows ``start`` to ``end`` - 1 as records of topic rows-0, in two Spark partitions."""

    start: int
    end: int

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        middle = (self.start + self.end) // 2
        first, last = ((self.start, middle), (middle, self.end))[number]
        numbers = np.arange(first, last, dtype=np.uint64)
        values = RowGenerator(QUICKSTARTS["orders"], 5).rows(numbers).to_struct_array()
        count = len(numbers)
        yield make_batch(
            count,
            topic=pa.array(["rows"] * count),
            partition=pa.array([0] * count, pa.int32()),
            offset=pa.array(numbers.astype(np.int64)),
            value=(pa.field("value", values.type), values),
        )


def start_sink(
    spark: SparkSession, path: Path, claim: int, committed: int, **config: str
) -> FilesSinkTask:
    raw = {"name": "sink", "connector.class": "FilesSink", "topics": "rows", "path": str(path)}
    sink = FilesSinkTask()
    sink.start(
        SinkTaskContext(
            task=TaskId("sink", 0),
            claim=Term(1, claim),
            config=task_config(FilesSink, raw | config, {}),
            spark=spark,
            committed={TopicPartition("rows", 0): SinkOffset(committed)},
        )
    )
    return sink


def start_source(spark: SparkSession, task: Any, raw: dict[str, str], committed: Any = ()) -> Any:
    plugin = DatagenSource if isinstance(task, DatagenSourceTask) else FilesSource
    own = {TASK_LANES: "0/1", TASK_SHARE: "0/1"}
    base = {"name": "source", "connector.class": plugin.__name__}
    task.start(
        SourceTaskContext(
            task=TaskId("source", 0),
            claim=Term(1, 1),
            config=task_config(plugin, base | raw, own),
            spark=spark,
            committed=committed,
        )
    )
    return task


def test_a_sink_that_is_killed_again_and_again_writes_each_record_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    chance = random.Random(11)
    total, committed, claim = 30_000, 0, 1
    by = {"partition.by": "month(at),status"}
    sink = start_sink(spark, tmp_path, claim, committed, **by)
    while committed < total:
        end = min(total, committed + chance.randrange(2, 9000))
        rows = ArrowRows(spark, Cut(committed, end), 2, None)
        sink.write(SinkBatch(rows, [OffsetRange("rows", 0, committed, end)]))
        if chance.randrange(2):
            committed = end
        else:  # killed before the commit
            claim += 1
            sink = start_sink(spark, tmp_path, claim, committed, **by)
    sink.stop()
    found = ds.dataset(tmp_path, partitioning="hive").to_table()
    wanted = RowGenerator(QUICKSTARTS["orders"], 5).rows(np.arange(total, dtype=np.uint64))
    names = ["order_id", "at", "customer", "price", "quantity"]
    assert (
        found.select(names).sort_by("order_id")
        == pa.Table.from_batches([wanted]).select(names).combine_chunks()
    )
    assert sorted(pc.unique(found["status"]).to_pylist()) == sorted(
        pc.unique(wanted["status"]).to_pylist()
    )


def test_made_up_rows_are_those_of_the_generator(spark: SparkSession) -> None:
    raw = {"quickstart": "orders", "max.records": "90000", "batch.size": "50000", "seed": "5"}
    task = start_source(spark, DatagenSourceTask(), raw)
    tables: list[pa.Table] = []
    while (batch := task.poll()) is not None:
        tables += rows_of(batch)
    wanted = RowGenerator(QUICKSTARTS["orders"], 5).rows(np.arange(90_000, dtype=np.uint64))
    assert pa.concat_tables(tables).combine_chunks() == pa.Table.from_batches([wanted])


def test_files_are_read_on_executors_and_go_on_after_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    wanted = pa.Table.from_batches(
        [
            RowGenerator("id bigint, name string, quantity int", 1).rows(
                np.arange(5000, dtype=np.uint64)
            )
        ]
    )
    pa_csv.write_csv(wanted.slice(0, 3000), tmp_path / "a.csv")
    with (tmp_path / "a.csv").open("a") as file:
        file.write("no row\n")
    pq.write_table(wanted.slice(3000), tmp_path / "b.parquet", row_group_size=500)
    raw = {
        "path": str(tmp_path),
        "topic": "t",
        "files.settle.ms": "0",
        "schema": "id bigint, name string, quantity int",
        "batch.max.bytes": "50000",
    }
    committed: dict[str, Any] = {}
    tables: list[pa.Table] = []
    while True:
        task = start_source(spark, FilesSourceTask(), raw, list(committed.values()))
        batch = task.poll()
        if batch is None:
            break
        tables += rows_of(batch)
        committed |= {each.partition_json: each for each in source_offsets(batch.offsets)}
    bad = [each for each in tables if ERROR_COLUMN in each.column_names]
    good = [
        each.select(wanted.column_names) for each in tables if ERROR_COLUMN not in each.column_names
    ]
    assert [each.num_rows for each in bad] == [1]
    assert pa.concat_tables(good).combine_chunks() == wanted.combine_chunks()


def test_files_go_through_a_topic_into_files(pipeline: Pipeline) -> None:
    names = "order_id", "at", "customer", "price", "city"
    rows = RowGenerator(QUICKSTARTS["orders"], 5).rows(np.arange(3000, dtype=np.uint64))
    wanted = pa.Table.from_batches([rows]).select(names)
    source, target = pipeline.directory / "in", pipeline.directory / "out"
    source.mkdir()
    for index in range(3):
        pa_csv.write_csv(wanted.slice(index * 1000, 1000), source / f"{index}.csv")
    with (source / "1.csv").open("a") as file:
        file.write("no row\n")
    (source / "cut.parquet").write_bytes(b"PAR1 and no more")
    raw = {
        "name": "source",
        "path": str(source),
        "topic": "rows",
        "files.settle.ms": "0",
        "schema": "order_id bigint, at timestamp, customer string, "
        "price decimal(10,2), city string",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "bad",
    }
    pipeline.start_source(FilesSource, raw).run_until_idle()
    assert pipeline.store.end_offsets("bad") == {0: 2}
    sink = {"name": "sink", "path": str(target), "topics": "rows", "partition.by": "month(at),city"}
    killed = pipeline.start_sink(FilesSink, sink)
    killed.write(killed.plan(max_records=700))  # and killed before the commit
    pipeline.start_sink(FilesSink, sink).run_until_idle(max_records=1100)
    found = ds.dataset(target, partitioning="hive").to_table()
    assert found.select(names).sort_by("order_id") == wanted.combine_chunks()
