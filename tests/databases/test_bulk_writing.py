"""Bulk writes give the same rows as single-row writes."""

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from itertools import count, pairwise, product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drover.connectors.jdbc import postgres_bulk, table_writer
from drover.connectors.jdbc.database import DatabaseAddress
from drover.connectors.jdbc.postgres_bulk import BulkPlan, BulkTable
from drover.connectors.jdbc.table_writer import TableWriter
from drover.model.ids import Term
from drover.record.json.schemaless import dumps
from drover.record.schema import arrow_field
from tests.support.postgres import Postgres
from tests.support.table_records import (
    RefusedError,
    address_with_ledger,
    item,
    records,
    write,
    write_settings,
)

_tables = count(1)
TEXTS = [
    "",
    "a'b",
    'a"b',
    "a,b\n\\.\nc",
    "\\.",
    "\\N",
    "NULL",
    "ü€😀",
    "\t%s %(x)d",
    " pad ",
    "\r\n",
]
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901)

#: Field types, the types of their columns, and values.
CASES: dict[str, tuple[pa.DataType, str, list[Any]]] = {
    "text": (pa.string(), "TEXT", TEXTS),
    "text to varchar": (pa.string(), "VARCHAR(20)", TEXTS),
    "text to char": (pa.string(), "CHAR(20)", ["a", "b  ", ""]),
    "text to uuid": (pa.string(), "UUID", ["123e4567-E89B-12d3-a456-426614174000"]),
    "text to json": (pa.string(), "JSON", ['{"a":1.10,"b":"\\u00fc"}', '"x"', "null", "1"]),
    "text to jsonb": (pa.string(), "JSONB", ['{"a":1.10,"b":"\\u00fc"}', '"x"', "null", "1"]),
    "text to timestamptz": (pa.string(), "TIMESTAMPTZ", ["2026-01-02T03:04:05+02:00"]),
    "text to timestamp": (
        pa.string(),
        "TIMESTAMP",
        ["2026-01-02T03:04:05+02:00", "2026-07-02 03:04:05", "2026-01-02"],
    ),
    "text to date": (pa.string(), "DATE", ["2026-01-02"]),
    "text to time": (pa.string(), "TIME", ["03:04:05.5"]),
    "text to integer": (pa.string(), "INTEGER", ["-5", "7"]),
    "text to numeric": (pa.string(), "NUMERIC(10, 3)", ["1.50", "-2", "NaN"]),
    "text to enum": (pa.string(), "mood", ["glad", "it's"]),
    "text to inet": (pa.string(), "INET", ["10.0.0.1", "::1/64"]),
    "integer": (pa.int32(), "INTEGER", [0, -(2**31), 2**31 - 1]),
    "bigint": (pa.int64(), "BIGINT", [0, -(2**63), 2**63 - 1]),
    "uint64 to numeric": (pa.uint64(), "NUMERIC", [0, 2**64 - 1]),
    "byte to smallint": (pa.int8(), "SMALLINT", [-128, 127]),
    "integer to text": (pa.int32(), "TEXT", [1, -2]),
    "integer to double": (pa.int64(), "DOUBLE PRECISION", [1, 2**60]),
    "integer to numeric": (pa.int64(), "NUMERIC(30, 2)", [1, 2**60]),
    "integer to boolean": (pa.int16(), "BOOLEAN", [0, 1]),
    "integer to jsonb": (pa.int64(), "JSONB", [1, -2]),
    "double": (pa.float64(), "DOUBLE PRECISION", [0.1, -0.0, 1e300, float("inf"), float("nan")]),
    "float to real": (pa.float32(), "REAL", [0.1, float("-inf"), float("nan")]),
    "float to double": (pa.float32(), "DOUBLE PRECISION", [0.1, 3.5]),
    "float to numeric": (pa.float32(), "NUMERIC", [0.1, 3.5]),
    "double to integer": (pa.float64(), "INTEGER", [1.0, 0.0, -7.0]),
    "double to text": (pa.float64(), "TEXT", [1.5, 1e-7, float("nan")]),
    "double to numeric": (pa.float64(), "NUMERIC(10, 2)", [1.05, 2.5]),
    "decimal": (
        pa.decimal128(38, 8),
        "NUMERIC(38, 8)",
        [Decimal("0.00000001"), Decimal("-123456789012345678901234567890.5")],
    ),
    "decimal to less": (pa.decimal128(10, 4), "NUMERIC(6, 2)", [Decimal("1.05"), Decimal("-2")]),
    "wide decimal": (pa.decimal256(60, 3), "NUMERIC", [Decimal("9" * 50 + ".125")]),
    "decimal to integer": (pa.decimal128(10, 2), "INTEGER", [Decimal("1.00"), Decimal("2")]),
    "decimal to text": (pa.decimal128(10, 2), "TEXT", [Decimal("1.50")]),
    "boolean": (pa.bool_(), "BOOLEAN", [True, False]),
    "boolean to text": (pa.bool_(), "TEXT", [True, False]),
    "boolean to integer": (pa.bool_(), "INTEGER", [True, False]),
    "date": (pa.date32(), "DATE", [date(1, 1, 1), date(2026, 1, 2), date(9999, 12, 31)]),
    "date to timestamp": (pa.date32(), "TIMESTAMP", [date(2026, 1, 2)]),
    "time": (pa.time32("ms"), "TIME", [time(3, 4, 5, 6000), time(0)]),
    "timestamp": (pa.timestamp("us"), "TIMESTAMP", [MOMENT, datetime(1, 1, 1)]),
    "timestamp to less": (pa.timestamp("us"), "TIMESTAMP(0)", [MOMENT.replace(microsecond=0)]),
    "timestamp to timestamptz": (pa.timestamp("us"), "TIMESTAMPTZ", [MOMENT]),
    "timestamptz": (pa.timestamp("ms", "UTC"), "TIMESTAMPTZ", [MOMENT.replace(tzinfo=UTC)]),
    "timestamptz to timestamp": (
        pa.timestamp("us", "UTC"),
        "TIMESTAMP",
        [MOMENT.replace(tzinfo=UTC)],
    ),
    "another zone": (
        pa.timestamp("us", "+02:00"),
        "TIMESTAMP",
        [MOMENT.replace(tzinfo=timezone(timedelta(hours=2)))],
    ),
    "timestamptz to date": (pa.timestamp("ms", "UTC"), "DATE", [datetime(2026, 1, 2, tzinfo=UTC)]),
    "timestamptz to text": (pa.timestamp("ms", "UTC"), "TEXT", [MOMENT.replace(tzinfo=UTC)]),
    "bytes": (pa.binary(), "BYTEA", [b"", b"\x00\xff\\'\n"]),
    "fixed bytes": (pa.binary(2), "BYTEA", [b"\x00\xff"]),
    "list": (pa.list_(pa.int32()), "INTEGER[]", [[], [1, None, -3]]),
    "texts": (pa.list_(pa.string()), "TEXT[]", [TEXTS, ["NULL", None, "{}", "a b"]]),
    "doubles": (pa.list_(pa.float64()), "DOUBLE PRECISION[]", [[1.5, float("nan")], [None]]),
    "list of lists": (pa.list_(pa.list_(pa.int32())), "INTEGER[]", [[[1, 2], [3, None]]]),
    "timestamps": (pa.list_(pa.timestamp("us")), "TIMESTAMP[]", [[MOMENT]]),
    "binaries": (pa.list_(pa.binary()), "BYTEA[]", [[b"\x00\\", b""]]),
    "booleans": (pa.list_(pa.bool_()), "BOOLEAN[]", [[True, None, False]]),
    "decimals": (pa.list_(pa.decimal128(5, 2)), "NUMERIC[]", [[Decimal("1.50")]]),
    "list to jsonb": (pa.list_(pa.string()), "JSONB", [TEXTS, []]),
    "list to text": (pa.list_(pa.string()), "TEXT", [TEXTS, []]),
    "struct to jsonb": (
        pa.struct([("a", pa.timestamp("us")), ("b", pa.list_(pa.decimal128(5, 2)))]),
        "JSONB",
        [{"a": MOMENT, "b": [Decimal("1.50"), None]}, {"a": None, "b": None}],
    ),
    "struct to text": (pa.struct([("a", pa.string())]), "TEXT", [{"a": 'ü"'}, {"a": None}]),
    "codes": (pa.dictionary(pa.int32(), pa.string()), "TEXT", ["a", "b", "a"]),
}


