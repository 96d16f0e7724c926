"""Validation of PostgresCdcSource configs, including the server's checks, all faults at once."""

import pytest

from drover.connector.settings import parse_config, validate_config
from drover.connectors.postgres.source import PostgresCdcSource
from tests.support.postgres import Postgres


def faults(config: dict[str, str]) -> dict[str, str]:
    values = validate_config(PostgresCdcSource, config)
    return {value.key.name: "; ".join(value.errors) for value in values if value.errors}


@pytest.fixture
def base(postgres: Postgres) -> dict[str, str]:
    postgres.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    return {
        "name": "c",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "topic.prefix": "db",
        **postgres.cdc_settings,
    }


def test_a_good_config_has_no_faults(base: dict[str, str]) -> None:
    assert faults(base) == {}
    assert faults({**base, "table.include.list": r"public\.ord.*"}) == {}


def test_everything_that_is_wrong_is_told_at_once(base: dict[str, str], postgres: Postgres) -> None:
    postgres.execute(
        "CREATE TABLE keyless (id INTEGER)",
        "SELECT pg_create_physical_replication_slot('taken')",
        "CREATE ROLE reader LOGIN PASSWORD 'x'",
    )
    found = faults(
        {
            **base,
            "database.user": "reader",
            "database.password": "x",
            "slot.name": "taken",
            "table.include.list": r"public\.keyless,public\.orders,public\.none",
            "column.mask.hash.v2": "a",
            "publication.autocreate.mode": "disabled",
        }
    )
    postgres.execute("SELECT pg_drop_replication_slot('taken')", "DROP ROLE reader")
    assert found.keys() == {
        "database.user",
        "slot.name",
        "publication.name",
        "table.include.list",
        "column.mask.hash.v2",
    }
    assert "REPLICATION" in found["database.user"]
    assert "plugin None" in found["slot.name"]


def test_tables_that_would_refuse_updates_are_told(
    base: dict[str, str], postgres: Postgres
) -> None:
    postgres.execute("CREATE TABLE keyless (id INTEGER)")
    assert "public.keyless has no primary key" in faults(base)["table.include.list"]
    postgres.execute("ALTER TABLE keyless REPLICA IDENTITY FULL")
    assert faults(base) == {}


def test_tables_that_cannot_be_told_apart_are_told(
    base: dict[str, str], postgres: Postgres
) -> None:
    postgres.execute(
        'CREATE SCHEMA "a.b"',
        "CREATE SCHEMA a",
        'CREATE TABLE "a.b".c (id INTEGER PRIMARY KEY)',
        'CREATE TABLE a."b.c" (id INTEGER PRIMARY KEY)',
    )
    assert "2 tables have the qualified name a.b.c" in faults(base)["table.include.list"]
    assert faults({**base, "schema.exclude.list": r"a\.b"}) == {}


def test_a_key_has_columns_that_deletions_tell(base: dict[str, str], postgres: Postgres) -> None:
    postgres.execute("ALTER TABLE orders ADD COLUMN shop INTEGER")
    keyed = {**base, "message.key.columns": r"public\.orders:shop,id"}
    assert "REPLICA IDENTITY FULL" in faults(keyed)["message.key.columns"]
    postgres.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    assert faults(keyed) == {}


@pytest.mark.parametrize(
    "identity", ["", "ALTER TABLE made REPLICA IDENTITY FULL", "ALTER TABLE made DROP CONSTRAINT"]
)
def test_a_key_with_a_generated_column_is_told(
    base: dict[str, str], postgres: Postgres, identity: str
) -> None:
    """PostgreSQL before 18 never publishes it, and 18 only on demand."""
    postgres.execute(
        "CREATE TABLE made (tenant INT NOT NULL, a INT, g INT NOT NULL GENERATED ALWAYS AS (a * 2)"
        " STORED, PRIMARY KEY (tenant, g))",
        "CREATE UNIQUE INDEX by_g ON made (g)",
    )
    if identity.endswith("CONSTRAINT"):
        postgres.execute(
            "ALTER TABLE made DROP CONSTRAINT made_pkey, ADD PRIMARY KEY (tenant)",
            "ALTER TABLE made REPLICA IDENTITY USING INDEX by_g",
        )
    elif identity:
        postgres.execute(identity)
    assert "generated column 'g' in its key" in faults(base)["table.include.list"]
    postgres.execute("ALTER TABLE made REPLICA IDENTITY FULL")
    keyed = {**base, "message.key.columns": r"public\.made:tenant,a"}
    if postgres.rows("SELECT current_setting('server_version_num')::int >= 180000") == [(True,)]:
        assert "refuses its updates and deletes" in faults(keyed)["table.include.list"]
        postgres.execute(
            "CREATE PUBLICATION drover_c WITH (publish_generated_columns = stored,"
            " publish_via_partition_root = true)"
        )
    assert faults(keyed) == {}


