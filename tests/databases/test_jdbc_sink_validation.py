"""Validation of JdbcSink configs, including the server's checks."""

from pathlib import Path

import pytest

from drover.connector.settings import validate_config
from drover.connectors.jdbc.sink import JdbcSink
from tests.databases.conftest import SERVERS, Database, every_database
from tests.support.mariadb import MariaDb
from tests.support.postgres import Postgres

database = every_database


BASE = {"name": "c", "connector.class": "JdbcSink", "topics": "orders"}


def faults(config: dict[str, str]) -> dict[str, str]:
    values = validate_config(JdbcSink, config)
    return {value.key.name: "; ".join(value.errors) for value in values if value.errors}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"insert.mode": "upsert"}, ["pk.mode"]),
        ({"insert.mode": "merge"}, ["insert.mode"]),
        ({"delete.enabled": "true", "pk.mode": "record_value"}, ["delete.enabled"]),
        ({"pk.mode": "kafka", "pk.fields": "a,b"}, ["pk.fields"]),
        ({"pk.fields": "a"}, ["pk.fields"]),
        ({"table.name.format": ""}, ["table.name.format"]),
        ({"connection.url": "jdbc:db2://x/y"}, ["connection.url"]),
    ],
)
def test_settings_that_contradict_each_other(
    database: Database, settings: dict[str, str], expected: list[str]
) -> None:
    assert list(faults({**BASE, **database.settings, **settings})) == expected


def test_tables_that_there_are_not(database: Database) -> None:
    config = {**BASE, **database.settings}
    assert faults(config) == {
        "auto.create": "table 'orders' for topic 'orders' does not exist: create it, or set "
        "this to true"
    }
    assert faults({**config, "auto.create": "true"}) == {}
    database.execute("CREATE TABLE app_orders (id INTEGER)")
    assert faults({**config, "table.name.format": "app_${topic}"}) == {}


def test_keys_that_are_none(database: Database) -> None:
    database.execute(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, code INTEGER UNIQUE, name INTEGER)"
    )
    config = {**BASE, **database.settings, "insert.mode": "upsert", "pk.mode": "record_value"}
    assert faults({**config, "pk.fields": "id"}) == {}
    assert faults({**config, "pk.fields": "code"}) == {}
    assert (
        "no primary key or unique constraint on name"
        in (faults({**config, "pk.fields": "name"})["pk.fields"])
    )
    assert faults({**config, "pk.fields": "nope"}) == {
        "pk.fields": "table 'orders' has no column 'nope'"
    }


def test_keys_that_a_table_made_by_hand_has_not(database: Database) -> None:
    database.execute("CREATE TABLE orders (__connect_topic VARCHAR(99), id INTEGER)")
    config = {**BASE, **database.settings, "insert.mode": "upsert", "pk.mode": "kafka"}
    assert faults(config) == {"pk.fields": "table 'orders' has no column '__connect_offset'"}
    config |= {"pk.mode": "record_key", "pk.fields": "id"}
    assert "no primary key or unique" in faults(config)["pk.fields"]
    assert faults({**config, "insert.mode": "update"}) == {}


def as_user(database: Postgres | MariaDb, *grants: str) -> dict[str, str]:
    """Settings of a user that has only these privileges."""
    name = f"u_{database.database}"
    if isinstance(database, MariaDb):
        database.execute(f"CREATE USER {name}@'127.0.0.1' IDENTIFIED BY 'x'")
        own = f"{name}@'127.0.0.1'"
    else:
        database.execute(
            f"CREATE USER {name} PASSWORD 'x'",
            f"REVOKE TEMPORARY ON DATABASE {database.database} FROM public",
        )
        own = name
    database.execute(*(f"GRANT {each} TO {own}" for each in grants))
    return {**database.settings, "connection.user": name, "connection.password": "x"}


def test_rights_that_are_missing_on_postgres(postgres: Postgres) -> None:
    postgres.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    settings = as_user(postgres, "INSERT, SELECT ON orders")
    config = {**BASE, **settings, "insert.mode": "upsert", "pk.mode": "record_key"}
    config |= {"pk.fields": "id", "delete.enabled": "true", "auto.evolve": "true"}
    assert faults(config) == {
        "connection.user": "; ".join(
            f"has no right to {each}: grant it"
            for each in (
                "UPDATE at table 'orders'",
                "DELETE at table 'orders'",
                "CREATE tables in schema 'public'",
                "TEMPORARY tables in this database",
            )
        ),
        "auto.evolve": "table 'orders' can be extended only by its owner",
    }
    user = settings["connection.user"]
    postgres.execute(
        f"GRANT UPDATE, DELETE ON orders TO {user}",
        f"GRANT CREATE ON SCHEMA public TO {user}",
        f"GRANT TEMPORARY ON DATABASE {postgres.database} TO {user}",
    )
    assert faults({**config, "auto.evolve": "false"}) == {}
    missing = {**config, "auto.evolve": "false", "auto.create": "true"}
    assert faults({**missing, "table.name.format": "nope.${topic}"}) == {
        "connection.user": "has no right to CREATE tables: schema 'nope' does not exist: grant it"
    }


def test_rights_that_are_missing_on_mysql(server: MariaDb) -> None:
    server.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    settings = as_user(server, f"INSERT, SELECT ON {server.database}.orders")
    config = {**BASE, **settings, "insert.mode": "upsert", "pk.mode": "record_key"}
    config |= {"pk.fields": "id", "delete.enabled": "true"}
    missing = ["UPDATE at table 'orders'", "DELETE at table 'orders'"]
    if server.kind == "mariadb":  # MySQL reports a missing table instead
        missing.append("access or CREATE table 'drover_offsets'")
    assert faults(config) == {
        "connection.user": "; ".join(f"has no right to {each}: grant it" for each in missing)
    }
    own = f"{settings['connection.user']}@'127.0.0.1'"
    server.execute(f"GRANT SELECT, UPDATE, DELETE, CREATE ON {server.database}.* TO {own}")
    assert faults(config) == {}


@pytest.mark.parametrize("kind", SERVERS)
def test_a_wrong_password(kind: str, request: pytest.FixtureRequest) -> None:
    database: Database = request.getfixturevalue(kind)
    found = faults({**BASE, **database.settings, "connection.password": "s3cret"})
    assert list(found) == ["connection.password"]
    assert "s3cret" not in str(found)


@pytest.mark.parametrize("kind", SERVERS)
def test_a_database_that_is_not_there(kind: str, request: pytest.FixtureRequest) -> None:
    database: Database = request.getfixturevalue(kind)
    server = database.settings["connection.url"].rpartition("/")[0]
    found = faults({**BASE, **database.settings, "connection.url": f"{server}/nowhere"})
    assert list(found) == ["connection.url"]
    assert "nowhere" in found["connection.url"]


def test_a_missing_file_of_sqlite_is_checked_as_an_empty_database(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    config = {**BASE, "connection.url": f"jdbc:sqlite:{path}"}
    assert faults({**config, "auto.create": "true"}) == {}
    assert "does not exist" in faults(config)["auto.create"]
    assert not path.exists()
    nowhere = {**config, "connection.url": f"jdbc:sqlite:{tmp_path}/none/new.db"}
    assert "unable to open" in faults({**nowhere, "auto.create": "true"})["connection.url"]
