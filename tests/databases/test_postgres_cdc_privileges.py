"""A missing privilege that validation reports fails the task, and the remedy in both is enough."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from drover.connector import RetriableError, SourceTaskContext
from drover.connector.settings import parse_config, validate_config
from drover.connectors.postgres.server import ServerError
from drover.connectors.postgres.source import PostgresCdcSource
from drover.connectors.postgres.task import PostgresCdcSourceTask
from drover.model.ids import TaskId, Term
from tests.support.postgres import PASSWORD, Postgres
from tests.support.waiting import wait_until

#: These tasks read no rows.
SPARK = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1))


class Role:
    """A user with exactly the privileges to capture ``sales.orders`` and ``sales.parts``."""

    def __init__(self, server: Postgres) -> None:
        self.server, self.database = server, server.database
        self.name = f"copy_{self.database}"
        self.config = {
            "name": "c",
            "connector.class": "PostgresCdcSource",
            "topic.prefix": "db",
            **server.cdc_settings,
            "database.user": self.name,
            "slot.name": f"slot_{self.database}",
            "publication.name": "pub",
        }

    def execute(self, *statements: str) -> None:
        self.server.execute(*map(self.named, statements))

    def named(self, text: str) -> str:
        return text.replace("ROLE_", self.name).replace("DATABASE_", self.database)

    def streaming(self) -> "psycopg.Connection[tuple[Any, ...]]":
        """A session that replicates."""
        parameters: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": self.server.port,
            "dbname": self.database,
            "user": self.name,
            "password": PASSWORD,
        }
        return psycopg.connect(**parameters, replication="database", autocommit=True)

    def faults(self, **changes: str) -> dict[str, str]:
        """The faults of validation, by setting."""
        config = self.config | {key.replace("_", "."): text for key, text in changes.items()}
        values = validate_config(PostgresCdcSource, config)
        return {each.key.name: "; ".join(each.errors) for each in values if each.errors}

    def warned(self, **changes: str) -> str:
        config = self.config | {key.replace("_", "."): text for key, text in changes.items()}
        values = validate_config(PostgresCdcSource, config)
        return "; ".join(text for each in values for text in each.warnings)

    def skipped(self, **changes: str) -> dict[str, str]:
        config = self.config | {key.replace("_", "."): text for key, text in changes.items()}
        values = validate_config(PostgresCdcSource, config)
        found = {each.key.name: "; ".join(each.skipped_checks) for each in values}
        return {name: text for name, text in found.items() if text}

    def ran(self, caplog: pytest.LogCaptureFixture, **changes: str) -> str:
        """The error of a task that starts and then streams, or the tables that it leaves out."""
        caplog.clear()
        changed = {key.replace("_", "."): text for key, text in changes.items()}
        config = self.config | {"snapshot.mode": "never"} | changed
        task = PostgresCdcSourceTask()
        try:
            task.start(
                SourceTaskContext(
                    task=TaskId("c", 0),
                    claim=Term(1, 1),
                    config=parse_config(PostgresCdcSource, config).values,
                    spark=cast("Any", SPARK),
                )
            )
            if config["snapshot.mode"] == "never":
                for _ in range(3):
                    task.poll()
        except (RetriableError, ServerError) as error:
            return str(error)
        finally:
            with suppress(AttributeError):
                task.stop()
        return "\n".join(
            each.getMessage() for each in caplog.records if "not captured" in each.getMessage()
        )


@pytest.fixture
def role(postgres: Postgres) -> Iterator[Role]:
    role = Role(postgres)
    role.execute(
        f"CREATE ROLE ROLE_ LOGIN REPLICATION PASSWORD '{PASSWORD}'",
        "GRANT CREATE ON DATABASE DATABASE_ TO ROLE_",
        "CREATE SCHEMA sales",
        "GRANT USAGE ON SCHEMA sales TO ROLE_",
        "CREATE TABLE sales.orders (id INT PRIMARY KEY)",
        "CREATE TABLE sales.parts (id INT PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE sales.parts_1 PARTITION OF sales.parts FOR VALUES FROM (0) TO (10)",
        "ALTER TABLE sales.orders OWNER TO ROLE_",
        "ALTER TABLE sales.parts OWNER TO ROLE_",
        "ALTER TABLE sales.parts_1 OWNER TO ROLE_",
    )
    yield role
    where = f"FROM pg_replication_slots WHERE slot_name = 'slot_{role.database}'"

    def freed() -> bool:
        postgres.execute(f"SELECT pg_terminate_backend(active_pid) {where} AND active")
        with suppress(psycopg.errors.ObjectInUse):
            postgres.execute(f"SELECT pg_drop_replication_slot(slot_name) {where} AND NOT active")
        return not postgres.rows(f"SELECT {where}")

    wait_until(freed)
    postgres.execute(
        f"REASSIGN OWNED BY {role.name} TO drover",
        f"DROP OWNED BY {role.name}",
        f"DROP ROLE {role.name}",
    )


#: What is taken away, the setting that validation blames, and the remedy.
MISSING = {
    "connect": (
        "REVOKE CONNECT, TEMP ON DATABASE DATABASE_ FROM PUBLIC",
        "database.dbname",
        "GRANT CONNECT ON DATABASE DATABASE_ TO ROLE_",
    ),
    "login": ("ALTER ROLE ROLE_ NOLOGIN", "database.user", "ALTER ROLE ROLE_ LOGIN"),
    "replication": (
        "ALTER ROLE ROLE_ NOREPLICATION",
        "database.user",
        "ALTER ROLE ROLE_ REPLICATION",
    ),
    "connections": (
        "ALTER ROLE ROLE_ CONNECTION LIMIT 0",
        "database.user",
        "ALTER ROLE ROLE_ CONNECTION LIMIT -1",
    ),
    "create on the database": (
        "REVOKE CREATE ON DATABASE DATABASE_ FROM ROLE_",
        "database.user",
        "GRANT CREATE ON DATABASE DATABASE_ TO ROLE_",
    ),
    "usage of the schema": (
        "REVOKE USAGE ON SCHEMA sales FROM ROLE_",
        "database.user",
        "GRANT USAGE ON SCHEMA sales TO ROLE_",
    ),
    "select": (
        "REVOKE SELECT ON sales.orders FROM ROLE_",
        "database.user",
        "GRANT SELECT ON sales.orders TO ROLE_",
    ),
    "select on some columns only": (
        "ALTER TABLE sales.orders ADD v INT; REVOKE SELECT ON sales.orders FROM ROLE_; "
        "GRANT SELECT (id) ON sales.orders TO ROLE_",
        "database.user",
        "GRANT SELECT ON sales.orders TO ROLE_",
    ),
    "select on a partition": (
        "REVOKE SELECT ON sales.parts_1 FROM ROLE_",
        "database.user",
        "GRANT SELECT ON sales.parts_1 TO ROLE_",
    ),
    "usage of a partition's schema": (
        'CREATE SCHEMA "Old"; CREATE TABLE "Old"."P 2" PARTITION OF sales.parts FOR VALUES FROM'
        ' (10) TO (20); GRANT SELECT ON "Old"."P 2" TO ROLE_',
        "database.user",
        'GRANT USAGE ON SCHEMA "Old" TO ROLE_',
    ),
    "row security": (
        "ALTER TABLE sales.orders ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
        "database.user",
        "ALTER ROLE ROLE_ BYPASSRLS",
    ),
    "row security of a partition": (
        "ALTER TABLE sales.parts_1 ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
        "database.user",
        "ALTER ROLE ROLE_ BYPASSRLS",
    ),
    "ownership": (
        "ALTER TABLE sales.orders OWNER TO drover; GRANT SELECT ON sales.orders TO ROLE_",
        "table.include.list",
        "ALTER TABLE sales.orders OWNER TO ROLE_",
    ),
    "ownership of the publication": (
        "CREATE PUBLICATION pub FOR TABLE sales.orders WITH (publish_via_partition_root = true)",
        "publication.name",
        "ALTER PUBLICATION pub ADD TABLE sales.parts",
    ),
    "partitions under their table": (
        "CREATE PUBLICATION pub FOR ALL TABLES",
        "publication.name",
        "ALTER PUBLICATION pub SET (publish_via_partition_root = true)",
    ),
}


def test_a_user_with_all_privileges_has_no_faults(
    role: Role, caplog: pytest.LogCaptureFixture
) -> None:
    assert role.faults() == {}
    assert role.ran(caplog) == ""
    assert role.faults() == {}  # with slot and publication


@pytest.mark.parametrize("case", MISSING)
def test_a_missing_privilege_is_reported_before_and_by_the_run(
    role: Role, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    taken, setting, remedy = map(role.named, MISSING[case])
    role.execute(taken)
    found = role.faults()
    assert found.keys() == {setting}, found
    assert remedy in found[setting]
    assert remedy in role.ran(caplog)
    role.execute(remedy)
    assert role.faults() == {}
    assert role.ran(caplog) == ""


def test_the_run_names_the_statement_that_was_refused(
    role: Role, caplog: pytest.LogCaptureFixture
) -> None:
    role.execute("REVOKE CREATE ON DATABASE DATABASE_ FROM ROLE_")
    found = role.ran(caplog)
    assert found.startswith("CREATE PUBLICATION pub WITH")
    assert found.count("permission denied for database") == 1
    assert found.endswith(role.named("GRANT CREATE ON DATABASE DATABASE_ TO ROLE_"))


def test_all_missing_privileges_are_reported_at_once(role: Role) -> None:
    for case in ("replication", "create on the database", "usage of the schema", "ownership"):
        role.execute(MISSING[case][0])
    found = "; ".join(role.faults().values())
    for case in ("replication", "create on the database", "usage of the schema", "ownership"):
        assert role.named(MISSING[case][2]) in found


def test_privileges_of_inherited_roles_count(role: Role, caplog: pytest.LogCaptureFixture) -> None:
    group = f"group_{role.database}"
    role.execute(
        f"CREATE ROLE {group}",
        f"CREATE ROLE {group}_more IN ROLE {group}",
        f"GRANT {group}_more TO ROLE_",
        f"ALTER TABLE sales.orders OWNER TO {group}",
        f"ALTER TABLE sales.parts OWNER TO {group}",
        f"ALTER TABLE sales.parts_1 OWNER TO {group}",
        f"GRANT USAGE ON SCHEMA sales TO {group}",
        f"GRANT CREATE ON DATABASE DATABASE_ TO {group}",
        "REVOKE CREATE ON DATABASE DATABASE_ FROM ROLE_",
        "REVOKE USAGE ON SCHEMA sales FROM ROLE_",
        f"CREATE PUBLICATION pub; ALTER PUBLICATION pub OWNER TO {group}",
        "ALTER PUBLICATION pub SET (publish_via_partition_root = true)",
    )
    assert role.faults() == {}
    assert role.ran(caplog) == ""
    role.execute(f"REVOKE {group}_more FROM ROLE_", "ALTER ROLE ROLE_ NOINHERIT")
    role.execute(f"GRANT {group}_more TO ROLE_")
    needed = role.named("GRANT SELECT ON sales.orders TO ROLE_")
    assert needed in role.faults()["database.user"]
    assert needed in role.ran(caplog)
    role.execute(f"REASSIGN OWNED BY {group} TO drover", f"DROP OWNED BY {group}")
    role.execute(f"DROP ROLE {group}_more", f"DROP ROLE {group}")


def test_a_superuser_needs_no_grants(role: Role, caplog: pytest.LogCaptureFixture) -> None:
    role.execute(
        "ALTER ROLE ROLE_ SUPERUSER NOREPLICATION",
        "ALTER TABLE sales.orders OWNER TO drover",
        "REVOKE ALL ON SCHEMA sales FROM ROLE_",
    )
    assert role.faults() == {}
    assert role.ran(caplog) == ""


def test_reading_alone_needs_no_right_to_replicate(
    role: Role, caplog: pytest.LogCaptureFixture
) -> None:
    for case in ("replication", "create on the database", "ownership"):
        role.execute(MISSING[case][0])
    assert role.faults(snapshot_mode="initial_only") == {}
    assert role.ran(caplog, snapshot_mode="initial_only") == ""


def test_a_publication_that_must_exist(role: Role, caplog: pytest.LogCaptureFixture) -> None:
    mode = {"publication_autocreate_mode": "disabled"}
    assert "CREATE PUBLICATION pub" in role.faults(**mode)["publication.name"]
    role.execute("CREATE PUBLICATION pub")
    assert "has no tables" in role.faults(**mode)["publication.name"]
    role.execute("ALTER PUBLICATION pub ADD TABLE sales.orders")
    assert role.faults(**mode) == {}
    found = role.faults(**mode, table_include_list=r"sales\.orders,sales\.parts")
    assert "ADD TABLE sales.parts" in found["table.include.list"]
    for case in ("create on the database", "ownership"):  # its owner published the table
        role.execute(MISSING[case][0])
    assert role.faults(**mode) == {}
    assert role.ran(caplog, **mode) == ""


def test_a_publication_for_all_tables(role: Role, caplog: pytest.LogCaptureFixture) -> None:
    mode = {"publication_autocreate_mode": "all_tables"}
    remedy = role.named("ALTER ROLE ROLE_ SUPERUSER")
    assert remedy in role.faults(**mode)["database.user"]
    assert role.ran(caplog, **mode).endswith(remedy)
    role.execute("CREATE TABLE keyless (id INT)", remedy)
    include = {"table_include_list": r"sales\..*"}
    assert role.faults(**mode, **include) == {}
    assert "without a suitable replica identity: public.keyless" in role.warned(**mode, **include)
    assert role.ran(caplog, **mode, **include) == ""
    query = "SELECT puballtables, pubviaroot FROM pg_publication"
    assert role.server.rows(query) == [(True, True)]
    role.execute("ALTER ROLE ROLE_ NOSUPERUSER")
    assert role.faults(**mode, **include) == {}
    assert role.ran(caplog, **mode, **include) == ""


def test_operations_that_a_publication_does_not_send(
    role: Role, caplog: pytest.LogCaptureFixture
) -> None:
    role.execute(
        "CREATE PUBLICATION pub WITH (publish = 'insert, update')",
        "ALTER PUBLICATION pub OWNER TO ROLE_",
    )
    assert "does not send delete, so" in role.warned()
    assert "does not send delete, truncate" in role.warned(skipped_operations="none")
    assert "does not send" not in role.warned(skipped_operations="d,t")
    with caplog.at_level(logging.WARNING):
        role.ran(caplog, table_include_list=r"sales\.orders")
        assert "does not send delete" in caplog.text
    role.execute("ALTER PUBLICATION pub SET (publish = 'insert, update, delete, truncate')")
    assert "does not send" not in role.warned()


def test_a_publication_with_a_row_filter(role: Role) -> None:
    if int(str(role.server.rows("SHOW server_version_num")[0][0])) < 150_000:
        pytest.skip("row filters exist from PostgreSQL 15 on")
    role.execute(
        "CREATE PUBLICATION pub FOR TABLE sales.orders WHERE (id > 1), sales.parts (id) WITH"
        " (publish_via_partition_root = true)"
    )
    assert "only some rows or columns of sales.orders, sales.parts" in role.warned()


def test_patterns_name_what_has_no_changes(role: Role) -> None:
    role.execute(
        "CREATE VIEW sales.seen AS SELECT 1 AS id",
        "CREATE MATERIALIZED VIEW sales.kept AS SELECT 1 AS id",
        "CREATE UNLOGGED TABLE sales.fast (id INT PRIMARY KEY)",
    )

    def faults(pattern: str) -> str:
        return role.faults(table_include_list=pattern)["table.include.list"]

    assert "sales.seen is a view" in faults(r"sales\.seen")
    assert "sales.kept is a view" in faults(r"sales\.kept")
    assert "sales.fast is not logged" in faults(r"sales\.fast")
    assert "sales.parts_1 is a partition: list its table sales.parts" in faults(r"sales\.parts_1")
    assert "contain the schema, such as sales.orders" in faults("orders")


def test_a_slot_that_another_session_reads(
    role: Role, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drover.connectors.postgres.session._SLOT_WAIT_S", 0.3)
    slot = f"slot_{role.database}"
    role.server.execute(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    role.execute("CREATE PUBLICATION pub FOR ALL TABLES WITH (publish_via_partition_root = true)")
    begin = (
        f"START_REPLICATION SLOT {slot} LOGICAL 0/0 (proto_version '1', publication_names 'pub')"
    )
    with closing(role.streaming()) as other:
        other.pgconn.exec_(begin.encode())
        assert role.faults() == {}  # the reader may stop
        assert "is read by another session" in role.warned()
        assert "is read by another session" in role.ran(caplog)
    wait_until(lambda: "another session" not in role.warned())
    assert role.ran(caplog) == ""


def test_a_slot_of_another_database(
    role: Role, postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    slot = f"slot_{role.database}"
    other = Postgres(postgres.port, "postgres")
    other.execute(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    for found in (role.faults()["slot.name"], role.ran(caplog)):
        assert "is a slot of plugin pgoutput in database postgres" in found
        assert "set another slot.name" in found
    other.execute(f"SELECT pg_drop_replication_slot('{slot}')")
    postgres.execute(f"SELECT pg_create_logical_replication_slot('{slot}', 'test_decoding')")
    for found in (role.faults()["slot.name"], role.ran(caplog)):
        assert "is a slot of plugin test_decoding" in found


def test_the_right_to_replicate_is_not_inherited(
    role: Role, caplog: pytest.LogCaptureFixture
) -> None:
    group = f"streams_{role.database}"
    remedy = role.named("ALTER ROLE ROLE_ REPLICATION")
    role.execute(
        f"CREATE ROLE {group} REPLICATION; GRANT {group} TO ROLE_; ALTER ROLE ROLE_ NOREPLICATION"
    )
    assert remedy in role.faults()["database.user"]
    assert remedy in role.ran(caplog)
    role.execute(f"DROP ROLE {group}")


def test_all_senders_are_in_use(role: Role, caplog: pytest.LogCaptureFixture) -> None:
    ((limit,),) = role.server.rows(
        "SELECT current_setting('max_wal_senders')::int - count(*)::int FROM pg_stat_replication"
    )
    role.server.execute(
        f"SELECT pg_create_logical_replication_slot('slot_{role.database}', 'pgoutput')"
    )
    with ExitStack() as stack:
        for _ in range(int(str(limit))):
            stack.enter_context(closing(role.streaming()))
        for found in (role.faults()["database.hostname"], role.ran(caplog)):
            assert "raise max_wal_senders" in found
    wait_until(lambda: role.faults() == {})


def test_a_connector_that_streams_has_no_faults(role: Role) -> None:
    """Its own session reads the slot, and may be the last one that the server permits."""
    config = role.config | {"snapshot.mode": "never"}
    task = PostgresCdcSourceTask()
    values = parse_config(PostgresCdcSource, config).values
    task.start(
        SourceTaskContext(
            task=TaskId("c", 0), claim=Term(1, 1), config=values, spark=cast("Any", SPARK)
        )
    )
    task.poll()
    active = f"SELECT active FROM pg_replication_slots WHERE slot_name = 'slot_{role.database}'"
    wait_until(lambda: role.server.rows(active) == [(True,)])
    assert role.faults() == {}
    role.config["name"] = "another"
    assert "is read by another session" in role.warned()
    task.stop()


def test_the_servers_limits(role: Role, caplog: pytest.LogCaptureFixture) -> None:
    free = "current_setting('max_replication_slots')::int - (SELECT count(*)::int FROM"
    slots = f"generate_series(1, {free} pg_replication_slots)) n"
    role.server.execute(
        f"SELECT pg_create_physical_replication_slot('full_{role.database}_' || n) FROM {slots}"
    )
    try:
        found = role.faults()
        assert found.keys() == {"slot.name"}
        assert "raise max_replication_slots" in found["slot.name"]
        assert "raise max_replication_slots" in role.ran(caplog)
    finally:
        role.server.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
            f" WHERE slot_name LIKE 'full_{role.database}_%'"
        )
    assert role.faults() == {}


def test_read_only_sessions(role: Role, caplog: pytest.LogCaptureFixture) -> None:
    role.execute("ALTER ROLE ROLE_ SET default_transaction_read_only = on")
    assert "default_transaction_read_only" in role.faults()["database.user"]
    assert "read-only transaction" in role.ran(caplog)
    role.execute("CREATE PUBLICATION pub FOR ALL TABLES WITH (publish_via_partition_root = true)")
    assert role.faults() == {}
    assert role.ran(caplog) == ""


@pytest.mark.parametrize(
    ("statement", "remedy"),
    [
        ("INSERT INTO sales.beats VALUES (1)", "GRANT INSERT ON beats TO"),
        ("UPDATE sales.beats SET id = 2 WHERE id = 1", "GRANT SELECT, UPDATE ON beats TO"),
        ("SELECT * FROM hidden.beats", "GRANT USAGE ON SCHEMA hidden TO"),
        ("SELECT nextval('sales.numbers')", "GRANT USAGE ON SEQUENCE numbers TO"),
    ],
)
def test_the_statement_of_heartbeats(
    role: Role, caplog: pytest.LogCaptureFixture, statement: str, remedy: str
) -> None:
    role.execute(
        "CREATE SCHEMA hidden",
        "CREATE TABLE hidden.beats (id INT)",
        "CREATE TABLE sales.beats (id INT)",
        "CREATE SEQUENCE sales.numbers",
        "CREATE PUBLICATION pub FOR TABLE sales.orders",
    )
    config = {
        "heartbeat_interval_ms": "1",
        "heartbeat_action_query": statement,
        "publication_autocreate_mode": "disabled",
    }
    found = role.faults(**config).get("heartbeat.action.query", "")
    ran = role.ran(caplog, **config)
    assert remedy in ran
    if "nextval" in statement:  # a function's body is not planned
        return
    assert remedy in found


def test_statements_of_heartbeats_are_not_run(role: Role) -> None:
    role.execute(
        "CREATE TABLE sales.beats (id INT PRIMARY KEY)", "GRANT ALL ON sales.beats TO ROLE_"
    )
    base = {"heartbeat_interval_ms": "1", "table_include_list": r"sales\.orders"}

    def faults(statement: str) -> str:
        faults = role.faults(**base, heartbeat_action_query=statement)
        return faults.get("heartbeat.action.query", "")

    def skipped(statement: str) -> str:
        found = role.skipped(**base, heartbeat_action_query=statement)
        return found.get("heartbeat.action.query", "")

    assert faults("INSERT INTO sales.beats VALUES (1) ON CONFLICT DO NOTHING;") == ""
    assert "syntax error" in faults("INSERT sales.beats VALUES (1)")
    assert "does not exist" in faults("UPDATE sales.none SET id = 1")
    assert "several" in skipped(
        "INSERT INTO sales.beats VALUES (1); INSERT INTO sales.beats VALUES (2)"
    )
    assert "only its run shows them" in skipped("NOTIFY beats")
    assert "heartbeat.interval.ms is 0" in role.warned(heartbeat_action_query="SELECT 1")
    assert role.server.rows("SELECT count(*) FROM sales.beats") == [(0,)]


def test_a_catalogue_that_cannot_be_read_is_a_skipped_check(role: Role) -> None:
    role.execute("REVOKE SELECT ON pg_publication FROM PUBLIC")
    skipped = role.skipped()
    assert "permission denied for table pg_publication" in skipped["publication.name"]
    role.execute(
        "GRANT SELECT ON pg_publication TO PUBLIC", "REVOKE SELECT ON pg_class FROM PUBLIC"
    )
    assert "permission denied for table pg_class" in role.skipped()["table.include.list"]
    role.execute("GRANT SELECT ON pg_class TO PUBLIC")
    assert role.skipped() == {}
