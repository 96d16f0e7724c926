"""Records are written while later ones are still read; the transaction is atomic all the same."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from drover.connectors.jdbc.database import DatabaseAddress, DatabaseError
from tests.databases.conftest import Database, every_database
from tests.support.postgres import Postgres
from tests.support.table_records import address_with_ledger, item, records, write, write_coming
from tests.support.waiting import wait_until

_LOCKS = (
    "SELECT count(*) FROM pg_locks JOIN pg_class ON pg_class.oid = relation"
    " WHERE relname = '{table}' AND mode = 'RowExclusiveLock' AND granted"
)


database = every_database


def wait_until_written(postgres: Postgres, table: str = "items") -> None:
    """Wait until an uncommitted transaction writes a table."""
    query = _LOCKS.format(table=table)
    wait_until(
        lambda: postgres.rows(query) == [(1,)], describe=f"an open transaction writes {table}"
    )


def test_records_are_written_while_others_are_read(postgres: Postgres) -> None:
    address = address_with_ledger(postgres.settings)

    def coming() -> Iterator[pa.RecordBatch]:
        yield records(item(1, "a"), item(2, "b"))
        wait_until_written(postgres)
        assert postgres.rows("SELECT count(*) FROM items") == [(0,)]
        yield records(item(1, "c"), start=2)

    assert write_coming(address, coming()) == 3
    assert postgres.rows("SELECT id, name FROM items ORDER BY id") == [(1, "c"), (2, "b")]
    assert postgres.rows("SELECT next_offset FROM drover_offsets") == [(3,)]


def test_tables_are_made_and_extended_for_records_that_come_later(postgres: Postgres) -> None:
    address = address_with_ledger(postgres.settings)
    wide = pa.struct([("id", pa.int64()), ("name", pa.string()), ("more", pa.string())])

    def coming() -> Iterator[pa.RecordBatch]:
        yield records(item(1, "a"), item(2, "b"))
        wait_until_written(postgres)
        yield records(({"id": 1}, {"id": 1, "name": "c", "more": "x"}), value=wide, start=2)
        wait_until_written(postgres)
        yield records(item(1, "other"), topic="others")
        wait_until_written(postgres, "others")
        yield records(item(2, None), start=3)

    assert write_coming(address, coming(), evolves=True) == 5
    assert postgres.rows("SELECT id, name, more FROM items") == [(1, "c", "x")]
    assert postgres.rows("SELECT id, name FROM others") == [(1, "other")]


def test_an_error_in_reading_writes_nothing(database: Database) -> None:
    address = address_with_ledger(database.settings)
    write(address, records(item(1, "a")))

    def coming() -> Iterator[pa.RecordBatch]:
        yield records(item(2, "b"), start=1)
        if isinstance(database, Postgres):
            wait_until_written(database)
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        write_coming(address, coming())
    assert database.rows("SELECT id FROM items") == [(1,)]
    assert write(address, records(item(2, "b"), start=1)) == 1


def test_reading_ends_with_an_error_of_the_database(database: Database) -> None:
    address: DatabaseAddress = address_with_ledger(database.settings)
    ended = False

    def endless() -> Iterator[pa.RecordBatch]:
        nonlocal ended
        start = 0
        try:
            while True:
                yield records(item(1, "a"), start=start)
                start += 1
        finally:
            ended = True

    with pytest.raises(DatabaseError, match="table 'items' does not exist"):
        write_coming(address, endless(), creates=False)
    assert ended
