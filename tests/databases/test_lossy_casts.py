"""JdbcSink writes a value as it is, or refuses its record: no column rounds or cuts it."""

from dataclasses import dataclass
from datetime import UTC, datetime, time
from decimal import Decimal
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from drover.connectors.jdbc.table_writer import TableWriter
from drover.model.ids import Term
from drover.record.schema import arrow_field
from tests.databases.conftest import OF_MYSQL, Database, Sqlite, every_database
from tests.support.mariadb import MariaDb
from tests.support.postgres import Postgres
from tests.support.table_records import address_with_ledger, records, write_settings

database = every_database
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901)
AT_NOON = datetime(2026, 1, 2, 12)
_tables = count(1)


@dataclass(frozen=True)
class Case:
    """A field type, the type of its column, values that fit it, and values that it would change."""

    kind: pa.DataType
    column: str
    exact: list[Any]
    lossy: list[Any]


DECIMAL = pa.decimal128(20, 4)
WIDE = pa.decimal128(38, 10)
EVERYWHERE = {
    "decimal to integer": Case(DECIMAL, "INTEGER", [Decimal(4)], [Decimal("4.5")]),
    "double to integer": Case(pa.float64(), "INTEGER", [4.0], [4.5, 0.1]),
    "double to bigint": Case(pa.float64(), "BIGINT", [2.0**53], [0.5]),
    "decimal to decimal": Case(
        DECIMAL, "NUMERIC(7,2)", [Decimal("1.01"), Decimal("-1.50")], [Decimal("1.005")]
    ),
    "double to decimal": Case(pa.float64(), "NUMERIC(7,2)", [19.99, 5.0], [1.005, 0.1 + 0.2]),
    "text to decimal": Case(pa.string(), "NUMERIC(7,2)", ["1.50"], ["1.005"]),
    "decimal to double": Case(
        WIDE,
        "DOUBLE PRECISION",
        [Decimal("0.1"), Decimal(2**60)],
        [Decimal("12345678901234567.25")],
    ),
    "bigint to double": Case(pa.int64(), "DOUBLE PRECISION", [2**60, -5], [2**53 + 1]),
    "time to less": Case(
        pa.timestamp("us"), "TIMESTAMP(0)", [MOMENT.replace(microsecond=0)], [MOMENT]
    ),
    "time to milliseconds": Case(
        pa.timestamp("us"), "TIMESTAMP(3)", [MOMENT.replace(microsecond=678000)], [MOMENT]
    ),
    "time to date": Case(pa.timestamp("us"), "DATE", [datetime(2026, 1, 2)], [AT_NOON]),
    "time of day to less": Case(pa.time64("us"), "TIME(0)", [time(3, 4)], [time(3, 4, 5, 6)]),
    "blanks": Case(pa.string(), "VARCHAR(3)", ["a  ", "abc"], ["abc  "]),
    "too long": Case(pa.string(), "VARCHAR(3)", ["abc"], ["abcd"]),
    "too large": Case(pa.int64(), "SMALLINT", [2**15 - 1], [2**15]),
}
#: Columns of SQLite have no length, no precision, and any integer may be a floating point number.
OF_SQLITE = {
    "decimal to double": EVERYWHERE["decimal to double"],
    "bigint to double": EVERYWHERE["bigint to double"],
    "decimal to numeric": Case(
        WIDE, "NUMERIC(38,10)", [Decimal("0.1")], [Decimal("12345678901234567.25")]
    ),
    "decimal to integer": Case(DECIMAL, "INTEGER", [Decimal(4), Decimal("4.5")], []),
    "uint64 to integer": Case(pa.uint64(), "INTEGER", [2**63 - 1], [2**63]),
    "long decimal to integer": Case(WIDE, "INTEGER", [Decimal(7)], [Decimal(2**63)]),
    "text to integer": Case(pa.string(), "INTEGER", ["7"], ["12345678901234567890123"]),
    "nan": Case(pa.float64(), "REAL", [0.1, float("inf")], [float("nan")]),
    "time to date": EVERYWHERE["time to date"],
    "double to text": Case(pa.float64(), "TEXT", [0.1 + 0.2], []),
}
OF_POSTGRES = {
    **EVERYWHERE,
    "double to real": Case(pa.float64(), "REAL", [0.5, float("nan")], [0.1]),
    "decimal to real": Case(DECIMAL, "REAL", [Decimal("0.1")], [Decimal("16777217.1")]),
    "bigint to real": Case(pa.int64(), "REAL", [2**24], [2**24 + 1]),
    "integer to boolean": Case(pa.int32(), "BOOLEAN", [0, 1], [5]),
    "double to boolean": Case(pa.float64(), "BOOLEAN", [1.0], [0.4]),
    "text to double": Case(
        pa.string(), "DOUBLE PRECISION", ["0.1", "1e3"], ["0.12345678901234567"]
    ),
    "text to time": Case(
        pa.string(), "TIMESTAMP", ["2026-01-02T03:04:05.123456Z"], ["2026-01-02T03:04:05.1234567Z"]
    ),
    "text to less time": Case(
        pa.string(), "TIMESTAMPTZ(0)", ["2026-01-02T03:04:05Z"], ["2026-01-02T03:04:05.5Z"]
    ),
    "zoned to date": Case(
        pa.timestamp("ms", "UTC"),
        "DATE",
        [datetime(2026, 1, 2, tzinfo=UTC)],
        [AT_NOON.replace(tzinfo=UTC)],
    ),
    "time to time of day": Case(pa.timestamp("us"), "TIME", [], [MOMENT]),
    "nanoseconds": Case(pa.timestamp("ns"), "TIMESTAMP", [10**9], [10**9 + 1]),
    "domain": Case(DECIMAL, "price", [Decimal("1.25")], [Decimal("1.255")]),
    "domain of a domain": Case(DECIMAL, "net_price", [Decimal("1.25")], [Decimal("1.255")]),
    "domain of a time": Case(
        pa.timestamp("us"), "seconds", [MOMENT.replace(microsecond=0)], [MOMENT]
    ),
    "money": Case(DECIMAL, "MONEY", [Decimal("1.25")], [Decimal("1.255")]),
    "interval": Case(pa.string(), "INTERVAL(0)", ["5 seconds"], ["5.5 seconds"]),
    "internal name": Case(pa.string(), "NAME", ["a"], ["a" * 64]),
    "large scale": Case(DECIMAL, "NUMERIC(5,-2)", [Decimal(1200)], [Decimal(1250)]),
    "list of integers": Case(pa.list_(pa.float64()), "INTEGER[]", [[1.0, None]], [[1.5, 2.0]]),
    "list of decimals": Case(
        pa.list_(DECIMAL), "NUMERIC(7,2)[]", [[Decimal("1.50"), None]], [[None, Decimal("1.005")]]
    ),
    "list of a domain": Case(
        pa.list_(DECIMAL), "price[]", [[Decimal("1.25")]], [[Decimal("1.255")]]
    ),
    "list of a domain of a time": Case(
        pa.list_(pa.timestamp("us")), "seconds[]", [[AT_NOON]], [[MOMENT]]
    ),
    "text to boolean": Case(pa.string(), "BOOLEAN", ["true", "f"], ["maybe"]),
    "bits": Case(pa.string(), "BIT(3)", ["101"], ["1011", "10"]),
    "not a number": Case(pa.float64(), "INTEGER", [1.0], [float("nan"), float("inf")]),
    "wide decimal": Case(
        pa.decimal256(60, 3), "NUMERIC(60,2)", [Decimal("1.25")], [Decimal("1.255")]
    ),
    "list of times": Case(pa.list_(pa.timestamp("us")), "TIMESTAMP(0)[]", [[AT_NOON]], [[MOMENT]]),
}
#: Only in bulk: SQLAlchemy sends these values as texts.
ONLY_BULK = {"money", "interval", "internal name", "nanoseconds"}
OF_MARIADB = {
    **EVERYWHERE,
    "time to less": Case(pa.timestamp("us"), "DATETIME", [MOMENT.replace(microsecond=0)], [MOMENT]),
    "double to float": Case(pa.float64(), "FLOAT", [0.5], [0.1]),
    "decimal to float": Case(DECIMAL, "FLOAT", [Decimal("0.1")], [Decimal("16777217.1")]),
    "double to rounded double": Case(pa.float64(), "DOUBLE(8,2)", [0.5], [0.125]),
    "text to integer": Case(pa.string(), "INTEGER", ["5"], ["4.5"]),
    "blanks of text": Case(pa.string(), "TINYTEXT", ["a  "], ["a" * 255 + "  "]),
    "not a number": Case(pa.float64(), "DOUBLE", [0.5], [float("nan"), float("inf")]),
    "short bytes": Case(pa.binary(), "BINARY(4)", [b"abcd"], [b"abc"]),
    "unsigned": Case(pa.int64(), "INT UNSIGNED", [5], [-5]),
    "enum": Case(pa.string(), "ENUM('a','b')", ["a"], ["c"]),
    "old time": Case(
        pa.timestamp("us", "UTC"), "TIMESTAMP NULL", [AT_NOON], [datetime(1960, 1, 1)]
    ),
    "another character set": Case(
        pa.string(), "VARCHAR(9) CHARACTER SET latin1", ["ü"], ["\U0001f600"]
    ),
    "short year": Case(pa.int32(), "YEAR", [1999, 2026], [70]),
    "text to time": Case(
        pa.string(), "DATETIME(6)", ["2026-01-02T03:04:05.5"], ["2026-01-02T03:04:05.1234567"]
    ),
}
MODES = ("insert", "upsert", "update")