def test_the_flat_layout_needs_keys(base: dict[str, str], postgres: Postgres) -> None:
    postgres.execute("CREATE TABLE keyless (id INT)", "ALTER TABLE keyless REPLICA IDENTITY FULL")
    flat = {**base, "record.layout": "flat"}
    assert "cannot express its updates and deletions" in faults(flat)["table.include.list"]
    assert faults({**flat, "message.key.columns": r"public\.keyless:id"}) == {}
    assert faults({**flat, "skipped.operations": "u,d,t"}) == {}
    assert faults({**flat, "skipped.operations": "none"}).keys() == {"skipped.operations"}
    assert faults({**flat, "tombstones.on.delete": "false"}).keys() == {"tombstones.on.delete"}


def test_columns_that_changes_may_lack_are_a_warning(
    base: dict[str, str], postgres: Postgres
) -> None:
    postgres.execute(
        "CREATE TABLE large (id INT PRIMARY KEY, short VARCHAR(20), price NUMERIC(9, 2), note TEXT,"
        " doc JSONB, tags TEXT[], data BYTEA, whole VARCHAR(4000))"
    )

    def warned(config: dict[str, str]) -> str:
        values = validate_config(PostgresCdcSource, config)
        return "".join(
            w for each in values if each.key.name.startswith("table") for w in each.warnings
        )

    assert "public.large (note, doc, tags, data, whole)" in warned(base)
    assert "public.large (doc)" in warned({**base, "column.include.list": r".*\.(id|doc)"})
    assert faults(base) == {}
    postgres.execute("ALTER TABLE large REPLICA IDENTITY FULL")
    assert warned(base) == ""


def test_what_the_user_may_not_publish_is_told(base: dict[str, str], postgres: Postgres) -> None:
    name = f"modest_{postgres.database}"
    postgres.execute(
        f"CREATE ROLE {name} LOGIN REPLICATION PASSWORD 'x'", f"GRANT SELECT ON orders TO {name}"
    )
    config = {**base, "database.user": name, "database.password": "x"}
    found = faults(config)
    assert found.keys() == {"database.user", "table.include.list"}
    assert "GRANT CREATE ON DATABASE" in found["database.user"]
    assert "only its owner may publish it" in found["table.include.list"]
    postgres.execute("CREATE PUBLICATION drover_c")
    assert faults(config).keys() == {"publication.name", "table.include.list"}
    postgres.execute("ALTER PUBLICATION drover_c ADD TABLE orders")
    assert faults(config) == {}
    postgres.execute(f"DROP OWNED BY {name}", f"DROP ROLE {name}")


@pytest.mark.parametrize(
    ("changes", "blamed"),
    [
        ({"database.password": "wrong"}, "database.password"),
        ({"database.dbname": "none"}, "database.dbname"),
        ({"database.port": "1"}, "database.hostname"),
        ({"plugin.name": "wal2json"}, "plugin.name"),
        ({"table.include.list": "("}, "table.include.list"),
        ({"time.precision.mode": "isostring"}, "time.precision.mode"),
        ({"column.include.list": "a", "column.exclude.list": "b"}, "column.exclude.list"),
        ({"column.exclude.list": "["}, "column.exclude.list"),
        ({"message.key.columns": "public.orders"}, "message.key.columns"),
        ({"message.key.columns": "public.none:id"}, "message.key.columns"),
        ({"message.key.columns": "public.orders:none"}, "message.key.columns"),
        ({"snapshot.select.statement.overrides": "x"}, "snapshot.select.statement.overrides"),
        ({"snapshot.include.collection.list": "x"}, "snapshot.include.collection.list"),
        ({"heartbeat.interval.ms": "-1"}, "heartbeat.interval.ms"),
    ],
)
def test_one_fault_is_blamed_on_its_setting(
    base: dict[str, str], changes: dict[str, str], blamed: str
) -> None:
    assert faults({**base, **changes}).keys() == {blamed}


def test_former_names_of_settings_work(base: dict[str, str], postgres: Postgres) -> None:
    postgres.execute("CREATE TABLE keyless (id INTEGER)")
    former = {name: text for name, text in base.items() if name != "topic.prefix"}
    former |= {"database.server.name": "db", "table.whitelist": r"public\.orders"}
    assert faults(former) == {}
    assert "public.none" in faults({**former, "table.whitelist": "public.none"})["table.whitelist"]
    both = {**former, "table.include.list": "public.orders"}
    assert faults(both).keys() == {"table.whitelist"}


@pytest.mark.parametrize(
    ("class_name", "times", "intervals"),
    [
        ("PostgresCdcSource", "connect", "text"),
        ("io.debezium.connector.postgresql.PostgresConnector", "adaptive", "numeric"),
    ],
)
def test_the_class_name_decides_the_defaults(
    base: dict[str, str], class_name: str, times: str, intervals: str
) -> None:
    parsed = parse_config(PostgresCdcSource, {**base, "connector.class": class_name})
    assert parsed.values["time.precision.mode"] == times
    assert parsed.values["interval.handling.mode"] == intervals
    given = {**base, "connector.class": class_name, "time.precision.mode": "connect"}
    assert parse_config(PostgresCdcSource, given).values["time.precision.mode"] == "connect"
