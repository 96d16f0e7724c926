"""Topics of tables: one for each table, in the characters of topics."""

import threading
from typing import Any

import pytest

from drover.connector import ConnectorContext
from drover.connector.settings import parse_config, validate_config
from drover.connectors.jdbc.catalogue import wanted_tables
from drover.connectors.jdbc.database import address_of
from drover.connectors.jdbc.source import JdbcSource, TopicsError
from drover.connectors.jdbc.table_topics import topic_of
from tests.databases.conftest import Database, Sqlite
from tests.support.mariadb import MariaDb
from tests.support.postgres import Postgres

ID = "(id INTEGER NOT NULL PRIMARY KEY)"


def config_of(database: Database, **settings: str) -> dict[str, str]:
    return {
        "name": "c",
        "connector.class": "JdbcSource",
        "mode": "incrementing",
        "incrementing.column.name": "id",
        "topic.prefix": "db-",
        "table.poll.interval.ms": "100",
        **database.settings,
        **settings,
    }


def faults(config: dict[str, str]) -> dict[str, str]:
    values = validate_config(JdbcSource, config)
    return {value.key.name: "; ".join(value.errors) for value in values if value.errors}


def topics(config: dict[str, str]) -> dict[Any, str]:
    values = parse_config(JdbcSource, config).values
    with address_of(values).connected() as connection:
        return {table: topic_of(values, table) for table in wanted_tables(connection, values)}


@pytest.fixture
def twins(postgres: Postgres) -> Postgres:
    postgres.execute(
        "CREATE SCHEMA sa", "CREATE SCHEMA sb", f"CREATE TABLE sa.t {ID}", f"CREATE TABLE sb.t {ID}"
    )
    return postgres


def test_two_tables_of_one_name_share_no_topic(twins: Postgres) -> None:
    config = config_of(twins, **{"table.whitelist": "sa.t,sb.t"})
    found = faults(config)
    assert list(found) == ["topic.prefix"]
    assert "the tables 'sa.t', 'sb.t' would share the topic 'db-t'" in found["topic.prefix"]
    assert "set topic.names.qualify=true" in found["topic.prefix"]
    config["topic.names.qualify"] = "true"
    assert faults(config) == {}
    assert topics(config) == {("sa", "t"): "db-sa.t", ("sb", "t"): "db-sb.t"}


def test_a_table_of_the_users_schema_and_one_of_another(twins: Postgres) -> None:
    twins.execute(f"CREATE TABLE t {ID}")
    config = config_of(twins, **{"table.whitelist": "t,sa.t"})
    assert "would share the topic 'db-t'" in faults(config)["topic.prefix"]
    config["topic.names.qualify"] = "true"
    assert sorted(topics(config).values()) == ["db-sa.t", "db-t"]


def test_two_databases_of_mysql(server: MariaDb) -> None:
    other = f"other_{server.database}"
    server.execute(
        f"CREATE DATABASE {other}", f"CREATE TABLE same {ID}", f"CREATE TABLE {other}.same {ID}"
    )
    config = config_of(server, **{"table.whitelist": f"same,{other}.same"})
    assert "would share the topic 'db-same'" in faults(config)["topic.prefix"]
    config["topic.names.qualify"] = "true"
    assert sorted(topics(config).values()) == [f"db-{other}.same", "db-same"]


def test_a_table_that_is_named_twice_is_read_once(twins: Postgres) -> None:
    twins.execute(f"CREATE TABLE t {ID}")
    config = config_of(twins, **{"table.whitelist": "public.t,t"})
    assert faults(config) == {}
    assert topics(config) == {(None, "t"): "db-t"}
    only = config_of(twins, **{"table.whitelist": "public.t"})
    assert topics(only) == {("public", "t"): "db-t"}


def test_the_blacklist_adds_no_tables(twins: Postgres) -> None:
    twins.execute(f"CREATE TABLE a {ID}", f"CREATE TABLE b {ID}", f"CREATE TABLE sa.u {ID}")
    config = config_of(twins, **{"table.blacklist": "public.a,sa.t"})
    assert faults(config) == {}
    assert topics(config) == {(None, "b"): "db-b"}


