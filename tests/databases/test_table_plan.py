"""The next rows of a table, under concurrent inserts, updates and deletes."""

import pickle
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa

from drover.connector import RetriableError
from drover.connectors.jdbc.database import (
    DatabaseAddress,
    DatabaseError,
    parse_address,
    translated_errors,
)
from drover.connectors.jdbc.reading import TableSource, session
from drover.connectors.jdbc.reflection import reflected
from drover.connectors.jdbc.source_rights import query_names
from drover.connectors.jdbc.source_settings import BOTH, BULK, INCREMENTING, TIMESTAMP
from drover.connectors.jdbc.table_plan import TablePlanner, even_ranges
from tests.databases.conftest import Database, Sqlite, every_database
from tests.support.mariadb import MariaDb
from tests.support.postgres import Postgres
from tests.support.table_reading import TableReader
from tests.support.waiting import wait_until

NOW = datetime.now(UTC).replace(microsecond=0)


database = every_database


@pytest.fixture
def address(database: Database) -> DatabaseAddress:
    settings = database.settings
    # MariaDB's TIMESTAMP is in the session's time zone
    kind = "DATETIME(6)" if isinstance(database, MariaDb) else "TIMESTAMP"
    database.execute(
        f"CREATE TABLE items (id INTEGER NOT NULL, name VARCHAR(20), changed {kind} NOT NULL)"
    )
    return parse_address(
        settings["connection.url"],
        settings.get("connection.user"),
        settings.get("connection.password"),
    )


def insert(database: Database, *rows: tuple[int, str, datetime]) -> None:
    database.execute(
        *(
            f"INSERT INTO items VALUES ({number}, '{name}', '{_stored(changed)}')"
            for number, name, changed in rows
        )
    )


def _stored(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f")


def planner(
    address: DatabaseAddress, mode: str, offset: dict[str, Any] | None = None, **options: Any
) -> TablePlanner:
    zone = options.pop("zone", UTC)
    with address.connected() as connection:
        columns = reflected(connection, "items", None, "none")
    source = TableSource(
        "items",
        None,
        columns,
        incrementing="id" if mode in (INCREMENTING, BOTH) else None,
        timestamps=("changed",) if mode in (TIMESTAMP, BOTH) else (),
        zone=zone,
    )
    # ids have gaps here, and there is no concurrent writer
    return TablePlanner(address, source, mode, offset or {}, gap_delay_ms=0, **options)


def step(
    address: DatabaseAddress, planner: TablePlanner, rows_max: int = 100, parallel: int = 1
) -> list[Any] | None:
    """The ids of the next batch, read twice, as when a task's Spark job is repeated."""
    with session(address) as connection:
        plan = planner.plan(connection, rows_max, parallel)
    if plan is None:
        return None
    planner.advance(plan.offset)
    first, second = ([*_ids(pickle.loads(pickle.dumps(plan.parts)))] for _ in range(2))
    assert first == second
    planner.batch_done()
    return first


def _ids(parts: Iterable[Any]) -> Iterable[Any]:
    for part in parts:
        for batch in part.read():
            yield from batch.column("id").to_pylist()


def all_of(address: DatabaseAddress, planner: TablePlanner, rows_max: int = 100) -> list[Any]:
    found: list[Any] = []
    while (ids := step(address, planner, rows_max)) is not None:
        found += ids
    return found


def test_a_query_may_end_in_a_comment(database: Database, address: DatabaseAddress) -> None:
    insert(database, (1, "x", NOW), (2, "y", NOW))
    query = "SELECT id, name FROM items WHERE id > 0 -- those of the shop"
    with address.connected() as connection:
        assert query_names(connection, query) == ["id", "name"]
    reader = TableReader(database, INCREMENTING, {"query": query})
    assert reader.ids() == [1, 2]


@pytest.mark.parametrize("mode", [TIMESTAMP, BOTH])
@pytest.mark.parametrize("value", ["''", "'never'", "1704103200000"])
def test_a_value_of_sqlite_that_is_no_time_is_reported(
    tmp_path: Path, mode: str, value: str
) -> None:
    sqlite = Sqlite(tmp_path / "a.db")
    sqlite.execute(
        "CREATE TABLE items (id INTEGER PRIMARY KEY, changed TIMESTAMP NOT NULL)",
        "INSERT INTO items VALUES (1, '2024-01-02 03:04:05')",
    )
    reader = TableReader(sqlite, mode)
    assert reader.ids() == [1]
    sqlite.execute(f"INSERT INTO items VALUES (2, {value})")
    with pytest.raises(DatabaseError, match=f"has {value} in changed, which is no time"):
        wait_until(reader.ids)  # the search pauses, because it reads the whole table


def test_rows_by_number_come_in_order_and_each_once(
    database: Database, address: DatabaseAddress
) -> None:
    insert(database, *((number, "x", NOW) for number in (5, 1, 9, 3)))
    plan = planner(address, INCREMENTING)
    assert step(address, plan, rows_max=3) == [1, 3, 5]
    insert(database, (4, "late", NOW), (10, "x", NOW))
    assert all_of(address, plan) == [9, 10]
    assert step(address, plan) is None


@pytest.mark.parametrize("kind", ["few gaps", "many gaps", "one large gap"])
def test_rows_of_a_primary_key_are_counted_where_its_numbers_have_many_gaps(
    database: Database, kind: str
) -> None:
    numbers = {
        "few gaps": [each for each in range(1, 601) if each % 7],
        "many gaps": [*range(1, 1_001, 20)],
        "one large gap": [*range(1, 101), *range(2**31 - 300, 2**31)],
    }[kind]
    database.execute(
        "CREATE TABLE items (id INTEGER PRIMARY KEY)",
        f"INSERT INTO items VALUES {', '.join(f'({each})' for each in numbers)}",
    )
    reader = TableReader(database, INCREMENTING)
    statements: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        batches = list(reader.batches(rows_max=20))
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)
    assert [each for batch in batches for each in batch] == numbers
    assert max(map(len, batches)) <= 20
    counted = sum("count(DISTINCT" in each for each in statements)
    if kind == "many gaps":
        assert counted >= len(batches)
    else:
        assert counted < len(batches) / 2


