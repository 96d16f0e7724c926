"""Validation of JdbcSink configs, including the server's checks."""

from pathlib import Path

import pytest

from drover.connector.settings import validate_config
from drover.connectors.jdbc.sink import JdbcSink
from tests.databases.conftest import SERVERS, Database, Sqlite, every_database
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


ROUTER = {
    "transforms": "route",
    "transforms.route.type": "RegexRouter",
    "transforms.route.regex": r".*\.(.*)",
    "transforms.route.replacement": "$1",
}


def test_topics_with_dots_need_a_router_or_quotes(database: Database) -> None:
    topics = {"topics": "shop.public.orders,shop.public.people", "auto.create": "true"}
    config = {**BASE, **database.settings, **topics}
    found = faults(config)
    assert found.keys() == {"table.name.format"}
    told = found["table.name.format"]
    assert "table 'orders' of schema 'shop.public', which does not exist" in told
    assert "transforms.route.replacement=$1" in told
    assert faults({**config, **ROUTER}) == {}
    assert faults({**config, "table.name.format": '"${topic}"'}) == {}
    assert faults({**config, "table.name.format": "`${topic}`"}) == {}


def test_names_after_transforms_that_depend_on_records_are_not_checked(sqlite: Sqlite) -> None:
    config = {**BASE, **sqlite.settings, "transforms": "t", "transforms.t.type": "TimestampRouter"}
    assert faults(config) == {}
    (skipped,) = skipped_checks(config)["table.name.format"]
    assert skipped == "the table of topic 'orders' depends on its records, by a transform"
    del config["topics"], config["transforms"], config["transforms.t.type"]
    (skipped,) = skipped_checks({**config, "topics.regex": "a.*"})["table.name.format"]
    assert "topics.regex selects topics while the connector runs" in skipped


def skipped_checks(config: dict[str, str]) -> dict[str, tuple[str, ...]]:
    values = validate_config(JdbcSink, config)
    return {value.key.name: value.skipped_checks for value in values if value.skipped_checks}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("app.", "has an empty part"),
        (".${topic}", "has an empty part"),
        ("  ", "must not be empty"),
        ('a"${topic}', "has quotes that do not enclose whole parts"),
        ('a"b"', "has quotes that do not enclose whole parts"),
        ("`a", "has quotes that do not enclose whole parts"),
        ("", "must not be empty"),
        ("${topics}", "has the unknown placeholder ${topics}"),
    ],
)
def test_names_of_tables_that_are_none(sqlite: Sqlite, name: str, told: str) -> None:
    found = faults({**BASE, **sqlite.settings, "table.name.format": name, "auto.create": "true"})
    assert told in found["table.name.format"]


def test_names_that_a_server_would_cut_or_refuse(database: Database) -> None:
    config = {**BASE, **database.settings, "auto.create": "true"}
    limit = {"Postgres": 63, "MariaDb": 64}.get(type(database).__name__, 1_000)
    for length, is_valid in ((limit, True), (limit + 1, limit == 1_000)):
        found = faults({**config, "table.name.format": "t" * length})
        assert (found == {}) is is_valid, found
        assert is_valid or "rename it with a transform" in found["table.name.format"]
    if limit == 63:
        found = faults({**config, "table.name.format": "ü" * 32})
        assert "has 64 bytes, and PostgreSQL cuts names to 63" in found["table.name.format"]
    for name in ("semi;colon", '"quo""ted"', "it's", "%s:x"):
        assert faults({**config, "table.name.format": name}) == {}


def test_topics_whose_tables_differ_in_case_only(sqlite: Sqlite, postgres: Postgres) -> None:
    topics = {"topics": "Orders,orders", "auto.create": "true"}
    found = faults({**BASE, **sqlite.settings, **topics})
    assert "'Orders' and 'orders' have one table 'orders'" in found["table.name.format"]
    assert faults({**BASE, **postgres.settings, **topics}) == {}
    assert faults({**BASE, **sqlite.settings, **topics, "table.name.format": "all_of_them"}) == {}


def test_columns_that_no_field_fills(database: Database) -> None:
    database.execute(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, a INTEGER, b INTEGER NOT NULL,"
        " c INTEGER NOT NULL DEFAULT 1, d INTEGER)"
    )
    config = {**BASE, **database.settings, "insert.mode": "upsert", "pk.mode": "record_key"}
    found = faults({**config, "pk.fields": "id", "fields.whitelist": "a,x"})
    assert "table 'orders' has no column 'x'" in found["fields.whitelist"]
    assert "column 'b' of table 'orders' is NOT NULL" in found["fields.whitelist"]
    assert "'c'" not in str(found)
    assert faults({**config, "pk.fields": "id", "fields.whitelist": "a,b"}) == {}
    (skipped,) = skipped_checks({**config, "pk.fields": "id"})["topics"]
    assert "drover connector preview compares them" in skipped


def test_an_offsets_table_that_is_another_table(database: Database) -> None:
    database.execute("CREATE TABLE orders (id INTEGER)", "CREATE TABLE other (id INTEGER)")
    config = {**BASE, **database.settings}
    assert "of topic 'orders'" in faults({**config, "offsets.table": "orders"})["offsets.table"]
    found = faults({**config, "offsets.table": "other"})
    assert "has no column 'connector'" in found["offsets.table"]
