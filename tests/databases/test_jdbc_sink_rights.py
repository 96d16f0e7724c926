"""Validation of JdbcSink predicts each missing right, and only rights that the run misses."""

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from drover.connector.settings import parse_config, validate_config
from drover.connectors.jdbc.database import DatabaseError, address_of
from drover.connectors.jdbc.ledger import make_ledger
from drover.connectors.jdbc.sink import JdbcSink, _write_settings
from drover.connectors.jdbc.table_writer import TableWriter
from drover.model.ids import Term
from drover.record.errors import RetriableError
from tests.databases.conftest import Database, every_database
from tests.support.mariadb import MariaDb
from tests.support.other_user import OTHER_ID
from tests.support.postgres import Postgres
from tests.support.table_records import records

database = every_database
_users = count(1)
BASE = {
    "name": "c",
    "connector.class": "JdbcSink",
    "topics": "orders",
    "insert.mode": "upsert",
    "pk.mode": "record_key",
    "pk.fields": "id",
    "delete.enabled": "true",
}
VALUE = pa.struct([("id", pa.int64()), ("name", pa.string())])


def faults(config: Mapping[str, str]) -> dict[str, str]:
    values = validate_config(JdbcSink, config)
    return {value.key.name: "; ".join(value.errors) for value in values if value.errors}


def run(config: Mapping[str, str], *more: str) -> str | None:
    """What the run does with an upsert and a deletion: None if it writes them, else the error."""
    parsed = parse_config(JdbcSink, config, use_systems=False).require_valid()
    settings = _write_settings(parsed)
    address = address_of(parsed)
    value = pa.struct([*VALUE, *((each, pa.string()) for each in more)])
    rows: list[tuple[Any, Any]] = [({"id": 1}, {"id": 1, "name": "a"})]
    if settings.deletes:
        rows.append(({"id": 2}, None))
    batch = records(*rows, topic="orders", value=value)
    try:
        if settings.ledger:
            with address.connected() as connection:
                make_ledger(connection, settings.ledger)
        # another connector's name: records that were written are skipped
        writer = TableWriter(address, f"c{next(_users)}", Term(1, 1), settings)
        (answer,) = writer([batch])
        return next(filter(None, answer.column("reason").to_pylist()), None)
    except (DatabaseError, RetriableError) as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - make_ledger's errors are not translated here
        return str(error)


def compared(config: Mapping[str, str], *more: str) -> dict[str, str]:
    """The faults, which must be some exactly if the run fails."""
    found = faults(config)
    failed = run(config, *more)
    assert bool(found) == (failed is not None), (found, failed)
    return found


OF_POSTGRES = {
    "connect": "CONNECT ON DATABASE {database}",
    "usage": "USAGE ON SCHEMA app",
    "temporary": "TEMPORARY ON DATABASE {database}",
    "insert": "INSERT ON app.orders",
    "update": "UPDATE ON app.orders",
    "select": "SELECT ON app.orders",
    "delete": "DELETE ON app.orders",
    "select offsets": "SELECT ON app.drover_offsets",
    "insert offsets": "INSERT ON app.drover_offsets",
    "update offsets": "UPDATE ON app.drover_offsets",
}
TOLD_BY_POSTGRES = {
    "connect": "GRANT CONNECT ON DATABASE {database} TO {user}",
    "temporary": "GRANT TEMPORARY ON DATABASE {database} TO {user}",
    "usage": "GRANT USAGE ON SCHEMA app TO {user}",
}


def of_postgres(postgres: Postgres, without: str = "") -> dict[str, str]:
    """A config whose user lacks one right."""
    user = f"sink_{next(_users)}"
    postgres.execute(
        f"CREATE ROLE {user} LOGIN PASSWORD 'x'",
        f"REVOKE ALL ON DATABASE {postgres.database} FROM public",
        "CREATE SCHEMA IF NOT EXISTS app",
        "CREATE TABLE IF NOT EXISTS app.orders (id BIGINT PRIMARY KEY, name TEXT)",
        "CREATE TABLE IF NOT EXISTS app.drover_offsets (connector VARCHAR(255), topic VARCHAR(249),"
        ' "partition" INTEGER, next_offset BIGINT, generation BIGINT, sequence BIGINT,'
        ' PRIMARY KEY (connector, topic, "partition"))',
        *(
            f"GRANT {right.format(database=postgres.database)} TO {user}"
            for name, right in OF_POSTGRES.items()
            if name != without
        ),
    )
    settings = {**postgres.settings, "connection.user": user, "connection.password": "x"}
    own = {"table.name.format": "app.${topic}", "offsets.table": "app.drover_offsets"}
    return {**BASE, **settings, **own}


