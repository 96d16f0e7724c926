"""JdbcSink's writer with large rows, locks, lost servers and dropped tables."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from drover.connector import RetriableError
from drover.connectors.jdbc.database import DatabaseAddress, DatabaseError
from drover.connectors.jdbc.ledger import make_ledger
from drover.connectors.postgres.remedies import MAKE_ROOM
from tests.databases.conftest import SERVERS, Database, Sqlite, every_database
from tests.support.addresses import free_ports
from tests.support.doors import slow_door
from tests.support.mariadb import MariaDb
from tests.support.postgres import Postgres
from tests.support.table_records import RefusedError, address_with_ledger, item, records, write
from tests.support.waiting import wait_until

LARGE = 17 << 20


database = every_database


@pytest.fixture
def address(database: Database) -> DatabaseAddress:
    return address_with_ledger(database.settings)


@contextmanager
def locked(address: DatabaseAddress, database: Database) -> Iterator[None]:
    """Another session locks the rows of the table "items"."""
    with address.connected() as connection:
        if isinstance(database, Sqlite):
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.exec_driver_sql("SELECT * FROM items FOR UPDATE")
        yield


@contextmanager
def locked_until_dead(
    address: DatabaseAddress, database: Postgres | MariaDb
) -> Iterator[Callable[[], bool]]:
    """Another session, which may lose its server, locks the rows of "items".

    Yields a function that returns whether a session waits for the lock.
    """
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    if isinstance(database, MariaDb):
        # The table of lock waits is cached, and frequent queries prevent its refresh.
        waiting = "SHOW GLOBAL STATUS LIKE 'innodb_row_lock_current_waits'"
    failure: AssertionError | None = None
    with suppress(sa.exc.OperationalError), locked(address, database):
        try:
            yield lambda: int(str(database.rows(waiting)[0][-1])) > 0
        except AssertionError as error:  # the lost session's own error would hide it
            failure = error
    if failure is not None:
        raise failure


def test_a_large_row(database: Database, address: DatabaseAddress) -> None:
    batch = records(item(1, "a"), item(2, "x" * LARGE), item(3, "c"))
    if isinstance(database, MariaDb):
        with pytest.raises(RefusedError, match=r"items-0@1: its statement .*max_allowed_packet"):
            write(address, batch)
        write(address, records(item(2, "x" * (LARGE // 2)), start=1))
        return
    assert write(address, batch) == 3
    assert database.rows("SELECT length(name) FROM items WHERE id = 2") == [(LARGE,)]


def test_a_lock_is_waited_for_within_bounds(database: Database, address: DatabaseAddress) -> None:
    write(address, records(item(1, "a")))
    again = records(item(1, "b"), start=1)
    with locked(address, database), pytest.raises(RetriableError, match="writing at"):
        write(address, again, lock_timeout_ms=1)
    assert write(address, again) == 1


@pytest.mark.parametrize(
    ("number", "told"), [(1021, "No space left on device"), (1114, "The table is full")]
)
def test_a_full_disk_of_mysql_is_waited_for(server: MariaDb, number: int, told: str) -> None:
    """With the server's own error: nothing is written, and everything once there is room."""
    address = address_with_ledger(server.settings)
    write(address, records(item(1, "a")))
    again = records(item(2, "b"), item(3, "c"), start=1)
    server.execute(
        "CREATE TRIGGER no_room BEFORE INSERT ON items FOR EACH ROW SIGNAL SQLSTATE 'HY000'"
        f" SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = '{told}'"
    )
    with pytest.raises(RetriableError, match=rf"{told} \({number}\): {MAKE_ROOM}"):
        write(address, again)
    server.execute("DROP TRIGGER no_room")
    assert server.rows("SELECT id FROM items") == [(1,)]
    assert write(address, again) == 2


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_that_dies_in_the_middle(kind: str, request: pytest.FixtureRequest) -> None:
    database: Any = request.getfixturevalue(kind)
    server: Any = request.getfixturevalue(f"{kind}_server")
    address = address_with_ledger(database.settings)
    write(address, records(item(1, "a")))
    again = records(item(1, "b"), item(2, "c"), start=1)
    with ThreadPoolExecutor(1) as threads, locked_until_dead(address, database) as waited_for:
        writing = threads.submit(write, address, again)
        wait_until(waited_for, describe="a statement that waits for the lock")
        server.kill()
        with pytest.raises(RetriableError, match="writing at"):
            writing.result(60)
    assert write(address, again) == 2
    assert database.rows("SELECT id, name FROM items ORDER BY id") == [(1, "b"), (2, "c")]


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_that_is_away_may_be_back_later(kind: str, request: pytest.FixtureRequest) -> None:
    database: Any = request.getfixturevalue(kind)
    address = address_with_ledger(database.settings)
    (port,) = free_ports(1)
    with pytest.raises(RetriableError, match=f"writing at .*:{port}"):
        write(replace(address, port=port), records(item(1, "a")))
    assert write(address, records(item(1, "a"))) == 1


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_that_answers_slowly_is_written_to_all_the_same(
    kind: str, request: pytest.FixtureRequest
) -> None:
    database: Any = request.getfixturevalue(kind)
    address = address_with_ledger(database.settings)
    with slow_door(database.port) as port:
        batch = records(*(item(number, "x" * 100) for number in range(3_000)))
        assert write(replace(address, port=port), batch) == 3_000
    assert database.rows("SELECT count(*), max(length(name)) FROM items") == [(3_000, 100)]


