"""The transform Sql in sources and sinks, from generated rows to files."""

import pyarrow.dataset as ds
import pytest

from drover.connectors.datagen.source import DatagenSource
from drover.connectors.files.files_sink import FilesSink
from tests.spark.pipeline import Pipeline

pytestmark = pytest.mark.spark


def test_a_source_and_a_sink_run_statements(pipeline: Pipeline) -> None:
    source = {
        "name": "source",
        "schema": "id bigint, name string",
        "topic": "rows",
        "max.records": "100",
        "transforms": "it",
        "transforms.it.type": "Sql",
        "transforms.it.query": "SELECT {'id': value.id, 'half': value.id / 2, "
        "'text': CASE WHEN value.id = 7 THEN 'x' ELSE value.id::VARCHAR END} AS value, "
        "topic || '-' || (value.id % 2) AS topic FROM batch WHERE value.id < 50",
    }
    running = pipeline.start_source(DatagenSource, source)
    running.run_until_idle()
    assert running.report.filtered_count == 50
    counts = [sum(pipeline.store.end_offsets(f"rows-{n}").values()) for n in (0, 1)]
    assert counts == [25, 25]

    folder = pipeline.directory / "files"
    sink = {
        "name": "sink",
        "topics": "rows-1",
        "path": str(folder),
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "bad",
        "transforms": "it",
        "transforms.it.type": "Sql",
        "transforms.it.query": "SELECT {'number': CAST(value.text AS INTEGER), 'half': value.half, "
        "'at': topic || '@' || \"offset\"} AS value FROM batch",
    }
    written = pipeline.start_sink(FilesSink, sink)
    written.run_until_idle()
    assert written.report.dead_lettered_count == 1
    (failure,) = written.report.failures
    assert failure.place.startswith("rows-1-0@")
    assert "Could not convert string 'x'" in failure.message
    table = ds.dataset(folder).to_table()
    numbers = sorted(table.column("number").to_pylist())
    assert numbers == [n for n in range(1, 50, 2) if n != 7]
    assert len({*table.column("at").to_pylist()}) == 24
