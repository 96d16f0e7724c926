"""Rows with times of a zone that puts its clock back, read beside a clock of the test."""

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from drover.connectors.jdbc import database as databases
from tests.databases.conftest import Database, every_database
from tests.support.mariadb import MariaDb
from tests.support.table_reading import TableReader

database = every_database
BOTH, TIME = "timestamp+incrementing", "timestamp"
BERLIN = "Europe/Berlin"


class Shop:
    """A table in local times, and the clock of its server in UTC."""

    def __init__(self, database: Database) -> None:
        self.database = database
        moment = "DATETIME(6)" if isinstance(database, MariaDb) else "TIMESTAMP"
        database.execute(
            f"CREATE TABLE items (id INTEGER PRIMARY KEY, changed {moment} NOT NULL)",
            f"CREATE TABLE clock (now {moment})",
            "INSERT INTO clock VALUES ('2026-01-01 00:00:00')",
        )
        self.zone = BERLIN

    def at(self, utc: str) -> None:
        self.database.execute(f"UPDATE clock SET now = '{utc}:00'")

    def add(self, number: int, utc: str) -> None:
        """Add a row, or change it, at a time in UTC; the clock is there then."""
        moment = datetime.fromisoformat(utc).replace(tzinfo=UTC).astimezone(ZoneInfo(self.zone))
        self.database.execute(
            f"DELETE FROM items WHERE id = {number}",
            f"INSERT INTO items VALUES ({number}, '{moment:%Y-%m-%d %H:%M:%S}')",
        )
        self.at(utc)

    def reader(self, mode: str, offset: Any = None, **settings: str) -> TableReader:
        settings = {"db.timezone": self.zone, **settings}
        return TableReader(self.database, mode, settings, offset=offset or {})


@pytest.fixture
def shop(database: Database, monkeypatch: pytest.MonkeyPatch) -> Shop:
    for kind in ("postgresql", "mysql", "sqlite"):
        monkeypatch.setitem(databases._CLOCKS, kind, "SELECT now FROM clock")
    return Shop(database)


@pytest.mark.parametrize(("mode", "again"), [(BOTH, []), (TIME, [1, 2])])
def test_rows_of_the_repeated_hour_are_not_lost(shop: Shop, mode: str, again: list[int]) -> None:
    reader = shop.reader(mode)
    shop.add(1, "2026-10-25 00:05")  # 02:05, in summer time
    shop.add(2, "2026-10-25 00:45")
    shop.at("2026-10-25 00:50")
    assert reader.ids() == [1, 2]
    shop.add(3, "2026-10-25 01:05")  # 02:05, in winter time
    shop.at("2026-10-25 01:10")
    found = reader.ids()
    shop.add(4, "2026-10-25 01:30")
    shop.at("2026-10-25 01:59")
    found += reader.ids()
    shop.add(5, "2026-10-25 02:30")
    shop.at("2026-10-25 02:31")
    found += reader.ids()
    assert sorted(found) == sorted([3, 4, 5, *again])
    assert reader.ids() == []


@pytest.mark.parametrize("mode", [BOTH, TIME])
def test_a_row_that_changes_in_the_repeated_hour_is_read_again(shop: Shop, mode: str) -> None:
    reader = shop.reader(mode)
    shop.add(1, "2026-10-24 10:00")
    shop.add(2, "2026-10-25 00:45")
    shop.at("2026-10-25 00:50")
    assert reader.ids() == [1, 2]
    shop.add(1, "2026-10-25 01:05")
    shop.add(2, "2026-10-25 01:06")
    shop.at("2026-10-25 01:10")
    assert reader.ids() == [1, 2]
    shop.at("2026-10-25 02:10")
    assert reader.ids() == []


@pytest.mark.parametrize("mode", [BOTH, TIME])
def test_a_task_that_starts_after_the_repeated_hour_loses_no_row(shop: Shop, mode: str) -> None:
    shop.add(1, "2026-10-25 00:45")
    shop.at("2026-10-25 00:50")
    reader = shop.reader(mode)
    plan = reader.plan()
    assert plan is not None
    shop.add(2, "2026-10-25 01:10")
    shop.add(3, "2026-10-26 12:00")
    shop.at("2026-10-26 12:01")
    assert set(shop.reader(mode, plan.offset).ids()) >= {2, 3}
    assert sorted(reader.ids()) == ([2, 3] if mode == BOTH else [1, 2, 3])
    # a task that was away for the whole time reads each row once
    assert sorted(shop.reader(mode).ids()) == [1, 2, 3]


@pytest.mark.parametrize("mode", [BOTH, TIME])
def test_a_row_after_a_quiet_first_hour(shop: Shop, mode: str) -> None:
    reader = shop.reader(mode)
    shop.add(1, "2026-10-24 23:50")
    shop.at("2026-10-25 00:50")
    assert reader.ids() == [1]
    shop.add(2, "2026-10-25 01:05")
    shop.at("2026-10-25 01:06")
    assert reader.ids() == [2]
    shop.add(3, "2026-10-25 01:05")  # with the same time, committed later
    shop.add(4, "2026-10-25 01:20")
    shop.at("2026-10-25 01:21")
    assert reader.ids() == ([3, 4] if mode == BOTH else [4])


@pytest.mark.parametrize("mode", [BOTH, TIME])
@pytest.mark.parametrize("start", ["2026-10-25 00:30", "2026-10-25 01:30"])
def test_a_start_within_the_repeated_hour(shop: Shop, mode: str, start: str) -> None:
    initial = datetime.fromisoformat(start).replace(tzinfo=UTC).timestamp() * 1_000
    shop.add(1, "2026-10-24 23:00")
    shop.add(2, "2026-10-25 00:45")
    shop.at("2026-10-25 00:50")
    reader = shop.reader(mode)
    reader.planner._moment = datetime.fromtimestamp(initial / 1_000, UTC)
    found = reader.ids()
    shop.add(3, "2026-10-25 01:40")
    shop.at("2026-10-25 01:50")
    found += reader.ids()
    assert set(found) - {2} == {3}
    assert found.count(3) == 1


@pytest.mark.parametrize(
    ("zone", "before", "after"),
    [
        ("America/New_York", "2026-11-01 05:30", "2026-11-01 06:10"),
        ("Australia/Lord_Howe", "2026-04-04 14:45", "2026-04-04 15:05"),
        # a zone that changed its offset for good
        ("Europe/Moscow", "2014-10-25 21:30", "2014-10-25 22:10"),
    ],
)
def test_other_zones(shop: Shop, zone: str, before: str, after: str) -> None:
    shop.zone = zone
    reader = shop.reader(BOTH)
    shop.add(1, before)
    shop.at(before.replace(":", ":")[:-1] + "8")
    assert reader.ids() == [1]
    shop.add(2, after)
    shop.at(after[:-1] + "9")
    assert reader.ids() == [2]


@pytest.mark.parametrize("mode", [BOTH, TIME])
def test_the_hour_that_is_left_out(shop: Shop, mode: str) -> None:
    reader = shop.reader(mode)
    shop.add(1, "2026-03-29 00:55")  # 01:55
    shop.at("2026-03-29 00:56")
    assert reader.ids() == [1]
    shop.add(2, "2026-03-29 01:05")  # 03:05
    shop.at("2026-03-29 01:06")
    assert reader.ids() == [2]
    assert reader.ids() == []
