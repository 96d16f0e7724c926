"""Tables and rows that JdbcSink writes to MariaDB and MySQL."""

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from drover.connectors.jdbc.database import DatabaseAddress
from drover.record.schema import arrow_field
from tests.support.mariadb import MariaDb
from tests.support.table_records import RefusedError, address_with_ledger, item, records, write

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901)
TEXT = "a'b\"c\\d\n%s %(x)d 😀 \\N"
FIELDS: dict[str, tuple[pa.DataType, Any]] = {
    "id": (pa.int64(), 2**63 - 1),
    "small": (pa.int16(), -5),
    "whole": (pa.int32(), 2**31 - 1),
    "real_": (pa.float32(), 1.5),
    "number": (pa.float64(), 1.7976931348623157e308),
    "price": (pa.decimal128(38, 8), Decimal("-123456789012345678901234567890.00000001")),
    "yes": (pa.bool_(), True),
    "text": (pa.string(), TEXT),
    "empty": (pa.string(), ""),
    "long": (pa.string(), "x" * 70_000),
    "raw": (pa.binary(), b"\x00\xff'\\\"\n"),
    "day": (pa.date32(), date(2026, 1, 2)),
    "clock": (pa.time32("ms"), time(3, 4, 5, 678000)),
    "local": (pa.timestamp("us"), MOMENT),
    "at": (pa.timestamp("us", "UTC"), MOMENT.replace(tzinfo=UTC)),
    "doc": (pa.struct([("a", pa.list_(pa.string()))]), {"a": [TEXT, None]}),
    "list": (pa.list_(pa.int32()), [1, None]),
}


@pytest.fixture
def address(server: MariaDb) -> DatabaseAddress:
    return address_with_ledger(server.settings)


def test_values_of_every_type(server: MariaDb, address: DatabaseAddress) -> None:
    kind = pa.struct([(name, each) for name, (each, _) in FIELDS.items()])
    row = {name: value for name, (_, value) in FIELDS.items()}
    nulls = {"id": 1}
    batch = records(({"id": row["id"]}, row), (nulls, nulls), value=kind)
    for start in (0, 2):  # inserted, then updated
        again = batch.set_column(2, "offset", pa.array([start, start + 1], pa.int64()))
        assert write(address, again) == 2
        found = server.rows("SELECT * FROM items ORDER BY id DESC")
        stored = dict(zip(FIELDS, found[0], strict=True))
        assert json.loads(str(stored.pop("doc"))) == row["doc"]
        assert json.loads(str(stored.pop("list"))) == row["list"]
        clock = row["clock"]
        assert str(stored.pop("clock")) == f"{clock.hour}:04:05.678000"
        expected = {n: v for n, v in row.items() if n not in ("doc", "list", "clock")}
        assert stored == expected | {"at": MOMENT, "yes": 1}
        assert set(found[1][1:]) == {None}


def test_moments_do_not_depend_on_the_servers_zone(
    server: MariaDb, address: DatabaseAddress
) -> None:
    server.execute("CREATE TABLE items (id BIGINT PRIMARY KEY, at TIMESTAMP(6) NULL)")
    kind = pa.struct([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    moment = MOMENT.replace(tzinfo=UTC)
    write(address, records(({"id": 1}, {"id": 1, "at": moment}), value=kind))
    assert server.rows("SELECT UNIX_TIMESTAMP(at) FROM items") == [
        (Decimal(str(moment.timestamp())),)
    ]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("upsert", [(1, "b", "kept"), (2, "c", "new")]), ("update", [(1, "b", "kept")])],
)
def test_modes(
    server: MariaDb, address: DatabaseAddress, mode: str, expected: list[tuple[Any, ...]]
) -> None:
    server.execute(
        "CREATE TABLE items (id BIGINT PRIMARY KEY, name TEXT, more VARCHAR(9) DEFAULT 'new')",
        "INSERT INTO items VALUES (1, 'a', 'kept'), (3, 'gone', 'x')",
    )
    batch = records(item(1, "x"), item(2, "c"), item(1, "b"), item(3, None))
    assert write(address, batch, insert_mode=mode) == 4
    assert server.rows("SELECT * FROM items ORDER BY id") == expected