@dataclass(frozen=True)
class Both:
    """A database whose tables are written in bulk and row by row."""

    postgres: Postgres
    address: DatabaseAddress

    def write(
        self,
        topic: str,
        *batches: pa.RecordBatch,
        chunk_rows: int = 1_000,
        tried_rows: int = 1_000,
        **changes: Any,
    ) -> int:
        """Write the same batches, one after the other, into the tables <topic>_bulk and _single.

        Returns how many records of the first table were written in bulk.
        """
        bulk_write = BulkTable.write
        written: list[int] = []

        def counting(table: BulkTable, plan: BulkPlan) -> bool:
            is_written = bulk_write(table, plan)
            written.append(plan.record_count if is_written else 0)
            return is_written

        for batch in batches:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(table_writer, "_CHUNK_ROWS", chunk_rows)
                patch.setattr(postgres_bulk, "_TRIED_ROWS", tried_rows)
                patch.setattr(BulkTable, "write", counting)
                write(self.address, batch, table_format="${topic}_bulk", **changes)
                in_bulk = sum(written)
                patch.setattr(table_writer, "column_changes", lambda batch, settings: None)
                write(self.address, batch, table_format="${topic}_single", **changes)
                assert sum(written) == in_bulk, "records are written in bulk into both tables"
        return sum(written)

    def rows(self, topic: str, columns: str) -> list[Any]:
        """The rows of the tables, which must be equal."""
        found = []
        for each in ("bulk", "single"):
            rows = self.postgres.rows(f"SELECT {columns} FROM {topic}_{each}")
            found.append(sorted(rows, key=repr))
        assert found[0] == found[1]
        return found[0]