def refusals(database: Database, topic: str, batch: pa.RecordBatch, mode: str) -> dict[int, str]:
    """The reasons by the offsets of refused records; the others are written."""
    address = address_with_ledger(database.settings)
    changes = {"pk_mode": "none", "deletes": False} if mode == "insert" else {}
    settings = write_settings(insert_mode=mode, ledger=None, **changes)
    writer = TableWriter(address, "sink", Term(1, 1), settings, refused_max=100)
    answers = [row for answer in writer([batch]) for row in answer.to_pylist()]
    found = {row["offset"]: row["reason"] for row in answers if row["reason"] is not None}
    if found:
        left_out = frozenset((topic, 0, each) for each in found)
        again = TableWriter(address, "sink", Term(1, 1), settings, 100, left_out)
        assert [row["reason"] for each in again([batch]) for row in each.to_pylist()] == [None]
    return found


def check(database: Database, name: str, case: Case, mode: str) -> None:
    topic = f"lossy_{next(_tables)}"
    database.execute(f"CREATE TABLE {topic} (id INTEGER NOT NULL PRIMARY KEY, v {case.column})")
    values = [*case.exact, *case.lossy]
    if mode == "update":
        database.execute(*(f"INSERT INTO {topic} (id) VALUES ({n})" for n in range(len(values))))
    value = pa.struct([("id", pa.int64()), ("v", case.kind)])
    rows: list[tuple[Any, Any]] = [({"id": n}, {"id": n, "v": v}) for n, v in enumerate(values)]
    batch = records(*rows, topic=topic, value=value)
    refused = refusals(database, topic, batch, mode)
    assert list(refused) == list(range(len(case.exact), len(values))), (name, refused)
    for reason in refused.values():
        assert "table '" in reason, reason
        assert "would round or cut" not in reason or "(ALTER TABLE)" in reason
    written = database.rows(f"SELECT count(*) FROM {topic} WHERE v IS NOT NULL")
    assert written == [(len(case.exact),)]