def test_keys_of_every_type_in_new_tables(server: MariaDb, address: DatabaseAddress) -> None:
    keys = [("a", pa.string()), ("b", pa.binary()), ("c", pa.timestamp("ms", "UTC"))]
    kind = pa.struct([*keys, ("d", pa.decimal128(10, 2))])
    value = pa.struct([("v", pa.int32())])
    key = {"a": "k", "b": b"\x00", "c": datetime(2026, 1, 2, tzinfo=UTC), "d": Decimal("1.50")}
    batch = records((key, {"v": 1}), (key, {"v": 2}), key=kind, value=value)
    write(address, batch)
    assert server.rows("SELECT v FROM items") == [(2,)]
    write(address, records((key, None), key=kind, value=value, start=2))
    assert server.rows("SELECT v FROM items") == []


def test_columns_are_added(server: MariaDb, address: DatabaseAddress) -> None:
    write(address, records(item(1, "a")))
    more = pa.struct([("id", pa.int64()), ("name", pa.string()), ("more", pa.timestamp("ms"))])
    row = {"id": 1, "name": "b", "more": MOMENT.replace(microsecond=1000)}
    write(address, records(({"id": 1}, row), value=more, start=1), evolves=True)
    assert server.rows("SELECT * FROM items") == [(1, "b", row["more"])]


def test_texts_of_json_without_schema(server: MariaDb, address: DatabaseAddress) -> None:
    ident = "UUID" if server.kind == "mariadb" else "CHAR(36)"
    server.execute(
        "CREATE TABLE items (id BIGINT PRIMARY KEY, at DATETIME(6), price DECIMAL(10, 2), doc JSON,"
        f" ident {ident})"
    )
    row = {
        "id": 1,
        "at": "2026-01-02T03:04:05+02:00",
        "price": "1.50",
        "doc": {"a": [1, None]},
        "ident": "123e4567-e89b-12d3-a456-426614174000",
    }
    batch = records(({"id": 1}, json.dumps(row)), value=arrow_field("value", None))
    write(address, batch)
    assert server.rows("SELECT at, price, ident FROM items") == [
        (datetime(2026, 1, 2, 1, 4, 5), Decimal("1.50"), row["ident"])
    ]
    assert server.rows("SELECT JSON_VALUE(doc, '$.a[0]') FROM items") == [("1",)]


@pytest.mark.parametrize(
    ("column", "row", "told"),
    [
        ("name VARCHAR(3)", {"name": "s3cret"}, "Data too long for column 'name'"),
        ("name TEXT NOT NULL", {"name": None}, "Column 'name' cannot be null"),
        ("name INTEGER", {"name": "s3cret"}, "Incorrect integer value: for column"),
        ("name TEXT CHECK (name <> 's3cret')", {"name": "s3cret"}, "constraint"),
        ("name TEXT, more INTEGER NOT NULL", {"name": "a"}, "'more' doesn't have a default value"),
    ],
)
def test_a_row_that_is_refused_is_named(
    server: MariaDb, address: DatabaseAddress, column: str, row: dict[str, Any], told: str
) -> None:
    server.execute(f"CREATE TABLE items (id BIGINT PRIMARY KEY, {column})")
    good = {"name": "1"}
    rows = [good, good, row, good] if "more" not in column else [row]
    batch = records(*(({"id": n}, {"id": n, **each}) for n, each in enumerate(rows)))
    with pytest.raises(RefusedError, match=f"record items-0@{len(rows) // 2}: ") as caught:
        write(address, batch)
    assert told.lower() in str(caught.value).lower()
    assert "s3cret'" not in str(caught.value).replace("<> 's3cret'", "")
    assert server.rows("SELECT * FROM items") == []


def test_a_key_that_is_there_is_refused(server: MariaDb, address: DatabaseAddress) -> None:
    write(address, records(item(1, "a")), insert_mode="insert")
    with pytest.raises(RefusedError, match=r"record items-0@2: .*Duplicate entry for key"):
        write(address, records(item(2, "b"), item(1, "c"), start=1), insert_mode="insert")
    assert server.rows("SELECT id FROM items") == [(1,)]
