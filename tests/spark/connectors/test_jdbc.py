"""Tables of databases through tasks on real Spark."""

import json
from pathlib import Path
from typing import Any

import pytest

from drover.connector import RetriableError
from drover.connector.catalogue import PluginRegistry
from drover.connectors.files.files_sink import FilesSink
from drover.connectors.jdbc.source import JdbcSource
from drover.pipeline.failures import RecordFailedError
from drover_worker.engine.preview import preview
from tests.databases.conftest import Sqlite
from tests.spark.pipeline import Pipeline
from tests.support.mariadb import MariaDb
from tests.support.postgres import Postgres
from tests.support.previews import preview_tools

pytestmark = pytest.mark.spark

EVERY_TYPE = """CREATE TABLE things (
    id BIGSERIAL PRIMARY KEY, small SMALLINT, whole INTEGER, price NUMERIC(10, 2), vast NUMERIC,
    single REAL, twice DOUBLE PRECISION, yes BOOLEAN, text TEXT, short VARCHAR(9), raw BYTEA,
    day DATE, hour TIME, local TIMESTAMP, moment TIMESTAMPTZ, document JSONB, ident UUID,
    numbers INTEGER[], words TEXT[])"""
A_ROW = """INSERT INTO things VALUES (
    7, 1, 2, 12.5, 123456789012345678901234567890.5, 1.5, 2.5, true, 'é', 'x', '\\xff00',
    '2026-01-02', '03:04:05.006', '2026-01-02 03:04:05.000006', '2026-01-02 03:04:05+02',
    '{"a": [1, null]}', '12345678-1234-1234-1234-123456789abc', '{1,NULL,3}', '{a,b}')"""


