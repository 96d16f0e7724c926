"""What a source reports while it reads tables completely."""

import logging
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from drover.connector import SnapshotProgress, SourceConnector, SourceTask, SourceTaskContext
from drover.connector.settings import parse_config
from drover.connectors.jdbc.source import JdbcSource
from drover.connectors.postgres.source import PostgresCdcSource
from drover.model.ids import TaskId, Term
from tests.support.postgres import Postgres
from tests.support.waiting import wait_until

#: These tasks return plans of rows and read none.
SPARK = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1))

Reports = list[SnapshotProgress | None]


def started(kind: type[SourceConnector], config: dict[str, str], reports: Reports) -> SourceTask:
    task = kind.task_class()
    task.start(
        SourceTaskContext(
            task=TaskId("c", 0),
            claim=Term(1, 1),
            config=parse_config(kind, config).values,
            spark=cast("Any", SPARK),
            report_snapshot=reports.append,
        )
    )
    return task


@pytest.fixture
def shop(postgres: Postgres) -> Iterator[Postgres]:
    """Three tables, of which the server knows the size of two."""
    postgres.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY)",
        "INSERT INTO orders SELECT * FROM generate_series(1, 500)",
        "CREATE TABLE parts (id INT PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (100) TO (200)",
        "INSERT INTO parts SELECT * FROM generate_series(0, 119)",
        "ANALYZE",
        "CREATE TABLE unknown (id INT PRIMARY KEY)",
    )
    yield postgres

    def freed() -> bool:
        where = f"FROM pg_replication_slots WHERE slot_name = 'slot_{postgres.database}'"
        postgres.execute(f"SELECT pg_terminate_backend(active_pid) {where} AND active")
        with suppress(psycopg.errors.ObjectInUse):
            postgres.execute(f"SELECT pg_drop_replication_slot(slot_name) {where} AND NOT active")
        return not postgres.rows(f"SELECT {where}")

    wait_until(freed)


def test_change_capture_shows_its_snapshot_in_the_status_and_in_the_log(
    shop: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "drover.connectors.postgres")
    reports: Reports = []
    config = {
        "name": "c",
        "connector.class": "PostgresCdcSource",
        "topic.prefix": "db",
        **shop.cdc_settings,
        "slot.name": f"slot_{shop.database}",
        "publication.name": "pub",
    }
    task = started(PostgresCdcSource, config, reports)
    try:
        for _ in range(12):
            task.poll()
    finally:
        task.stop()
    assert reports == [
        SnapshotProgress("public.orders", 500, 3),
        SnapshotProgress("public.parts", 120, 2),
        SnapshotProgress("public.unknown", None, 1),
        None,
        None,
    ]
    texts = [each.getMessage() for each in caplog.records if "snapshot" in each.name]
    begun, *of_tables, complete, streaming = texts
    assert begun.startswith("a snapshot of 3 tables began at LSN 0/")
    assert begun.endswith(": public.orders, public.parts, public.unknown")
    assert of_tables == [
        "reading table public.orders, about 500 rows",
        "table public.orders was read",
        "reading table public.parts, about 120 rows",
        "table public.parts was read",
        "reading table public.unknown, an unknown number of rows",
        "table public.unknown was read",
    ]
    assert complete == "the snapshot is complete"
    assert streaming.startswith("streaming changes from LSN 0/")
    assert streaming.endswith(f"of slot slot_{shop.database}")


@pytest.mark.parametrize(("table", "count"), [("orders", 500), ("parts", 120), ("unknown", None)])
def test_a_bulk_read_shows_its_table(shop: Postgres, table: str, count: int | None) -> None:
    shop.execute("INSERT INTO unknown VALUES (1)")
    reports: Reports = []
    config = {
        "name": "c",
        "connector.class": "JdbcSource",
        "mode": "bulk",
        "topic.prefix": "db-",
        "poll.interval.ms": "3600000",
        "batch.max.rows": "100",
        "task.tables": f'[["public", "{table}"]]',
        **shop.settings,
    }
    task = started(JdbcSource, config, reports)
    try:
        while task.poll() is not None:
            pass
    finally:
        task.stop()
    assert reports == [None, SnapshotProgress(f"public.{table}", count, 1), None]
