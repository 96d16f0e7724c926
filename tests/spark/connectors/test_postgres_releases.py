"""Change capture, JdbcSource and JdbcSink on each supported release of PostgreSQL."""

import os
from collections.abc import Iterator

import pytest

from drover.connector.settings import validate_config
from drover.connectors.jdbc.sink import JdbcSink
from drover.connectors.jdbc.source import JdbcSource
from drover.connectors.postgres.source import PostgresCdcSource
from tests.spark.connectors.cdc_shop import raw_of, run_until, stored_in
from tests.spark.pipeline import Pipeline
from tests.support.maven import JarsMissingError
from tests.support.postgres import Postgres, running_postgres
from tests.support.postgres_releases import release_binaries
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

LARGE = "lorem " * 2_000
_OTHERS = [pytest.param(each, marks=pytest.mark.faults("connectors")) for each in (14, 16, 17)]


@pytest.fixture(params=[18, *_OTHERS], scope="module")
def release_server(request: pytest.FixtureRequest) -> Iterator[Postgres]:
    try:
        bin_path = release_binaries(request.param)
    except JarsMissingError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    with running_postgres(bin_path=bin_path) as server:
        yield server


@pytest.fixture
def release(release_server: Postgres, request: pytest.FixtureRequest) -> Postgres:
    """The test's own database."""
    name = f"of_{request.function.__name__[:40]}"
    release_server.execute(f"CREATE DATABASE {name}")
    return Postgres(release_server.port, name)


def test_tables_are_captured_read_and_copied(
    pipeline: Pipeline, release: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drover.connectors.postgres.task._LOOK_EVERY_S", 0.0)
    release.execute(
        "CREATE TABLE doc (id INT PRIMARY KEY, n INT, body TEXT, tags NUMERIC(8, 2)[])",
        "ALTER TABLE doc ALTER body SET STORAGE EXTERNAL",
        f"INSERT INTO doc VALUES (1, 1, '{LARGE}', '{{1.5,NULL}}'), (2, 1, 'b', NULL)",
        "CREATE TABLE parts (id INT PRIMARY KEY, v TEXT) PARTITION BY RANGE (id)",
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)",
        "INSERT INTO parts VALUES (1, 'a')",
    )
    raw = raw_of(release, record_layout="flat", schema_include_list="public")
    source = pipeline.start_source(PostgresCdcSource, raw)
    run_until(source, 3)
    release.execute("CREATE SCHEMA copies")
    copy = {
        "name": "copy",
        **release.settings,
        "insert.mode": "upsert",
        "pk.mode": "record_key",
        "delete.enabled": "true",
        "auto.create": "true",
    }
    sinks = [
        pipeline.start_sink(
            JdbcSink,
            {**copy, "name": f"to-{name}", "topics": f"db.public.{name}", "table.name.format": to},
        )
        for name, to in (("doc", "copies.doc"), ("parts", "copies.parts"))
    ]

    def is_equal() -> bool:
        source.run_until_idle()
        for sink in sinks:
            sink.run_until_idle()
        return all(
            release.rows(f"SELECT {columns} FROM {name} ORDER BY 1")
            == release.rows(f"SELECT {columns} FROM copies.{name} ORDER BY 1")
            for name, columns in (("doc", "id, n, body"), ("parts", "id, v"))
        )

    wait_until(is_equal)
    release.execute(
        "UPDATE doc SET n = 2",
        "UPDATE doc SET id = 3 WHERE id = 1",
        "DELETE FROM doc WHERE id = 2",
        "CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (10) TO (20)",
        "INSERT INTO parts VALUES (11, 'b')",
        "UPDATE parts SET id = 12 WHERE id = 1",
    )
    wait_until(is_equal)
    assert release.rows("SELECT length(body) FROM copies.doc") == [(len(LARGE),)]
    release.execute(
        "BEGIN; ALTER TABLE doc RENAME TO doc_old; CREATE TABLE doc (LIKE doc_old INCLUDING ALL);"
        " INSERT INTO doc VALUES (3, 9, 'new', NULL); COMMIT"
    )
    wait_until(is_equal)
    raw = {
        "name": "read",
        **release.settings,
        "mode": "incrementing",
        "incrementing.column.name": "id",
        "table.whitelist": "parts",
        "topic.prefix": "j-",
    }
    run_until(pipeline.start_source(JdbcSource, raw), 2)
    source.source.stop()


def test_keys_with_generated_columns_are_captured_if_the_server_publishes_them(
    pipeline: Pipeline, release: Postgres
) -> None:
    release.execute(
        "CREATE TABLE made (tenant INT, a INT, g INT GENERATED ALWAYS AS (a * 2) STORED,"
        " PRIMARY KEY (tenant, g))",
        "INSERT INTO made VALUES (1, 1, DEFAULT), (1, 2, DEFAULT)",
    )
    raw = {**raw_of(release, record_layout="flat"), "connector.class": "PostgresCdcSource"}
    faults = [each for value in validate_config(PostgresCdcSource, raw) for each in value.errors]
    assert any("generated column 'g' in its key" in each for each in faults)
    with release.connected() as connection:
        if connection.info.server_version < 180_000:
            return
    release.execute(
        "CREATE PUBLICATION drover_cdc FOR TABLE made WITH (publish_generated_columns = stored)"
    )
    source = pipeline.start_source(PostgresCdcSource, raw)
    run_until(source, 2)
    release.execute("DELETE FROM made WHERE g = 2", "INSERT INTO made VALUES (1, 5, DEFAULT)")
    run_until(source, 2)
    found = stored_in(pipeline, "db.public.made", "key")
    keys = [tuple(each["payload"].values()) for each in found]
    assert keys == [(1, 2), (1, 4), (1, 2), (1, 10)]
    source.source.stop()


def test_a_table_is_not_published_if_the_server_would_refuse_its_changes(
    pipeline: Pipeline, release: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drover.connectors.postgres.task._LOOK_EVERY_S", 0.0)
    release.execute("CREATE TABLE first (id INT PRIMARY KEY)", "INSERT INTO first VALUES (1)")
    raw = {**raw_of(release, record_layout="flat"), "connector.class": "PostgresCdcSource"}
    source = pipeline.start_source(PostgresCdcSource, raw)
    run_until(source, 1)
    release.execute(
        "CREATE TABLE made (id INT PRIMARY KEY, a INT, g INT GENERATED ALWAYS AS (a * 2) STORED)",
        "ALTER TABLE made REPLICA IDENTITY FULL",
        "INSERT INTO made VALUES (1, 1)",
    )
    source.run_until_idle()
    release.execute("UPDATE made SET a = 2")
    with release.connected() as connection:
        refuses = connection.info.server_version >= 180_000
    assert source.figures.values()["tables_left_out_count"] == int(refuses)
    faults = [each for value in validate_config(PostgresCdcSource, raw) for each in value.errors]
    assert ["ALTER TABLE public.made REPLICA IDENTITY DEFAULT" in each for each in faults] == (
        [True] * refuses
    )
    release.execute("ALTER TABLE made REPLICA IDENTITY DEFAULT")
    source.run_until_idle()
    release.execute("UPDATE made SET a = 3")
    assert source.figures.values()["tables_left_out_count"] == 0
    source.source.stop()
