"""Rows with columns through a topic: converters, transforms, dead letters, on Spark."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from drover.connector import (
    ArrowRows,
    ConfigDef,
    SinkBatch,
    SinkConnector,
    SinkTask,
    SourceBatch,
    SourceConnector,
    SourceTask,
    SourceTaskContext,
)
from drover.dataplane.arrow_rows import MixedSchemasError
from drover.pipeline.report import total
from drover.record.batch import ERROR_COLUMN, ORIGIN_COLUMN, RAW_COLUMN
from drover_worker.engine.tasks.faults import failed_record
from tests.spark.pipeline import Pipeline

ROWS: list[dict[str, Any]] = [
    {"id": 1, "city": "oslo", "email": "a@x", "price": 1.5},
    {"id": 2, "city": "bonn", "email": "b@x", "price": None},
    {"id": 3, "city": None, "email": "c@x", "price": 3.0},
]


class TableTask(SourceTask):
    """Emits one batch of ``rows``, which a test sets."""

    rows: Any = ROWS

    def start(self, context: SourceTaskContext) -> None:
        self._done = bool(context.offsets())
        self._spark = context.spark

    def poll(self) -> SourceBatch | None:
        if self._done:
            return None
        self._done = True
        rows = self.rows(self._spark) if callable(self.rows) else self.rows
        return SourceBatch.table(rows, [({"t": 1}, {"n": 1})], topic="rows", key="id")


class TableSource(SourceConnector):
    structured = True
    task_class = TableTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [{}]


def values_of(batches: Any) -> Any:
    for batch in batches:
        texts = [json.dumps(each, default=str) for each in batch.column("value").to_pylist()]
        yield pa.RecordBatch.from_pydict({"value": texts})


class RowsTask(SinkTask):
    """Collects the batch's rows; subclasses read the batch in other ways."""

    seen: list[Any] = []  # noqa: RUF012 (each test clears it)

    def write(self, batch: SinkBatch) -> str:
        rows = batch.map_in_arrow(values_of, "value string").collect()
        self.seen += [json.loads(row["value"]) for row in rows]
        return ""


class FrameTask(RowsTask):
    seen: list[Any] = []  # noqa: RUF012

    def write(self, batch: SinkBatch) -> str:
        self.seen += [row.asDict(recursive=True) for row in batch.frame.collect()]
        return ""


class PartsTask(RowsTask):
    seen: list[Any] = []  # noqa: RUF012

    def write(self, batch: SinkBatch) -> str:
        for part in batch.parts(by="topic"):
            self.seen.append((part.ranges[0].topic, part.frame.select("value.*").columns))
        return ""


class RowsSink(SinkConnector):
    structured = True
    task_class = RowsTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return [{}]


class FrameSink(RowsSink):
    task_class = FrameTask


class PartsSink(RowsSink):
    task_class = PartsTask


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TableTask, "rows", ROWS)
    for each in (RowsTask, FrameTask, PartsTask):
        each.seen.clear()


def put(pipeline: Pipeline, values: Sequence[bytes | None], topic: str = "rows") -> None:
    """Write bytes to a topic as another program would."""

    class Bytes(TableTask):
        def poll(self) -> SourceBatch | None:
            if self._done:
                return None
            self._done = True
            rows = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})
            frame = ArrowRows(self._spark, Once(rows), 1, "value binary")
            return SourceBatch(frame, [({"t": 1}, {"n": 1})], topic=topic)

    class BytesSource(TableSource):
        structured = False
        task_class = Bytes

    pipeline.start_source(BytesSource, {"name": f"bytes-{topic}"}).run_until_idle()


class Once:
    def __init__(self, rows: pa.RecordBatch) -> None:
        self.rows = rows

    def __call__(self, number: int) -> list[pa.RecordBatch]:
        return [self.rows]


def topic_values(pipeline: Pipeline, topic: str) -> list[dict[str, Any]]:
    plan = pipeline.store.plan_read({(topic, 0): 0})
    rows = pipeline.plane.rows(pipeline.spark, plan)
    return [
        row
        for number in range(rows.partition_count)
        for b in rows.read(number)
        for row in b.to_pylist()
    ]


def test_rows_cross_a_topic_with_their_types_and_nulls(pipeline: Pipeline) -> None:
    source = pipeline.start_source(TableSource, {"name": "s"})
    assert source.run_until_idle() == 3
    (first, *_) = topic_values(pipeline, "rows")
    written = json.loads(first["value"])
    assert written["payload"] == ROWS[0]
    assert [each["type"] for each in written["schema"]["fields"]] == [
        "int64",
        "string",
        "string",
        "double",
    ]
    assert json.loads(first["key"])["payload"] == 1
    pipeline.start_sink(RowsSink, {"name": "k", "topics": "rows"}).run_until_idle()
    assert RowsTask.seen == ROWS


