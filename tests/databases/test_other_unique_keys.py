"""Upserts into tables with more unique keys than the record's: only the row of the key changes."""

from typing import Any

import pyarrow as pa
import pytest

from drover.connectors.jdbc.database import DatabaseAddress, DatabaseError
from tests.databases.conftest import Database, every_database
from tests.support.mariadb import MariaDb
from tests.support.table_records import (
    RefusedError,
    address_with_ledger,
    records,
    write,
)

database = every_database
PERSON = pa.struct([("id", pa.int64()), ("email", pa.string()), ("phone", pa.string())])
TABLE = "CREATE TABLE items (id INTEGER PRIMARY KEY, email VARCHAR(50) UNIQUE, phone VARCHAR(20))"


@pytest.fixture
def address(database: Database) -> DatabaseAddress:
    return address_with_ledger(database.settings)


def person(number: int, email: str | None, phone: str | None = None) -> tuple[Any, Any]:
    return {"id": number}, {"id": number, "email": email, "phone": phone}


def people(database: Database) -> list[tuple[Any, ...]]:
    return database.rows("SELECT id, email, phone FROM items ORDER BY id")


def test_a_record_with_another_rows_unique_value_is_refused(
    database: Database, address: DatabaseAddress
) -> None:
    database.execute(TABLE, "INSERT INTO items VALUES (2, 'x@y', '1234')")
    batch = records(person(1, "a@y"), person(44, "x@y", "5678"), person(3, "c@y"), value=PERSON)
    with pytest.raises(RefusedError, match="record items-0@1: "):
        write(address, batch)
    assert people(database) == [(2, "x@y", "1234")]
    assert write(address, batch.slice(0, 1), ledger=None) == 1
    assert write(address, batch.slice(2, 1), ledger=None) == 1
    assert people(database) == [(1, "a@y", None), (2, "x@y", "1234"), (3, "c@y", None)]


def test_an_update_that_takes_another_rows_unique_value_is_refused(
    database: Database, address: DatabaseAddress
) -> None:
    database.execute(TABLE, "INSERT INTO items VALUES (1, 'a', '1'), (2, 'b', '2')")
    batch = records(person(1, "a", "11"), person(1, "b", "12"), value=PERSON)
    with pytest.raises(RefusedError, match="record items-0@1: "):
        write(address, batch)
    assert people(database) == [(1, "a", "1"), (2, "b", "2")]