def test_characters_that_topics_cannot_have(database: Database) -> None:
    database.execute(f'CREATE TABLE "a b" {ID}', f'CREATE TABLE "Ünï$" {ID}')
    config = config_of(database)
    assert faults(config) == {}
    assert sorted(topics(config).values()) == ["db-_n__", "db-a_b"]
    database.execute(f"CREATE TABLE a_b {ID}")
    told = faults(config)["topic.prefix"]
    assert "the tables 'a b', 'a_b' would share the topic 'db-a_b'" in told
    assert "topic.names.qualify" not in told
    assert faults({**config, "table.blacklist": "a_b"}) == {}


def test_a_name_that_is_too_long(sqlite: Sqlite) -> None:
    sqlite.execute(f"CREATE TABLE {'x' * 250} {ID}")
    assert "249" in faults(config_of(sqlite))["topic.prefix"]


@pytest.mark.parametrize("prefix", ["a b", "ü-", "a/b"])
def test_a_prefix_that_no_topic_can_have(sqlite: Sqlite, prefix: str) -> None:
    sqlite.execute(f"CREATE TABLE a {ID}")
    assert list(faults(config_of(sqlite, **{"topic.prefix": prefix}))) == ["topic.prefix"]
    query = {"topic.prefix": prefix, "query": "SELECT * FROM a"}
    assert list(faults(config_of(sqlite, **query))) == ["topic.prefix"]


def test_a_table_that_is_added_later_with_the_topic_of_another(twins: Postgres) -> None:
    config = config_of(twins, **{"table.whitelist": "sa.t,sb.t"})
    twins.execute("DROP TABLE sb.t")
    values = parse_config(JdbcSource, config).values
    failed, told = threading.Event(), []
    connector = JdbcSource()

    def fail(error: BaseException) -> None:
        told.append(error)
        failed.set()

    connector.start(ConnectorContext("c", fail=fail), values)
    try:
        assert len(connector.task_configs(4)) == 1
        twins.execute(f"CREATE TABLE sb.t {ID}")
        assert failed.wait(30)
    finally:
        connector.stop()
    assert "would share the topic 'db-t'" in str(told[0])
    with pytest.raises(TopicsError, match="would share the topic 'db-t'"):
        JdbcSource().start(ConnectorContext("c"), values)


def test_views_and_near_names_are_told(postgres: Postgres) -> None:
    postgres.execute(
        f'CREATE TABLE "Orders" {ID}',
        'CREATE VIEW vw AS SELECT * FROM "Orders"',
        'CREATE MATERIALIZED VIEW mv AS SELECT * FROM "Orders"',
    )
    told = faults(config_of(postgres, **{"table.whitelist": "vw,public.mv,orders,nothing"}))
    assert told["table.whitelist"].split("; ") == [
        "'vw' is a view: set table.types=TABLE,VIEW",
        "'public.mv' is a view: set table.types=TABLE,VIEW",
        "table 'orders' does not exist, but 'Orders' does",
        "table 'nothing' does not exist",
    ]


def test_names_with_dots(postgres: Postgres) -> None:
    postgres.execute(
        'CREATE SCHEMA "Mixed Case"',
        f'CREATE TABLE "Mixed Case"."Order.Items" {ID}',
        f'CREATE TABLE "a.b" {ID}',
    )
    config = config_of(postgres, **{"table.whitelist": "Mixed Case.Order.Items,a.b"})
    assert faults(config) == {}
    assert sorted(topics(config).values()) == ["db-Order.Items", "db-a.b"]


def test_the_current_schema_of_a_url(twins: Postgres) -> None:
    config = config_of(twins, **{"connection.url": f"{twins.url}?currentSchema=sb,public"})
    assert faults(config) == {}
    assert topics(config) == {(None, "t"): "db-t"}
    twins.execute(
        'CREATE SCHEMA "Odd \\ one"',
        f'CREATE TABLE "Odd \\ one".odd {ID}',
        "DROP SCHEMA sb CASCADE",
    )
    url = f"{twins.url}?currentSchema=%22Odd%20%5C%20one%22"
    assert topics(config_of(twins, **{"connection.url": url})) == {(None, "odd"): "db-odd"}
