"""COPY gives the same rows as a cursor, for all types and values."""

from collections.abc import Generator, Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drover.connectors.jdbc.columns import Column
from drover.connectors.jdbc.database import DatabaseAddress, parse_address
from drover.connectors.jdbc.reading import RowsBetween, TableSource, session
from drover.connectors.jdbc.reflection import reflected
from drover.connectors.postgres.copied import copied
from tests.support.postgres import Postgres

LONG = "x" * 100_000
#: A type; values in SQL; the same in Arrow, or None where only equality of both ways is checked.
CASES: list[tuple[str, list[str], list[Any] | None]] = [
    ("boolean", ["true", "false"], [True, False]),
    ("smallint", ["-32768", "32767"], [-32768, 32767]),
    ("integer", ["-2147483648", "0"], [-2147483648, 0]),
    ("bigint", ["-9223372036854775808", "9223372036854775807"], [-(2**63), 2**63 - 1]),
    ("real", ["'Infinity'", "'-0'", "3.4028235e38", "1e-45"], None),
    ("double precision", ["'-Infinity'", "0.1", "1.7976931348623157e308", "5e-324"], None),
    ("numeric(10, 2)", ["12.5", "-99999999.99", "0"],
     [Decimal(each) for each in ("12.50", "-99999999.99", "0.00")]),
    ("numeric(38, 10)", ["1234567890123456789012345678.0123456789"], None),
    ("numeric(40, 2)", ["12345678901234567890123456789012345678.25"],
     ["12345678901234567890123456789012345678.25"]),
    ("numeric(3, -2)", ["12345"], [Decimal(12300)]),
    ("numeric(2, 4)", ["0.0012"], [Decimal("0.0012")]),
    ("numeric", ["1e30", "0.10", "'NaN'", "'Infinity'"],
     ["1" + "0" * 30, "0.10", "NaN", "Infinity"]),
    ("money", ["12.5"], ["$12.50"]),
    ("oid", ["4294967295"], [2**32 - 1]),
    ("bit varying(5)", ["B'101'"], ["101"]),
    ("point", ["'(1,2)'"], ["(1,2)"]),
    ("text", ["''", "'NULL'", "'\\N'", r"'\.'", "E'a\\r\\n\"b\",c\\t'", "'é😀'", f"'{LONG}'"],
     ["", "NULL", "\\N", "\\.", 'a\r\n"b",c\t', "é😀", LONG]),
    ("varchar(5)", ["'ab'", "' '"], ["ab", " "]),
    ("char(3)", ["'a'"], ["a  "]),
    ("bytea", [r"'\x'", r"'\x00ff5c6e'"], [b"", b"\x00\xff\\n"]),
    ("date", ["'0001-01-01'", "'9999-12-31'"], [date(1, 1, 1), date(9999, 12, 31)]),
    ("time", ["'00:00'", "'23:59:59.999999'"], [time(0), time(23, 59, 59, 999_999)]),
    ("time with time zone", ["'03:04:05+02'"], ["03:04:05+02"]),
    ("timestamp", ["'0001-01-01'", "'9999-12-31 23:59:59.999999'"],
     [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)]),
    ("timestamp(0)", ["'2026-01-02 03:04:05.6'"], [datetime(2026, 1, 2, 3, 4, 6)]),
    ("timestamptz", ["'2026-03-29 02:30:00.000001+01'", "'1883-11-18 12:00+00'"],
     [datetime(2026, 3, 29, 1, 30, 0, 1, tzinfo=UTC), datetime(1883, 11, 18, 12, tzinfo=UTC)]),
    ("json", ["'{\"b\": 1.10,  \"a\":null}'", "'null'", "'\"\"'"],
     ['{"b": 1.10,  "a":null}', "null", '""']),
    ("jsonb", ["'{\"b\": 1.10, \"a\": 12345678901234567890}'"],
     ['{"a": 12345678901234567890, "b": 1.10}']),
    ("uuid", ["'12345678-1234-1234-1234-123456789ABC'"], ["12345678-1234-1234-1234-123456789abc"]),
    ("interval", ["'1 year -2 days 3.5 seconds'"], ["1 year -2 days +00:00:03.5"]),
    ("inet", ["'::1/64'", "'10.0.0.1'"], ["::1/64", "10.0.0.1"]),
    ("int4range", ["'[1,5)'", "'empty'"], ["[1,5)", "empty"]),
    ("bit(3)", ["B'101'"], ["101"]),
    ("mood", ["'so \"so\"'"], ['so "so"']),
    ("positive", ["7"], [7]),
    ("integer[]", ["'{}'", "'{1,NULL,-3}'"], [[], [1, None, -3]]),
    ("text[]", ["ARRAY['', 'NULL', NULL, 'a,b', '{\"}', E'\\\\', ' ']"],
     [["", "NULL", None, "a,b", '{"}', "\\", " "]]),
    ("boolean[]", ["'{t,f,NULL}'"], [[True, False, None]]),
    ("bytea[]", [r"ARRAY['\x00ff'::bytea, NULL]"], [[b"\x00\xff", None]]),
    ("numeric(5, 1)[]", ["'{1.5,NULL}'"], [[Decimal("1.5"), None]]),
    ("timestamptz[]", ["ARRAY['2026-01-02 03:04:05+02'::timestamptz]"],
     [[datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC)]]),
    ("uuid[]", ["ARRAY['12345678-1234-1234-1234-123456789abc'::uuid]"],
     [["12345678-1234-1234-1234-123456789abc"]]),
    ("jsonb[]", ["ARRAY['{\"a\": 1}'::jsonb]"], [['{"a": 1}']]),
]  # fmt: skip

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
ANY_ROW = st.tuples(
    st.none() | TEXT,
    st.none() | st.binary(),
    st.none() | st.floats(allow_nan=False),
    st.none() | st.decimals(min_value=-999, max_value=999, places=3),
    st.none() | st.lists(st.none() | TEXT, max_size=3),
)


