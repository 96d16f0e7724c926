"""The servers of tests/databases, for connectors that need Spark as well."""

from tests.databases.conftest import (
    database,
    mariadb,
    mariadb_server,
    postgres,
    postgres_server,
    s3,
    s3_server,
    sqlite,
)

__all__ = [
    "database",
    "mariadb",
    "mariadb_server",
    "postgres",
    "postgres_server",
    "s3",
    "s3_server",
    "sqlite",
]