@pytest.fixture(scope="module")
def both(postgres_server: Postgres) -> Both:
    postgres_server.execute("CREATE DATABASE bulk_writing")
    own = replace(postgres_server, database="bulk_writing")
    own.execute("CREATE TYPE mood AS ENUM ('glad', 'it''s')", "CREATE EXTENSION citext")
    return Both(own, address_with_ledger(own.settings))


def test_values_of_every_type(both: Both) -> None:
    columns = ", ".join(f'"{name}" {column}' for name, (_, column, _) in CASES.items())
    for each in ("bulk", "single"):
        both.postgres.execute(f"CREATE TABLE types_{each} (id BIGINT PRIMARY KEY, {columns})")
    count = 1 + max(len(values) for _, _, values in CASES.values())
    value = pa.struct([("id", pa.int64()), *((name, kind) for name, (kind, *_) in CASES.items())])
    rows = [
        {name: values[n] if n < len(values) else None for name, (_, _, values) in CASES.items()}
        for n in range(count)
    ]
    changes = [({"id": n}, {"id": n, **row}) for n, row in enumerate(rows)]
    written = both.write("types", records(*changes, topic="types", value=value), ledger=None)
    assert written == count
    for name in CASES:
        found = dict(both.rows("types", f'id, "{name}"::text'))
        assert {n for n in found if found[n] is None} == {
            n for n, row in enumerate(rows) if row[name] is None
        }


#: Key types, the types of their columns, and values; some values are equal in their column.
KEYS: list[tuple[pa.DataType, str, list[Any]]] = [
    (pa.int32(), "BIGINT", [1, 2, 3]),
    (pa.string(), "VARCHAR(9)", ["", "a'b", "A"]),
    (pa.string(), "CITEXT", ["a", "A", "b"]),
    (pa.string(), "UUID", [f"{each}23e4567-e89b-12d3-a456-426614174000" for each in "aAb"]),
    (pa.string(), "CHAR(3)", ["a", "a ", "b"]),
    (pa.decimal128(10, 2), "NUMERIC(10, 1)", [Decimal("1.00"), Decimal("1.10"), Decimal("2.00")]),
    (pa.float64(), "DOUBLE PRECISION", [0.0, -0.0, 1.5]),
    (pa.timestamp("ms", "UTC"), "TIMESTAMP", [MOMENT.replace(tzinfo=UTC, microsecond=0)]),
]


#: Columns in which keys are equal only if they are equal as records have them.
EXACT_KEYS = ("BIGINT", "VARCHAR(9)")


