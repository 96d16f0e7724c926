"""What is wrong with a config of JdbcSink, the server's word included."""

import pytest

from drover.connector.settings import validate_config
from drover.connectors.jdbc.sink import JdbcSink
from tests.databases.conftest import Database

BASE = {"name": "c", "connector.class": "JdbcSink", "topics": "orders"}


def faults(config: dict[str, str]) -> dict[str, str]:
    values = validate_config(JdbcSink, config)
    return {value.key.name: "; ".join(value.errors) for value in values if value.errors}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"insert.mode": "upsert"}, ["pk.mode"]),
        ({"insert.mode": "merge"}, ["insert.mode", "auto.create"]),
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
        "auto.create": "there is no table 'orders' for topic 'orders': create it, or set this"
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
