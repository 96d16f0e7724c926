"""Reading from MariaDB and MySQL: types, time zones, queries, cursors."""

import struct
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from tests.support.mariadb import MariaDb
from tests.support.table_reading import TableReader, ids_of, rows_of

#: A type; a value in SQL; the same in Arrow.
CASES: list[tuple[str, str, Any]] = [
    ("decimal(38, 10)", "1234567890123456789012345678.0123456789",
     Decimal("1234567890123456789012345678.0123456789")),
    ("decimal(65, 5)", "12345678901234567890123456789012345678901234567890.5",
     "12345678901234567890123456789012345678901234567890.50000"),
    ("tinyint(1)", "-5", -5),
    ("boolean", "true", 1),
    ("tinyint", "-128", -128),
    ("tinyint unsigned", "255", 255),
    ("smallint unsigned", "65535", 65535),
    ("mediumint unsigned", "16777215", 16777215),
    ("int unsigned", "4294967295", 4294967295),
    ("bigint", "-9223372036854775808", -(2**63)),
    ("bigint unsigned", "18446744073709551615", Decimal(2**64 - 1)),
    ("float", "16777215", 16777215.0),
    ("float unsigned", "1.5", 1.5),
    ("double", "0.1", 0.1),
    ("bit(1)", "b'1'", True),
    ("bit(12)", "b'100000000001'", b"\x08\x01"),
    ("year", "2026", 2026),
    ("date", "'9999-12-31'", date(9999, 12, 31)),
    ("time(6)", "'23:59:59.999999'", time(23, 59, 59, 999_999)),
    ("datetime", "'2026-01-02 03:04:05'", datetime(2026, 1, 2, 3, 4, 5)),
    ("datetime(6)", "'2026-01-02 03:04:05.000006'", datetime(2026, 1, 2, 3, 4, 5, 6)),
    # in the session's time zone, which is five hours behind
    ("timestamp(6)", "'2026-01-02 03:04:05.000006'",
     datetime(2026, 1, 2, 8, 4, 5, 6, tzinfo=UTC)),
    ("json", "'{\"b\": 1.10,  \"a\":null}'", '{"b": 1.10,  "a":null}'),
    ("longblob", r"x'00ff5c'", b"\x00\xff\\"),
    ("varbinary(5)", "x''", b""),
    ("binary(3)", "x'61'", b"a\0\0"),
    ("text", "'é😀\\n'", "é😀\n"),
    ("varchar(5)", "''", ""),
    ("char(3)", "'a'", "a"),
    ("enum('so', 'or')", "'or'", "or"),
    ("set('so', 'or')", "'so,or'", "so,or"),
    ("point", "ST_GeomFromText('POINT(1 2)')",
     bytes.fromhex("0101000000000000000000f03f0000000000000040")),
    ("geometry", "ST_GeomFromText('POINT(1 2)', 4326)",
     bytes.fromhex("0101000020e6100000000000000000f03f0000000000000040")),
    ("polygon", "ST_GeomFromText('POLYGON((0 0,1 0,1 1,0 0))')",
     bytes.fromhex("01030000000100000004000000") + struct.pack("<8d", 0, 0, 1, 0, 1, 1, 0, 0)),
]  # fmt: skip


def rows(reader: TableReader) -> list[dict[str, Any]]:
    plan = reader.plan()
    assert plan is not None
    return rows_of(plan)


def test_every_type(server: MariaDb) -> None:
    columns = ", ".join(f"c{n} {kind} NULL" for n, (kind, _, _) in enumerate(CASES))
    values = ", ".join(value for _, value, _ in CASES)
    server.execute(
        f"CREATE TABLE items (id INT PRIMARY KEY, {columns})",
        f"INSERT INTO items VALUES (1, {values})",
        "INSERT INTO items (id) VALUES (2)",
    )
    # MariaDB returns JSON text as it was written; in MySQL, the first number of a point of the
    # reference system 4326 is its latitude
    of_mysql = {
        "json": '{"a": null, "b": 1.1}',
        "geometry": bytes.fromhex("0101000020e61000000000000000000040000000000000f03f"),
    }
    others = of_mysql if server.kind == "mysql" else {}
    full, empty = rows(TableReader(server, "bulk"))
    for number, (kind, _, wanted) in enumerate(CASES):
        assert full[f"c{number}"] == others.get(kind, wanted), kind
        assert empty[f"c{number}"] is None, kind


@pytest.mark.parametrize("mode", ["timestamp", "timestamp+incrementing"])
@pytest.mark.parametrize("kind", ["timestamp(6)", "timestamp", "datetime(3)"])
def test_rows_are_found_by_time_in_every_zone(server: MariaDb, mode: str, kind: str) -> None:
    """The server's zone is not UTC: a TIMESTAMP is an instant, a DATETIME a local time."""
    server.execute(
        f"CREATE TABLE items (id INT PRIMARY KEY, changed {kind} NOT NULL)",
        "INSERT INTO items VALUES (1, now() - INTERVAL 1 HOUR), (2, now() - INTERVAL 1 MINUTE),"
        " (3, now() + INTERVAL 1 MINUTE)",
    )
    zone = "Asia/Kolkata" if kind.startswith("timestamp") else "Etc/GMT+5"
    reader = TableReader(server, mode, {"db.timezone": zone})
    plans = [reader.plan(rows_max=1) for _ in range(3)]
    assert [each and ids_of(each) for each in plans] == [[1], [2], None]
    ((stamp,),) = server.rows("SELECT unix_timestamp(changed) FROM items WHERE id = 2")
    assert plans[1] is not None
    assert plans[1].offset["timestamp"] == int(float(str(stamp)) * 1_000)


def test_a_query_is_read_with_the_types_of_its_columns(server: MariaDb) -> None:
    server.execute(
        "CREATE TABLE orders (id INT, price DECIMAL(8, 2))",
        "INSERT INTO orders VALUES (1, 2.5), (2, 5), (3, 7)",
    )
    query = "SELECT id, price * 2 AS twice, 'a%:b' AS kind FROM orders WHERE id > 1;"
    found = rows(TableReader(server, "incrementing", {"query": query}))
    assert found == [
        {"id": 2, "twice": Decimal("10.00"), "kind": "a%:b"},
        {"id": 3, "twice": Decimal("14.00"), "kind": "a%:b"},
    ]


def test_rows_are_left_at_the_server_until_they_are_wanted(
    server: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drover.connectors.jdbc.reading._BATCH_BYTES", 200_000)
    server.execute(
        "CREATE TABLE items (id INT PRIMARY KEY, note LONGTEXT)",
        "INSERT INTO items WITH RECURSIVE seq AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM seq"
        " WHERE n < 300) SELECT n, repeat('x', 20000) FROM seq",
    )
    plan = TableReader(server, "bulk").plan(parallel=1)
    assert plan is not None
    (part,) = plan.parts
    counts = [batch.num_rows for batch in part.read()]
    assert counts[:2] == [100, 9]
    assert sum(counts) == 300
