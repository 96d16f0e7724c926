"""A value that its column's type cannot hold is an error of its row; the other rows arrive."""

from dataclasses import replace
from typing import Any

import pytest

from drover.connector.records import ERROR_COLUMN, ORIGIN_COLUMN
from drover.connectors.jdbc.database import DatabaseError
from tests.databases.conftest import Database, Sqlite
from tests.support.mariadb import MariaDb
from tests.support.postgres import Postgres
from tests.support.table_reading import TableReader, rows_of

OF_POSTGRES = [
    ("numeric(10, 2)", "'NaN'", "'NaN'"),
    ("numeric(10, 2)[]", "'{1,NaN}'", "'{1.00,NaN}'"),
    ("timestamp", "'infinity'", "'infinity'"),
    ("timestamptz", "'-infinity'", "'-infinity'"),
    ("timestamptz", "'10000-01-01 00:00+00'", "'10000-01-01 00:00:00+00'"),
    ("timestamp[]", "'{infinity}'", "'{infinity}'"),
    ("date", "'0044-03-15 BC'", "'0044-03-15 BC'"),
    ("date", "'infinity'", "'infinity'"),
    ("date", "'10000-01-01'", "'10000-01-01'"),
    ("time", "'24:00'", "'24:00:00'"),
    ("integer[]", "'{{1},{2}}'", "'{{1},{2}}'"),
    ("integer[]", "'[0:1]={1,2}'", "'[0:1]={1,2}'"),
    ("text[]", "'{{a},{b}}'", "'{{a},{b}}'"),
]
OF_MYSQL = [
    ("date", "'0000-00-00'", "'0000-00-00'"),
    ("date", "'2021-00-00'", "'2021-00-00'"),
    ("datetime", "'0000-00-00'", "'0000-00-00 00:00:00'"),
    ("datetime(3)", "'2026-02-00'", "'2026-02-00 00:00:00.000'"),
    ("timestamp", "'0000-00-00'", "'0000-00-00 00:00:00'"),
    ("time", "'-25:00:00'", "'-2 days, 23:00:00'"),
    ("time", "'838:59:59'", "'34 days, 22:59:59'"),
    ("time", "'24:00:00'", "'1 day, 0:00:00'"),
]
OF_SQLITE = [
    ("INTEGER", "'many'", "'many'"),
    ("INTEGER", "1.5", "1.5"),
    ("INTEGER", "9223372036854775808", "9.223372036854776e+18"),
    ("INTEGER", "x'01'", "b'\\x01'"),
    ("BOOLEAN", "5", "5"),
    ("REAL", "'x'", "'x'"),
    ("NUMERIC(10, 2)", "1.239", "1.239"),
    ("NUMERIC(10, 2)", "'x'", "'x'"),
    ("NUMERIC(3, 1)", "12345", "12345"),
    ("DATE", "'2024-02-30'", "'2024-02-30'"),
    ("DATE", "20240101", "20240101"),
    ("TIMESTAMP", "'soon'", "'soon'"),
    ("TIME", "'24:00'", "'24:00'"),
    ("TEXT", "x'ff'", "b'\\xff'"),
    ("TEXT", "CAST(x'ff' AS TEXT)", "b'\\xff'"),
    ("", "x'ff'", "b'\\xff'"),
    ("BLOB", "5", "5"),
    ("BLOB", "'x'", "'x'"),
]


def prepared(database: Database, kind: str, value: str) -> None:
    database.execute(
        f"CREATE TABLE items (id INTEGER NOT NULL PRIMARY KEY, odd {kind} NULL)",
        "INSERT INTO items VALUES (1, NULL)",
        f"INSERT INTO items VALUES (2, {value})",
        "INSERT INTO items VALUES (3, NULL)",
    )


def rows(database: Database, mode: str = "incrementing", **settings: str) -> list[dict[str, Any]]:
    reader = TableReader(database, mode, settings)
    plan = reader.plan()
    assert plan is not None
    found = rows_of(plan)
    reader.planner.close()
    return found


