"""The servers of tests/databases, for connectors that need Spark as well."""

from collections.abc import Iterator
from functools import partial

import pytest

from tests.databases.conftest import (
    database,
    mariadb,
    mariadb_server,
    mysql,
    mysql_server,
    postgres,
    postgres_server,
    s3,
    s3_server,
    schema_registry,
    schema_registry_server,
    server,
    sqlite,
)
from tests.spark.connectors.cdc_shop import dropped
from tests.support.postgres import Postgres
from tests.support.waiting import wait_until

__all__ = [
    "database",
    "mariadb",
    "mariadb_server",
    "mysql",
    "mysql_server",
    "postgres",
    "postgres_server",
    "s3",
    "s3_server",
    "schema_registry",
    "schema_registry_server",
    "server",
    "shop",
    "sqlite",
]


@pytest.fixture
def shop(postgres: Postgres) -> Iterator[Postgres]:
    """A database with a table of two rows; its slots are gone afterwards."""
    postgres.execute(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, price NUMERIC(8, 2), note TEXT)",
        "INSERT INTO orders VALUES (1, 1.5, 'one'), (2, NULL, '')",
    )
    yield postgres
    slots = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    for (slot,) in postgres.rows(slots):
        wait_until(partial(dropped, postgres, str(slot)))
