"""Upserts into PostgreSQL that are first tried as inserts of new rows."""

from typing import Any

import pytest

from drover.connectors.jdbc import postgres_bulk, table_writer
from drover.connectors.jdbc.database import DatabaseAddress, DatabaseError
from drover.connectors.jdbc.new_rows import NewRows
from drover.connectors.jdbc.postgres_bulk import BulkTable
from tests.support.postgres import Postgres
from tests.support.table_records import (
    RefusedError,
    address_with_ledger,
    item,
    records,
    write,
)


@pytest.fixture
def address(postgres: Postgres) -> DatabaseAddress:
    return address_with_ledger(postgres.settings)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each attempted insert, whether all rows were new; one row is enough for an attempt."""
    found: list[bool] = []
    inserted = BulkTable._inserted

    def seen(table: BulkTable, statement: str) -> bool:
        found.append(inserted(table, statement))
        return found[-1]

    monkeypatch.setattr(BulkTable, "_inserted", seen)
    monkeypatch.setattr(postgres_bulk, "NEW_ROWS", NewRows())
    monkeypatch.setattr(postgres_bulk, "_TRIED_ROWS", 1)
    monkeypatch.setattr(table_writer, "_CHUNK_ROWS", 1)
    return found


@pytest.fixture
def tried_by_two(tried: list[bool], monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The same with two rows per attempt."""
    monkeypatch.setattr(table_writer, "_CHUNK_ROWS", 2)
    return tried


def upsert(address: DatabaseAddress, *rows: tuple[Any, Any]) -> None:
    """Write rows in one transaction; its first row shows that the table has a key."""
    write(address, records(*rows), ledger=None)


def test_new_rows_are_inserted_and_those_that_are_there_updated(
    postgres: Postgres, address: DatabaseAddress, tried: list[bool]
) -> None:
    postgres.execute("CREATE TABLE items (id BIGINT PRIMARY KEY, name TEXT)")
    upsert(address, item(1, "a"), item(2, "b"), item(3, "c"))
    assert tried == [True, True]
    upsert(address, item(4, "d"), item(5, "e"), item(2, "again"), item(6, "f"))
    assert tried == [True, True, True, False], "so soon it is not tried again"
    upsert(address, item(7, "g"), item(1, None), item(3, "again"))
    assert len(tried) == 4
    assert sorted(postgres.rows("SELECT id, name FROM items")) == [
        (2, "again"),
        (3, "again"),
        (4, "d"),
        (5, "e"),
        (6, "f"),
        (7, "g"),
    ]


def test_rows_are_inserted_where_they_were_deleted_just_before(
    postgres: Postgres,
    address: DatabaseAddress,
    tried_by_two: list[bool],
) -> None:
    postgres.execute(
        "CREATE TABLE items (id BIGINT PRIMARY KEY, name TEXT, kept TEXT DEFAULT 'new')"
    )
    postgres.execute("INSERT INTO items VALUES (1, 'a', 'old'), (2, 'b', 'old')")
    upsert(address, item(2, "c"), item(3, "c"), item(1, None), item(1, "c"))
    assert tried_by_two == [True]
    assert sorted(postgres.rows("SELECT * FROM items")) == [
        (1, "c", "new"),
        (2, "c", "old"),
        (3, "c", "new"),
    ]


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("", "has no primary key or unique constraint on id"),
        (", UNIQUE (name)", "has no primary key or unique constraint on id"),
        (", UNIQUE (id) DEFERRABLE INITIALLY DEFERRED", "make it NOT DEFERRABLE"),
    ],
)
def test_rows_that_have_no_key_are_not_inserted(
    postgres: Postgres, address: DatabaseAddress, tried: list[bool], key: str, told: str
) -> None:
    postgres.execute(f"CREATE TABLE items (id BIGINT, name TEXT{key})")
    with pytest.raises(DatabaseError, match=told):
        upsert(address, item(1, "a"), item(2, "b"))
    assert (tried, postgres.rows("SELECT * FROM items")) == ([], [])


def test_a_row_that_another_key_refuses_is_named(
    postgres: Postgres, address: DatabaseAddress, tried: list[bool]
) -> None:
    postgres.execute("CREATE TABLE items (id BIGINT PRIMARY KEY, name TEXT UNIQUE)")
    with pytest.raises(RefusedError, match=r'items-0@2: .*"items_name_key"'):
        upsert(address, item(1, "a"), item(2, "b"), item(3, "a"), item(4, "d"))
    assert tried == [True, False]
    assert postgres.rows("SELECT * FROM items") == []


def test_few_rows_are_not_tried(
    postgres: Postgres,
    address: DatabaseAddress,
    tried_by_two: list[bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(postgres_bulk, "_TRIED_ROWS", 2)
    postgres.execute("CREATE TABLE items (id BIGINT PRIMARY KEY, name TEXT)")
    upsert(address, *(item(n, "a") for n in range(5)))
    assert tried_by_two == [True], "the second two"
