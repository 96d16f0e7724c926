"""The databases of tests/databases, for connectors that need Spark as well."""

from tests.databases.conftest import postgres, postgres_server, sqlite

__all__ = ["postgres", "postgres_server", "sqlite"]
