"""Which columns a sink's batch reads from Kafka."""

from pathlib import Path
from typing import Any, cast

import pytest

from drover.connector.settings import task_config
from drover.connectors.files.lines.file_stream_sink import FileStreamSink
from drover.dataplane.kafka.plane import KafkaPlane
from drover.dataplane.plane import ALL_COLUMNS, DeadLetterWriter
from drover.dataplane.values import ReadPlan, ReadRange
from drover.log.storage import KafkaStorage
from drover.model.ids import TaskId
from drover_worker.engine.tasks.record_path import RecordPath
from tests.unit.engine.runner_world import Spark

TRANSFORM = {
    "transforms": "t",
    "transforms.t.type": "InsertHeader",
    "transforms.t.header": "h",
    "transforms.t.value.literal": "1",
}


@pytest.mark.parametrize(
    ("further", "columns"),
    [
        ({}, frozenset({"value"})),
        ({"value.converter": "StringConverter"}, frozenset({"value"})),
        (TRANSFORM, ALL_COLUMNS),
        ({"value.converter": "JsonConverter"}, ALL_COLUMNS),
    ],
)
def test_only_what_nobody_looks_at_is_left_out(
    tmp_path: Path, further: dict[str, str], columns: frozenset[str]
) -> None:
    spark = cast("Any", Spark())
    spark.sparkContext.defaultParallelism = 2
    raw = {
        "name": "c",
        "connector.class": "FileStreamSink",
        "topics": "t",
        "file": str(tmp_path / "out"),
        **further,
    }
    path = RecordPath(FileStreamSink, task_config(FileStreamSink, raw, {}), TaskId("c", 0), spark)
    plane = KafkaPlane(KafkaStorage(bootstrap_servers="127.0.0.1:1", group_id="g"))
    plan = ReadPlan((ReadRange("t", 0, 0, 5, 100),), {("t", 0): 5})
    batch = path.sink_batch(plane, plan, DeadLetterWriter(lambda rows: rows, lambda _rows: None))
    read: Any = cast("Any", batch.rows).read
    assert getattr(read, "read", read).columns == columns
