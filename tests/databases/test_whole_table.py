"""A whole table, read in batches and partitions: each row once, from one snapshot."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from drover.connector import RetriableError
from drover.connectors.jdbc.reading import LOCK_WAIT_S, SNAPSHOT_LOCK_WAIT_S, session
from drover.connectors.jdbc.source_settings import BULK
from tests.databases.conftest import Database, Sqlite, every_database
from tests.support.postgres import Postgres, running_postgres
from tests.support.postgres_releases import release_binaries
from tests.support.table_reading import TableReader, ids_of
from tests.support.waiting import wait_until

database = every_database


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drover.connectors.jdbc.whole_table._PART_PAGES", 1)
    monkeypatch.setattr("drover.connectors.jdbc.table_plan._SPLIT_ROWS", 50)


def fill(database: Database, count: int, first: int = 1) -> None:
    values = ", ".join(f"({n}, '{'x' * 500}')" for n in range(first, first + count))
    database.execute(f"INSERT INTO items VALUES {values}")


@pytest.fixture
def items(database: Database) -> Database:
    database.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, note VARCHAR(500))")
    return database


def test_batches_are_limited_and_have_each_row_once(items: Database) -> None:
    fill(items, 1_000)
    items.execute("DELETE FROM items WHERE id % 7 = 0")
    wanted = [(n,) for n in range(1, 1_001) if n % 7]
    reader = TableReader(items, BULK)
    for _ in range(2):
        found = list(reader.batches(rows_max=300))
        assert all(len(each) <= 300 for each in found)
        assert len(found) == 3
        assert sorted((n,) for each in found for n in each) == wanted


def test_a_batch_is_read_in_parts_at_the_same_time(items: Database) -> None:
    fill(items, 1_000)
    reader = TableReader(items, BULK)
    plan = reader.plan(rows_max=600)
    assert plan is not None
    assert [sum(each.num_rows for each in part.read()) > 100 for part in plan.parts] == [True] * 3
    assert ids_of(plan) == list(range(1, 601))
    reader.planner.close()


def test_no_more_than_one_row_is_no_limit_either(items: Database) -> None:
    fill(items, 5)
    assert list(TableReader(items, BULK).batches(rows_max=1))[:5] == [[n] for n in range(1, 6)]


def test_it_is_one_moment_of_the_table(postgres: Postgres) -> None:
    postgres.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, note VARCHAR(500))")
    fill(postgres, 1_000)
    reader = TableReader(postgres, BULK)
    found = []
    for number, batch in enumerate(reader.batches(rows_max=100)):
        found += batch
        postgres.execute(
            "UPDATE items SET note = 'y' WHERE id % 3 = 0",
            f"DELETE FROM items WHERE id BETWEEN {900 - number} AND 950",
        )
        fill(postgres, 10, first=2_000 + 10 * number)
    assert sorted(found) == list(range(1, 1_001))
    ((now,),) = postgres.rows("SELECT count(*) FROM items")
    assert len([n for each in reader.batches(rows_max=100) for n in each]) == now
    assert postgres.rows(
        "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'"
    ) == [(0,)]


@pytest.mark.parametrize(
    "made",
    [
        [
            "CREATE TABLE items (id INTEGER, note TEXT) PARTITION BY RANGE (id)",
            "CREATE TABLE low (note TEXT, id INTEGER)",
            "ALTER TABLE items ATTACH PARTITION low FOR VALUES FROM (0) TO (400)",
            "CREATE TABLE high PARTITION OF items DEFAULT",
            "CREATE TABLE none PARTITION OF items FOR VALUES FROM (5000) TO (6000)",
        ],
        ["CREATE TABLE items (id INTEGER, note TEXT)", "CREATE TABLE heir () INHERITS (items)"],
        ["CREATE UNLOGGED TABLE items (note TEXT, id INTEGER, gone TEXT)",
         "ALTER TABLE items DROP COLUMN gone"],
    ],
    ids=["partitions", "heirs", "dropped column"],
)  # fmt: skip
def test_what_tables_are_made_of(postgres: Postgres, made: list[str]) -> None:
    postgres.execute(*made)
    for table in ("items", "heir" if "heir" in made[-1] else "items"):
        postgres.execute(
            f"INSERT INTO {table} (id, note) SELECT n, 'x' FROM generate_series(1, 1000) n"
        )
    found = list(TableReader(postgres, BULK).batches(rows_max=300))
    assert sorted(n for each in found for n in each) == sorted([*range(1, 1_001)] * 2)
    assert max(map(len, found)) <= 300


@pytest.mark.parametrize("how", ["rights", "row security", "query"])
def test_what_cannot_be_split_comes_as_one(postgres: Postgres, how: str) -> None:
    role = f"reader_{postgres.database}"
    postgres.execute(
        f"CREATE ROLE {role} LOGIN PASSWORD 'r'",
        "CREATE TABLE items (id INTEGER, note TEXT) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF items DEFAULT",
        "INSERT INTO items SELECT n, 'x' FROM generate_series(1, 1000) n",
        f"GRANT SELECT ON items TO {role}",
        f"GRANT USAGE ON SCHEMA public TO {role}",
    )
    wanted = range(1, 1_001)
    settings = {"connection.user": role, "connection.password": "r"}
    match how:
        case "row security":
            postgres.execute(
                "ALTER TABLE items ENABLE ROW LEVEL SECURITY",
                f"GRANT SELECT ON low TO {role}",
                "CREATE POLICY few ON items USING (id > 990)",
            )
            wanted = range(991, 1_001)
        case "query":
            settings = {"query": "SELECT * FROM items"}
    (found,) = TableReader(postgres, BULK, settings).batches(rows_max=300)
    assert sorted(found) == list(wanted)


def test_it_begins_anew_when_its_session_is_lost(postgres: Postgres) -> None:
    postgres.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, note VARCHAR(500))")
    fill(postgres, 500)
    reader = TableReader(postgres, BULK)
    plan = reader.plan(rows_max=300)
    assert plan is not None
    postgres.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE state = 'idle in transaction' AND datname = current_database()"
    )
    with pytest.raises(RetriableError, match="has expired"):
        ids_of(plan)
    with pytest.raises(RetriableError, match="looking at postgresql://"):
        reader.plan(rows_max=300)
    assert [len(each) for each in reader.batches(rows_max=300)] == [300, 200]


def test_a_table_without_a_number_as_its_key_comes_as_one(sqlite: Sqlite) -> None:
    sqlite.execute("CREATE TABLE items (id TEXT PRIMARY KEY)")
    sqlite.execute("INSERT INTO items VALUES ('a'), ('b')")
    assert list(TableReader(sqlite, BULK).batches(rows_max=1)) == [["a", "b"]]


@pytest.mark.faults("connectors")
def test_a_limit_of_transactions_does_not_end_the_snapshot() -> None:
    with running_postgres(bin_path=release_binaries(17)) as server:
        server.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, note VARCHAR(500))")
        fill(server, 1_000)
        reader = TableReader(server, BULK)
        server.execute(f"ALTER DATABASE {server.database} SET transaction_timeout = '1s'")
        plan = reader.plan(rows_max=600)
        assert plan is not None
        found = ids_of(plan)
        server.execute("SET transaction_timeout TO 0; SELECT pg_sleep(1.5)")
        plan = reader.plan(rows_max=600)
        assert plan is not None
        assert sorted(found + ids_of(plan)) == [*range(1, 1_001)]
        reader.planner.close()


def test_an_alter_table_during_the_read_waits_a_few_seconds_only(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the snapshot, and a part of the read waits for it: the read gives way."""
    monkeypatch.setattr("drover.connectors.jdbc.reading.SNAPSHOT_LOCK_WAIT_S", 1)
    postgres.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, note VARCHAR(500))")
    fill(postgres, 300)
    reader = TableReader(postgres, BULK)
    first = reader.plan(rows_max=100)
    assert first is not None
    assert len(ids_of(first)) == 100
    with ThreadPoolExecutor(1) as others:
        altered = others.submit(postgres.execute, "ALTER TABLE items ADD extra INTEGER")
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        wait_until(lambda: postgres.rows(waiting) != [(0,)], describe="the ALTER TABLE waits")
        second = reader.plan(rows_max=100)
        assert second is not None
        with pytest.raises(RetriableError, match="lock timeout"):
            ids_of(second)
        reader.planner.close()  # as the task's restart does
        altered.result(60)
    assert len(TableReader(postgres, BULK).ids()) == 300


def test_a_part_of_a_snapshot_waits_shorter_than_other_reads(postgres: Postgres) -> None:
    postgres.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, note VARCHAR(500))")
    reader = TableReader(postgres, BULK)
    plan = reader.plan()
    assert plan is not None
    (part,) = plan.parts
    limits = []
    for snapshot in (part.snapshot, None):
        with session(reader.address, snapshot) as connection:
            limits.append(connection.exec_driver_sql("SHOW lock_timeout").scalar_one())
    reader.planner.close()
    assert limits == [f"{SNAPSHOT_LOCK_WAIT_S}s", f"{LOCK_WAIT_S}s"]
