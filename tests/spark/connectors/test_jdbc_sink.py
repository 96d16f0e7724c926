"""Topics into tables on real Spark: each record once, whatever is killed."""

import random
from typing import Any

import pytest

from drover.connector.catalogue import PluginRegistry
from drover.connectors.datagen.source import DatagenSource
from drover.connectors.jdbc.sink import JdbcSink
from drover.connectors.jdbc.source import JdbcSource
from drover.pipeline.failures import RecordFailedError
from drover_worker.engine.preview import preview
from tests.databases.conftest import Database, every_database
from tests.spark.pipeline import Pipeline
from tests.support.postgres import Postgres
from tests.support.previews import preview_tools

pytestmark = pytest.mark.spark


database = every_database


def fill(pipeline: Pipeline, rows: int = 3_000) -> None:
    """Orders in the topic "orders", their ids as keys."""
    raw = {
        "name": "orders-source",
        "quickstart": "orders",
        "max.records": str(rows),
        "batch.size": "700",
        "key": "order_id",
    }
    pipeline.start_source(DatagenSource, raw).run_until_idle()


def sink(database: Database, **settings: str) -> dict[str, str]:
    return {"name": "sink", "topics": "orders", **database.settings, **settings}


def count(database: Database, table: str = "orders") -> tuple[object, ...]:
    return database.rows(f"SELECT count(*), count(DISTINCT order_id) FROM {table}")[0]


def test_rows_are_inserted_once_however_often_a_task_is_killed(
    pipeline: Pipeline, database: Database
) -> None:
    fill(pipeline)
    raw = sink(database, **{"auto.create": "true"})
    rng = random.Random(7)
    for _ in range(4):  # killed after the write and before the commit
        running = pipeline.start_sink(JdbcSink, raw)
        running.write(running.plan(max_records=rng.randrange(100, 1_500)))
    pipeline.start_sink(JdbcSink, raw).run_until_idle(max_records=1_100)
    assert count(database) == (3_000, 3_000)


def test_a_task_that_was_taken_over_writes_no_more(pipeline: Pipeline, postgres: Postgres) -> None:
    fill(pipeline, 500)
    raw = sink(postgres, **{"auto.create": "true"})
    old = pipeline.start_sink(JdbcSink, raw)
    plan = old.plan(max_records=100)
    new = pipeline.start_sink(JdbcSink, raw)
    new.write(new.plan(max_records=50))
    with pytest.raises(Exception, match="was taken over by another task"):
        old.write(plan)
    assert count(postgres) == (50, 50)