def expect_one_bad(database: Database, mode: str, shown: str) -> None:
    found = rows(database, mode)
    assert [row["id"] for row in found] == [1, 2, 3]
    faults = [row[ERROR_COLUMN] for row in found]
    assert [bool(each) for each in faults] == [False, True, False]
    assert faults[1].startswith(f"column 'odd' has {shown}"[:60])
    assert "cannot hold" in faults[1]
    assert found[1]["odd"] is None
    assert found[1][ORIGIN_COLUMN] == "items with id=2"


@pytest.mark.parametrize(("kind", "value", "shown"), OF_POSTGRES)
def test_on_postgresql(postgres: Postgres, kind: str, value: str, shown: str) -> None:
    prepared(postgres, kind, value)
    expect_one_bad(postgres, "incrementing", shown)
    expect_one_bad(postgres, "bulk", shown)


@pytest.mark.parametrize(("kind", "value", "shown"), OF_MYSQL)
def test_on_mysql(server: MariaDb, kind: str, value: str, shown: str) -> None:
    ((mode,),) = server.rows("SELECT @@global.sql_mode")
    lenient = f"SET STATEMENT sql_mode = '' FOR INSERT INTO items VALUES (2, {value})"
    server.execute(
        f"CREATE TABLE items (id INTEGER NOT NULL PRIMARY KEY, odd {kind} NULL)",
        "INSERT INTO items VALUES (1, NULL), (3, NULL)",
        lenient if server.kind == "mariadb" else f"INSERT INTO items VALUES (2, {value})",
    )
    assert mode
    expect_one_bad(server, "incrementing", shown)


@pytest.mark.parametrize(("kind", "value", "shown"), OF_SQLITE)
def test_on_sqlite(sqlite: Sqlite, kind: str, value: str, shown: str) -> None:
    prepared(sqlite, kind, value)
    expect_one_bad(sqlite, "incrementing", shown)
    expect_one_bad(sqlite, "bulk", shown)


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        ("REAL", "0.1", 0.1),
        ("REAL", "16777217", 16777217.0),
        ("SMALLINT", "9223372036854775807", 2**63 - 1),
        ("NUMERIC(10, 2)", "0.1 + 0.2", "0.30"),
        ("NUMERIC(18, 2)", "123456789012345.67", "123456789012345.67"),
        ("NUMERIC", "0.1", "0.1"),
        ("NUMERIC", "'12345678901234567890123'", None),
        ("BOOLEAN", "1", True),
        ("TEXT", "5", "5"),
        ("", "5", "5"),
        ("", "1.5", "1.5"),
        ("BLOB", "x'00ff'", b"\x00\xff"),
        ("TIMESTAMP", "'2026-01-02T03:04:05'", "2026-01-02 03:04:05"),
    ],
)
def test_other_values_of_sqlite_are_what_they_were(
    sqlite: Sqlite, kind: str, value: str, wanted: Any
) -> None:
    prepared(sqlite, kind, value)
    found = rows(sqlite)[1]
    assert ERROR_COLUMN not in found
    ((stored,),) = sqlite.rows("SELECT odd FROM items WHERE id = 2")
    assert str(found["odd"]) == str(stored if wanted is None else wanted)


def test_many_bad_values_in_many_rows(postgres: Postgres) -> None:
    postgres.execute(
        "CREATE TABLE items (id integer PRIMARY KEY, odd numeric(10, 2), day date)",
        "INSERT INTO items SELECT n, CASE WHEN n % 7 = 0 THEN 'NaN' ELSE n::numeric END,"
        " CASE WHEN n % 1000 = 1 THEN 'infinity' ELSE date '2026-01-01' END"
        " FROM generate_series(1, 30000) n",
    )
    bad = [row["id"] for row in rows(postgres) if row[ERROR_COLUMN]]
    assert bad == [n for n in range(1, 30_001) if n % 7 == 0 or n % 1_000 == 1]