def test_a_password_that_is_changed_while_it_runs(postgres: Postgres) -> None:
    role = f"writer_{postgres.database}"
    postgres.execute(f"CREATE ROLE {role} LOGIN SUPERUSER PASSWORD 'one'")
    address = replace(address_with_ledger(postgres.settings), user=role, password="one")
    write(address, records(item(1, "a")))
    postgres.execute(f"ALTER ROLE {role} PASSWORD 'two'")
    batch = records(item(2, "b"), start=1)
    with pytest.raises(RetriableError, match="password authentication failed") as told:
        write(address, batch)
    assert "'one'" not in str(told.value)
    assert write(replace(address, password="two"), batch) == 1


def test_columns_that_change_while_it_runs(database: Database, address: DatabaseAddress) -> None:
    write(address, records(item(1, "1")))
    batch = records(item(2, "b"), start=1)
    changed: dict[type[object], Sequence[str]] = {
        Postgres: ["ALTER TABLE items ALTER name TYPE INTEGER USING name::integer"],
        MariaDb: ["ALTER TABLE items MODIFY name INTEGER"],
        Sqlite: [
            "DROP TABLE items",
            "CREATE TABLE items (id INTEGER PRIMARY KEY, name INTEGER CHECK (name > 0)) STRICT",
            "INSERT INTO items VALUES (1, 1)",
        ],
    }
    database.execute(*changed[type(database)])
    with pytest.raises(RefusedError, match=r"record items-0@1: table 'items': .*(integer|INTEGER)"):
        write(address, batch)
    assert write(address, records(item(2, "2"), start=1)) == 1
    assert database.rows("SELECT id, name FROM items ORDER BY id") == [(1, 1), (2, 2)]
    database.execute("ALTER TABLE items DROP COLUMN name", "ALTER TABLE items ADD other TEXT")
    with pytest.raises(DatabaseError, match="table 'items' has no column 'name'"):
        write(address, records(item(3, "c"), start=2))
    assert write(address, records(item(3, "c"), start=2), evolves=True) == 1


@pytest.mark.parametrize("database", SERVERS, indirect=True)
def test_a_key_that_is_dropped_while_it_runs(database: Database, address: DatabaseAddress) -> None:
    write(address, records(item(1, "a")))
    key = "CONSTRAINT items_pkey" if isinstance(database, Postgres) else "PRIMARY KEY"
    database.execute(f"ALTER TABLE items DROP {key}")
    batch = records(item(1, "b"), item(2, "c"), start=1)
    with pytest.raises(DatabaseError, match=r"'items' has no primary key or unique .* on id"):
        write(address, batch)
    assert database.rows("SELECT id, name FROM items") == [(1, "a")]
    database.execute("ALTER TABLE items ADD PRIMARY KEY (id)")
    assert write(address, batch) == 2
    assert database.rows("SELECT id, name FROM items ORDER BY id") == [(1, "b"), (2, "c")]


def test_a_table_that_is_dropped(database: Database, address: DatabaseAddress) -> None:
    write(address, records(item(1, "a")))
    database.execute("DROP TABLE items")
    with pytest.raises(DatabaseError, match="table 'items' does not exist"):
        write(address, records(item(2, "b"), start=1), creates=False)
    assert write(address, records(item(2, "b"), start=1)) == 1
    database.execute("DROP TABLE drover_offsets")
    with pytest.raises(DatabaseError, match="drover_offsets"):
        write(address, records(item(3, "b"), start=2))


def test_tables_with_dots_quotes_and_capitals(database: Database, address: DatabaseAddress) -> None:
    quoted = '"It""s a. `Table` %s"'
    write(address, records(item(1, "a"), item(2, "b")), table_format=quoted)
    write(address, records(item(1, "c"), item(2, None), start=2), table_format=quoted)
    assert database.rows(f"SELECT id, name FROM {quoted}") == [(1, "c")]


def test_records_of_several_topics_and_schemas(
    database: Database, address: DatabaseAddress
) -> None:
    narrow = pa.struct([("id", pa.int64())])
    batches = [
        records(item(1, "a"), item(2, "b"), topic="one"),
        records(item(1, "x"), topic="two"),
        records(({"id": 3}, {"id": 3}), value=narrow, start=2, topic="one"),
        records(item(1, None), item(3, "c"), start=3, topic="one"),
    ]
    assert write(address, *batches) == 6
    assert database.rows("SELECT id, name FROM one ORDER BY id") == [(2, "b"), (3, "c")]
    assert database.rows("SELECT id, name FROM two") == [(1, "x")]
    assert write(address, *batches) == 0


@pytest.mark.parametrize("first", ["CREATE TABLE", "ALTER TABLE", "the table of offsets"])
def test_another_task_is_faster(postgres: Postgres, first: str) -> None:
    address = address_with_ledger(postgres.settings)
    batch = records(item(1, "a"))
    work: Callable[[], object] = partial(write, address, batch, evolves=True)
    statement = "CREATE TABLE items (id BIGINT PRIMARY KEY, name TEXT)"
    if first == "ALTER TABLE":
        postgres.execute("CREATE TABLE items (id BIGINT PRIMARY KEY)")
        statement = "ALTER TABLE items ADD COLUMN name TEXT"
    elif first != "CREATE TABLE":
        postgres.execute("DROP TABLE drover_offsets")
        statement = "CREATE TABLE drover_offsets (LIKE offsets INCLUDING ALL)"
        with address.connected() as connection:
            make_ledger(connection, "offsets")
        work = partial(address_with_ledger, postgres.settings)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with ThreadPoolExecutor(1) as threads, address.connected() as connection:
        connection.exec_driver_sql(statement)
        working = threads.submit(work)
        wait_until(lambda: postgres.rows(waiting)[0][0], describe="a statement that waits")
        connection.commit()
        working.result(60)
    if "TABLE" in first:
        assert postgres.rows("SELECT id, name FROM items") == [(1, "a")]
