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
    # every other type of the documentation, alone and in arrays
    "i2": ("SMALLINT", "-32768"),
    "i4": ("INTEGER", "2147483647"),
    "i8": ("BIGINT", "-9223372036854775808"),
    "f4": ("REAL", "'1.1'"),
    "f8": ("DOUBLE PRECISION", "'-1e308'"),
    "flag": ("BOOLEAN", "false"),
    "cost": ("MONEY", "'-12.50'"),
    "code": ("CHAR(4)", "'a'"),
    "short": ("VARCHAR(3)", "'å\U0001f600'"),
    "system": ("NAME", "'n'"),
    "one": ('"char"', "'c'"),
    "raw": ("BYTEA", "'\\x00ff'"),
    "day": ("DATE", "'0001-01-01'"),
    "clock": ("TIME", "'23:59:59.999999'"),
    "second": ("TIME(0)", "'01:02:03'"),
    "zoned": ("TIMETZ", "'01:02:03.5+05:30'"),
    "moment": ("TIMESTAMPTZ", "'2024-03-31 02:30:00.123456+02'"),
    "wall": ("TIMESTAMP", "'9999-12-31 23:59:59.999'"),
    "span": ("INTERVAL", "'1 year -2 mons 3 days -04:05:06.7'"),
    "host": ("INET", "'::1/64'"),
    "net": ("CIDR", "'10.0.0.0/8'"),
    "mac": ("MACADDR", "'08:00:2b:01:02:03'"),
    "mac8": ("MACADDR8", "'08:00:2b:01:02:03:04:05'"),
    "text_json": ("JSON", """'{"a" : 1.10}'"""),
    "binary_json": ("JSONB", """'{"a": 1.10}'"""),
    "markup": ("XML", "'<a/>'"),
    "bits": ("BIT(3)", "B'101'"),
    "some_bits": ("VARBIT(5)", "B'10'"),
    "spot": ("POINT", "'(1.5,2)'"),
    "area": ("BOX", "'(2,2),(1,1)'"),
    "areas": ("BOX[]", "'{(2,2),(1,1);(4,4),(3,3)}'"),
    "words": ("TSVECTOR", "'a b'"),
    "query": ("TSQUERY", "'a & b'"),
    "numbers": ("INT4RANGE", "'[1,5)'"),
    "during": ("TSTZRANGE", "'[2024-01-01 00:00+00,)'"),
    "many": ("INT4MULTIRANGE", "'{[1,2),[5,6)}'"),
    "place": ("PG_LSN", "'0/16B3748'"),
    "pair": ("pair", "'(1,\"a b\")'"),
    "pairs": ("pair[]", "ARRAY['(1,a)'::pair]"),
    "no_case": ("CITEXT", "'Aa'"),
    "bag": ("HSTORE", "'a=>1, b=>NULL'"),
    "list_domain": ("listed", "'{1,2}'"),
    "i2s": ("SMALLINT[]", "'{1,NULL}'"),
    "i8s": ("BIGINT[]", "'{-9223372036854775808}'"),
    "f4s": ("REAL[]", "'{1.1,NaN}'"),
    "f8s": ("DOUBLE PRECISION[]", "'{Infinity}'"),
    "texts": ("TEXT[]", """'{"a,b","",NULL,"NULL","\\\\"}'"""),
    "shorts": ("VARCHAR(3)[]", "'{abc}'"),
    "codes": ("CHAR(4)[]", "'{a}'"),
    "ids": ("UUID[]", "'{12345678-1234-1234-1234-123456789abc}'"),
    "moments": ("TIMESTAMPTZ[]", "'{2024-03-31 02:30:00.123456+02,NULL}'"),
    "walls": ("TIMESTAMP[]", "'{2024-03-31 02:30:00}'"),
    "oids": ("OID[]", "'{4000000000}'"),
    "tens_list": ("NUMERIC(5, -2)[]", "'{1234567,NULL}'"),
    "costs": ("MONEY[]", "'{-12.50}'"),
    "zones": ("TIMETZ[]", "'{01:02:03+05:30}'"),
    "nets": ("CIDR[]", "'{10.0.0.0/8}'"),
    "ranges": ("INT4RANGE[]", """'{"[1,5)"}'"""),
    "amounts": ("amount[]", "'{12.5,NULL}'"),
    "bigger_list": ("bigger[]", "'{12.5}'"),
    "no_cases": ("CITEXT[]", "'{Aa}'"),
    "bags": ("HSTORE[]", """'{"a=>1"}'"""),
    "spots": ("POINT[]", """'{"(1,2)",NULL}'"""),
    "markups": ("XML[]", "'{<a/>}'"),
    "places": ("PG_LSN[]", "'{0/16B3748}'"),
    "ones": ('"char"[]', "'{c}'"),
    "words_list": ("TSVECTOR[]", """'{"a b"}'"""),
    "own_range": ("prices", "'[1.5,2)'"),
    "own_ranges": ("prices[]", """'{"[1.5,2)"}'"""),
    "pair_list": ("pair_list", "ARRAY['(1,a)'::pair]"),
    "none": ("NUMERIC(8, 2)[]", "NULL"),
    "empty": ("NUMERIC(8, 2)[]", "'{}'"),
}


@pytest.fixture
def typed(shop: Postgres) -> Postgres:
    shop.execute(
        "DROP TABLE orders",
        "CREATE TYPE mood AS ENUM ('fine', 'bad')",
        "CREATE DOMAIN email AS TEXT",
        "CREATE DOMAIN amount AS NUMERIC(12, 2)",
        "CREATE DOMAIN bigger AS amount",
        "CREATE DOMAIN listed AS INT[]",
        "CREATE TYPE pair AS (n INT, word TEXT)",
        "CREATE DOMAIN pair_list AS pair[]",
        "CREATE TYPE prices AS RANGE (subtype = numeric)",
        "CREATE EXTENSION citext; CREATE EXTENSION hstore",
        f"CREATE TABLE typed ({', '.join(f'{name} {each[0]}' for name, each in COLUMNS.items())})",
        "ALTER TABLE typed REPLICA IDENTITY FULL",  # the row has large values
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


@pytest.mark.parametrize("mode", ["bulk", "incrementing"])
def test_both_sources_deliver_the_same_types(
    pipeline: Pipeline, typed: Postgres, mode: str
) -> None:
    source = pipeline.start_source(PostgresCdcSource, raw_of(typed, record_layout="flat"))
    run_until(source, 1)
    typed.execute("UPDATE typed SET id = 1")
    run_until(source, 1)
    raw = {
        "name": "read",
        **typed.settings,
        "mode": mode,
        "incrementing.column.name": "id",
        "table.whitelist": "typed",
        "topic.prefix": "j-",
        "poll.interval.ms": "3600000",
    }
    reading = pipeline.start_source(JdbcSource, raw)
    run_until(reading, 1)
    captured, changed = map(described, stored_in(pipeline, "db.public.typed", "value"))
    (read,) = map(described, stored_in(pipeline, "j-typed", "value"))
    differing = {
        name: (captured[name], changed[name], read[name])
        for name in captured
        if not captured[name] == changed[name] == read[name]
    }
    assert differing == {}
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
