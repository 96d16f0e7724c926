"""Tables that are dropped, altered or locked, or that have unusual names and rows."""

import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from drover.connector import RetriableError
from drover.connectors.jdbc.columns import ColumnError
from drover.connectors.jdbc.database import DatabaseError
from tests.databases.conftest import Database, every_database
from tests.support.doors import slow_door
from tests.support.mariadb import MariaDb
from tests.support.postgres import Postgres
from tests.support.table_reading import TableReader, ids_of, rows_of

#: A column's former type, its current type, and a value of that.
CHANGED_TYPES = [
    ("integer", "text", "'x'"),
    ("integer", "bigint", "3000000000"),
    ("integer", "numeric(5, 1)", "1.5"),
    ("boolean", "integer", "1"),
    ("numeric(5, 2)", "numeric(7, 4)", "1.2345"),
    ("timestamptz", "timestamp", "'2026-01-02 03:04:05'"),
    ("timestamp", "timestamptz", "'2026-01-02 03:04:05'"),
    ("date", "timestamp", "'2026-01-02 03:04:05'"),
    ("bytea", "text", "'ab'"),
    ("integer[]", "text", "'1'"),
]
MODES = ["incrementing", "timestamp", "timestamp+incrementing", "bulk"]


database = every_database


@pytest.fixture
def items(database: Database) -> Database:
    moment = "DATETIME(6)" if isinstance(database, MariaDb) else "TIMESTAMP"
    database.execute(
        f"CREATE TABLE items (id INTEGER PRIMARY KEY, name VARCHAR(20), changed {moment} NOT NULL)",
        "INSERT INTO items VALUES (1, 'a', '2026-01-02 03:04:05'), (2, 'b', '2026-01-02 03:04:06')",
    )
    return database


def read_all(reader: TableReader) -> None:
    while (plan := reader.plan()) is not None:
        ids_of(plan)


