"""A name that leads to several servers, of which one lags: no row is lost."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from drover.connector import RetriableError
from drover.connectors.jdbc import table_plan
from tests.databases.conftest import OF_MYSQL
from tests.support.doors import Door, changing_door
from tests.support.mariadb import MariaDb, running_mariadb
from tests.support.mysql import running_mysql
from tests.support.postgres import Postgres, running_postgres
from tests.support.table_reading import TableReader, ids_of

MODES = ["incrementing", "timestamp", "timestamp+incrementing", "bulk"]

Server = Postgres | MariaDb


@pytest.fixture(scope="module")
def other_postgres(postgres_server: Postgres) -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def door(postgres: Postgres) -> Iterator[Door]:
    with changing_door(postgres.port) as found:
        yield found


@pytest.fixture
def lagging(postgres: Postgres, other_postgres: Postgres) -> Postgres:
    """A server with some rows less; both have the same database."""
    other_postgres.execute(f"CREATE DATABASE {postgres.database}")
    found = replace(other_postgres, database=postgres.database)
    fill(postgres, 1_000)
    fill(found, 900)
    return found


def fill(server: Server, count: int) -> None:
    kind = "TIMESTAMP" if isinstance(server, Postgres) else "DATETIME(6)"
    values = ", ".join(f"({n}, '2026-01-02 03:04:05')" for n in range(1, count + 1))
    server.execute(
        f"CREATE TABLE items (id INTEGER PRIMARY KEY, changed {kind} NOT NULL)",
        f"INSERT INTO items VALUES {values}",
    )


def behind(door: Door, server: Postgres) -> Postgres:
    return replace(server, port=door.port)


@pytest.mark.parametrize("mode", MODES)
def test_rows_are_not_read_on_another_server_than_found(
    postgres: Postgres, lagging: Postgres, door: Door, mode: str
) -> None:
    reader = TableReader(behind(door, postgres), mode)
    plan = reader.plan()
    assert plan is not None
    door.to = lagging.port
    with pytest.raises(RetriableError, match=r"leads to several servers.*connection\.url"):
        ids_of(plan)
    door.to = postgres.port
    assert sorted(ids_of(plan)) == [*range(1, 1_001)]
    reader.planner.close()


def test_a_table_that_comes_as_one_is_read_on_any_server(
    postgres: Postgres, lagging: Postgres, door: Door
) -> None:
    reader = TableReader(behind(door, postgres), "bulk", {"query": "SELECT * FROM items"})
    plan = reader.plan()
    assert plan is not None
    door.to = lagging.port
    assert sorted(ids_of(plan)) == [*range(1, 901)]


def test_a_server_that_was_restarted_is_read_after_a_retry() -> None:
    with running_postgres() as server:
        fill(server, 100)
        reader = TableReader(server, "incrementing")
        plan = reader.plan()
        assert plan is not None
        server.kill()
        with pytest.raises(RetriableError, match="was restarted"):
            ids_of(plan)
        again = TableReader(server, "incrementing")
        assert again.ids() == [*range(1, 101)]


def test_what_is_known_of_one_server_is_not_taken_for_another(
    postgres: Postgres, lagging: Postgres, door: Door
) -> None:
    """A number that was settled on the first server is not on the other one."""
    postgres.execute("DELETE FROM items WHERE id = 50")
    lagging.execute("DELETE FROM items WHERE id > 100", "INSERT INTO items VALUES (102, now())")
    reader = TableReader(behind(door, postgres), "incrementing")
    plan = reader.plan(rows_max=99)
    assert plan is not None
    assert ids_of(plan) == [*range(1, 50), *range(51, 101)]
    door.to = lagging.port
    with lagging.session() as late:
        late.execute(b"INSERT INTO items VALUES (101, now())")
        assert reader.plan() is None
        late.commit()
    assert reader.ids() == [101, 102]


def test_a_gap_is_passed_although_servers_take_turns(
    postgres: Postgres, lagging: Postgres, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_plan, "writers_are_seen", lambda _: False)
    now_s = 100.0
    for each in (postgres, lagging):
        each.execute("DELETE FROM items WHERE id > 10", "INSERT INTO items VALUES (12, now())")
    reader = TableReader(behind(door, postgres), "incrementing")
    monkeypatch.setattr(reader.planner, "_gap_delay_ms", 5_000)
    monkeypatch.setattr(reader.planner, "_now_s", lambda: now_s)
    read: list[Any] = []
    for turn in range(8):
        door.to = (postgres, lagging)[turn % 2].port
        plan = reader.plan()
        read += [] if plan is None else ids_of(plan)
        now_s += 3
    assert read == [*range(1, 11), 12]


@pytest.mark.parametrize("kind", OF_MYSQL)
def test_rows_of_mysql_are_not_read_on_another_server_than_found(
    request: pytest.FixtureRequest, kind: str
) -> None:
    server: MariaDb = request.getfixturevalue(kind)
    fill(server, 1_000)
    running = running_mariadb if kind == "mariadb" else running_mysql
    with running() as another, changing_door(server.port) as door:
        lagging = another.created(server.database)
        fill(lagging, 900)
        for mode in MODES:
            door.to = server.port
            reader = TableReader(replace(server, port=door.port), mode)
            plan = reader.plan()
            assert plan is not None
            door.to = lagging.port
            with pytest.raises(RetriableError, match="leads to several servers"):
                ids_of(plan)
