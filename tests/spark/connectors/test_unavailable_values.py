"""Large values that a change does not contain: sinks leave their columns unchanged."""

from pathlib import Path
from typing import Any

import pytest

from drover.connector import SinkConnector
from drover.connectors.jdbc.sink import JdbcSink
from drover.connectors.lakehouse.delta_sink import DeltaSink
from drover.connectors.lakehouse.iceberg_sink import IcebergSink
from drover.connectors.postgres.source import PostgresCdcSource
from tests.databases.conftest import OF_MYSQL, Database
from tests.spark.connectors.cdc_shop import raw_of, run_until
from tests.spark.pipeline import Pipeline
from tests.support.postgres import Postgres

pytestmark = pytest.mark.spark

PLACEHOLDER = "__debezium_unavailable_value"
TEXT = "lorem " * 2_000
TOPIC = "db.public.doc"
COLUMNS = {
    "body": "TEXT",
    "data": "BYTEA",
    "doc": "JSONB",
    "plain": "JSON",
    "page": "XML",
    "numbers": "INT[]",
    "words": "TEXT[]",
    "flags": "BOOL[]",
}
VALUES = {
    "body": f"'{TEXT}'",
    "data": "convert_to(repeat('x', 9000), 'UTF8')",
    "doc": "to_jsonb(repeat('j', 9000))",
    "plain": "to_json(repeat('j', 9000))",
    "page": "('<a>' || repeat('x', 9000) || '</a>')::xml",
    "numbers": "array(SELECT generate_series(1, 3000))",
    "words": "array(SELECT n::text FROM generate_series(1, 3000) n)",
    "flags": "array(SELECT n % 2 = 0 FROM generate_series(1, 9000) n)",
}


@pytest.fixture
def doc(shop: Postgres) -> Postgres:
    """A table with a row of which each large value is stored out of line."""
    listed = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    external = ", ".join(f"ALTER {name} SET STORAGE EXTERNAL" for name in COLUMNS)
    shop.execute(
        "DROP TABLE orders",
        f"CREATE TABLE doc (id INT PRIMARY KEY, n INT, {listed})",
        f"ALTER TABLE doc {external}",
    )
    insert(shop, 1)
    return shop


def insert(postgres: Postgres, number: int) -> None:
    postgres.execute(f"INSERT INTO doc VALUES ({number}, 1, {', '.join(VALUES.values())})")


@pytest.mark.filterwarnings("ignore:Did not recognize type .xml.")
@pytest.mark.parametrize("schemas", ["true", "false"])
def test_postgres_keeps_every_kind_of_column(
    pipeline: Pipeline, doc: Postgres, schemas: str
) -> None:
    listed = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    doc.execute(f"CREATE TABLE copied (id INT PRIMARY KEY, n INT, {listed})")
    form = {"value.converter.schemas.enable": schemas}
    if schemas == "false":
        doc.execute("ALTER TABLE doc DROP data", "ALTER TABLE copied DROP data")
    raw = {**raw_of(doc, record_layout="flat", table_include_list=r"public\.doc"), **form}
    source = pipeline.start_source(PostgresCdcSource, raw)
    columns = [name for name in COLUMNS if schemas == "true" or name != "data"]

    def differing() -> list[str]:
        """The columns that differ."""
        found = {}
        for table in ("doc", "copied"):
            shown = ", ".join(f"{name}::text" for name in ("id", "n", *columns))
            (found[table],) = doc.rows(f"SELECT {shown} FROM {table}")
        pairs = zip(("id", "n", *columns), found["doc"], found["copied"], strict=True)
        return [
            f"{name}: {str(own)[:40]} {str(copy)[:40]}" for name, own, copy in pairs if own != copy
        ]

    run_until(source, 1)
    sink = pipeline.start_sink(JdbcSink, {**into(doc, "copied"), **form})
    sink.run_until_idle()
    assert not differing()
    doc.execute("UPDATE doc SET n = 2")
    run_until(source, 1)
    sink.run_until_idle()
    assert not differing()
    # changes of one row within a batch, and of its key
    doc.execute("UPDATE doc SET n = 3, body = 'short'", "UPDATE doc SET n = 4")
    doc.execute("UPDATE doc SET id = 5", "UPDATE doc SET n = 6")
    run_until(source, 5)
    sink.run_until_idle()
    assert not differing()
    # a text that equals the placeholder is data
    doc.execute(f"UPDATE doc SET body = '{PLACEHOLDER}', words = '{{{PLACEHOLDER}}}'")
    run_until(source, 1)
    sink.run_until_idle()
    assert doc.rows("SELECT body FROM copied") == [(PLACEHOLDER,)]
    assert not differing()