def test_a_row_is_named_by_the_columns_of_its_key(postgres: Postgres) -> None:
    postgres.execute(
        "CREATE TABLE items (a text, b integer, odd date, PRIMARY KEY (b, a))",
        "INSERT INTO items VALUES ('x', 7, 'infinity')",
    )
    (row,) = rows(postgres, "bulk")
    assert row[ORIGIN_COLUMN] == "items with b=7, a=x"
    (row,) = rows(postgres, "bulk", key="a")
    assert row[ORIGIN_COLUMN] == "items with a=x"
    postgres.execute("ALTER TABLE items DROP CONSTRAINT items_pkey")
    (row,) = rows(postgres, "bulk")
    assert row[ORIGIN_COLUMN] == "items, row 1 of its part"


def test_rows_of_a_query(postgres: Postgres) -> None:
    postgres.execute(
        "CREATE TABLE items (id integer PRIMARY KEY, odd numeric(10, 2))",
        "INSERT INTO items VALUES (1, 1), (2, 'NaN')",
    )
    found = rows(postgres, query="SELECT id, odd FROM items")
    assert [bool(row[ERROR_COLUMN]) for row in found] == [False, True]
    assert found[1][ORIGIN_COLUMN] == "query with id=2"


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [("CONVERT_TO_NULL", [None, None]), ("convertToNull", [None, None]), ("ROUND", "0001-01-01")],
)
def test_zero_dates_are_read_as_the_url_says(server: MariaDb, mode: str, wanted: Any) -> None:
    server.execute(
        "CREATE TABLE items (id INT PRIMARY KEY, a DATE NOT NULL, b DATETIME NOT NULL, c DATE)",
        "INSERT INTO items VALUES (1, '0000-00-00', '0000-00-00', '2026-01-02')",
    )
    url = f"{server.url}?zeroDateTimeBehavior={mode}"
    (row,) = rows(server, **{"connection.url": url})
    assert str(row["c"]) == "2026-01-02"
    if mode == "ROUND":
        assert [str(row["a"]), str(row["b"])] == [wanted, f"{wanted} 00:00:00"]
    else:
        assert [row["a"], row["b"]] == wanted


def test_a_partly_zero_date_is_an_error_whatever_the_url_says(server: MariaDb) -> None:
    server.execute(
        "CREATE TABLE items (id INT PRIMARY KEY, odd DATE)",
        "INSERT INTO items VALUES (1, '2021-00-00')",
    )
    url = f"{server.url}?zeroDateTimeBehavior=CONVERT_TO_NULL"
    (row,) = rows(server, **{"connection.url": url})
    assert row[ERROR_COLUMN].startswith("column 'odd' has '2021-00-00'")


def test_small_numbers_of_mysql_may_be_booleans(server: MariaDb) -> None:
    server.execute(
        "CREATE TABLE items (id INT PRIMARY KEY, odd BOOLEAN)",
        "INSERT INTO items VALUES (1, true), (2, 5), (3, 0), (4, NULL)",
    )
    assert [row["odd"] for row in rows(server)] == [1, 5, 0, None]
    found = rows(server, **{"tinyint1.mapping": "boolean"})
    assert [row["odd"] for row in found] == [True, None, False, None]
    assert [row["id"] for row in found if row[ERROR_COLUMN]] == [2]


@pytest.mark.parametrize("mode", ["timestamp", "timestamp+incrementing"])
@pytest.mark.parametrize("odd", ["-infinity", "0044-03-15 12:00 BC"])
def test_rows_with_the_earliest_times_of_postgresql(
    postgres: Postgres, mode: str, odd: str
) -> None:
    for kind in ("timestamp", "timestamptz"):
        postgres.execute(
            "DROP TABLE IF EXISTS items",
            f"CREATE TABLE items (id integer PRIMARY KEY, changed {kind} NOT NULL)",
            f"INSERT INTO items VALUES (1, '{odd}'), (2, '{odd}'), (3, '2026-01-02')",
        )
        reader = TableReader(postgres, mode, {"db.timezone": "Asia/Tokyo"})
        found = [row for _ in range(3) if (plan := reader.plan(1)) for row in rows_of(plan)]
        assert [row["id"] for row in found] == [1, 2, 3]
        assert [bool(row.get(ERROR_COLUMN)) for row in found] == [True, True, False]