@pytest.mark.parametrize("mode", MODES)
def test_a_table_that_is_gone_is_told_and_so_at_the_next_start(items: Database, mode: str) -> None:
    reader = TableReader(items, mode)
    items.execute("DROP TABLE items")
    with pytest.raises(DatabaseError, match=r"(looking|reading items) at .*items"):
        read_all(reader)
    with pytest.raises(DatabaseError, match="table 'items' does not exist any longer"):
        TableReader(items, mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_column_that_is_gone_is_told_and_the_next_start_goes_on(
    items: Database, mode: str
) -> None:
    reader = TableReader(items, mode)
    items.execute("ALTER TABLE items DROP COLUMN name")
    with pytest.raises((DatabaseError, RetriableError), match=r"reading items at .*name"):
        read_all(reader)
    reader.planner.close()
    assert TableReader(items, mode).ids() == [1, 2]


def test_a_column_that_is_needed_and_gone_is_told_at_the_start(items: Database) -> None:
    items.execute("ALTER TABLE items DROP COLUMN changed")
    with pytest.raises(DatabaseError, match=r"timestamp.column.name: table 'items' has no column"):
        TableReader(items, "timestamp")


def test_values_of_another_type_are_never_taken_for_what_they_were(postgres: Postgres) -> None:
    for number, (before, after, value) in enumerate(CHANGED_TYPES):
        table = f"items_{number}"
        postgres.execute(f"CREATE TABLE {table} (id integer PRIMARY KEY, it {before})")
        reader = TableReader(postgres, "incrementing", table=table)
        postgres.execute(
            f"ALTER TABLE {table} DROP COLUMN it",
            f"ALTER TABLE {table} ADD COLUMN it {after}",
            f"INSERT INTO {table} VALUES (1, {value})",
        )
        plan = reader.plan()
        assert plan is not None
        with pytest.raises(ColumnError, match="column 'it'"):
            rows_of(plan)
        assert TableReader(postgres, "incrementing", table=table).ids() == [1]


def test_numbers_that_may_be_nothing_are_refused_at_the_start(postgres: Postgres) -> None:
    postgres.execute(
        "CREATE TABLE items (id integer)", "INSERT INTO items VALUES (NULL), (1), (NULL), (2)"
    )
    with pytest.raises(DatabaseError, match=r"column 'id' of table 'items' may be null"):
        TableReader(postgres, "incrementing")
    reader = TableReader(postgres, "incrementing", {"validate.non.null": "false"})
    assert reader.ids() == [1, 2]


@pytest.mark.parametrize("mode", ["timestamp", "timestamp+incrementing"])
def test_a_clock_that_went_back_loses_nothing(
    database: Database, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    moment, now = {
        "Postgres": ("TIMESTAMP", "clock_timestamp() AT TIME ZONE 'UTC'"),
        "MariaDb": ("DATETIME(6)", "utc_timestamp(6)"),
    }.get(type(database).__name__, ("TIMESTAMP", "strftime('%Y-%m-%d %H:%M:%f000', 'now')"))
    database.execute(f"CREATE TABLE items (id INTEGER PRIMARY KEY, changed {moment} NOT NULL)")
    ahead = datetime.now(UTC) + timedelta(hours=1)
    reader = TableReader(
        database, mode, offset={"timestamp": int(ahead.timestamp() * 1_000), "incrementing": 9}
    )
    with caplog.at_level(logging.WARNING):
        assert reader.plan() is None
    assert "went back by 35" in caplog.text
    database.execute(f"INSERT INTO items VALUES (1, {now})")
    found: list[int] = []
    while not found:  # until the clock has passed the row's time
        found = reader.ids()
    assert found == [1]
    assert reader.plan() is None
    assert caplog.text.count("went back") == 1


@pytest.mark.parametrize("mode", ["incrementing", "bulk"])
def test_a_locked_table_is_waited_for_a_while_only(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    postgres.execute("CREATE TABLE items (id integer PRIMARY KEY)", "INSERT INTO items VALUES (1)")
    reader = TableReader(postgres, mode)
    plan = reader.plan()
    assert plan is not None
    reader.planner.close()
    monkeypatch.setattr("drover.connectors.jdbc.reading._POSTGRESQL", "SET lock_timeout TO '50ms'")
    with postgres.session() as other:
        other.execute(b"LOCK TABLE items IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(RetriableError, match="lock timeout"):
            TableReader(postgres, mode).plan()
        if mode == "incrementing":
            with pytest.raises(RetriableError, match=r"reading items at .*lock timeout"):
                ids_of(plan)
    assert reader.ids() == ([] if mode == "incrementing" else [1])


def test_a_locked_table_of_mysql_is_waited_for_a_while_only(
    server: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.execute("CREATE TABLE items (id integer PRIMARY KEY)", "INSERT INTO items VALUES (1)")
    reader = TableReader(server, "incrementing")
    monkeypatch.setattr(
        "drover.connectors.jdbc.reading._MYSQL", "SET SESSION lock_wait_timeout = 1"
    )
    with server._connected() as other, other.cursor() as cursor:
        cursor.execute("LOCK TABLES items WRITE")
        with pytest.raises(RetriableError, match="Lock wait timeout"):
            reader.plan()
    assert reader.ids() == [1]


NAMES = ['My.Table "x"', "per%cent", "co:lon"]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_taken_as_they_are(database: Database, name: str) -> None:
    moment = "DATETIME(6)" if isinstance(database, MariaDb) else "TIMESTAMP"
    quoted = '"' + name.replace('"', '""') + '"'
    database.execute(
        f"CREATE TABLE {quoted} (id INTEGER PRIMARY KEY, {quoted} VARCHAR(9), changed {moment}"
        " NOT NULL)",
        f"INSERT INTO {quoted} VALUES (1, 'a', '2026-01-02 03:04:05')",
    )
    for mode in MODES:
        reader = TableReader(database, mode, table=name)
        plan = reader.plan()
        assert plan is not None
        ((one, text, _),) = [list(each.values()) for each in rows_of(plan)]
        assert (one, text) == (1, "a")
        reader.planner.close()


def test_rows_of_many_megabytes(database: Database) -> None:
    size = 10_000_000
    kind, text = {
        "Postgres": ("TEXT", f"repeat('x', {size})"),
        "MariaDb": ("LONGTEXT", f"repeat('x', {size})"),
    }.get(type(database).__name__, ("TEXT", f"printf('%.*c', {size}, 'x')"))
    database.execute(
        f"CREATE TABLE items (id INTEGER PRIMARY KEY, a {kind}, b {kind})",
        f"INSERT INTO items VALUES (1, {text}, {text})",
        "INSERT INTO items VALUES (2, 'y', NULL)",
    )
    plan = TableReader(database, "incrementing").plan()
    assert plan is not None
    large, small = rows_of(plan)
    assert (len(large["a"]), len(large["b"])) == (size, size)
    assert small == {"id": 2, "a": "y", "b": None}


def test_a_server_that_answers_slowly_is_read_all_the_same(postgres: Postgres) -> None:
    postgres.execute(
        "CREATE TABLE items (id INTEGER PRIMARY KEY, note TEXT)",
        "INSERT INTO items SELECT n, repeat('x', 100) FROM generate_series(1, 3000) n",
    )
    with slow_door(postgres.port) as port:
        reader = TableReader(replace(postgres, port=port), "incrementing")
        assert [n for batch in reader.batches(rows_max=2_000) for n in batch] == [*range(1, 3_001)]


def test_a_password_that_is_changed_while_it_runs(postgres: Postgres) -> None:
    role = f"reader_{postgres.database}"
    postgres.execute(
        f"CREATE ROLE {role} LOGIN SUPERUSER PASSWORD 'one'",
        "CREATE TABLE items (id INTEGER PRIMARY KEY)",
        "INSERT INTO items VALUES (1)",
    )
    login = {"connection.user": role, "connection.password": "one"}
    reader = TableReader(postgres, "incrementing", login)
    assert reader.ids() == [1]
    postgres.execute(f"ALTER ROLE {role} PASSWORD 'two'", "INSERT INTO items VALUES (2)")
    with pytest.raises(RetriableError, match="password authentication failed") as told:
        reader.plan()
    assert "'one'" not in str(told.value)
    again = TableReader(
        postgres,
        "incrementing",
        {**login, "connection.password": "two"},
        offset={"incrementing": 1},
    )
    assert again.ids() == [2]