def address_of(postgres: Postgres) -> DatabaseAddress:
    found = postgres.settings
    return parse_address(
        found["connection.url"], found["connection.user"], found["connection.password"]
    )


def both(postgres: Postgres, table: str) -> Iterator[pa.Table]:
    """A table's rows in order, read with COPY and with a cursor."""
    address = address_of(postgres)
    with address.connected() as connection:
        columns = reflected(connection, table, None, "none")
    source = TableSource(table, None, columns)
    relation = source.relation("postgresql")
    statement = source.rows(relation).order_by(relation.c.n)
    with session(address) as connection:
        yield pa.Table.from_batches(RowsBetween(address, source, statement).copied(connection))
    # the driver returns objects for types that are text here
    texts = [
        sa.cast(relation.c[each.name], text_type).label(each.name)
        if (text_type := _text_type(each)) is not None
        else relation.c[each.name]
        for each in columns
    ]
    statement = sa.select(*texts).order_by(relation.c.n)
    with session(address) as connection:
        yield pa.Table.from_batches(RowsBetween(address, source, statement).fetched(connection))


def _text_type(column: Column) -> sa.types.TypeEngine[Any] | None:
    kind = column.arrow_type
    if isinstance(column.sql_type, sa.String):
        return None
    if pa.types.is_list(kind):
        return sa.ARRAY(sa.Text()) if pa.types.is_string(kind.value_type) else None
    return sa.Text() if pa.types.is_string(kind) else None


@pytest.fixture
def types(postgres: Postgres) -> Postgres:
    postgres.execute(
        "CREATE TYPE mood AS ENUM ('so \"so\"')",
        "CREATE DOMAIN positive AS integer CHECK (VALUE > 0)",
    )
    return postgres


def test_every_type_is_the_same_in_both_ways(types: Postgres) -> None:
    count = max(len(values) for _, values, _ in CASES)
    columns = [f"c{n} {kind}" for n, (kind, _, _) in enumerate(CASES)]
    types.execute(f"CREATE TABLE t (n integer, {', '.join(columns)})")
    for row in range(count):
        values = [values[row] if row < len(values) else "NULL" for _, values, _ in CASES]
        types.execute(f"INSERT INTO t VALUES ({row}, {', '.join(values)})")
    by_copy, by_cursor = both(types, "t")
    assert by_copy.schema == by_cursor.schema
    for number, (kind, values, wanted) in enumerate(CASES):
        found = by_copy[f"c{number}"].to_pylist()
        # a cast of inet appends the prefix length
        assert kind == "inet" or found == by_cursor[f"c{number}"].to_pylist(), kind
        assert found[len(values) :] == [None] * (count - len(values)), kind
        assert wanted is None or found[: len(values)] == wanted, kind