@pytest.mark.parametrize("right", OF_POSTGRES)
def test_a_right_that_is_missing_on_postgres(postgres: Postgres, right: str) -> None:
    config = of_postgres(postgres, right)
    user = config["connection.user"]
    found = compared(config)
    granted = OF_POSTGRES[right].format(database=postgres.database)
    told = TOLD_BY_POSTGRES.get(right, "GRANT {granted} TO {user}")
    told = told.format(granted=granted, user=user, database=postgres.database)
    assert found.keys() == {"connection.user"}
    assert told in found["connection.user"]
    postgres.execute(f"GRANT {granted} TO {user}")
    assert compared(config) == {}


def test_tables_that_a_user_may_not_create_on_postgres(postgres: Postgres) -> None:
    config = {**of_postgres(postgres), "table.name.format": "app.new_${topic}"}
    assert "auto.create" in compared(config)
    config["auto.create"] = "true"
    found = compared(config)["connection.user"]
    told = f"GRANT CREATE ON SCHEMA app TO {config['connection.user']}"
    assert found == f"has no right to CREATE tables in schema 'app': {told}"
    postgres.execute("DROP TABLE app.drover_offsets")
    del config["table.name.format"]
    config = {**config, "table.name.format": "app.${topic}"}
    assert compared(config)["connection.user"] == found
    postgres.execute(told)
    assert compared({**config, "table.name.format": "app.new_${topic}"}) == {}


def test_a_search_path_without_a_schema_that_the_user_may_use(postgres: Postgres) -> None:
    config = of_postgres(postgres)
    user = config["connection.user"]
    postgres.execute("REVOKE ALL ON SCHEMA public FROM public")
    config |= {"table.name.format": "${topic}", "auto.create": "true"}
    assert f"GRANT USAGE ON SCHEMA public TO {user}" in compared(config)["connection.user"]
    postgres.execute(f"GRANT USAGE, CREATE ON SCHEMA public TO {user}")
    assert compared(config) == {}


def test_a_table_of_another_owner_is_not_extended(postgres: Postgres) -> None:
    config = {**of_postgres(postgres), "auto.evolve": "true"}
    found = compared(config, "more")
    assert f"ALTER TABLE app.orders OWNER TO {config['connection.user']}" in found["auto.evolve"]
    postgres.execute(f"GRANT drover TO {config['connection.user']}")
    assert compared(config, "more") == {}


def test_inherited_rights_and_superusers(postgres: Postgres) -> None:
    config = of_postgres(postgres, "insert")
    group = f"group_{next(_users)}"
    postgres.execute(
        f"CREATE ROLE {group}",
        f"GRANT INSERT ON app.orders TO {group}",
        f"GRANT {group} TO {config['connection.user']}",
    )
    assert compared(config) == {}
    mighty = of_postgres(postgres, "update")
    postgres.execute(f"ALTER ROLE {mighty['connection.user']} SUPERUSER")
    assert compared(mighty) == {}


def test_rights_on_columns(postgres: Postgres) -> None:
    config = of_postgres(postgres, "insert")
    user = config["connection.user"]
    postgres.execute(f"GRANT INSERT (id, name) ON app.orders TO {user}")
    assert compared(config) == {}
    skipped = {v.key.name: v.skipped_checks for v in validate_config(JdbcSink, config)}
    assert "INSERT on some columns of table 'app.orders'" in skipped["connection.user"][0]


def test_read_only_sessions_of_postgres(postgres: Postgres) -> None:
    config = of_postgres(postgres)
    user = config["connection.user"]
    postgres.execute(f"ALTER ROLE {user} SET default_transaction_read_only = on")
    assert "default_transaction_read_only = off" in compared(config)["connection.url"]