def test_rows_of_one_key_are_changed(pipeline: Pipeline, database: Database) -> None:
    fill(pipeline, 1_000)
    settings = {"insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "order_id"}
    raw = sink(database, **settings, **{"auto.create": "true", "offsets.table": ""})
    for _ in range(2):  # all of it again, without the offsets table
        running = pipeline.start_sink(JdbcSink, raw)
        running.write(running.plan())
    assert count(database) == (1_000, 1_000)
    database.execute("DELETE FROM orders WHERE order_id < 10", "UPDATE orders SET city = 'x'")
    update = sink(database, **{**settings, "insert.mode": "update", "offsets.table": ""})
    running = pipeline.start_sink(JdbcSink, {**update, "name": "other"})
    running.write(running.plan())
    assert count(database) == (990, 990)
    assert database.rows("SELECT count(*) FROM orders WHERE city = 'x'") == [(0,)]


def test_a_table_in_a_database_is_copied_with_its_types(
    pipeline: Pipeline, postgres: Postgres
) -> None:
    postgres.execute(
        """CREATE TABLE a (id BIGINT PRIMARY KEY, price NUMERIC(10, 2), at TIMESTAMPTZ,
        local TIMESTAMP, day DATE, yes BOOLEAN, raw BYTEA, doc JSONB, list INTEGER[], ident UUID,
        small SMALLINT, x DOUBLE PRECISION)""",
        """INSERT INTO a SELECT n, n / 4.0, date_trunc('milliseconds', now()),
        '2026-01-02 03:04:05.006', now(), n % 2 = 0, '\\x00ff',
        jsonb_build_object('n', n), ARRAY[n, NULL], gen_random_uuid(), n, n / 3.0::float8
        FROM generate_series(1, 100) n""",
        "INSERT INTO a (id) VALUES (1000)",
        "CREATE TABLE copy_a (LIKE a INCLUDING ALL)",
    )
    source = {
        "name": "source",
        **postgres.settings,
        "mode": "incrementing",
        "incrementing.column.name": "id",
        "topic.prefix": "",
        "table.whitelist": "a",
        "key": "id",
    }
    del source["topic.prefix"]
    pipeline.start_source(JdbcSource, {**source, "topic.prefix": "t-"}).run_until_idle()
    raw = {
        "name": "sink",
        "topics": "t-a",
        **postgres.settings,
        "table.name.format": "copy_a",
        "insert.mode": "upsert",
        "pk.mode": "record_value",
        "pk.fields": "id",
    }
    pipeline.start_sink(JdbcSink, raw).run_until_idle(max_records=40)
    assert postgres.rows("SELECT count(*) FROM copy_a") == [(101,)]


def test_columns_are_added(pipeline: Pipeline, database: Database) -> None:
    fill(pipeline, 300)
    database.execute("CREATE TABLE orders (order_id BIGINT)")
    raw = sink(database)
    with pytest.raises(Exception, match="has no column"):
        pipeline.start_sink(JdbcSink, raw).run_until_idle()
    assert count(database) == (0, 0)
    pipeline.start_sink(JdbcSink, {**raw, "auto.evolve": "true"}).run_until_idle()
    assert count(database) == (300, 300)
    assert database.rows("SELECT count(*) FROM orders WHERE city IS NULL") == [(0,)]


def test_records_that_a_table_refuses(pipeline: Pipeline, database: Database) -> None:
    fill(pipeline, 300)
    database.execute(
        "CREATE TABLE orders (order_id BIGINT PRIMARY KEY, city VARCHAR(99),"
        " CHECK (order_id % 100 > 0))"
    )
    raw = sink(database, **{"fields.whitelist": "order_id,city"})
    with pytest.raises(RecordFailedError, match=r"orders-0@\d+ failed in JdbcSink"):
        pipeline.start_sink(JdbcSink, raw).run_until_idle()
    assert count(database) == (0, 0)
    tolerant = {
        **raw,
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "dead",
    }
    running = pipeline.start_sink(JdbcSink, tolerant)
    running.run_until_idle()
    assert count(database) == (297, 297)
    assert pipeline.store.end_offsets("dead") == {0: 3}


def test_offsets_that_are_set_back_are_written_again(
    pipeline: Pipeline, postgres: Postgres
) -> None:
    fill(pipeline, 300)
    raw = sink(postgres, **{"auto.create": "true"})
    first = pipeline.start_sink(JdbcSink, raw)
    first.write(first.plan())
    partition: dict[str, Any] = {"kafka_topic": "orders", "kafka_partition": 0}
    config = {"name": "sink", **_parsed(raw)}
    assert JdbcSink.alter_offsets(config, [(partition, {"kafka_offset": 100})])
    again = pipeline.start_sink(JdbcSink, raw)
    again.write(again.plan())
    assert count(postgres) == (500, 300)
    assert JdbcSink.alter_offsets(config, [])  # a reset, with nothing committed
    assert postgres.rows("SELECT next_offset FROM drover_offsets") == [(0,)]


def _parsed(raw: dict[str, str]) -> dict[str, Any]:
    from drover.connector.settings import parse_config

    config = {"connector.class": "JdbcSink", **raw}
    return dict(parse_config(JdbcSink, config).require_valid())


def previewed(pipeline: Pipeline, config: dict[str, str], count: int = 6) -> list[str]:
    """The error of each row of a preview; empty for rows that would be written."""
    tools = preview_tools(pipeline.spark, pipeline.plane)
    found = preview(PluginRegistry(), tools, config, count, dead_letters=False, wait=float)
    assert all(row.failed_step in ("", "write") for row in found.rows)
    return [row.error for row in found.rows] + list(found.notes)


def test_a_preview_shows_what_the_table_refuses(pipeline: Pipeline, database: Database) -> None:
    fill(pipeline, 6)
    config = {**sink(database), "connector.class": "JdbcSink", "insert.mode": "insert"}
    config |= {"auto.create": "true", "fields.whitelist": "order_id,price"}
    assert previewed(pipeline, config) == [""] * 6, "the table would be created"
    database.execute(
        "CREATE TABLE orders (order_id BIGINT PRIMARY KEY, price NUMERIC(20,8) NOT NULL)",
        "INSERT INTO orders VALUES (2, 1)",
    )
    refused = [number for number, error in enumerate(previewed(pipeline, config)) if error]
    assert refused == [2], "its key is there"
    assert database.rows("SELECT count(*) FROM orders") == [(1,)]
    database.execute("DROP TABLE orders", "CREATE TABLE orders (order_id BIGINT PRIMARY KEY)")
    found = previewed(pipeline, config)
    assert len(found) == 6
    assert all("has no column 'price': add it, set auto.evolve" in each for each in found)
    assert previewed(pipeline, {**config, "auto.evolve": "true"}) == [""] * 6
    assert database.rows("SELECT count(*) FROM orders") == [(0,)]


def test_a_preview_without_the_database_shows_the_records(
    pipeline: Pipeline, postgres: Postgres
) -> None:
    fill(pipeline, 2)
    config = {**sink(postgres), "connector.class": "JdbcSink", "connection.password": "wrong"}
    rows = previewed(pipeline, config)
    assert rows[:2] == ["", ""]
    assert "what the sink would write is not known: " in rows[2]
