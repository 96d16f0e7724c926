"""Faults around change capture: each error names the remedy, and no change is lost."""

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from drover.connector import RetriableError
from drover.connector.settings import parse_config
from drover.connectors.postgres.server import ServerError
from drover.connectors.postgres.source import PostgresCdcSource
from tests.spark.connectors.cdc_shop import dropped, raw_of, records_of, run_until, stored_in
from tests.spark.pipeline import Pipeline, RunningSource
from tests.support.doors import slow_door
from tests.support.postgres import PASSWORD, Postgres, running_postgres
from tests.support.server_disk import disk_of_a_server
from tests.support.service_process import fill
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

CONNECTOR = {"connector.class": "PostgresCdcSource"}


@contextmanager
def session(postgres: Postgres, **parameters: str) -> Iterator[psycopg.Connection[Any]]:
    """Another session of the server."""
    connection = psycopg.connect(
        host="127.0.0.1",
        port=postgres.port,
        dbname=postgres.database,
        user="drover",
        password=PASSWORD,
        autocommit=True,
        **parameters,  # type: ignore[arg-type]
    )
    with closing(connection):
        yield connection


def fault_of(source: RunningSource, wanted: type[Exception]) -> str:
    """What the task says in the end."""
    told: list[Exception] = []

    def fails() -> bool:
        try:
            source.step()
        except (RetriableError, ServerError) as error:
            told.append(error)
        return bool(told) and isinstance(told[-1], wanted)

    wait_until(fails, describe=lambda: str(told[-1:]))
    return str(told[-1])