@pytest.mark.parametrize("mode", ["timestamp", "timestamp+incrementing"])
def test_rows_with_a_zero_date_as_their_time(server: MariaDb, mode: str) -> None:
    server.execute(
        "CREATE TABLE items (id INT PRIMARY KEY, changed DATETIME NOT NULL)",
        "INSERT INTO items VALUES (1, '0000-00-00'), (2, '2026-01-02')",
    )
    reader = TableReader(server, mode)
    found = [row for _ in range(2) if (plan := reader.plan(1)) for row in rows_of(plan)]
    assert [row["id"] for row in found] == [1, 2]
    server.execute("DELETE FROM items", "INSERT INTO items VALUES (1, '2021-00-00')")
    with pytest.raises(DatabaseError, match="'2021-00-00 00:00:00' in changed, which is no time"):
        TableReader(server, mode).plan()


@pytest.mark.parametrize(("value", "shown"), [("1.5", "1.5"), ("'x'", "'x'")])
def test_a_number_to_count_by_that_is_none(sqlite: Sqlite, value: str, shown: str) -> None:
    sqlite.execute(
        "CREATE TABLE items (id INT NOT NULL, odd TEXT)", f"INSERT INTO items VALUES ({value}, 'x')"
    )
    with pytest.raises(DatabaseError, match=f"has {shown} in id, which is no whole number"):
        TableReader(sqlite, "incrementing").plan()


def test_a_time_to_sort_by_that_is_none(sqlite: Sqlite) -> None:
    sqlite.execute(
        "CREATE TABLE items (id INT NOT NULL, changed TIMESTAMP NOT NULL)",
        "INSERT INTO items VALUES (1, '2021-13-45')",
    )
    with pytest.raises(DatabaseError, match="in changed, which is no time"):
        TableReader(sqlite, "timestamp").plan()


@pytest.fixture
def any_bytes(postgres: Postgres) -> Postgres:
    """A database whose texts are any bytes."""
    name = f"{postgres.database}_raw"
    postgres.execute(
        f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' TEMPLATE template0"
        " LC_COLLATE 'C' LC_CTYPE 'C'"
    )
    return replace(postgres, database=name)


@pytest.mark.parametrize(
    ("kind", "values", "wanted", "shown"),
    [
        ("text", ("a", r"\303\251\351", "é"), ("a", None, "é"), r"b'\xc3\xa9\xe9'"),
        ("text[]", ("{a,b}", r"{\351}", "{é}"), (["a", "b"], None, ["é"]), r"b'{\xe9}'"),
    ],
)
@pytest.mark.parametrize("mode", ["incrementing", "bulk"])
def test_a_text_that_is_not_utf8(
    any_bytes: Postgres, mode: str, kind: str, values: Any, wanted: Any, shown: str
) -> None:
    any_bytes.execute(f"CREATE TABLE items (id INTEGER PRIMARY KEY, odd {kind}, namé TEXT)")
    for number, value in enumerate(values, 1):
        text = f"convert_from('{value}'::bytea, 'SQL_ASCII')::{kind}"
        if value == "é":
            text = "'é'"
        elif value == "{é}":
            text = "'{é}'"
        any_bytes.execute(f"INSERT INTO items VALUES ({number}, {text}, 'ü')")
    found = rows(any_bytes, mode)
    assert [row["odd"] for row in found] == list(wanted)
    assert [row["namé"] for row in found] == ["ü"] * 3
    (bad,) = (row for row in found if row[ERROR_COLUMN])
    assert bad[ORIGIN_COLUMN] == "items with id=2"
    assert bad[ERROR_COLUMN].startswith(f"column 'odd' has {shown}, which ")
