"""The session that a JDBC source keeps while rows follow."""

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from drover.connectors.jdbc.database import parse_address
from drover.connectors.jdbc.reading import KeptSession
from drover.testing.clock import ManualClock
from tests.databases.conftest import Database, every_database

database = every_database


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def kept(database: Database, clock: ManualClock) -> Iterator[KeptSession]:
    settings = database.settings
    database.execute("CREATE TABLE items (id INTEGER)")
    address = parse_address(
        settings["connection.url"],
        settings.get("connection.user"),
        settings.get("connection.password"),
    )
    made = KeptSession(address, lambda: clock.now_ms() / 1000)
    yield made
    made.close()


def driver_connection(kept: KeptSession) -> Any:
    with kept.use() as connection:
        return connection.connection.driver_connection


def test_uses_that_follow_shortly_share_a_session(kept: KeptSession, clock: ManualClock) -> None:
    first = driver_connection(kept)
    clock.advance(5_000)
    assert driver_connection(kept) is first
    clock.advance(5_100)
    assert driver_connection(kept) is not first


def test_each_use_sees_what_was_committed_since(kept: KeptSession, database: Database) -> None:
    counts = []
    for _ in range(3):
        with kept.use() as connection:
            counts.append(connection.execute(sa.text("SELECT count(*) FROM items")).scalar_one())
        database.execute("INSERT INTO items VALUES (1)")
    assert counts == [0, 1, 2]


def test_an_error_ends_the_session(kept: KeptSession) -> None:
    first = driver_connection(kept)
    with pytest.raises(sa.exc.DBAPIError), kept.use() as connection:
        connection.execute(sa.text("SELECT missing FROM items"))
    assert driver_connection(kept) is not first


def test_a_closed_session_opens_again(kept: KeptSession) -> None:
    first = driver_connection(kept)
    kept.close()
    kept.close()
    assert driver_connection(kept) is not first