def test_transforms_run_at_both_ends_and_what_they_drop_is_counted(pipeline: Pipeline) -> None:
    source = pipeline.start_source(
        TableSource,
        {
            "name": "s",
            "transforms": "mask,oslo",
            "transforms.mask.type": "MaskField$Value",
            "transforms.mask.fields": "email",
            "transforms.oslo.type": "Filter",
            "transforms.oslo.predicate": "isOslo",
            "predicates": "isOslo",
            "predicates.isOslo.type": "FieldMatches",
            "predicates.isOslo.field": "city",
            "predicates.isOslo.equals": "oslo",
        },
    )
    source.run_until_idle()
    counts = source.report
    assert (counts.read_count, counts.written_count, counts.filtered_count) == (3, 2, 1)
    sink = pipeline.start_sink(
        RowsSink,
        {
            "name": "k",
            "topics": "rows",
            "transforms": "only",
            "transforms.only.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
            "transforms.only.include": "id,email",
        },
    )
    sink.run_until_idle()
    assert RowsTask.seen == [{"id": 2, "email": ""}, {"id": 3, "email": ""}]


def test_a_record_that_is_no_json_fails_the_task_and_is_named(pipeline: Pipeline) -> None:
    put(pipeline, [b'{"a": 1}', b"{broken", b'{"a": 2}'])
    sink = pipeline.start_sink(
        RowsSink,
        {
            "name": "k",
            "topics": "rows",
            "value.converter.schemas.enable": "false",
            "value.converter": "JsonConverter",
        },
    )
    with pytest.raises(Exception) as caught:  # wrapped in Spark's exception
        sink.run_until_idle()
    told = failed_record(caught.value)
    assert told is not None
    assert told.startswith("record rows-0@1 failed in ")
    assert "errors.tolerance=all" in told


def test_records_that_fail_become_dead_letters_and_the_rest_arrives(pipeline: Pipeline) -> None:
    put(pipeline, [b'{"a": 1}', b"{broken", None, b'{"a": 2}', b"", b'{"a": 3}'])
    sink = pipeline.start_sink(
        RowsSink,
        {
            "name": "k",
            "topics": "rows",
            "value.converter": "JsonConverter",
            "value.converter.schemas.enable": "false",
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": "dead",
            "errors.deadletterqueue.context.headers.enable": "true",
        },
    )
    sink.run_until_idle()
    report = total([sink.report])
    assert report.read_count == 6
    assert report.read_count == report.written_count + report.dead_lettered_count
    letters = topic_values(pipeline, "dead")
    assert letters[0]["value"] == b"{broken"
    assert len(letters) == report.dead_lettered_count
    headers = {each["key"]: each["value"] for each in letters[0]["headers"]}
    assert headers["__connect.errors.topic"] == b"rows"
    assert headers["__connect.errors.offset"] == b"1"
    assert headers["__connect.errors.stage"] == b"VALUE_CONVERTER"
    assert [each for each in RowsTask.seen if each] == ['{"a": 1}', '{"a": 2}', '{"a": 3}'] or [
        json.loads(each)["a"] for each in RowsTask.seen if each
    ] == [1, 2, 3]


def test_a_sources_unreadable_rows_are_dead_letters_of_the_same_batch(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table(
        {
            "id": [1, None, 3],
            ORIGIN_COLUMN: ["/a:1", "/a:2", "/a:3"],
            ERROR_COLUMN: [None, "2 fields, expected 1", None],
            RAW_COLUMN: pa.array([None, b"2,2", None]),
        }
    )
    monkeypatch.setattr(TableTask, "rows", rows)
    source = pipeline.start_source(
        TableSource,
        {
            "name": "s",
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": "dead",
        },
    )
    source.run_until_idle()
    assert (source.report.written_count, source.report.dead_lettered_count) == (2, 1)
    assert len(topic_values(pipeline, "rows")) == 2
    assert [each["value"] for each in topic_values(pipeline, "dead")] == [b"2,2"]


def test_a_frame_has_the_columns_of_the_rows(pipeline: Pipeline) -> None:
    pipeline.start_source(TableSource, {"name": "s"}).run_until_idle()
    pipeline.start_sink(FrameSink, {"name": "k", "topics": "rows"}).run_until_idle()
    assert [row["value"] for row in FrameTask.seen] == ROWS
    assert [row["offset"] for row in FrameTask.seen] == [0, 1, 2]


def test_topics_of_several_schemas_come_in_parts(pipeline: Pipeline) -> None:
    envelope = (
        '{"schema":{"type":"struct","fields":[{"field":"%s","type":"int32"}]},"payload":{"%s":1}}'
    )
    for topic, column in (("one", "a"), ("two", "b")):
        put(pipeline, [(envelope % (column, column)).encode()], topic)
    pipeline.start_sink(PartsSink, {"name": "k", "topics": "one,two"}).run_until_idle()
    assert PartsTask.seen == [("one", ["a"]), ("two", ["b"])]
    with pytest.raises(MixedSchemasError, match="records of several schemas"):
        pipeline.start_sink(FrameSink, {"name": "f", "topics": "one,two"}).run_until_idle()
