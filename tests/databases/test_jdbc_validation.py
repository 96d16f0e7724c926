"""Validation of JdbcSource configs, including the server's checks, all faults at once."""

import json
import sys
from itertools import count
from typing import Any

import pytest

from drover.connector import ConnectorContext, RetriableError
from drover.connector.settings import parse_config, validate_config
from drover.connectors.jdbc.catalogue import sources_of, wanted_tables
from drover.connectors.jdbc.database import (
    DatabaseAddress,
    DatabaseError,
    address_of,
    parse_address,
)
from drover.connectors.jdbc.reading import session
from drover.connectors.jdbc.source import JdbcSource
from drover.connectors.jdbc.table_plan import TablePlanner
from tests.databases.conftest import Database, Sqlite
from tests.support.mariadb import MariaDb
from tests.support.postgres import Postgres
from tests.support.table_reading import TableReader

_users = count(1)
BASE = {
    "name": "c",
    "connector.class": "JdbcSource",
    "mode": "incrementing",
    "incrementing.column.name": "id",
    "topic.prefix": "db-",
}


def faults(config: dict[str, str]) -> dict[str, str]:
    values = validate_config(JdbcSource, config)
    return {value.key.name: "; ".join(value.errors) for value in values if value.errors}


@pytest.fixture
def orders(database: Database) -> Database:
    database.execute(
        "CREATE TABLE orders (id INTEGER NOT NULL, note VARCHAR(9), changed TIMESTAMP)",
        "CREATE TABLE people (id INTEGER NOT NULL, name VARCHAR(9))",
    )
    return database


def test_a_good_config_has_no_faults(orders: Database) -> None:
    assert faults({**BASE, **orders.settings}) == {}
    assert faults({**BASE, **orders.settings, "table.whitelist": "orders", "key": "id"}) == {}


def test_tables_and_columns_that_there_are_not_are_told_together(orders: Database) -> None:
    config = {
        **BASE,
        **orders.settings,
        "mode": "timestamp+incrementing",
        "incrementing.column.name": "number",
        "timestamp.column.name": "changed",
        "table.whitelist": "orders,invoices",
        "key": "id,code",
    }
    assert faults(config) == {
        "incrementing.column.name": "table 'orders' has no column 'number'",
        "timestamp.column.name": "column 'changed' of table 'orders' may be null, and such rows "
        "are never read: make it NOT NULL (columns of views never are), or set validate.non.null "
        "to false",
        "table.whitelist": "table 'invoices' does not exist",
        "key": "table 'orders' has no column 'code'",
    }
    del config["incrementing.column.name"], config["timestamp.column.name"]
    assert faults(config).keys() == {"incrementing.column.name", "timestamp.column.name"}


def test_a_query_is_tried(orders: Database) -> None:
    config = {**BASE, **orders.settings, "query": "SELECT id FROM orders WHERE id > 3;"}
    assert faults(config) == {}
    assert faults({**config, "query": "SELECT nope FROM orders"}).keys() == {"query"}
    assert faults({**config, "table.whitelist": "orders"}).keys() == {"table.whitelist"}


@pytest.mark.parametrize(
    ("change", "setting", "told"),
    [
        ({"connection.password": "wrong"}, "connection.password", "authentication failed"),
        ({"connection.user": "nobody"}, "connection.password", "authentication failed"),
        ({"connection.url": "jdbc:postgresql://127.0.0.1:1/x"}, "connection.url", "refused"),
    ],
)
def test_why_the_server_cannot_be_reached(
    postgres: Postgres, change: dict[str, str], setting: str, told: str
) -> None:
    found = faults({**BASE, **postgres.settings, **change})
    assert list(found) == [setting]
    assert told in found[setting]
    assert "a pass/word" not in str(found)


