"""Databases to read from and write to: a PostgreSQL server for the session, files of SQLite."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Protocol

import pytest

from tests.support.postgres import Postgres, binaries, running_postgres

_numbers = count(1)


class Database(Protocol):
    """One that the tests can change beside a connector."""

    @property
    def settings(self) -> dict[str, str]: ...

    def execute(self, *statements: str) -> None: ...

    def rows(self, query: str) -> list[tuple[object, ...]]: ...


@dataclass(frozen=True)
class Sqlite:
    """A file of SQLite."""

    path: Path

    @property
    def settings(self) -> dict[str, str]:
        return {"connection.url": f"jdbc:sqlite:{self.path}"}

    def execute(self, *statements: str) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            for statement in statements:
                connection.execute(statement)

    def rows(self, query: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(query).fetchall()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    if binaries() is None and not os.environ.get("CI"):
        pytest.skip("PostgreSQL is not installed")
    with running_postgres() as server:
        yield server


@pytest.fixture
def postgres(postgres_server: Postgres) -> Postgres:
    """A database of the test's own."""
    name = f"test_{next(_numbers)}"
    postgres_server.execute(f"CREATE DATABASE {name}")
    return Postgres(postgres_server.port, name)


@pytest.fixture
def sqlite(tmp_path: Path) -> Sqlite:
    return Sqlite(tmp_path / "a.db")


@pytest.fixture(params=["postgres", "sqlite"])
def database(request: pytest.FixtureRequest) -> Database:
    """Each kind in turn."""
    found: Database = request.getfixturevalue(request.param)
    return found