@pytest.mark.parametrize("name", OF_POSTGRES)
def test_postgres_rounds_and_cuts_nothing(postgres_lossy: Postgres, name: str) -> None:
    for mode in MODES:
        check(postgres_lossy, name, OF_POSTGRES[name], mode)


def test_a_partition_rounds_nothing_either(postgres_lossy: Postgres) -> None:
    postgres_lossy.execute(
        "CREATE TABLE parted (id INTEGER PRIMARY KEY, v NUMERIC(5,1)) PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF parted DEFAULT",
    )
    value = pa.struct([("id", pa.int64()), ("v", pa.float64())])
    rows = [({"id": n}, {"id": n, "v": n / 20}) for n in range(5)]
    batch = records(*rows, topic="parted", value=value)
    assert list(refusals(postgres_lossy, "parted", batch, "upsert")) == [1, 3]


def test_a_key_is_not_rounded_to_another_key(postgres_lossy: Postgres) -> None:
    postgres_lossy.execute("CREATE TABLE keyed (id NUMERIC(5,1) PRIMARY KEY, v TEXT)")
    key = pa.struct([("id", pa.decimal128(6, 2))])
    value = pa.struct([("v", pa.string())])
    rows = [({"id": Decimal(text)}, {"v": text}) for text in ("1.00", "1.04")]
    gone: Any = ({"id": Decimal("1.01")}, None)
    batch = records(*rows, gone, topic="keyed", key=key, value=value)
    assert list(refusals(postgres_lossy, "keyed", batch, "upsert")) == [1, 2]
    assert postgres_lossy.rows("SELECT id, v FROM keyed") == [(Decimal("1.0"), "1.00")]