def test_a_slot_that_another_session_reads_is_left_alone(
    pipeline: Pipeline, shop: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drover.connectors.postgres.session._SLOT_WAIT_S", 0.3)
    raw = raw_of(shop)
    slot = raw["slot.name"]
    shop.execute(
        f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')",
        "CREATE PUBLICATION theirs",
    )
    with session(shop, replication="database") as other:
        other.pgconn.exec_(
            f'START_REPLICATION SLOT "{slot}" LOGICAL 0/0'
            " (proto_version '1', publication_names 'theirs')".encode()
        )
        with pytest.raises(RetriableError, match=r"another session: .* slot\.name of its own"):
            pipeline.start_source(PostgresCdcSource, raw)
        assert shop.rows(f"SELECT active FROM pg_replication_slots WHERE slot_name = '{slot}'") == [
            (True,)
        ]
    wait_until(
        lambda: (
            shop.rows(f"SELECT active FROM pg_replication_slots WHERE slot_name = '{slot}'")
            == [(False,)]
        )
    )
    run_until(pipeline.start_source(PostgresCdcSource, raw), 2)


def test_a_slot_that_is_dropped_while_it_is_read(pipeline: Pipeline, shop: Postgres) -> None:
    raw = raw_of(shop)
    source = pipeline.start_source(PostgresCdcSource, raw)
    run_until(source, 2)
    source.run_until_idle()
    wait_until(lambda: dropped(shop, raw["slot.name"]))
    assert "does not exist: the changes" in fault_of(source, ServerError)


def test_changes_without_a_publication_are_told(pipeline: Pipeline, shop: Postgres) -> None:
    source = pipeline.start_source(PostgresCdcSource, raw_of(shop))
    run_until(source, 2)
    shop.execute("DROP PUBLICATION drover_cdc", "INSERT INTO orders VALUES (3)")
    told = fault_of(source, ServerError)
    assert "pg_drop_replication_slot" in told
    assert "--reset" in told


def test_rows_of_many_megabytes(pipeline: Pipeline, shop: Postgres, tmp_path: Path) -> None:
    shop.execute("INSERT INTO orders VALUES (3, 1, repeat('x', 17000000))")
    source = pipeline.start_source(PostgresCdcSource, raw_of(shop, record_layout="flat"))
    run_until(source, 3)
    shop.execute("UPDATE orders SET note = note || '!' WHERE id = 3")
    run_until(source, 1)
    found = records_of(pipeline, "db.public.orders", tmp_path / "out")
    assert [len(each["note"]) for each in found[2:]] == [17_000_000, 17_000_001]


def test_a_table_that_is_locked_is_read_later(
    pipeline: Pipeline, shop: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drover.connectors.postgres.server.LOCK_TIMEOUT_MS", 200)
    monkeypatch.setattr("drover.connectors.postgres.task._LOOK_EVERY_S", 0.0)
    source = pipeline.start_source(PostgresCdcSource, raw_of(shop))
    with session(shop) as other:
        other.execute("BEGIN; LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
        assert "lock timeout" in fault_of(source, RetriableError)
    run_until(source, 2)
    shop.execute("CREATE TABLE later (id INTEGER PRIMARY KEY)", "INSERT INTO later VALUES (1)")
    with session(shop) as other:
        other.execute("BEGIN; LOCK TABLE later IN ACCESS EXCLUSIVE MODE")
        assert "lock timeout" in fault_of(source, RetriableError)
    run_until(source, 1)


def test_a_server_that_answers_slowly_is_waited_for(
    pipeline: Pipeline, shop: Postgres, tmp_path: Path
) -> None:
    with slow_door(shop.port) as port:
        raw = raw_of(replace(shop, port=port), record_layout="flat")
        source = pipeline.start_source(PostgresCdcSource, raw)
        run_until(source, 2)
        shop.execute("INSERT INTO orders SELECT n, n, 'x' FROM generate_series(10, 5009) n")
        run_until(source, 5_000)
        source.source.stop()
    found = records_of(pipeline, "db.public.orders", tmp_path / "out")
    assert [each["id"] for each in found] == [1, 2, *range(10, 5_010)]


def test_a_password_that_is_changed_later_is_told(
    pipeline: Pipeline, shop: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drover.connectors.postgres.task._LOOK_EVERY_S", 0.0)
    role = f"reader_{shop.database}"
    shop.execute(f"CREATE ROLE {role} LOGIN SUPERUSER REPLICATION PASSWORD 'one'")
    user = {"database_user": role, "database_password": "one"}
    source = pipeline.start_source(PostgresCdcSource, raw_of(shop, **user))
    run_until(source, 2)
    shop.execute(f"ALTER ROLE {role} PASSWORD 'two'", "INSERT INTO orders VALUES (3)")
    assert "password authentication failed" in fault_of(source, RetriableError)
    source.source.stop()
    user = {"database_user": role, "database_password": "two"}
    run_until(pipeline.start_source(PostgresCdcSource, raw_of(shop, **user)), 1)


def test_types_and_keys_that_change(pipeline: Pipeline, shop: Postgres, tmp_path: Path) -> None:
    source = pipeline.start_source(PostgresCdcSource, raw_of(shop, record_layout="flat"))
    run_until(source, 2)
    shop.execute(
        "INSERT INTO orders VALUES (3, 2.5, 'x')",
        "ALTER TABLE orders ALTER COLUMN price TYPE TEXT",
        "INSERT INTO orders VALUES (4, 'dear', 'x')",
        # earlier changes are emitted with the schema of their time
        "ALTER TABLE orders RENAME COLUMN id TO number",
    )
    run_until(source, 2)
    shop.execute("INSERT INTO orders VALUES (5, 'cheap', 'x')", "DROP TABLE orders")
    run_until(source, 1)
    *_, third, fourth, fifth = records_of(pipeline, "db.public.orders", tmp_path / "out")
    assert (third["id"], fourth["id"], fourth["price"]) == (3, 4, "dear")
    assert (fifth["number"], fifth["price"]) == (5, "cheap")
    keys = [each["payload"] for each in stored_in(pipeline, "db.public.orders", "key")]
    assert keys[2:] == [{"id": 3}, {"id": 4}, {"number": 5}]


def test_names_of_any_characters(pipeline: Pipeline, shop: Postgres, tmp_path: Path) -> None:
    shop.execute(
        'CREATE SCHEMA "My.Schema"',
        """CREATE TABLE "My.Schema"."Or""der's %s" ("Id x" INTEGER NOT NULL, "b.c" TEXT)""",
        """CREATE UNIQUE INDEX one ON "My.Schema"."Or""der's %s" ("Id x") INCLUDE ("b.c")""",
        """ALTER TABLE "My.Schema"."Or""der's %s" REPLICA IDENTITY USING INDEX one""",
        """INSERT INTO "My.Schema"."Or""der's %s" VALUES (1, 'a')""",
    )
    lists = {"table_include_list": r"My\.Schema\.Or.*", "publication_name": """A "b'c"""}
    source = pipeline.start_source(PostgresCdcSource, raw_of(shop, **lists))
    run_until(source, 1)
    shop.execute(
        """INSERT INTO "My.Schema"."Or""der's %s" VALUES (2, 'b')""",
        """DELETE FROM "My.Schema"."Or""der's %s" WHERE "Id x" = 1""",
    )
    run_until(source, 3)
    topic = "db.My.Schema.Or_der_s__s"
    keys = [each["payload"] for each in stored_in(pipeline, topic, "key")]
    assert keys == [{"Id x": 1}, {"Id x": 2}, {"Id x": 1}, {"Id x": 1}]
    found = records_of(pipeline, topic, tmp_path / "out")
    assert found[1]["after"] == {"Id x": 2, "b.c": "b"}
    assert found[1]["source"]["table"] == "Or\"der's %s"


@pytest.mark.faults("connectors")
def test_a_server_that_is_away_for_long_is_waited_for(pipeline: Pipeline) -> None:
    with running_postgres() as server:
        server.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        raw = raw_of(server, errors_retry_timeout="600000")
        source = pipeline.start_source(PostgresCdcSource, raw)
        run_until(source, 0)
        server.execute("INSERT INTO orders SELECT generate_series(1, 1000)")
        server.end()
        for _ in range(5):
            assert "127.0.0.1" in fault_of(source, RetriableError)
        server.start()
        moved = 0

        def there() -> bool:
            nonlocal moved
            with suppress(RetriableError):  # the server may reject the first attempts
                moved += source.run_until_idle()
            return pipeline.store.end_offsets("db.public.orders").get(0, 0) >= 1_000

        wait_until(there, describe=lambda: f"{moved} moved")
        server.execute("INSERT INTO orders VALUES (1001)")
        run_until(source, 1)
        assert pipeline.store.end_offsets("db.public.orders") == {0: 1_001}
        source.source.stop()


@pytest.mark.faults("connectors")
def test_a_server_that_ended_for_want_of_room_is_waited_for(pipeline: Pipeline) -> None:
    """Changes committed before its WAL filled the disk arrive, and later ones too."""
    with (
        disk_of_a_server("48m") as disk,
        running_postgres(log_directory=disk / "log") as server,
    ):
        server.execute("CREATE TABLE orders (id SERIAL PRIMARY KEY, note TEXT)")
        raw = raw_of(server, record_layout="flat")
        source = pipeline.start_source(PostgresCdcSource, raw)
        run_until(source, 0)
        filler = fill(disk)
        fills = (  # repeated text would be compressed
            "INSERT INTO orders (note) "
            "SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 3000)"
        )
        with pytest.raises(psycopg.OperationalError):
            server.execute(*[fills] * 1_000)
        assert "127.0.0.1" in fault_of(source, RetriableError)
        filler.unlink()
        server.start()
        server.execute("INSERT INTO orders (note) VALUES ('last')")
        ((count,),) = server.rows("SELECT count(*) FROM orders")

        def there() -> bool:
            with suppress(RetriableError):  # an error of the former stream
                source.run_until_idle()
            return pipeline.store.end_offsets("db.public.orders").get(0, 0) >= int(str(count))

        wait_until(there, describe=lambda: f"{count} rows")
        assert pipeline.store.end_offsets("db.public.orders") == {0: count}
        source.source.stop()


@pytest.mark.faults("connectors")
def test_a_server_that_decodes_no_log_is_told() -> None:
    with running_postgres(wal_level="replica") as server:
        server.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        found = parse_config(PostgresCdcSource, {**raw_of(server), **CONNECTOR})
        assert [(each.field, each.description) for each in found.violations] == [
            (
                "database.hostname",
                "the server's wal_level is replica: set it to logical, and restart the server",
            )
        ]
        once = {**raw_of(server, snapshot_mode="initial_only"), **CONNECTOR}
        assert not parse_config(PostgresCdcSource, once).violations


def test_a_later_table_that_cannot_be_published_is_left_out(
    pipeline: Pipeline, shop: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it were published, the server would reject its users' updates."""
    monkeypatch.setattr("drover.connectors.postgres.task._LOOK_EVERY_S", 0.0)
    source = pipeline.start_source(PostgresCdcSource, raw_of(shop))
    run_until(source, 2)
    shop.execute("CREATE TABLE keyless (id INTEGER)", "INSERT INTO keyless VALUES (1)")
    run_until(source, 0)
    shop.execute("UPDATE keyless SET id = 2", "ALTER TABLE keyless REPLICA IDENTITY FULL")
    run_until(source, 1)


def test_texts_that_are_not_utf8(pipeline: Pipeline, shop: Postgres, tmp_path: Path) -> None:
    """A database with the encoding SQL_ASCII has them: only their records are errors."""
    name = f"{shop.database}_raw"
    shop.execute(
        f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' TEMPLATE template0"
        " LC_COLLATE 'C' LC_CTYPE 'C'"
    )
    raw = replace(shop, database=name)
    odd = r"convert_from('\303\251\351'::bytea, 'SQL_ASCII')"
    raw.execute(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT)",
        f"INSERT INTO orders VALUES (1, 'é'), (2, {odd}), (3, 'c')",
    )
    settings = raw_of(raw, record_layout="flat", errors_tolerance="all")
    source = pipeline.start_source(PostgresCdcSource, settings)
    try:
        run_until(source, 2)
        raw.execute(
            f"INSERT INTO orders VALUES (4, {odd}), (5, 'ü')",
            "UPDATE orders SET note = 'd' WHERE id = 3",
        )
        run_until(source, 2)
    finally:
        source.source.stop()
        wait_until(lambda: dropped(raw, settings["slot.name"]))
    found = records_of(pipeline, "db.public.orders", tmp_path / "out")
    assert [(each["id"], each["note"]) for each in found] == [
        (1, "é"),
        (3, "c"),
        (5, "ü"),
        (3, "d"),
    ]
