"""Reading by increasing id never skips rows, in any order of commits."""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

from drover.connectors.jdbc import table_plan
from drover.connectors.jdbc.catalogue import reflected
from drover.connectors.jdbc.database import DatabaseAddress, parse_address
from drover.connectors.jdbc.reading import TableSource
from drover.connectors.jdbc.source_settings import INCREMENTING
from drover.connectors.jdbc.table_plan import TablePlanner
from tests.databases.conftest import OF_MYSQL, Database, Sqlite
from tests.support.postgres import Postgres

ADD = b"INSERT INTO items DEFAULT VALUES RETURNING id"


class Reader:
    """A task's reads, batch by batch."""

    def __init__(self, database: Database, **options: Any) -> None:
        found = database.settings
        self.address: DatabaseAddress = parse_address(
            found["connection.url"],
            found.get("connection.user"),
            found.get("connection.password"),
        )
        query = options.pop("query", None)
        with self.address.connected() as connection:
            columns = reflected(connection, "items", None, "none")
        primary = "id" if query is None else None
        source = TableSource(
            "items", None, columns, incrementing="id", primary_number=primary, query=query
        )
        self.planner = TablePlanner(self.address, source, INCREMENTING, {}, **options)

    def step(self, rows_max: int = 100) -> list[int]:
        """The ids of the next batch."""
        with self.address.connected() as connection:
            plan = self.planner.plan(connection, rows_max, 1)
        if plan is None:
            return []
        self.planner.advance(plan.offset)
        return [n for part in plan.parts for each in part.read() for n in each["id"].to_pylist()]


@pytest.fixture
def items(postgres: Postgres) -> Postgres:
    """A table with the numbers 1 to 4."""
    postgres.execute(
        "CREATE TABLE items (id serial PRIMARY KEY, note text)",
        *["INSERT INTO items DEFAULT VALUES"] * 4,
    )
    return postgres


Begin = Callable[[], psycopg.Connection[Any]]


@pytest.fixture
def begin(postgres: Postgres) -> Iterator[Begin]:
    """Opens sessions, each in its own transaction."""
    with ExitStack() as sessions:

        def begun() -> psycopg.Connection[Any]:
            found = sessions.enter_context(postgres.session())
            sessions.callback(found.rollback)
            return found

        yield begun


def add(session: psycopg.Connection[Any]) -> int:
    (number,) = session.execute(ADD).fetchone() or (0,)
    return int(number)


def test_a_row_that_is_committed_late_is_waited_for(items: Postgres, begin: Begin) -> None:
    reader, late = Reader(items), begin()
    assert add(late) == 5
    items.execute(*["INSERT INTO items DEFAULT VALUES"] * 2)
    assert reader.step() == [1, 2, 3, 4]
    assert reader.step() == []
    late.commit()
    assert reader.step() == [5, 6, 7]
    assert reader.step() == []


def test_a_number_that_was_rolled_back_holds_nothing_up(items: Postgres, begin: Begin) -> None:
    reader, undone = Reader(items), begin()
    add(undone)
    items.execute("INSERT INTO items DEFAULT VALUES")
    assert reader.step() == [1, 2, 3, 4]
    assert reader.step() == []
    undone.rollback()
    assert reader.step() == [6]
    items.execute("DELETE FROM items", "SELECT setval('items_id_seq', 20)")
    items.execute("INSERT INTO items DEFAULT VALUES")
    assert reader.step() == [21]


def test_a_long_transaction_holds_up_what_it_may_fill_and_no_more(
    items: Postgres, begin: Begin
) -> None:
    items.execute("SELECT nextval('items_id_seq')", "INSERT INTO items DEFAULT VALUES")
    reader, other, long = Reader(items), begin(), begin()
    other.execute(b"CREATE TABLE others (id integer)")
    other.execute(b"INSERT INTO others VALUES (1)")
    assert reader.step() == [1, 2, 3, 4, 6]
    long.execute(b"UPDATE items SET note = 'x' WHERE id = 1")
    items.execute(*["INSERT INTO items DEFAULT VALUES"] * 2)
    assert reader.step() == [7, 8]
    assert add(long) == 9
    items.execute(*["INSERT INTO items DEFAULT VALUES"] * 2)
    assert reader.step() == []
    later = begin()
    assert add(later) == 12
    assert reader.step() == []
    long.commit()
    assert reader.step() == [9, 10, 11]
    assert reader.step() == []
    later.commit()
    assert reader.step() == [12]