def test_it_goes_on_where_the_offset_says(database: Database, address: DatabaseAddress) -> None:
    insert(database, *((number, "x", NOW) for number in range(1, 6)))
    assert all_of(address, planner(address, INCREMENTING, {"incrementing": 3})) == [4, 5]


@pytest.mark.parametrize("mode", [INCREMENTING, TIMESTAMP, BOTH])
def test_large_reads_are_split_into_parts_that_keep_the_order(
    database: Database, address: DatabaseAddress, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr("drover.connectors.jdbc.table_plan._SPLIT_ROWS", 10)
    old = NOW - timedelta(hours=1)
    numbers = [number * number for number in range(50)]
    insert(database, *((each, "x", old + timedelta(seconds=each // 30)) for each in numbers))
    plan = planner(address, mode)
    with session(address) as connection:
        found = plan.plan(connection, 40, 4)
    assert found is not None
    parts = [[*_ids([part])] for part in found.parts]
    assert len(parts) == 4
    assert all(parts)
    ids = [each for part in parts for each in part]
    assert (sorted(ids) if mode == TIMESTAMP else ids) == numbers[:40]
    plan.advance(found.offset)
    assert sorted(all_of(address, plan)) == numbers[40:]


@pytest.mark.parametrize(
    ("first", "last", "count", "ranges"),
    [
        (1, 1, 4, [(1, 1)]),
        (1, 10, 2, [(1, 5), (6, 10)]),
        (-3, 3, 3, [(-3, -1), (0, 2), (3, 3)]),
    ],
)
def test_ranges_are_even(first: int, last: int, count: int, ranges: list[tuple[int, int]]) -> None:
    assert even_ranges(first, last, count) == ranges


def test_changed_rows_come_again_by_time(database: Database, address: DatabaseAddress) -> None:
    old = NOW - timedelta(hours=1)
    insert(database, *((each, "x", old + timedelta(seconds=each)) for each in (1, 2, 3)))
    plan = planner(address, TIMESTAMP)
    assert all_of(address, plan) == [1, 2, 3]
    database.execute(
        f"UPDATE items SET changed = '{_stored(old + timedelta(minutes=1))}' WHERE id = 2"
    )
    assert all_of(address, plan) == [2]


def test_rows_of_one_moment_are_never_parted_by_time_alone(
    database: Database, address: DatabaseAddress
) -> None:
    old = NOW - timedelta(hours=1)
    insert(database, *((each, "x", old) for each in range(7)), (9, "x", old + timedelta(seconds=1)))
    plan = planner(address, TIMESTAMP)
    assert sorted(step(address, plan, rows_max=3) or []) == [0, 1, 2, 3, 4, 5, 6]
    assert all_of(address, plan) == [9]


def test_rows_of_one_moment_go_on_by_number_with_both(
    database: Database, address: DatabaseAddress
) -> None:
    old = NOW - timedelta(hours=1)
    insert(
        database, *((each, "x", old) for each in (3, 1, 2)), (0, "x", old + timedelta(seconds=1))
    )
    plan = planner(address, BOTH)
    assert step(address, plan, rows_max=2) == [1, 2]
    insert(database, (4, "of the same moment", old))
    assert step(address, plan, rows_max=2) == [3, 4]
    assert all_of(address, plan) == [0]


@pytest.mark.parametrize("mode", [TIMESTAMP, BOTH])
def test_a_restart_reads_nothing_twice_and_misses_nothing(
    database: Database, address: DatabaseAddress, mode: str
) -> None:
    old = NOW - timedelta(hours=1)
    insert(
        database,
        *((each, "x", old + timedelta(microseconds=each * 1_001)) for each in range(20)),
    )
    found: list[Any] = []
    offset: dict[str, Any] = {}
    while True:
        plan = planner(address, mode, offset)
        with session(address) as connection:
            planned = plan.plan(connection, 3, 1)
        if planned is None:
            break
        found += _ids(planned.parts)
        offset = planned.offset
    assert found == list(range(20))
    assert offset["timestamp"] == int(old.timestamp() * 1_000) + 19
    assert offset["timestamp_nanos"] == 19 * 1_001 * 1_000


def test_rows_that_are_too_young_wait(database: Database, address: DatabaseAddress) -> None:
    old, future = NOW - timedelta(days=2), NOW + timedelta(hours=20)
    insert(database, (1, "x", old), (2, "x", NOW - timedelta(seconds=1)), (3, "x", future))
    day_ms = 24 * 3_600_000
    assert all_of(address, planner(address, TIMESTAMP, delay_ms=day_ms)) == [1]
    assert all_of(address, planner(address, TIMESTAMP, delay_ms=0)) == [1, 2]


def test_it_begins_where_it_is_told(database: Database, address: DatabaseAddress) -> None:
    moments = [NOW - timedelta(minutes=each) for each in (9, 6, 3)]
    insert(database, *((each, "x", moment) for each, moment in enumerate(moments)))
    assert all_of(address, planner(address, TIMESTAMP, initial=moments[1])) == [1, 2]
    offset = {"timestamp": int(moments[1].timestamp() * 1_000)}
    assert all_of(address, planner(address, TIMESTAMP, offset, initial=moments[0])) == [2]


def test_times_without_a_zone_are_of_the_zone_that_is_set(
    database: Database, address: DatabaseAddress
) -> None:
    zone = ZoneInfo("Asia/Kolkata")
    local = (NOW - timedelta(minutes=5)).astimezone(zone)
    insert(database, (1, "x", local))
    plan = planner(address, TIMESTAMP, zone=zone)
    with session(address) as connection:
        found = plan.plan(connection, 10, 1)
    assert found is not None
    assert found.offset["timestamp"] == int(local.timestamp() * 1_000)


def test_all_of_it_is_read_each_time(database: Database, address: DatabaseAddress) -> None:
    insert(database, (2, "x", NOW), (1, "x", NOW))
    plan = planner(address, BULK)
    for _ in range(2):
        assert sorted(step(address, plan) or []) == [1, 2]


def test_an_empty_table_has_nothing_yet(address: DatabaseAddress) -> None:
    for mode in (INCREMENTING, TIMESTAMP, BOTH):
        assert step(address, planner(address, mode)) is None
    assert step(address, planner(address, BULK)) == []


def test_a_table_that_is_dropped_is_told_without_the_statement(
    database: Database, address: DatabaseAddress
) -> None:
    insert(database, (1, "s3cret", NOW))
    plan = planner(address, INCREMENTING)
    with session(address) as connection:
        found = plan.plan(connection, 10, 1)
    assert found is not None
    database.execute("DROP TABLE items")
    with pytest.raises(
        (DatabaseError, RetriableError), match=r"reading items at .*items"
    ) as caught:
        [*_ids(found.parts)]
    assert "SELECT" not in str(caught.value)


def test_a_server_that_is_away_may_be_back_later() -> None:
    gone = parse_address("jdbc:postgresql://127.0.0.1:1/x", None, None)
    told = pytest.raises(RetriableError, match=r"looking at postgresql://127.0.0.1:1/x: .*refused")
    with told, translated_errors(gone, "looking"), gone.connected():
        pass


def test_how_large_rows_are_is_what_the_database_knows(postgres: Postgres) -> None:
    """Also for a partitioned table's partitions, and for values stored out of line."""
    postgres.execute(
        "CREATE TABLE items (id INTEGER, note TEXT) PARTITION BY RANGE (id)",
        "ALTER TABLE items ALTER COLUMN note SET STORAGE EXTERNAL",
        "CREATE TABLE low PARTITION OF items FOR VALUES FROM (0) TO (50)",
        "CREATE TABLE high PARTITION OF items FOR VALUES FROM (50) TO (100)",
        "INSERT INTO items SELECT n, repeat('x', 20000) FROM generate_series(0, 99) n",
    )
    assert TableReader(postgres, BULK).planner.source.row_bytes == 0
    postgres.execute("ANALYZE")
    assert 20_000 <= TableReader(postgres, BULK).planner.source.row_bytes < 40_000
    assert TableReader(postgres, BULK, table="low").planner.source.row_bytes >= 20_000
