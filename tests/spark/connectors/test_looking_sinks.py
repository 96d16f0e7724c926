"""Sinks that show and count what comes."""

import logging

import pytest

from drover.connectors.datagen_source import DatagenSource
from drover.connectors.looking_sinks import ConsoleSink, NullSink
from tests.spark.pipeline import Pipeline

pytestmark = pytest.mark.spark


def fill(pipeline: Pipeline, rows: int) -> None:
    raw = {
        "name": "source",
        "schema": "id bigint, name string",
        "topic": "rows",
        "max.records": str(rows),
        "key": "id",
    }
    pipeline.start_source(DatagenSource, raw).run_until_idle()


def test_the_first_records_of_each_batch_are_shown(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    fill(pipeline, 100)
    raw = {"name": "sink", "topics": "rows", "rows.max": "3", "record.max.chars": "20"}
    with caplog.at_level(logging.INFO, "drover.connectors.looking_sinks"):
        pipeline.start_sink(ConsoleSink, raw).run_until_idle(max_records=50)
    lines = [each.getMessage() for each in caplog.records if "looking" in each.name]
    assert len(lines) == 2 * 4
    assert lines[0].startswith('rows-0@0 0 {"id":0,"name":"')
    assert lines[0].endswith("…")
    assert lines[3] == "… of 50 records"
    assert lines[4].startswith('rows-0@50 50 {"id":50')


def test_records_without_a_schema_are_shown_as_they_are(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    fill(pipeline, 2)
    raw = {
        "name": "sink",
        "topics": "rows",
        "key.converter": "StringConverter",
        "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    with caplog.at_level(logging.INFO, "drover.connectors.looking_sinks"):
        pipeline.start_sink(ConsoleSink, raw).run_until_idle()
    lines = [each.getMessage() for each in caplog.records if "looking" in each.name]
    assert len(lines) == 2
    assert '"payload"' in lines[0]


def test_records_are_read_and_counted(pipeline: Pipeline) -> None:
    fill(pipeline, 1_000)
    transforms = {"transforms": "cast", "transforms.cast.type": "Cast$Value"}
    raw = {"name": "sink", "topics": "rows", **transforms, "transforms.cast.spec": "id:string"}
    sink = pipeline.start_sink(NullSink, raw)
    assert sink.run_until_idle(max_records=400) == 1_000
    failing = {**raw, "name": "failing", "transforms.cast.spec": "name:int32"}
    with pytest.raises(Exception, match="name"):
        pipeline.start_sink(NullSink, failing).run_until_idle()