def test_tables_that_the_user_may_not_read(postgres: Postgres) -> None:
    if not postgres.rows("SELECT 1 FROM pg_roles WHERE rolname = 'stranger'"):
        postgres.execute("CREATE ROLE stranger LOGIN PASSWORD 's'")
    postgres.execute(
        "CREATE TABLE hidden (id INTEGER NOT NULL)",
        "CREATE TABLE shown (id INTEGER NOT NULL)",
        "CREATE TABLE partly (id INTEGER NOT NULL, secret TEXT)",
        "GRANT SELECT ON shown TO stranger",
        "GRANT SELECT (id) ON partly TO stranger",
    )
    login = {"connection.user": "stranger", "connection.password": "s"}
    config = {**BASE, **postgres.settings, **login}
    with postgres.session() as other:
        other.execute(b"LOCK TABLE shown, hidden IN ACCESS EXCLUSIVE MODE")
        found = faults(config)
    assert found == {
        "connection.user": "may not read table 'hidden': GRANT SELECT ON hidden TO stranger; "
        "may not read table 'partly': GRANT SELECT ON partly TO stranger"
    }
    assert faults({**config, "table.whitelist": "shown"}) == {}


def test_mysql_says_who_may_not_and_what_is_not_there(server: MariaDb) -> None:
    server.execute(
        "CREATE TABLE shown (id INTEGER NOT NULL)",
        "CREATE TABLE hidden (id INTEGER NOT NULL)",
        "CREATE USER IF NOT EXISTS stranger@'127.0.0.1' IDENTIFIED BY 's'",
        "GRANT SELECT ON shown TO stranger@'127.0.0.1'",
        "GRANT INSERT ON hidden TO stranger@'127.0.0.1'",
    )
    login = {"connection.user": "stranger", "connection.password": "s"}
    config = {**BASE, **server.settings, **login}
    assert faults(config) == {
        "connection.user": "may not read table 'hidden': "
        f"GRANT SELECT ON {server.database}.hidden TO 'stranger'@'127.0.0.1'"
    }
    assert faults({**config, "table.whitelist": "shown"}) == {}
    assert "Access denied" in faults({**config, "connection.password": "x"})["connection.password"]
    url = f"jdbc:{server.kind}://127.0.0.1:{server.port}/nowhere"
    found = faults({**BASE, **server.settings, "connection.url": url})
    assert "Unknown database 'nowhere'" in found["connection.url"]


def test_partitions_are_read_with_their_table_unless_they_are_named(postgres: Postgres) -> None:
    postgres.execute(
        "CREATE TABLE parted (id INTEGER NOT NULL) PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF parted DEFAULT",
    )
    for named, wanted in (({}, ["parted"]), ({"table.whitelist": "part"}, ["part"])):
        values = parse_config(JdbcSource, {**BASE, **postgres.settings, **named}).values
        with address_of(values).connected() as connection:
            assert [name for _, name in wanted_tables(connection, values)] == wanted


def test_a_database_that_is_not_there(postgres: Postgres) -> None:
    url = f"jdbc:postgresql://127.0.0.1:{postgres.port}/nowhere"
    found = faults({**BASE, **postgres.settings, "connection.url": url})
    assert 'database "nowhere" does not exist' in found["connection.url"]


def test_a_file_that_is_not_there_is_not_created(sqlite: Sqlite) -> None:
    sqlite.execute("CREATE TABLE orders (id INTEGER NOT NULL)")
    config = {**BASE, **sqlite.settings}
    values = parse_config(JdbcSource, config).values
    connector = JdbcSource()
    connector.start(ConnectorContext("c"), values)
    connector.stop()
    assert len(connector.task_configs(1)) == 1
    sqlite.path.unlink()
    assert "unable to open database file" in faults(config)["connection.url"]
    with pytest.raises(RetriableError, match="unable to open database file"):
        JdbcSource().start(ConnectorContext("c"), values)
    assert not sqlite.path.exists()


def test_names_with_quotes_dots_and_capitals(postgres: Postgres) -> None:
    postgres.execute(
        'CREATE SCHEMA "My Schema"',
        'CREATE TABLE "My Schema"."a.b ""c""" ("Id" INTEGER NOT NULL)',
    )
    config = {
        **BASE,
        **postgres.settings,
        "schema.pattern": "My Schema",
        "incrementing.column.name": "Id",
    }
    assert faults(config) == {}
    assert faults({**config, "incrementing.column.name": "id"}).keys() == {
        "incrementing.column.name"
    }


