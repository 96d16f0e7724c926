"""Change capture and JdbcSource deliver the same values of PostgreSQL, with the same types."""

import json
from typing import Any

import pytest

from drover.connectors.jdbc.source import JdbcSource
from drover.connectors.postgres.source import PostgresCdcSource
from tests.spark.connectors.cdc_shop import raw_of, run_until, stored_in
from tests.spark.pipeline import Pipeline
from tests.support.postgres import Postgres

pytestmark = pytest.mark.spark

COLUMNS = {
    "id": ("INT PRIMARY KEY", "1"),
    "prices": ("NUMERIC(8, 2)[]", "'{1.5,NULL,-2}'"),
    "exact": ("NUMERIC[]", "'{1.50,NULL,12345678901234567890123456789012345678901}'"),
    "moods": ("mood[]", "'{fine,NULL}'"),
    "hosts": ("INET[]", "'{127.0.0.1,10.0.0.0/8}'"),
    "docs": ("JSONB[]", """ARRAY['{"a": "x,y"}'::jsonb, NULL]"""),
    "times": ("TIME[]", "'{01:02:03.000004,NULL}'"),
    "spans": ("INTERVAL[]", "'{1 day,NULL}'"),
    "mails": ("email[]", "'{a@b}'"),
    "flags": ("BOOL[]", "'{t,f,NULL}'"),
    "days": ("DATE[]", "'{2024-02-29,NULL}'"),
    "data": ("BYTEA[]", """ARRAY['\\x00ff'::bytea, NULL]"""),
    "mood": ("mood", "'fine'"),
    "amount": ("amount", "12.5"),
    "nested": ("bigger", "12.5"),
    "mail": ("email", "'a@b'"),
    "number": ("OID", "4000000000"),
    "tens": ("NUMERIC(5, -2)", "1234567"),
    "small": ("NUMERIC(3, 5)", "0.00123"),
    "large": ("NUMERIC(38, 0)", "70000"),
    "open": ("NUMERIC", "7000"),
    "bad": ("UUID", "'12345678-1234-1234-1234-123456789abc'"),
}


@pytest.fixture
def typed(shop: Postgres) -> Postgres:
    shop.execute(
        "DROP TABLE orders",
        "CREATE TYPE mood AS ENUM ('fine', 'bad')",
        "CREATE DOMAIN email AS TEXT",
        "CREATE DOMAIN amount AS NUMERIC(12, 2)",
        "CREATE DOMAIN bigger AS amount",
        f"CREATE TABLE typed ({', '.join(f'{name} {each[0]}' for name, each in COLUMNS.items())})",
        f"INSERT INTO typed VALUES ({', '.join(value for _, value in COLUMNS.values())})",
    )
    return shop


def described(stored: Any) -> dict[str, Any]:
    """The type and the value of each field; whether it may be null does not count."""
    types = {}
    for each in stored["schema"]["fields"]:
        kind = {k: v for k, v in each.items() if k in ("type", "name", "items", "parameters")}
        types[each["field"]] = json.dumps(kind, sort_keys=True)
    return {name: (types[name], value) for name, value in stored["payload"].items()}


def test_both_sources_deliver_the_same_types(pipeline: Pipeline, typed: Postgres) -> None:
    source = pipeline.start_source(PostgresCdcSource, raw_of(typed, record_layout="flat"))
    run_until(source, 1)
    typed.execute("UPDATE typed SET id = 1")
    run_until(source, 1)
    raw = {
        "name": "read",
        **typed.settings,
        "mode": "bulk",
        "table.whitelist": "typed",
        "topic.prefix": "j-",
        "poll.interval.ms": "3600000",
    }
    reading = pipeline.start_source(JdbcSource, raw)
    run_until(reading, 1)
    captured, changed = map(described, stored_in(pipeline, "db.public.typed", "value"))
    (read,) = map(described, stored_in(pipeline, "j-typed", "value"))
    assert captured == changed
    assert captured == read
    assert captured["exact"][1][2] == "12345678901234567890123456789012345678901"
    assert captured["spans"][1] == ["1 day", None]


def test_a_config_of_debezium_has_its_defaults(pipeline: Pipeline, shop: Postgres) -> None:
    shop.execute(
        "DROP TABLE orders",
        "CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP, short TIMESTAMP(3), day DATE,"
        " zoned TIMESTAMPTZ, span INTERVAL)",
        "INSERT INTO t VALUES (1, '2024-05-01 01:37:31.030522', '2024-05-01 01:37:31.03',"
        " '2024-05-01', '2024-05-01 01:37:31.030522+00', '1 mon 2 days 00:00:00.5')",
    )
    raw = raw_of(shop, connector_class="io.debezium.connector.postgresql.PostgresConnector")
    run_until(pipeline.start_source(PostgresCdcSource, raw), 1)
    (stored,) = stored_in(pipeline, "db.public.t", "value")
    assert stored["payload"]["after"] == {
        "id": 1,
        "at": 1714527451030522,
        "short": 1714527451030,
        "day": 19844,
        "zoned": "2024-05-01T01:37:31.030522Z",
        "span": 2_629_800_000_000 + 2 * 86_400_000_000 + 500_000,
    }