def test_many_rows_are_inserted_and_updated_beside_another_unique_key(
    database: Database, address: DatabaseAddress
) -> None:
    database.execute(TABLE)
    count = 300
    for round_ in ("first", "second"):
        rows = [person(n, f"{n}@y", round_) for n in range(count)]
        batch = records(*rows, *rows[:50], value=PERSON)
        assert write(address, batch, ledger=None) == count + 50
        assert people(database) == [(n, f"{n}@y", round_) for n in range(count)]
    mixed = [person(n, f"{n}@y", "third") for n in range(count // 2, count * 2)]
    mixed[-1] = person(count * 2 - 1, "0@y", "third")
    with pytest.raises(RefusedError, match=f"record items-0@{len(mixed) - 1}: "):
        write(address, records(*mixed, value=PERSON), ledger=None)
    assert people(database) == [(n, f"{n}@y", "second") for n in range(count)]


def test_a_unique_value_moves_from_a_deleted_row_to_a_new_one(
    database: Database, address: DatabaseAddress
) -> None:
    database.execute(TABLE, "INSERT INTO items VALUES (1, 'a', '1')")
    batch = records(({"id": 1}, None), person(2, "a", "2"), value=PERSON)
    assert write(address, batch) == 2
    assert people(database) == [(2, "a", "2")]


def test_rows_with_the_key_alone_stay_as_they_are(
    database: Database, address: DatabaseAddress
) -> None:
    database.execute(TABLE, "INSERT INTO items VALUES (1, 'a', '1')")
    only = pa.struct([("id", pa.int64())])
    batch = records(({"id": 1}, {"id": 1}), ({"id": 2}, {"id": 2}), value=only)
    assert write(address, batch) == 2
    assert people(database) == [(1, "a", "1"), (2, None, None)]


def test_the_key_may_be_another_than_the_primary_key(
    database: Database, address: DatabaseAddress
) -> None:
    database.execute(
        "CREATE TABLE items (id INTEGER PRIMARY KEY, email VARCHAR(50) NOT NULL UNIQUE,"
        " phone VARCHAR(20))",
        "INSERT INTO items VALUES (1, 'a', '1'), (2, 'b', '2')",
    )
    batch = records(person(2, "b", "22"), person(1, "b", "99"), value=PERSON)
    settings: dict[str, Any] = {
        "pk_mode": "record_value",
        "pk_fields": ("email",),
        "deletes": False,
    }
    with pytest.raises(RefusedError, match="record items-0@1: "):
        write(address, batch, **settings)
    assert people(database) == [(1, "a", "1"), (2, "b", "2")]
    assert write(address, batch.slice(0, 1), **settings) == 1
    assert people(database) == [(1, "a", "1"), (2, "b", "22")]


def test_keys_of_several_columns_beside_another_unique_key(
    database: Database, address: DatabaseAddress
) -> None:
    database.execute(
        "CREATE TABLE items (tenant INTEGER, id INTEGER, email VARCHAR(50) UNIQUE,"
        " PRIMARY KEY (tenant, id))",
        "INSERT INTO items VALUES (1, 1, 'a'), (1, 2, 'b')",
    )
    key = pa.struct([("id", pa.int64()), ("tenant", pa.int64())])
    value = pa.struct([("email", pa.string())])
    batch = records(
        ({"id": 2, "tenant": 1}, {"email": "bb"}),
        ({"id": 1, "tenant": 2}, {"email": "a"}),
        key=key,
        value=value,
    )
    with pytest.raises(RefusedError, match="record items-0@1: "):
        write(address, batch)
    assert write(address, batch.slice(0, 1)) == 1
    found = database.rows("SELECT tenant, id, email FROM items ORDER BY 1, 2")
    assert found == [(1, 1, "a"), (1, 2, "bb")]


def test_the_place_of_a_record_is_a_key_beside_another_unique_key(
    database: Database, address: DatabaseAddress
) -> None:
    database.execute(
        "CREATE TABLE items (topic VARCHAR(50), part INTEGER, off INTEGER, email VARCHAR(50)"
        " UNIQUE, PRIMARY KEY (topic, part, off))"
    )
    email = pa.struct([("email", pa.string())])
    batch = records((None, {"email": "a"}), (None, {"email": "a"}), value=email)
    settings: dict[str, Any] = {
        "pk_mode": "kafka",
        "pk_fields": ("topic", "part", "off"),
        "deletes": False,
    }
    with pytest.raises(RefusedError, match="record items-0@1: "):
        write(address, batch, **settings)
    assert database.rows("SELECT off FROM items") == []


@pytest.mark.parametrize("email", ["X@Y", "x@y "])
def test_texts_that_the_server_holds_for_equal(server: MariaDb, email: str) -> None:
    """By the default collation of MariaDB; MySQL's has no equal trailing blank."""
    address = address_with_ledger(server.settings)
    equal = "utf8mb4_general_ci"
    server.execute(
        "CREATE TABLE items (id INT PRIMARY KEY, email VARCHAR(50) CHARACTER SET utf8mb4"
        f" COLLATE {equal} UNIQUE, phone TEXT)",
        "INSERT INTO items VALUES (2, 'x@y', '1234')",
    )
    with pytest.raises(RefusedError, match=r"record items-0@0: .*Duplicate entry for key"):
        write(address, records(person(44, email, "5678"), value=PERSON))
    assert people(server) == [(2, "x@y", "1234")]


def test_two_unique_keys_that_find_two_rows(server: MariaDb) -> None:
    address = address_with_ledger(server.settings)
    server.execute(
        "CREATE TABLE items (id INT PRIMARY KEY, email VARCHAR(50) UNIQUE, phone VARCHAR(20)"
        " UNIQUE)",
        "INSERT INTO items VALUES (1, 'a', '1'), (2, 'b', '2')",
    )
    with pytest.raises(RefusedError, match=r"record items-0@0: .*Duplicate entry for key"):
        write(address, records(person(3, "a", "2"), value=PERSON))
    assert people(server) == [(1, "a", "1"), (2, "b", "2")]


def test_a_unique_index_that_is_added_while_the_sink_runs(server: MariaDb) -> None:
    address = address_with_ledger(server.settings)
    server.execute("CREATE TABLE items (id INT PRIMARY KEY, email VARCHAR(50), phone VARCHAR(20))")
    write(address, records(person(2, "x@y", "1234"), value=PERSON))
    server.execute("CREATE UNIQUE INDEX emails ON items (email)")
    with pytest.raises(RefusedError, match=r"record items-0@1: .*Duplicate entry for key"):
        write(address, records(person(44, "x@y", "5678"), start=1, value=PERSON))
    assert people(server) == [(2, "x@y", "1234")]


def test_a_key_on_the_first_characters_is_no_key(server: MariaDb) -> None:
    address = address_with_ledger(server.settings)
    server.execute(
        "CREATE TABLE items (email VARCHAR(50) NOT NULL, phone TEXT, UNIQUE (email(3)))",
        "INSERT INTO items VALUES ('abcd', '1')",
    )
    kind = pa.struct([("email", pa.string()), ("phone", pa.string())])
    batch = records((None, {"email": "abcx", "phone": "2"}), value=kind)
    settings: dict[str, Any] = {
        "pk_mode": "record_value",
        "pk_fields": ("email",),
        "deletes": False,
    }
    with pytest.raises(DatabaseError, match="no primary key or unique constraint on email"):
        write(address, batch, **settings)
    assert server.rows("SELECT email, phone FROM items") == [("abcd", "1")]


def test_a_number_is_not_compared_with_texts_as_a_number(server: MariaDb) -> None:
    address = address_with_ledger(server.settings)
    server.execute(
        "CREATE TABLE items (id VARCHAR(20) PRIMARY KEY, name TEXT)",
        "INSERT INTO items VALUES ('5', 'a'), ('05', 'b'), ('5 apples', 'c')",
    )
    row = {"id": 5, "name": "new"}
    assert write(address, records(({"id": 5}, row)), insert_mode="update") == 1
    assert server.rows("SELECT name FROM items ORDER BY name") == [("b",), ("c",), ("new",)]
    assert write(address, records(({"id": 5}, None), start=1)) == 1
    assert server.rows("SELECT name FROM items ORDER BY name") == [("b",), ("c",)]


def test_a_text_that_is_no_number_finds_no_row_of_a_number(server: MariaDb) -> None:
    address = address_with_ledger(server.settings)
    server.execute(
        "CREATE TABLE items (id INT PRIMARY KEY, name TEXT)", "INSERT INTO items VALUES (5, 'a')"
    )
    key = pa.struct([("id", pa.string())])
    with pytest.raises(RefusedError, match="record items-0@0: "):
        write(address, records(({"id": "5 apples"}, None), key=key))
    assert server.rows("SELECT id FROM items") == [(5,)]


def test_values_are_not_cut_where_the_servers_mode_allows_it(server: MariaDb) -> None:
    address = address_with_ledger(server.settings)
    server.execute("CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(3))")
    ((mode,),) = server.rows("SELECT @@global.sql_mode")
    server.execute("SET GLOBAL sql_mode = ''")
    try:
        with pytest.raises(RefusedError, match="Data too long for column 'name'"):
            write(address, records(({"id": 1}, {"id": 1, "name": "long"})))
    finally:
        server.execute(f"SET GLOBAL sql_mode = '{mode}'")
    assert server.rows("SELECT * FROM items") == []


def test_a_constraint_of_sqlite_that_replaces_rows_is_refused(sqlite: Database) -> None:
    address = address_with_ledger(sqlite.settings)
    sqlite.execute(
        "CREATE TABLE items (id INTEGER PRIMARY KEY, email TEXT UNIQUE ON CONFLICT REPLACE,"
        " phone TEXT)",
        "INSERT INTO items VALUES (2, 'x@y', '1234')",
    )
    with pytest.raises(RefusedError, match="record items-0@0: "):
        write(address, records(person(44, "x@y", "5678"), value=PERSON))
    assert people(sqlite) == [(2, "x@y", "1234")]