def test_a_worker_gives_out_no_files_that_it_does_not_have_to(
    sqlite: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DROVER_FILE_ROOTS", "/elsewhere")
    found = faults({**BASE, **sqlite.settings})
    assert list(found) == ["connection.url"]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (
            "jdbc:postgresql://db:5433/shop?user=u&password=p%20w&sslmode=require&prepareThreshold=0",
            DatabaseAddress(
                "postgresql", "db", 5433, "shop", "u", "p w", (("sslmode", "require"),)
            ),
        ),
        (
            "postgresql://ann:x%2Fy@db/shop",
            DatabaseAddress("postgresql", "db", None, "shop", "ann", "x/y"),
        ),
        ("jdbc:mariadb://db:3306/shop", DatabaseAddress("mysql", "db", 3306, "shop")),
        ("mysql+pymysql://db/shop", DatabaseAddress("mysql", "db", None, "shop")),
        ("jdbc:sqlite:/data/a.db", DatabaseAddress("sqlite", name="/data/a.db")),
        ("sqlite:////data/a.db", DatabaseAddress("sqlite", name="/data/a.db")),
    ],
)
def test_urls_of_jdbc_and_of_sqlalchemy(url: str, expected: Any) -> None:
    assert parse_address(url, None, None) == expected


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("", "must start with"),
        ("oracle:thin:@db", "must start with"),
        ("jdbc:postgresql://db", "must have the form"),
        ("jdbc:postgresql:///shop", "must have the form"),
        ("jdbc:postgresql://db:x/shop", "port"),
        ("jdbc:postgresql://db:99999/shop", "port"),
        ("jdbc:postgresql://db/shop?loggerLevel=x", "'loggerLevel' is an unsupported parameter"),
        ("jdbc:sqlite:a.db", "absolute path"),
        ("jdbc:sqlite::memory:", "absolute path"),
    ],
)
def test_urls_that_name_no_database(url: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_address(url, None, None)


def test_a_password_is_never_shown() -> None:
    address = parse_address("postgresql://ann:s3cret@db/shop", None, None)
    assert "s3cret" not in f"{address} {address!r}"


def test_without_the_libraries_one_line_says_what_to_install(
    sqlite: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    found = faults({**BASE, **sqlite.settings})
    assert list(found) == ["connector.class"]
    assert "pip install 'drover-connect[jdbc]'" in found["connector.class"]


def task_start(config: dict[str, str]) -> str | None:
    """What the start of a task says about all tables; None if it can read them."""
    values = dict(parse_config(JdbcSource, config, use_systems=False).values)
    address = address_of(values)
    try:
        with address.connected() as connection:
            tables = [] if values["query"] else wanted_tables(connection, values)
            values["task.tables"] = json.dumps(tables)
            sources = sources_of(connection, values)
        for source in sources:
            planner = TablePlanner(address, source, values["mode"], {}, gap_delay_ms=0)
            with session(address) as connection:
                plan = planner.plan(connection, 10, 1)
            for part in plan.parts if plan else ():
                list(part.read())
            planner.close()
    except Exception as error:  # noqa: BLE001 - of any library
        return str(error)
    return None


def compared(config: dict[str, str]) -> dict[str, str]:
    """The faults, which must be some exactly if the task cannot read."""
    found, failed = faults(config), task_start(config)
    assert bool(found) == (failed is not None), (found, failed)
    return found


def stranger(database: Postgres | MariaDb, *grants: str) -> dict[str, str]:
    """Settings of a user with these rights only."""
    name = f"reader_{next(_users)}"
    own = f"{name}@'127.0.0.1'" if isinstance(database, MariaDb) else name
    secret = "IDENTIFIED BY 'x'" if isinstance(database, MariaDb) else "LOGIN PASSWORD 'x'"
    database.execute(f"CREATE USER {own} {secret}", *(f"GRANT {each} TO {own}" for each in grants))
    return {**BASE, **database.settings, "connection.user": name, "connection.password": "x"}


def test_each_right_to_read_on_postgres(postgres: Postgres) -> None:
    postgres.execute(
        "CREATE SCHEMA app",
        "CREATE TABLE app.items (id INTEGER NOT NULL)",
        "INSERT INTO app.items VALUES (1)",
        f"REVOKE ALL ON DATABASE {postgres.database} FROM public",
    )
    config = stranger(postgres) | {"table.whitelist": "app.items"}
    user = config["connection.user"]
    for granted in (
        f"CONNECT ON DATABASE {postgres.database}",
        "USAGE ON SCHEMA app",
        "SELECT ON app.items",
    ):
        assert f"GRANT {granted} TO {user}" in compared(config)["connection.user"]
        postgres.execute(f"GRANT {granted} TO {user}")
    assert compared(config) == {}
    del config["table.whitelist"]
    config["query"] = "SELECT * FROM app.items"
    granted = f"GRANT TEMPORARY ON DATABASE {postgres.database} TO {user}"
    assert granted in compared(config)["connection.user"]
    postgres.execute(granted)
    assert compared(config) == {}
    postgres.execute(f"REVOKE SELECT ON app.items FROM {user}")
    assert "permission denied for table items" in compared(config)["connection.user"]


def test_each_right_to_read_on_mysql(server: MariaDb) -> None:
    server.execute(
        "CREATE TABLE items (id INTEGER NOT NULL)",
        "INSERT INTO items VALUES (1)",
        "CREATE VIEW shown AS SELECT id FROM items",
    )
    config = stranger(server)
    own = f"'{config['connection.user']}'@'127.0.0.1'"
    assert f"GRANT SELECT ON {server.database}.* TO" in compared(config)["connection.user"]
    server.execute(f"GRANT SELECT ON {server.database}.items TO {own}")
    assert compared(config) == {}
    server.execute(f"GRANT SELECT ON {server.database}.shown TO {own}")
    views = {**config, "table.types": "VIEW", "validate.non.null": "false"}
    granted = f"GRANT SELECT, SHOW VIEW ON {server.database}.shown TO {own}"
    assert granted in compared(views)["connection.user"]
    server.execute(granted)
    assert compared(views) == {}
    query = {**config, "query": "SELECT id FROM items"}
    granted = f"GRANT CREATE TEMPORARY TABLES ON {server.database}.* TO {own}"
    assert granted in compared(query)["connection.user"]
    server.execute(granted)
    assert compared(query) == {}


def test_columns_that_a_query_has_not(orders: Database) -> None:
    config = {**BASE, **orders.settings, "query": "SELECT id, note FROM orders", "key": "name"}
    config["incrementing.column.name"] = "number"
    assert compared(config) == {
        "incrementing.column.name": "the query has no column 'number'",
        "key": "the query has no column 'name'",
    }


def test_a_timestamp_column_must_have_times(orders: Database) -> None:
    orders.execute("INSERT INTO orders (id, note) VALUES (1, 'x')")
    config = {**BASE, **orders.settings, "mode": "timestamp", "timestamp.column.name": "note"}
    config |= {"table.whitelist": "orders", "validate.non.null": "false"}
    found = compared(config)["timestamp.column.name"]
    assert found == "column 'note' of table 'orders' is VARCHAR, it must have times"


def test_views_are_read_as_tables(every_database: Database) -> None:
    database = every_database
    database.execute(
        "CREATE TABLE orders (id INTEGER NOT NULL, changed TIMESTAMP NULL)",
        "INSERT INTO orders VALUES (1, '2026-01-01 00:00:00'), (2, '2026-01-02 00:00:00')",
        "CREATE VIEW recent AS SELECT id, changed FROM orders WHERE id > 1",
    )
    names = ["recent"]
    if isinstance(database, Postgres):
        database.execute("CREATE MATERIALIZED VIEW kept AS SELECT * FROM recent")
        names = ["kept", "recent"]
    config = {**BASE, **database.settings, "timestamp.column.name": "changed"}
    assert "'recent' is a view: set table.types=TABLE,VIEW" in str(
        faults({**config, "table.whitelist": "recent"})
    )
    found = faults({**config, "table.types": "VIEW"})
    assert found == {} or "columns of views" in found["incrementing.column.name"]
    config["validate.non.null"] = "false"
    for mode in ("bulk", "incrementing", "timestamp", "timestamp+incrementing"):
        of_mode = {**config, "mode": mode, "table.types": "view"}
        assert compared(of_mode) == {}
        values = parse_config(JdbcSource, of_mode).values
        with address_of(values).connected() as connection:
            assert [name for _, name in wanted_tables(connection, values)] == names
    found = faults({**config, "table.types": "SYNONYM"})
    assert "must be one or more of TABLE, PARTITIONED TABLE, VIEW" in found["table.types"]


def test_a_name_of_another_schema(postgres: Postgres) -> None:
    postgres.execute("CREATE SCHEMA app", "CREATE TABLE app.items (id INTEGER NOT NULL)")
    config = {**BASE, **postgres.settings}
    for wanted in ("items", "shop.items"):
        found = faults({**config, "table.whitelist": wanted})["table.whitelist"]
        assert "schema 'app' has a table 'items': name it app.items" in found


@pytest.mark.parametrize(
    ("prefix", "table", "told"),
    [("p" * 244, "items", None), ("p" * 245, "items", "249"), (".", ".", "must not be")],
)
def test_topics_at_the_limits_of_names(
    postgres: Postgres, prefix: str, table: str, told: str | None
) -> None:
    postgres.execute(f'CREATE TABLE "{table}" (id INTEGER NOT NULL)')
    found = faults({**BASE, **postgres.settings, "topic.prefix": prefix})
    assert (found == {}) if told is None else told in found["topic.prefix"]


@pytest.mark.parametrize(
    ("types", "names"),
    [
        ("TABLE", ["parted", "plain"]),
        ("TABLE,PARTITIONED TABLE", ["parted", "plain"]),
        ("partitioned table", ["parted"]),
        ("VIEW,PARTITIONED TABLE", ["parted", "shown"]),
    ],
)
def test_partitioned_tables_are_named_as_in_jdbc(
    postgres: Postgres, types: str, names: list[str]
) -> None:
    postgres.execute(
        "CREATE TABLE plain (id integer PRIMARY KEY)",
        "CREATE TABLE parted (id integer PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF parted DEFAULT",
        "CREATE VIEW shown AS SELECT * FROM plain",
    )
    config = {**BASE, **postgres.settings, "table.types": types, "validate.non.null": "false"}
    assert compared(config) == {}
    values = parse_config(JdbcSource, config).values
    with address_of(values).connected() as connection:
        assert [name for _, name in wanted_tables(connection, values)] == names


@pytest.mark.parametrize("mode", ["bulk", "incrementing"])
def test_a_table_without_columns_is_left_out_until_it_has_some(
    postgres: Postgres, mode: str
) -> None:
    postgres.execute(
        "CREATE TABLE orders (id integer PRIMARY KEY)",
        "CREATE TABLE bare ()",
        "INSERT INTO bare DEFAULT VALUES",
        "CREATE TABLE dropped (gone integer)",
        "ALTER TABLE dropped DROP COLUMN gone",
    )
    config = {**BASE, **postgres.settings, "mode": mode}

    def wanted() -> list[str]:
        values = parse_config(JdbcSource, config).values
        with address_of(values).connected() as connection:
            return [name for _, name in wanted_tables(connection, values)]

    assert compared(config) == {}
    assert wanted() == ["orders"]
    listed = {**config, "table.whitelist": "orders,bare"}
    assert "table 'bare' has no columns" in faults(listed)["table.whitelist"]
    with pytest.raises(DatabaseError, match="'bare' has no columns any longer"):
        TableReader(postgres, mode, table="bare")
    postgres.execute("ALTER TABLE bare ADD COLUMN id serial PRIMARY KEY")
    assert wanted() == ["bare", "orders"]
    assert compared(config) == {}
