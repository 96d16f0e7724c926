"""Topics that a transform gives the same name: a record never passes for an already written one."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from drover.connector import SinkConnector
from drover.connector.settings import parse_config
from drover.connectors.datagen.source import DatagenSource
from drover.connectors.files.files_sink import FilesSink
from drover.connectors.jdbc.sink import JdbcSink
from drover.connectors.lakehouse.delta_sink import DeltaSink
from drover.connectors.lakehouse.iceberg_sink import IcebergSink
from tests.spark.pipeline import Pipeline

pytestmark = pytest.mark.spark

ROWS = 1_000
RENAMED = {
    "name": "sink",
    "topics": "shard-1,shard-2",
    "transforms": "route",
    "transforms.route.type": "RegexRouter",
    "transforms.route.regex": "shard-.",
    "transforms.route.replacement": "orders",
}


def of_delta(path: Path) -> list[Any]:
    table = DeltaTable(str(path / "orders")).to_pyarrow_table()
    return list(table.column("order_id").to_pylist())


def of_iceberg(path: Path) -> list[Any]:
    catalogue = load_catalog("iceberg", type="sql", uri=f"sqlite:///{path}/catalogue.db")
    return list(catalogue.load_table("app.orders").scan().to_arrow().column("order_id").to_pylist())


def of_database(path: Path) -> list[Any]:
    with sa.create_engine(f"sqlite:///{path}/rows.db").connect() as connection:
        return [row[0] for row in connection.execute(sa.text("SELECT order_id FROM orders"))]


def of_files(path: Path) -> list[Any]:
    return list(ds.dataset(path / "files").to_table().column("order_id").to_pylist())


@pytest.mark.parametrize(
    ("sink", "settings", "read"),
    [
        (DeltaSink, {"table.uri": "{path}/${topic}"}, of_delta),
        (
            IcebergSink,
            {
                "iceberg.catalog.type": "sql",
                "iceberg.catalog.uri": "jdbc:sqlite:{path}/catalogue.db",
                "iceberg.catalog.warehouse": "file://{path}/warehouse",
                "iceberg.tables": "app.${topic}",
                "iceberg.tables.auto-create-enabled": "true",
            },
            of_iceberg,
        ),
        (
            JdbcSink,
            {"connection.url": "jdbc:sqlite:{path}/rows.db", "auto.create": "true"},
            of_database,
        ),
        (FilesSink, {"path": "{path}/files"}, of_files),
    ],
)
def test_each_record_of_both_is_written_once(
    pipeline: Pipeline,
    sink: type[SinkConnector],
    settings: dict[str, str],
    read: Callable[[Path], list[Any]],
) -> None:
    for topic in ("shard-1", "shard-2"):
        orders = {"quickstart": "orders", "max.records": str(ROWS), "batch.size": "300"}
        raw = {"name": topic, "topic": topic, **orders}
        pipeline.start_source(DatagenSource, raw).run_until_idle()
    path = pipeline.directory
    raw = RENAMED | {name: each.replace("{path}", str(path)) for name, each in settings.items()}
    rng = random.Random(7)
    for _ in range(3):  # killed after the write and before the commit
        running = pipeline.start_sink(sink, raw)
        running.write(running.plan(max_records=rng.randrange(100, 1_500)))
    pipeline.start_sink(sink, raw).run_until_idle(max_records=450)
    assert Counter(read(path)) == dict.fromkeys(range(ROWS), 2)


@pytest.mark.parametrize(
    ("sink", "settings"),
    [
        (DeltaSink, {"table.uri": "/tmp/lake/${topic}"}),
        (
            IcebergSink,
            {
                "iceberg.catalog.type": "sql",
                "iceberg.catalog.uri": "jdbc:sqlite:/tmp/catalogue.db",
                "iceberg.tables": "app.${topic}",
            },
        ),
    ],
)
def test_offsets_of_tables_that_nobody_knows_are_not_set_back(
    sink: type[SinkConnector], settings: dict[str, str]
) -> None:
    config = parse_config(sink, {**RENAMED, **settings}).values
    with pytest.raises(ValueError, match="the transform RegexRouter renames topics"):
        sink.alter_offsets(config, [])