def test_a_domain_has_the_type_below_it(postgres: Postgres) -> None:
    postgres.execute(
        "CREATE DOMAIN price AS numeric(12, 2)",
        "CREATE DOMAIN dear_price AS price CHECK (VALUE > 10)",
        "CREATE DOMAIN prices AS numeric(5, 1)[]",
        "CREATE DOMAIN short AS varchar(3)",
        "CREATE DOMAIN moment AS timestamptz(3)",
        "CREATE TYPE pair AS (a integer, b text)",
        "CREATE DOMAIN checked_pair AS pair",
        "CREATE TABLE t (a price, b dear_price, c prices, d price[], e short, f moment, g integer,"
        " h checked_pair, i numeric(4, 1), j dear_price[])",
        "INSERT INTO t VALUES (12.5, 12.5, '{1.5,NULL}', '{1.5,NULL}', 'a',"
        " '2026-01-02 03:04:05.006+00', 7, '(1,x)', 1.5, '{12.5}')",
    )
    address = address_of(postgres)
    with address.connected() as connection:
        source = TableSource("t", None, reflected(connection, "t", None, "none"))
    rows = RowsBetween(address, source, source.rows(source.relation("postgresql")))
    (batch,) = rows.read()
    assert batch.to_pylist() == [
        {
            "a": Decimal("12.50"),
            "b": Decimal("12.50"),
            "c": [Decimal("1.5"), None],
            "d": [Decimal("1.50"), None],
            "e": "a",
            "f": datetime(2026, 1, 2, 3, 4, 5, 6_000, tzinfo=UTC),
            "g": 7,
            "h": "(1,x)",
            "i": Decimal("1.5"),
            "j": [Decimal("12.50")],
        }
    ]
    assert batch.schema.field("a").type == pa.decimal128(12, 2)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(ANY_ROW, min_size=1, max_size=6))
def test_any_values_are_the_same_in_both_ways(postgres: Postgres, rows: list[Any]) -> None:
    postgres.execute(
        "DROP TABLE IF EXISTS any_rows",
        "CREATE TABLE any_rows (n serial, a text, b bytea, c float8, d numeric(6, 3), e text[])",
    )
    postgres.insert("any_rows (a, b, c, d, e)", rows)
    by_copy, by_cursor = both(postgres, "any_rows")
    assert by_copy == by_cursor
    assert [tuple(each.values())[1:] for each in by_copy.to_pylist()] == rows


def test_a_column_of_one_table_is_nothing_or_empty(postgres: Postgres) -> None:
    """COPY writes NULL in a single column as an empty line of CSV."""
    postgres.execute("CREATE TABLE t (n text)", "INSERT INTO t VALUES (NULL), (''), ('a')")
    by_copy, by_cursor = both(postgres, "t")
    assert by_copy == by_cursor
    assert by_copy["n"].to_pylist() == ["", "a", None]


def test_memory_is_bounded_by_parts(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        RowsBetween.copied.__globals__["copied"].__kwdefaults__, "batch_bytes", 1_000
    )
    postgres.execute(
        "CREATE TABLE t (n integer, name text)",
        "INSERT INTO t SELECT n, repeat('x', 100) FROM generate_series(1, 100) n",
    )
    address = address_of(postgres)
    with address.connected() as connection:
        source = TableSource("t", None, reflected(connection, "t", None, "none"))
    rows = RowsBetween(address, source, source.rows(source.relation("postgresql")))
    parts = [part.num_rows for part in rows.read()]
    assert sum(parts) == 100
    assert max(parts) <= 10


def test_a_database_of_another_encoding(postgres: Postgres) -> None:
    name = f"latin_{postgres.database}"
    postgres.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    latin = Postgres(postgres.port, name)
    latin.execute("CREATE TABLE t (n text)", "INSERT INTO t VALUES (chr(233))")
    by_copy, by_cursor = both(latin, "t")
    assert by_copy["n"].to_pylist() == by_cursor["n"].to_pylist() == ["é"]


def test_rows_that_nobody_wants_are_left_at_the_server(postgres: Postgres) -> None:
    query = b"COPY (SELECT generate_series(1, 100000000)) TO STDOUT (FORMAT csv)"
    with postgres.session() as connection:
        coming = copied(connection, query, 1, batch_bytes=10_000)
        next(coming)
        assert isinstance(coming, Generator)
        coming.close()
        connection.rollback()
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_an_error_between_rows_is_the_servers(postgres: Postgres) -> None:
    query = b"COPY (SELECT 1 / (n - 1000) FROM generate_series(1, 2000) n) TO STDOUT (FORMAT csv)"
    with postgres.session() as connection:
        with pytest.raises(psycopg.errors.DivisionByZero):
            list(copied(connection, query, 1))
        connection.rollback()
        with pytest.raises(psycopg.errors.UndefinedTable):
            list(copied(connection, b"COPY nowhere TO STDOUT (FORMAT csv)", 1))
        connection.rollback()
        assert list(copied(connection, b"COPY (SELECT 1 WHERE false) TO STDOUT", 1)) == []
