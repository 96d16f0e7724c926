"""A preview of change capture shows what the run delivers, and changes nothing on the server."""

import json
from typing import Any

import pytest

from drover.api.common.v1.preview_pb2 import Preview
from drover.connector.catalogue import PluginRegistry
from drover.connectors.postgres.source import PostgresCdcSource
from drover_worker.engine.preview import preview
from tests.spark.connectors.cdc_shop import raw_of, run_until, stored_in
from tests.spark.pipeline import Pipeline
from tests.support.postgres import Postgres
from tests.support.previews import preview_tools

pytestmark = pytest.mark.spark


def previewed(pipeline: Pipeline, raw: dict[str, str], rows: int = 10) -> Preview:
    tools = preview_tools(pipeline.spark, pipeline.plane)
    config = {"connector.class": "PostgresCdcSource", **raw}
    return preview(PluginRegistry(), tools, config, rows, dead_letters=False, wait=float)


def timeless(record: Any) -> Any:
    """A record without its times and position, which differ in every run."""
    payload = record["payload"]
    if "op" not in payload:
        return record
    source = {
        name: each for name, each in payload["source"].items() if name not in ("ts_ms", "lsn")
    }
    return {**record, "payload": {**payload, "ts_ms": 0, "source": source}}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"record_layout": "flat"},
        {"snapshot_mode": "initial_only", "decimal_handling_mode": "string"},
        {"message_key_columns": r"sales\..*:city", "column_exclude_list": r".*\.note"},
        {"connector_class": "io.debezium.connector.postgresql.PostgresConnector"},
    ],
)
def test_a_preview_shows_what_the_run_delivers(
    pipeline: Pipeline, shop: Postgres, changes: dict[str, str]
) -> None:
    shop.execute(
        "CREATE SCHEMA sales",
        'CREATE TABLE sales."Kunden liste" (id INT PRIMARY KEY, city TEXT NOT NULL,'
        " at TIMESTAMP(3), tags TEXT[])",
        'ALTER TABLE sales."Kunden liste" REPLICA IDENTITY FULL',
        "INSERT INTO sales.\"Kunden liste\" VALUES (1, 'Oslo', '2024-01-02 03:04:05.678', '{a}')",
        "CREATE TABLE parts (id INT PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)",
        "INSERT INTO parts VALUES (7)",
        "CREATE TABLE void (id INT PRIMARY KEY)",
    )
    raw = raw_of(shop, **changes)
    found = previewed(pipeline, raw)
    assert [row.error for row in found.rows] == [""] * 4
    shown: dict[str, list[Any]] = {}
    for row in found.rows:
        record = row.records[-1]
        shown.setdefault(record.topic, []).append(
            (json.loads(record.key), timeless(json.loads(record.value)))
        )
    assert shown.keys() == {"db.public.orders", "db.public.parts", "db.sales.Kunden_liste"}
    assert shop.rows("SELECT count(*) FROM pg_publication") == [(0,)]
    slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    assert shop.rows(slots) == [(0,)]
    idle = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'drover preview'"
    assert shop.rows(idle) == [(0,)]

    run_until(pipeline.start_source(PostgresCdcSource, raw), 4)
    for topic, records in shown.items():
        keys = stored_in(pipeline, topic, "key")
        values = map(timeless, stored_in(pipeline, topic, "value"))
        assert list(zip(keys, values, strict=True)) == records


def test_a_preview_shows_a_row_of_each_table_first(pipeline: Pipeline, shop: Postgres) -> None:
    shop.execute(
        "CREATE TABLE a (id INT PRIMARY KEY); INSERT INTO a SELECT generate_series(1, 500)",
        "CREATE TABLE b (id INT PRIMARY KEY); INSERT INTO b SELECT generate_series(1, 500)",
    )
    found = previewed(pipeline, raw_of(shop, record_layout="flat"), 6)
    assert [
        (
            row.records[-1].topic.rpartition(".")[2],
            json.loads(row.records[-1].value)["payload"]["id"],
        )
        for row in found.rows
    ] == [("a", 1), ("b", 1), ("orders", 1), ("a", 2), ("a", 3), ("a", 4)]


def test_a_preview_of_changes_alone_has_no_rows(pipeline: Pipeline, shop: Postgres) -> None:
    found = previewed(pipeline, raw_of(shop, snapshot_mode="no_data"))
    assert list(found.notes) == ["the source has no records now"]


def test_a_preview_shows_the_error_of_a_row(pipeline: Pipeline, shop: Postgres) -> None:
    shop.execute("INSERT INTO orders VALUES (3, 'NaN', '')")
    bad = previewed(pipeline, raw_of(shop)).rows[2]
    assert "(key: id=3)" in bad.error
    assert bad.place.startswith("public.orders at ")