def test_a_sequence_that_the_user_may_not_use(postgres: Postgres) -> None:
    config = of_postgres(postgres)
    postgres.execute("ALTER TABLE app.orders ADD number SERIAL")
    warned = {v.key.name: v.warnings for v in validate_config(JdbcSink, config)}
    assert "GRANT USAGE ON SEQUENCE app.orders_number_seq" in str(warned["connection.user"])
    assert "sequence" in (run(config) or "")


OF_MYSQL = {
    "insert": "INSERT ON {database}.orders",
    "update": "UPDATE ON {database}.orders",
    "select": "SELECT ON {database}.orders",
    "delete": "DELETE ON {database}.orders",
    "select offsets": "SELECT ON {database}.drover_offsets",
    "insert offsets": "INSERT ON {database}.drover_offsets",
    "update offsets": "UPDATE ON {database}.drover_offsets",
}


def of_mysql(server: MariaDb, without: str = "", *, offsets: bool = True) -> dict[str, str]:
    """As ``of_postgres``."""
    user = f"sink_{next(_users)}"
    server.execute(
        f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'x'",
        "CREATE TABLE IF NOT EXISTS orders (id BIGINT PRIMARY KEY, name TEXT)",
    )
    config = {**BASE, **server.settings}
    if offsets:
        with address_of(parse_config(JdbcSink, config, use_systems=False).values).connected() as c:
            make_ledger(c, "drover_offsets")
    server.execute(
        *(
            f"GRANT {right.format(database=server.database)} TO {user}@'127.0.0.1'"
            for name, right in OF_MYSQL.items()
            if name != without and (offsets or "offsets" not in name)
        )
    )
    return {**config, "connection.user": user, "connection.password": "x"}


@pytest.mark.parametrize("right", OF_MYSQL)
def test_a_right_that_is_missing_on_mysql(server: MariaDb, right: str) -> None:
    config = of_mysql(server, right)
    found = compared(config)
    granted = OF_MYSQL[right].format(database=server.database)
    told = f"GRANT {granted} TO '{config['connection.user']}'@'127.0.0.1'"
    assert found.keys() == {"connection.user"}
    assert told in found["connection.user"]
    server.execute(told)
    assert compared(config) == {}


def test_tables_that_a_user_may_not_create_on_mysql(server: MariaDb) -> None:
    config = of_mysql(server, offsets=False)
    user = f"{config['connection.user']}@'127.0.0.1'"
    found = compared(config)["connection.user"]
    assert f"GRANT CREATE ON {server.database}.drover_offsets TO" in found
    server.execute(f"GRANT CREATE ON {server.database}.* TO {user}")
    assert "SELECT, INSERT, UPDATE at table 'drover_offsets'" in compared(config)["connection.user"]
    server.execute(f"GRANT SELECT, INSERT, UPDATE ON {server.database}.* TO {user}")
    assert compared(config) == {}
    new = {**config, "table.name.format": "new_${topic}", "auto.create": "true"}
    assert "DELETE at table 'new_orders'" in compared(new)["connection.user"]
    server.execute(f"GRANT DELETE ON {server.database}.* TO {user}")
    assert compared(new) == {}


def test_a_table_that_a_user_may_not_alter_on_mysql(server: MariaDb) -> None:
    config = {**of_mysql(server), "auto.evolve": "true"}
    found = compared(config, "more")["auto.evolve"]
    told = f"GRANT ALTER ON {server.database}.orders TO '{config['connection.user']}'@'127.0.0.1'"
    assert told in found
    server.execute(told)
    assert compared(config, "more") == {}


