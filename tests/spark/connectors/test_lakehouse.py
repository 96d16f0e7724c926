"""Topics into tables of lakehouses on real Spark: each record once, whatever is killed."""

import random

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from drover.connectors.datagen.source import DatagenSource
from drover.connectors.lakehouse.delta_sink import DeltaSink
from drover.connectors.lakehouse.iceberg_sink import IcebergSink
from tests.spark.pipeline import Pipeline

pytestmark = pytest.mark.spark


def fill(pipeline: Pipeline, rows: int = 3_000) -> None:
    raw = {
        "name": "orders-source",
        "quickstart": "orders",
        "max.records": str(rows),
        "batch.size": "700",
        "key": "order_id",
    }
    pipeline.start_source(DatagenSource, raw).run_until_idle()


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_each_record_is_in_a_delta_table_once(pipeline: Pipeline, mode: str) -> None:
    fill(pipeline)
    raw = {
        "name": "sink",
        "topics": "orders",
        "table.uri": str(pipeline.directory / "lake" / "${topic}"),
        "insert.mode": mode,
        "partition.by": "status",
        "compact.every.commits": "3",
    }
    if mode == "upsert":
        raw["pk.fields"] = "order_id"
    rng = random.Random(7)
    for _ in range(3):  # killed after the write and before the commit
        running = pipeline.start_sink(DeltaSink, raw)
        running.write(running.plan(max_records=rng.randrange(100, 1_500)))
    pipeline.start_sink(DeltaSink, raw).run_until_idle(max_records=1_100)
    table = DeltaTable(str(pipeline.directory / "lake" / "orders")).to_pyarrow_table()
    assert sorted(table.column("order_id").to_pylist()) == list(range(3_000))
    assert table.schema.field("price").type.precision == 10


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_each_record_is_in_an_iceberg_table_once(pipeline: Pipeline, mode: str) -> None:
    fill(pipeline)
    catalogue, warehouse = pipeline.directory / "catalogue.db", pipeline.directory / "warehouse"
    raw = {
        "name": "sink",
        "topics": "orders",
        "iceberg.catalog.type": "sql",
        "iceberg.catalog.uri": f"jdbc:sqlite:{catalogue}",
        "iceberg.catalog.warehouse": f"file://{warehouse}",
        "iceberg.tables": "app.orders",
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.tables.default-partition-by": "month(at)",
        "iceberg.tables.upsert-mode-enabled": str(mode == "upsert").lower(),
        "pk.mode": "record_key",
        "iceberg.tables.default-id-columns": "order_id",
    }
    rng = random.Random(7)
    for _ in range(3):  # killed after the write and before the commit
        running = pipeline.start_sink(IcebergSink, raw)
        running.write(running.plan(max_records=rng.randrange(100, 1_500)))
    pipeline.start_sink(IcebergSink, raw).run_until_idle(max_records=1_100)
    catalog = load_catalog(
        "iceberg", type="sql", uri=f"sqlite:///{catalogue}", warehouse=f"file://{warehouse}"
    )
    table = catalog.load_table("app.orders").scan().to_arrow()
    assert sorted(table.column("order_id").to_pylist()) == list(range(3_000))