def records_of(pipeline: Pipeline, topic: str, directory: Path) -> list[dict[str, Any]]:
    """A topic's values, as JSON."""
    raw = {"name": f"out-{topic}", "topics": topic, "path": str(directory), "format": "json"}
    pipeline.start_sink(FilesSink, raw).run_until_idle()
    files = sorted(directory.rglob("*.json"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_every_type_of_postgresql_arrives(
    pipeline: Pipeline, postgres: Postgres, tmp_path: Path
) -> None:
    postgres.execute(EVERY_TYPE, A_ROW, "INSERT INTO things (id) VALUES (8)")
    raw = {
        "name": "db",
        **postgres.settings,
        "mode": "incrementing",
        "incrementing.column.name": "id",
        "topic.prefix": "db-",
    }
    source = pipeline.start_source(JdbcSource, raw)
    assert source.run_until_idle() == 2
    full, empty = records_of(pipeline, "db-things", tmp_path / "out")
    assert full == {
        "id": 7,
        "small": 1,
        "whole": 2,
        "price": full["price"],
        "vast": "123456789012345678901234567890.5",
        "single": 1.5,
        "twice": 2.5,
        "yes": True,
        "text": "é",
        "short": "x",
        "raw": full["raw"],
        "day": full["day"],
        "hour": full["hour"],
        "local": full["local"],
        "moment": full["moment"],
        "document": '{"a": [1, null]}',
        "ident": "12345678-1234-1234-1234-123456789abc",
        "numbers": [1, None, 3],
        "words": ["a", "b"],
    }
    assert str(full["price"]) in ("12.5", "12.50")
    assert "2026-01-02" in str(full["day"])
    assert {key: value for key, value in empty.items() if value is not None} == {"id": 8}


def test_it_goes_on_where_it_was_and_finds_new_tables(pipeline: Pipeline, sqlite: Sqlite) -> None:
    sqlite.execute(
        "CREATE TABLE a (id INTEGER PRIMARY KEY, name TEXT)",
        "INSERT INTO a (name) VALUES ('x'), ('y'), ('z')",
    )
    raw = {
        "name": "db",
        **sqlite.settings,
        "mode": "incrementing",
        "incrementing.column.name": "id",
        "topic.prefix": "db-",
        "key": "id",
        "batch.max.rows": "2",
        "poll.interval.ms": "1",
    }
    first = pipeline.start_source(JdbcSource, raw)
    assert first.step() is not None
    assert pipeline.store.end_offsets("db-a") == {0: 2}
    sqlite.execute(
        "INSERT INTO a (name) VALUES ('later')", "CREATE TABLE b (id INTEGER PRIMARY KEY)"
    )
    sqlite.execute("INSERT INTO b VALUES (1)")
    second = pipeline.start_source(JdbcSource, raw)
    assert second.run_until_idle() == 3
    assert pipeline.store.end_offsets("db-a") == {0: 4}
    assert pipeline.store.end_offsets("db-b") == {0: 1}


def test_a_query_is_read_with_the_types_of_its_columns(
    pipeline: Pipeline, postgres: Postgres, tmp_path: Path
) -> None:
    postgres.execute(
        "CREATE TABLE orders (id INTEGER, price NUMERIC(8, 2))",
        "INSERT INTO orders SELECT n, n FROM generate_series(1, 5) n",
    )
    raw = {
        "name": "db",
        **postgres.settings,
        "mode": "incrementing",
        "incrementing.column.name": "id",
        "topic.prefix": "large",
        "query": "SELECT id, price * 2 AS twice, 'x'::text AS kind FROM orders WHERE id > 2;",
        "numeric.mapping": "best_fit_eager_double",
    }
    pipeline.start_source(JdbcSource, raw).run_until_idle()
    found = records_of(pipeline, "large", tmp_path / "out")
    assert [each["id"] for each in found] == [3, 4, 5]
    assert found[0]["kind"] == "x"
    assert float(found[0]["twice"]) == 6.0


def test_everything_is_read_again_after_a_while(pipeline: Pipeline, sqlite: Sqlite) -> None:
    sqlite.execute("CREATE TABLE a (name TEXT)", "INSERT INTO a VALUES ('x'), ('y')")
    raw = {"name": "db", **sqlite.settings, "mode": "bulk", "topic.prefix": "db-"}
    source = pipeline.start_source(JdbcSource, {**raw, "poll.interval.ms": "60000"})
    assert source.run_until_idle() == 2
    again = pipeline.start_source(JdbcSource, {**raw, "poll.interval.ms": "1"})
    for _ in range(2):
        receipt = again.step()
        assert receipt is not None
        assert receipt.record_count == 2


def test_a_large_table_comes_in_batches_as_it_was_at_one_moment(
    pipeline: Pipeline, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drover.connectors.jdbc.whole_table._PART_PAGES", 1)
    postgres.execute(
        "CREATE TABLE a (id INTEGER, name TEXT)",
        "INSERT INTO a SELECT n, repeat('x', 500) FROM generate_series(1, 1000) n",
        "CREATE TABLE b (id INTEGER)",
        "INSERT INTO b VALUES (1)",
    )
    raw = {
        "name": "db",
        **postgres.settings,
        "mode": "bulk",
        "topic.prefix": "db-",
        "batch.max.rows": "300",
        "poll.interval.ms": "3600000",
    }
    source = pipeline.start_source(JdbcSource, raw)
    receipts = [source.step()]
    postgres.execute("DELETE FROM a WHERE id > 500", "INSERT INTO a VALUES (2000, 'later')")
    receipts += [source.step() for _ in range(5)]
    assert [each and each.record_count for each in receipts] == [300, 300, 300, 100, 1, None]
    assert pipeline.store.end_offsets("db-a") == {0: 1_000}
    assert postgres.rows(
        "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'"
    ) == [(0,)]


@pytest.mark.parametrize("kind", ["", " PARTITION BY RANGE (id)"])
def test_a_whole_table_is_previewed(pipeline: Pipeline, postgres: Postgres, kind: str) -> None:
    postgres.execute(f"CREATE TABLE a (id INTEGER, name TEXT){kind}")
    if kind:
        postgres.execute("CREATE TABLE a1 PARTITION OF a FOR VALUES FROM (0) TO (100)")
    postgres.execute("INSERT INTO a SELECT n, 'x' FROM generate_series(1, 10) n")
    config = {
        "name": "db",
        "connector.class": "JdbcSource",
        **postgres.settings,
        "mode": "bulk",
        "topic.prefix": "db-",
    }
    tools = preview_tools(pipeline.spark, pipeline.plane)
    found = preview(PluginRegistry(), tools, config, 3, dead_letters=False, wait=float)
    assert [json.loads(row.records[0].value) for row in found.rows] == [
        {"id": number, "name": "x"} for number in (1, 2, 3)
    ]
    assert postgres.rows(
        "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'"
    ) == [(0,)]


def test_a_value_without_a_place_is_an_error_of_its_row(
    pipeline: Pipeline, postgres: Postgres, tmp_path: Path
) -> None:
    postgres.execute(
        "CREATE TABLE a (id INTEGER PRIMARY KEY, n NUMERIC(10, 2))",
        "INSERT INTO a VALUES (1, 1), (2, 'NaN'), (3, 3)",
    )
    raw = {
        "name": "db",
        **postgres.settings,
        "mode": "incrementing",
        "incrementing.column.name": "id",
        "topic.prefix": "db-",
        "key": "id",
    }
    with pytest.raises(RecordFailedError, match=r"record a with id=2 failed .* 'n' has 'NaN'"):
        pipeline.start_source(JdbcSource, raw).run_until_idle()
    again = pipeline.start_source(JdbcSource, raw)
    assert again.step() is not None
    assert pipeline.store.end_offsets("db-a") == {0: 1}
    with pytest.raises(RecordFailedError, match=r"record a with id=2 failed .* 'n' has 'NaN'"):
        again.step()
    tolerant = {**raw, "errors.tolerance": "all", "errors.deadletterqueue.topic.name": "bad"}
    pipeline.start_source(JdbcSource, tolerant).run_until_idle()
    assert [each["id"] for each in records_of(pipeline, "db-a", tmp_path / "out")] == [1, 3]
    assert pipeline.store.end_offsets("bad") == {0: 1}


def test_a_row_of_many_megabytes_arrives(pipeline: Pipeline, postgres: Postgres) -> None:
    postgres.execute(
        "CREATE TABLE a (id INTEGER PRIMARY KEY, name TEXT)",
        "INSERT INTO a VALUES (1, repeat('x', 20000000)), (2, 'y')",
    )
    raw = {
        "name": "db",
        **postgres.settings,
        "mode": "incrementing",
        "incrementing.column.name": "id",
        "topic.prefix": "db-",
    }
    assert pipeline.start_source(JdbcSource, raw).run_until_idle() == 2


def test_a_restarted_server_is_told_and_the_next_start_goes_on(
    pipeline: Pipeline, postgres: Postgres, postgres_server: Postgres
) -> None:
    postgres.execute(
        "CREATE TABLE a (id INTEGER PRIMARY KEY)",
        "INSERT INTO a SELECT n FROM generate_series(1, 10) n",
    )
    raw = {
        "name": "db",
        **postgres.settings,
        "mode": "bulk",
        "topic.prefix": "db-",
        "batch.max.rows": "6",
    }
    source = pipeline.start_source(JdbcSource, raw)
    assert source.step() is not None
    postgres_server.kill()
    with pytest.raises(RetriableError, match="reading new rows"):
        source.step()
    again = pipeline.start_source(JdbcSource, raw)
    assert [receipt and receipt.record_count for receipt in (again.step(), again.step())] == [6, 4]


def test_on_mysql_it_goes_on_where_it_was(
    pipeline: Pipeline, server: MariaDb, tmp_path: Path
) -> None:
    server.execute(
        "CREATE TABLE a (id INT PRIMARY KEY AUTO_INCREMENT, price DECIMAL(8, 2), at TIMESTAMP(3))",
        "INSERT INTO a (price, at) VALUES (1.5, now(3)), (2.5, now(3))",
    )
    raw = {
        "name": "db",
        **server.settings,
        "mode": "incrementing",
        "incrementing.column.name": "id",
        "topic.prefix": "db-",
    }
    assert pipeline.start_source(JdbcSource, raw).run_until_idle() == 2
    server.execute("INSERT INTO a (price, at) VALUES (3.5, now(3))")
    assert pipeline.start_source(JdbcSource, raw).run_until_idle() == 1
    found = records_of(pipeline, "db-a", tmp_path / "out")
    assert [each["id"] for each in found] == [1, 2, 3]


@pytest.mark.parametrize("mode", ["bulk", "incrementing"])
def test_a_batch_has_as_many_bytes_as_it_may(
    pipeline: Pipeline, postgres: Postgres, mode: str
) -> None:
    postgres.execute(
        "CREATE TABLE items (id INTEGER PRIMARY KEY, note TEXT)",
        "ALTER TABLE items ALTER COLUMN note SET STORAGE EXTERNAL",
        "INSERT INTO items SELECT n, repeat('x', 20000) FROM generate_series(1, 100) n",
        "ANALYZE items",
    )
    raw = {
        "name": "db",
        **postgres.settings,
        "mode": mode,
        "incrementing.column.name": "id",
        "table.whitelist": "items",
        "topic.prefix": "db-",
        "batch.max.bytes": "600000",
        "poll.interval.ms": "3600000",
    }
    source = pipeline.start_source(JdbcSource, raw)
    counts = []
    while (receipt := source.step()) is not None:
        counts.append(receipt.record_count)
    assert max(counts) <= 600_000 // 20_000
    assert sum(counts) == 100