def into(database: Database, table: str, **changes: str) -> dict[str, str]:
    return {
        "name": f"to-{table}",
        "topics": TOPIC,
        **database.settings,
        "table.name.format": table,
        "insert.mode": "upsert",
        "pk.mode": "record_key",
        "delete.enabled": "true",
        **changes,
    }


@pytest.mark.parametrize("name", ["sqlite", *OF_MYSQL])
def test_every_database_keeps_the_column(
    pipeline: Pipeline, shop: Postgres, name: str, request: pytest.FixtureRequest
) -> None:
    database: Database = request.getfixturevalue(name)
    source = pipeline.start_source(PostgresCdcSource, small(shop))
    run_until(source, 2)
    raw = into(database, "kept", **{"auto.create": "true", "errors.tolerance": "all"})
    sink = pipeline.start_sink(JdbcSink, raw)
    sink.run_until_idle()
    shop.execute("UPDATE doc SET n = 2 WHERE id = 1")
    run_until(source, 1)
    sink.run_until_idle()
    assert database.rows("SELECT id, n, body FROM kept ORDER BY id") == [(1, 2, TEXT), (2, 1, "b")]
    # the target lost the row: the record is an error, not a row with the placeholder
    database.execute("DELETE FROM kept WHERE id = 1")
    shop.execute("UPDATE doc SET n = 3")
    run_until(source, 2)
    sink.run_until_idle()
    assert database.rows("SELECT id, n, body FROM kept ORDER BY id") == [(2, 3, "b")]
    assert sink.report.skipped_count == 1


def small(postgres: Postgres) -> dict[str, str]:
    """The config for a table of two rows, one with a large text."""
    postgres.execute(
        "DROP TABLE IF EXISTS orders",
        "CREATE TABLE doc (id INT PRIMARY KEY, n INT, body TEXT)",
        "ALTER TABLE doc ALTER body SET STORAGE EXTERNAL",
        f"INSERT INTO doc VALUES (1, 1, '{TEXT}'), (2, 1, 'b')",
    )
    return raw_of(postgres, record_layout="flat", table_include_list=r"public\.doc")


@pytest.mark.parametrize("kind", [IcebergSink, DeltaSink])
def test_tables_of_a_lake_keep_the_column(
    pipeline: Pipeline, shop: Postgres, tmp_path: Path, kind: type[SinkConnector]
) -> None:
    source = pipeline.start_source(PostgresCdcSource, small(shop))
    run_until(source, 2)
    raw = {"name": "lake", "topics": TOPIC, "pk.mode": "record_key", "delete.enabled": "true"}
    if kind is IcebergSink:
        catalogue = f"jdbc:sqlite:{tmp_path}/catalogue.db"
        raw |= {
            "iceberg.catalog.type": "sql",
            "iceberg.catalog.uri": catalogue,
            "iceberg.catalog.warehouse": f"file://{tmp_path}/warehouse",
            "iceberg.tables": "t.doc",
            "iceberg.tables.auto-create-enabled": "true",
            "iceberg.tables.upsert-mode-enabled": "true",
        }
    else:
        raw |= {"table.uri": str(tmp_path / "delta"), "insert.mode": "upsert"}

    def rows() -> list[Any]:
        if kind is IcebergSink:
            from pyiceberg.catalog.sql import SqlCatalog

            place = {
                "uri": f"sqlite:///{tmp_path}/catalogue.db",
                "warehouse": f"file://{tmp_path}/warehouse",
            }
            found = SqlCatalog("iceberg", **place).load_table("t.doc").scan().to_arrow()
        else:
            from deltalake import DeltaTable

            found = DeltaTable(str(tmp_path / "delta")).to_pyarrow_table()
        return sorted((row["id"], row["n"], row["body"]) for row in found.to_pylist())

    sink = pipeline.start_sink(kind, raw)
    sink.run_until_idle()
    assert rows() == [(1, 1, TEXT), (2, 1, "b")]
    shop.execute("UPDATE doc SET n = 2", f"UPDATE doc SET body = '{PLACEHOLDER}' WHERE id = 2")
    run_until(source, 3)
    sink.run_until_idle()
    assert rows() == [(1, 2, TEXT), (2, 2, PLACEHOLDER)]
    # a row that the batch itself has, and a changed key
    shop.execute(
        f"INSERT INTO doc VALUES (3, 1, '{TEXT}')",
        "UPDATE doc SET n = 2 WHERE id = 3",
        "UPDATE doc SET id = 4 WHERE id = 1",
    )
    run_until(source, 4)
    sink.run_until_idle()
    assert rows() == [(2, 2, PLACEHOLDER), (3, 2, TEXT), (4, 2, TEXT)]
