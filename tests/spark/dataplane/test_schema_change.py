"""schema.change: the result is the same for any distribution of a batch over executors."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from drover.connector import ArrowRows, SourceBatch, SourceTaskContext
from drover.record.batch import ERROR_COLUMN, TOPIC_COLUMN
from drover_worker.engine.tasks.faults import failed_record
from tests.spark.dataplane.test_records import (
    FrameSink,
    FrameTask,
    RowsSink,
    RowsTask,
    TableSource,
    TableTask,
    put,
    topic_values,
)
from tests.spark.pipeline import Pipeline, RunningSource

pytestmark = pytest.mark.spark

#: Rows for executors, each in its own Spark partition.
OLD, NEW = {"id": 1, "name": "a"}, {"id": 2, "name": "b", "city": "c"}


class EachAlone:
    """Rows, each in its own Spark partition with its own schema."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self.rows = rows

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([self.rows[number]])


class BatchesTask(TableTask):
    """Emits one batch for each of ``batches``, which a test sets."""

    batches: Sequence[Sequence[dict[str, Any]]] = ()
    topic: str | None = "rows"

    def start(self, context: SourceTaskContext) -> None:
        super().start(context)
        self._left = list(self.batches)

    def poll(self) -> SourceBatch | None:
        if not self._left:
            return None
        rows = self._left.pop(0)
        frame = ArrowRows(self._spark, EachAlone(rows), len(rows), None)
        return SourceBatch.table(frame, [({"t": 1}, {"n": 1})], topic=self.topic)


class BatchesSource(TableSource):
    task_class = BatchesTask


def run_source(pipeline: Pipeline, change: str, **config: str) -> RunningSource:
    config = {"name": "s", "schema.change": change, "errors.tolerance": "all"} | config
    config["errors.deadletterqueue.topic.name"] = "dead"
    source = pipeline.start_source(BatchesSource, config)
    source.run_until_idle()
    return source


def values(pipeline: Pipeline, topic: str = "rows") -> list[dict[str, Any]]:
    found = [json.loads(each["value"]) for each in topic_values(pipeline, topic)]
    return [each.get("payload", each) for each in found]


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchesTask, "batches", [[OLD, NEW, OLD], [NEW, OLD], [NEW]])


@pytest.mark.usefixtures("batches")
def test_any_schema_passes_unless_something_else_is_said(pipeline: Pipeline) -> None:
    source = pipeline.start_source(BatchesSource, {"name": "s"})
    source.run_until_idle()
    assert values(pipeline) == [OLD, NEW, OLD, NEW, OLD, NEW]


@pytest.mark.usefixtures("batches")
def test_a_frozen_schema_is_the_first_ones_in_later_batches_too(pipeline: Pipeline) -> None:
    run_source(pipeline, "freeze")
    assert values(pipeline) == [OLD, OLD, OLD]
    assert values(pipeline, "dead") == [NEW, NEW, NEW]


@pytest.mark.usefixtures("batches")
def test_rows_are_discarded_counted_and_logged_once(pipeline: Pipeline) -> None:
    with capture_logs() as logs:
        source = run_source(pipeline, "discard_row")
    assert values(pipeline) == [OLD, OLD, OLD]
    assert (source.report.read_count, source.report.filtered_count) == (1, 1)
    (told,) = (each for each in logs if "schema" in each["event"])
    assert (told["topic"], told["change"]) == ("rows", "value.city (string) is new")


@pytest.mark.usefixtures("batches")
def test_values_are_discarded(pipeline: Pipeline) -> None:
    run_source(pipeline, "discard_value")
    without_city = {"id": 2, "name": "b"}
    assert values(pipeline) == [OLD, without_city, OLD, without_city, OLD, without_city]


def test_rows_that_name_their_topics_have_each_a_schema_of_their_own(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def to(topic: str, row: dict[str, Any]) -> dict[str, Any]:
        return {TOPIC_COLUMN: topic, **row}

    rows = [[to("a", OLD), to("b", NEW), to("a", NEW)], [to("b", NEW), to("a", NEW), to("a", OLD)]]
    monkeypatch.setattr(BatchesTask, "batches", rows)
    monkeypatch.setattr(BatchesTask, "topic", None)
    run_source(pipeline, "discard_row")
    assert (values(pipeline, "a"), values(pipeline, "b")) == ([OLD, OLD], [NEW, NEW])


def test_a_row_that_cannot_be_read_says_no_schema(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = {"x": None, ERROR_COLUMN: "it is broken"}
    monkeypatch.setattr(BatchesTask, "batches", [[bad, OLD, NEW]])
    run_source(pipeline, "discard_value")
    assert values(pipeline) == [OLD, {"id": 2, "name": "b"}]


def test_without_tolerance_the_task_fails_and_names_the_record(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BatchesTask, "batches", [[OLD, NEW]])
    with pytest.raises(Exception) as caught:  # wrapped in Spark's exception
        run_source(pipeline, "freeze", **{"errors.tolerance": "none"})
    told = failed_record(caught.value)
    assert told is not None
    assert "schema.change: SchemaChangeError: value.city (string) is new" in told
    assert pipeline.store.end_offsets("rows") in ({}, {0: 0}), "nothing half-written"


def enveloped(row: dict[str, Any]) -> bytes:
    fields = [
        {
            "field": name,
            "type": "int32" if isinstance(value, int) else "string",
            "optional": False,
        }
        for name, value in row.items()
    ]
    schema = {"type": "struct", "optional": False, "fields": fields}
    return json.dumps({"schema": schema, "payload": row}).encode()


def test_a_sinks_frame_has_one_schema(pipeline: Pipeline) -> None:
    FrameTask.seen.clear()
    put(pipeline, [b"{broken", None, *map(enveloped, (OLD, NEW)), None, enveloped(OLD)])
    config = {"name": "k", "topics": "rows", "errors.tolerance": "all"}
    sink = pipeline.start_sink(FrameSink, {**config, "schema.change": "discard_value"})
    sink.run_until_idle()
    without_city = {"id": 2, "name": "b"}
    assert [row["value"] for row in FrameTask.seen] == [None, OLD, without_city, None, OLD]


@pytest.mark.parametrize("change", ["freeze", "discard_row"])
def test_a_sink_goes_by_the_first_schema_of_each_topic(pipeline: Pipeline, change: str) -> None:
    RowsTask.seen.clear()
    put(pipeline, [enveloped(OLD), enveloped(NEW)])
    put(pipeline, [enveloped({"id": 3}), enveloped(OLD)], "more")
    config = {"name": "k", "topics": "rows,more", "errors.tolerance": "all"}
    sink = pipeline.start_sink(RowsSink, {**config, "schema.change": change})
    sink.run_until_idle()
    assert sorted(RowsTask.seen, key=str) == [{"id": 1, "name": "a"}, {"id": 3}]