@given(st.data())
@settings(max_examples=20)
def test_changes_in_any_order_and_cut_anywhere(both: Both, data: st.DataObject) -> None:
    """They are written in bulk where keys are exact; inserts where all delete, or none."""
    kind, column, values = data.draw(st.sampled_from(KEYS))
    mode = data.draw(st.sampled_from(["upsert", "update", "insert"]))
    fields = data.draw(st.sampled_from([None, ("a",)]))
    topic = f"t{next(_tables)}"
    for each in ("bulk", "single"):
        constraint = "" if mode == "insert" else ", PRIMARY KEY (k, part)"
        both.postgres.execute(
            f"CREATE TABLE {topic}_{each} (k {column}, part INTEGER, a TEXT, b INTEGER,"
            f" kept TEXT DEFAULT 'new'{constraint})"
        )
    key = pa.struct([("k", kind), ("part", pa.int32())])
    value = pa.struct([("a", pa.string()), ("b", pa.int64())])
    keys = st.fixed_dictionaries({"k": st.sampled_from(values), "part": st.sampled_from([1, 2])})
    rows = st.fixed_dictionaries(
        {"a": st.sampled_from([None, *TEXTS]), "b": st.one_of(st.none(), st.integers(0, 9))}
    )
    changes = data.draw(st.lists(st.tuples(keys, st.one_of(st.none(), rows)), max_size=14))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(changes)), max_size=3)))
    for each, one in product(("bulk", "single"), values[:2]):
        there = str(one).replace("'", "''")
        both.postgres.execute(
            f"INSERT INTO {topic}_{each} VALUES ('{there}', 1, 'old', 1, 'old')"
            " ON CONFLICT DO NOTHING"
        )
    batches = [
        records(*changes[start:end], topic=topic, key=key, value=value)
        for start, end in pairwise([0, *cuts, len(changes)])
        if start < end
    ]
    options = {"insert_mode": mode, "fields": fields, "ledger": None}
    chunk_rows = data.draw(st.sampled_from([3, 1_000]))
    tried_rows = data.draw(st.sampled_from([1, 1_000]))
    in_bulk = both.write(topic, *batches, chunk_rows=chunk_rows, tried_rows=tried_rows, **options)
    if mode != "insert" and column in EXACT_KEYS:
        assert in_bulk == len(changes)
    elif mode == "insert" and chunk_rows > len(changes):
        parts = [changes[start:end] for start, end in pairwise([0, *cuts, len(changes)])]
        assert in_bulk == sum(len(part) for part in parts if len(set(map(_deletes, part))) == 1)
    both.rows(topic, "k::text, part, a, b, kept")


def _deletes(change: tuple[Any, Any]) -> bool:
    return change[1] is None


@pytest.mark.parametrize(
    ("column", "name", "told"),
    [
        ("name VARCHAR(3)", "s3cret", "value too long for type character varying(3)"),
        ("name TEXT NOT NULL", None, 'null value in column "name"'),
        ("name INTEGER", "s3cret", "invalid input syntax for type integer"),
        ("name SMALLINT", "99999", "value is out of range for type smallint"),
        ("name TEXT CHECK (name <> 's3cret')", "s3cret", "violates check constraint"),
        ("name TEXT", "s3cret\0", "invalid byte sequence"),
        ("name JSON", "{s3cret", "invalid input syntax for type json"),
    ],
)
def test_a_row_that_is_refused_is_named(
    both: Both, column: str, name: str | None, told: str
) -> None:
    topic = f"t{next(_tables)}"
    both.postgres.execute(f"CREATE TABLE {topic} (id BIGINT PRIMARY KEY, {column})")
    names = ["1", "2", "3", name, *["4"] * 200]
    batch = records(
        *(({"id": n}, {"id": n, "name": one}) for n, one in enumerate(names)), topic=topic
    )
    with pytest.raises(RefusedError, match=f"record {topic}-0@3: ") as caught:
        write(both.address, batch, ledger=None)
    assert told in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert both.postgres.rows(f"SELECT count(*) FROM {topic}") == [(0,)]


def test_what_nothing_fills_and_what_is_there_are_refused(both: Both) -> None:
    topic = f"t{next(_tables)}"
    both.postgres.execute(
        f"CREATE TABLE {topic} (id BIGINT PRIMARY KEY, name TEXT, more INTEGER NOT NULL)"
    )
    with pytest.raises(RefusedError, match=f'{topic}-0@0: .*null value in column "more"'):
        write(both.address, records(item(1, "a"), topic=topic), ledger=None)
    both.postgres.execute(f"ALTER TABLE {topic} DROP COLUMN more")
    again = records(item(1, "a"), item(2, "b"), item(1, "c"), topic=topic)
    with pytest.raises(RefusedError, match=f'{topic}-0@2: .*duplicate key value .*"{topic}_pkey"'):
        write(both.address, again, insert_mode="insert", ledger=None)


def test_every_record_that_is_refused_is_answered(both: Both) -> None:
    topic = f"t{next(_tables)}"
    both.postgres.execute(f"CREATE TABLE {topic} (id BIGINT PRIMARY KEY, name VARCHAR(1))")
    batch = records(*(item(n, "ab" if n % 7 == 3 else "c") for n in range(50)), topic=topic)
    writer = TableWriter(both.address, "sink", Term(1, 1), write_settings(ledger=None), 100)
    (answer,) = writer([batch])
    assert answer.column("offset").to_pylist()[1:] == list(range(3, 50, 7))
    places = {(topic, 0, offset) for offset in range(3, 50, 7)}
    (answer,) = replace(writer, left_out=frozenset(places))([batch])
    assert answer.to_pylist()[0]["rows"] == 50 - len(places)
    assert both.postgres.rows(f"SELECT count(*) FROM {topic}") == [(50 - len(places),)]