def test_values_without_a_schema_are_not_rounded(database: Database) -> None:
    database.execute("CREATE TABLE plain (id INTEGER PRIMARY KEY, n DECIMAL(7,2), i INTEGER)")
    shapes = ['{"id":1,"n":19.99}', '{"id":2,"n":1.005,"i":1}', '{"id":3,"i":4.5}']
    none = arrow_field("value", None)
    batch = records(*((None, each) for each in shapes), topic="plain", key=none, value=none)
    found = refusals(database, "plain", batch, "insert")
    assert list(found) == ([] if isinstance(database, Sqlite) else [1, 2])


@pytest.fixture(scope="module")
def postgres_lossy(postgres_server: Postgres) -> Postgres:
    postgres_server.execute("CREATE DATABASE lossy")
    own = Postgres(postgres_server.port, "lossy")
    own.execute(
        "CREATE DOMAIN price AS NUMERIC(8,2)",
        "CREATE DOMAIN net_price AS price",
        "CREATE DOMAIN seconds AS TIMESTAMP(0)",
    )
    return own


@pytest.mark.parametrize("name", [each for each in OF_POSTGRES if each not in ONLY_BULK])
def test_postgres_rounds_and_cuts_nothing_row_by_row(
    postgres_lossy: Postgres, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drover.connectors.jdbc.table_writer.column_changes", lambda *_: None)
    check(postgres_lossy, name, OF_POSTGRES[name], "upsert")


@pytest.mark.parametrize("kind", OF_MYSQL)
def test_mysql_rounds_and_cuts_nothing_in_any_mode(
    kind: str, request: pytest.FixtureRequest
) -> None:
    server: MariaDb = request.getfixturevalue(kind)
    server.execute("SET GLOBAL sql_mode = ''")
    try:
        for name, case in OF_MARIADB.items():
            for mode in MODES:
                check(server, name, case, mode)
    finally:
        server.execute("SET GLOBAL sql_mode = DEFAULT")


def test_sqlite_rounds_and_cuts_nothing(sqlite: Database) -> None:
    for name, case in OF_SQLITE.items():
        for mode in MODES:
            check(sqlite, name, case, mode)