def test_the_first_rows_of_all_are_waited_for(items: Postgres, begin: Begin) -> None:
    items.execute("DELETE FROM items", "ALTER SEQUENCE items_id_seq RESTART")
    reader, late = Reader(items), begin()
    assert add(late) == 1
    items.execute("INSERT INTO items DEFAULT VALUES")
    assert reader.step() == []
    late.commit()
    assert reader.step() == [1, 2]


def test_a_new_reader_goes_on_without_a_gap(items: Postgres, begin: Begin) -> None:
    late = begin()
    add(late)
    items.execute("INSERT INTO items DEFAULT VALUES")
    assert Reader(items).step(rows_max=2) == [1, 2]
    reader = Reader(items)
    reader.planner.advance({"incrementing": 4})
    assert reader.step() == []
    late.commit()
    assert reader.step() == [5, 6]


@pytest.mark.parametrize("how", ["partition", "heir", "query"])
def test_who_writes_is_found_behind_other_names(postgres: Postgres, begin: Begin, how: str) -> None:
    postgres.execute("CREATE SEQUENCE numbers")
    column = "id integer DEFAULT nextval('numbers')"
    match how:
        case "partition":
            postgres.execute(
                f"CREATE TABLE items ({column}, note text) PARTITION BY RANGE (id)",
                "CREATE TABLE low PARTITION OF items DEFAULT",
            )
        case "heir":
            postgres.execute(
                f"CREATE TABLE items ({column}, note text)", "CREATE TABLE low () INHERITS (items)"
            )
        case _:
            postgres.execute(
                f"CREATE TABLE low ({column}, note text)", "CREATE VIEW items AS SELECT * FROM low"
            )
    options = {"query": "SELECT * FROM low WHERE ':x' <> '%s'"} if how == "query" else {}
    reader, late = Reader(postgres, **options), begin()
    late.execute(b"INSERT INTO low (note) VALUES ('a')")
    postgres.execute("INSERT INTO low (note) VALUES ('b')")
    assert reader.step() == []
    late.commit()
    assert reader.step() == [1, 2]


@pytest.mark.parametrize("seed", range(3))
def test_every_order_of_commits_gives_each_row_once_in_order(
    items: Postgres, begin: Begin, seed: int
) -> None:
    rng = random.Random(seed)
    writers, reader = [begin() for _ in range(4)], Reader(items)
    found: list[int] = []
    for _ in range(120):
        writer = rng.choice(writers)
        match rng.randrange(6):
            case 0:
                writer.rollback()
            case 1:
                writer.commit()
            case 2 | 3:
                found += reader.step(rows_max=rng.choice([2, 100]))
            case _:
                add(writer)
    for writer in writers:
        writer.commit()
    while batch := reader.step(rows_max=3):
        found += batch
    assert found == [number for (number,) in items.rows("SELECT id FROM items ORDER BY id")]


@pytest.mark.parametrize("kind", [*OF_MYSQL, "standby", "sqlite"])
def test_a_gap_is_waited_for_where_writers_cannot_be_seen(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    now_s = 100.0
    options = {"gap_delay_ms": 5_000} if kind == "sqlite" else {}
    # a standby is simulated by a PostgreSQL that does not show its writers
    monkeypatch.setattr(table_plan, "writers_are_seen", lambda _: False)
    database: Database = request.getfixturevalue("postgres" if kind == "standby" else kind)
    database.execute(
        "CREATE TABLE items (id INTEGER PRIMARY KEY)", "INSERT INTO items VALUES (1), (2), (4)"
    )
    reader = Reader(database, now_s=lambda: now_s, **options)
    assert reader.step() == [1, 2]
    assert reader.step() == []
    database.execute("INSERT INTO items VALUES (3), (6)")
    assert reader.step() == [3, 4]
    now_s += 4.9
    assert reader.step() == []
    now_s += 0.1
    database.execute("INSERT INTO items VALUES (9)")
    assert reader.step() == [6]
    now_s += 5
    assert reader.step() == [9]


def test_a_gap_is_no_reason_to_wait_where_one_writes_at_a_time(sqlite: Sqlite) -> None:
    sqlite.execute(
        "CREATE TABLE items (id INTEGER PRIMARY KEY)", "INSERT INTO items VALUES (1), (2), (4)"
    )
    assert Reader(sqlite).step() == [1, 2, 4]
