"""Topics into a real S3 server on real Spark: each record once, whatever is killed."""

import gzip
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from drover.connector import RetriableError, TopicPartition
from drover.connectors.datagen.source import DatagenSource
from drover.connectors.files.files_sink import FilesSink
from drover.connectors.files.s3_sink import S3Sink
from drover.connectors.files.storage.object_directory import ObjectDirectory
from drover.connectors.files.storage.output_directory import StagedFile
from tests.spark.pipeline import Pipeline
from tests.support.s3 import S3

pytestmark = pytest.mark.spark

CONFLUENT = "io.confluent.connect.storage."


def fill(pipeline: Pipeline, rows: int = 3_000) -> None:
    raw = {"name": "orders-source", "quickstart": "orders", "max.records": str(rows)}
    pipeline.start_source(DatagenSource, {**raw, "batch.size": "700"}).run_until_idle()


def ids(found: ds.Dataset) -> list[int]:
    numbers: list[int] = found.to_table().column("order_id").to_pylist()
    return sorted(numbers)


def test_each_record_is_in_one_object_however_often_a_task_is_killed(
    pipeline: Pipeline, s3: S3, tmp_path: Path
) -> None:
    fill(pipeline)
    raw = {
        "name": "sink",
        "topics": "orders",
        "path": f"s3://{s3.bucket}/orders",
        "partition.by": "month(at),status",
        **s3.settings,
    }
    rng = random.Random(7)
    for _ in range(4):  # killed after the write and before the commit
        running = pipeline.start_sink(FilesSink, raw)
        running.write(running.plan(max_records=rng.randrange(100, 1_500)))
    pipeline.start_sink(FilesSink, raw).run_until_idle(max_records=1_100)
    found = s3.download(tmp_path / "found", "orders")
    assert ids(ds.dataset(found / "orders", partitioning="hive")) == list(range(3_000))


def test_a_config_of_confluents_sink_gives_its_layout(
    pipeline: Pipeline, s3: S3, tmp_path: Path
) -> None:
    fill(pipeline, 1_000)
    raw = {
        "name": "sink",
        "connector.class": "io.confluent.connect.s3.S3SinkConnector",
        "topics": "orders",
        "s3.bucket.name": s3.bucket,
        **s3.settings,
        "storage.class": "io.confluent.connect.s3.storage.S3Storage",
        "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
        "s3.compression.type": "gzip",
        "flush.size": "300",
        "schema.compatibility": "NONE",
    }
    pipeline.start_sink(S3Sink, raw).run_until_idle()
    assert s3.names() == [
        f"topics/orders/partition=0/orders+0+{start:010d}.json.gz" for start in (0, 300, 600, 900)
    ]
    rows = [
        json.loads(line)
        for path in s3.download(tmp_path / "found").rglob("*.gz")
        for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    assert sorted(each["order_id"] for each in rows) == list(range(1_000))
    # the topic was deleted and created again: a kill before the commit, then all of it
    first, key = s3.names(), TopicPartition("orders", 0)
    new: dict[str, Any] = {"output_ids": {key: "0a1b2c3d"}}
    killed = pipeline.start_sink(S3Sink, raw, lost=[key], **new)
    killed.write(killed.plan(max_records=700))
    pipeline.start_sink(S3Sink, raw, **new).run_until_idle()
    again = [
        f"topics/orders/partition=0/orders+0+{start:010d}-0a1b2c3d.json.gz"
        for start in (0, 300, 600, 700)
    ]
    assert s3.names() == sorted([*first, *again])


def test_directories_are_of_a_time_in_a_zone(pipeline: Pipeline, s3: S3, tmp_path: Path) -> None:
    fill(pipeline, 2_000)
    raw = {
        "name": "sink",
        "topics": "orders",
        "s3.bucket.name": s3.bucket,
        **s3.settings,
        "format.class": "io.confluent.connect.s3.format.parquet.ParquetFormat",
        "flush.size": "100000",
        "partitioner.class": f"{CONFLUENT}partitioner.TimeBasedPartitioner",
        "path.format": "'year'=YYYY/'day'=dd/'at'=HHmm",
        "partition.duration.ms": "1800000",
        "timezone": "Europe/Berlin",
        "timestamp.extractor": "RecordField",
        "timestamp.field": "at",
    }
    pipeline.start_sink(S3Sink, raw).run_until_idle()
    names = s3.names()
    assert names[0] == "topics/orders/year=2024/day=01/at=0100/orders+0+0000000000.snappy.parquet"
    assert names[1].startswith("topics/orders/year=2024/day=01/at=0130/orders+0+")
    found = s3.download(tmp_path / "found")
    assert pq.ParquetFile(found / names[0]).metadata.row_group(0).column(0).compression == "SNAPPY"
    assert ids(ds.dataset(found)) == list(range(2_000))


def test_what_is_in_place_when_a_write_fails_is_not_written_again(
    pipeline: Pipeline, s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = {"name": "source", "quickstart": "orders", "max.records": "1000", "key": "order_id"}
    running = pipeline.start_source(DatagenSource, {**source, "batch.size": "500"})
    running.partition_count = 2
    running.step()
    raw = {"name": "sink", "topics": "orders", "path": f"s3://{s3.bucket}/o", **s3.settings}
    sink = pipeline.start_sink(FilesSink, raw)
    sink.run_until_idle()
    running.step()
    publish, published = ObjectDirectory.publish, list[list[int]]()

    def fails_once(directory: ObjectDirectory, files: Iterable[StagedFile]) -> None:
        """The first partition's files are published, then the store fails."""
        found = sorted(files, key=lambda each: each.partition)
        published.append([each.partition for each in found])
        if len(published) == 1:
            publish(directory, found[:1])
            raise RetriableError("the store is away")
        publish(directory, found)

    monkeypatch.setattr(ObjectDirectory, "publish", fails_once)
    plan = sink.plan()
    with pytest.raises(RetriableError):
        sink.write(plan)
    sink.write(plan)
    assert published == [[0, 1], [1]]
    assert ids(ds.dataset(s3.download(tmp_path / "found", "o"))) == list(range(1_000))