#: JSON fields without a schema, and the types of their columns.
JSON_CASES: dict[str, tuple[str, list[Any]]] = {
    "text": ("TEXT", TEXTS),
    "uuid": ("UUID", ["123e4567-E89B-12d3-a456-426614174000"]),
    "moment": ("TIMESTAMP", ["2026-01-02T03:04:05+02:00", "2026-07-02 03:04:05"]),
    "day": ("DATE", ["2026-01-02", date(2026, 1, 3)]),
    "whole": ("INTEGER", [1, -5]),
    "large": ("NUMERIC", [2**70, 1]),
    "whole floats": ("INTEGER", [1.0, 2, -7.0]),
    "number": ("DOUBLE PRECISION", [1, 2.5, 1e300]),
    "exact": ("NUMERIC(10, 2)", ["1.50", "2"]),
    "decimal": ("NUMERIC(10, 2)", [Decimal("1.50"), Decimal("-100")]),
    "shown": ("TEXT", [1, 2]),
    "mixed": ("TEXT", ["a", 1, 2]),
    "yes": ("BOOLEAN", [True, False]),
    "said": ("TEXT", [True, False]),
    "doc": ("JSONB", [{"a": [1.5, None, "ü"]}, ["x"], {}]),
    "plain": ("JSON", [{"a": [1.5, None, "ü"]}, ["x"], {}]),
    "scalar": ("JSONB", [1, 2]),
    "list": ("INTEGER[]", [[1, None], []]),
    "texts": ("TEXT[]", [TEXTS, ["a"]]),
    "told": ("TEXT", [{"a": "ü"}, [1]]),
    "raw": ("BYTEA", [b"\x00\xff", b""]),
    "at": ("TIMESTAMPTZ", [datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)]),
}


def test_values_without_a_schema(both: Both) -> None:
    columns = ", ".join(f'"{name}" {column}' for name, (column, _) in JSON_CASES.items())
    for each in ("bulk", "single"):
        both.postgres.execute(f"CREATE TABLE plain_{each} (id BIGINT PRIMARY KEY, {columns})")
    size = 1 + max(len(values) for _, values in JSON_CASES.values())
    rows = [
        {name: values[n] if n < len(values) else None for name, (_, values) in JSON_CASES.items()}
        for n in range(size)
    ]
    texts = [("{" + f'"id":{n}' + "}", dumps({"id": n, **row})) for n, row in enumerate(rows)]
    last = ('{"id":0}', None)
    none = arrow_field("value", None)
    batch = records(*texts, last, topic="plain", key=none, value=none)
    assert both.write("plain", batch, ledger=None) == size + 1
    for name in JSON_CASES:
        found = dict(both.rows("plain", f'id, "{name}"::text'))
        expected = {n for n, row in enumerate(rows) if n and row[name] is None}
        assert {n for n in found if found[n] is None} == expected
        assert sorted(found) == list(range(1, size))


def test_values_of_several_shapes(both: Both) -> None:
    topic = f"t{next(_tables)}"
    for each in ("bulk", "single"):
        both.postgres.execute(
            f"CREATE TABLE {topic}_{each} (id BIGINT PRIMARY KEY, a TEXT DEFAULT 'a', b INTEGER)"
        )
    shapes: list[dict[str, Any] | None] = [{"a": "x"}, {"b": 1}, {"a": None, "b": 2}, None, {}]
    rows = [(n % 11, shapes[n % 3 if n < 250 else n % 5]) for n in range(400)]
    texts = [(str(n), None if row is None else dumps({"id": n, **row})) for n, row in rows]
    none = arrow_field("value", None)
    batch = records(*texts, topic=topic, key=none, value=none)
    in_bulk = both.write(topic, batch, pk_fields=("id",), ledger=None)
    assert in_bulk == 0, "they have no columns in common"
    expected: dict[int, tuple[Any, Any]] = {}
    for key, row in rows:
        if row is None:
            expected.pop(key, None)
        else:
            a, b = expected.get(key, ("a", None))
            expected[key] = (row.get("a", a), row.get("b", b))
    wanted = [(key, *values) for key, values in expected.items()]
    assert both.rows(topic, "id, a, b") == sorted(wanted, key=repr)