def test_a_user_without_any_right_on_the_database_of_mysql(server: MariaDb) -> None:
    user = f"sink_{next(_users)}"
    server.execute(f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'x'")
    config = {**BASE, **server.settings, "connection.user": user, "connection.password": "x"}
    assert "GRANT" in compared(config)["connection.user"]


def test_rights_of_a_role_of_mariadb(mariadb: MariaDb) -> None:
    config = of_mysql(mariadb, "insert")
    role, user = f"role_{next(_users)}", f"{config['connection.user']}@'127.0.0.1'"
    mariadb.execute(
        f"CREATE ROLE {role}",
        f"GRANT INSERT ON {mariadb.database}.orders TO {role}",
        f"GRANT {role} TO {user}",
    )
    assert "INSERT at table 'orders'" in compared(config)["connection.user"], "it is not active"
    mariadb.execute(f"SET DEFAULT ROLE {role} FOR {user}")
    assert compared(config) == {}


@contextmanager
def as_other_user() -> Iterator[None]:
    """Without the rights of root, who may write everywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(OTHER_ID)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(("what", "mode"), [("file", 0o444), ("directory", 0o555)])
def test_a_file_of_sqlite_that_cannot_be_written(what: str, mode: int, open_path: Path) -> None:
    path = open_path / "a.db"
    config = {**BASE, "connection.url": f"jdbc:sqlite:{path}", "auto.create": "true"}
    with as_other_user():
        assert compared(config) == {}
        changed = path if what == "file" else open_path
        kept = changed.stat().st_mode
        changed.chmod(mode)
        assert f"the {what} {changed} is read-only" in compared(config)["connection.url"]
        changed.chmod(kept)
        assert compared(config) == {}


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that every user may write."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o777)
        (path / "own").mkdir()
        (path / "own").chmod(0o777)
        if os.geteuid() == 0:
            os.chown(path / "own", OTHER_ID, OTHER_ID)
        yield path / "own"


VIEWS = (
    "CREATE VIEW part AS SELECT id, name FROM orders WHERE id < 9",
    "CREATE VIEW counted AS SELECT count(*) AS id FROM orders",
)


def test_views_that_can_be_written(database: Database) -> None:
    database.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, name VARCHAR(9))", *VIEWS)
    config = {**BASE, **database.settings, "table.name.format": "part", "auto.create": "true"}
    upserted = compared(config)
    if isinstance(database, Postgres):
        assert upserted == {}
        found = compared({**config, "pk.fields": "name"})
        assert "a view that cannot be upserted by name" in found["table.name.format"]
        assert compared({**config, "insert.mode": "update"}) == {}
        database.execute("CREATE MATERIALIZED VIEW kept AS SELECT * FROM orders")
        found = compared({**config, "table.name.format": "kept"})
        assert "cannot INSERT and UPDATE" in found["table.name.format"] or "UPDATE" in str(found)
    else:
        assert "is a view" in upserted["table.name.format"]
    if isinstance(database, MariaDb):
        assert compared({**config, "insert.mode": "update"}) == {}
    counted = {**config, "table.name.format": "counted", "insert.mode": "update"}
    counted["delete.enabled"] = "false"
    assert "'counted' is a view" in compared(counted)["table.name.format"]


def test_inserts_need_only_the_right_to_insert(postgres: Postgres, mariadb: MariaDb) -> None:
    changes = {"insert.mode": "insert", "pk.mode": "none", "delete.enabled": "false"}
    for config in (of_postgres(postgres), of_mysql(mariadb)):
        config = {name: text for name, text in {**config, **changes}.items() if name != "pk.fields"}
        own, of_table = config["connection.user"], "SELECT, UPDATE, DELETE ON"
        if "postgresql" in config["connection.url"]:
            postgres.execute(f"REVOKE {of_table} app.orders FROM {own}")
            assert compared(config) == {}
            continue
        mariadb.execute(f"REVOKE {of_table} {mariadb.database}.orders FROM {own}@'127.0.0.1'")
        compared(config)


def test_a_config_for_one_topic_per_table(database: Database) -> None:
    page = (Path(__file__).parents[2] / "docs" / "jdbc.md").read_text()
    example = page.split("name: shop-tables\n")[1].split("```")[0]
    config = dict(re.findall(r"^  ([\w.]+): (.*)$", example, re.MULTILINE))
    own = {**config, **database.settings, "name": "shop-tables"}
    assert faults(own) == {}
    without = {name: text for name, text in own.items() if not name.startswith("transforms")}
    assert "RegexRouter" in faults(without)["table.name.format"]
