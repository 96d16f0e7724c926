"""The transform Sql: which statements it allows, and the records that they return."""

import datetime
import decimal
import pickle
import re
import resource
from typing import Any

import pyarrow as pa
import pytest

from drover.record.batch import HEADERS_TYPE, make_batch
from drover.record.errors import PassError, RecordError, RowsError
from drover.record.schema import is_schemaless
from drover.transform.chain import build_chain, chain_config_def
from drover.transform.sql.engine import connection
from drover.transform.sql.functions import ALLOWED
from drover.transform.sql.transform import Sql

_NOON = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)
_TYPE = pa.struct(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("cityName", pa.string()),
        ("price", pa.decimal128(9, 2)),
        ("at", pa.timestamp("ms", tz="UTC")),
        ("tags", pa.list_(pa.string())),
    ]
)


def row(number: int, city: str | None = "oslo") -> dict[str, Any]:
    price = decimal.Decimal(number) / 4
    return {"id": number, "cityName": city, "price": price, "at": _NOON, "tags": ["a", "b"]}


def batch_of(*rows: Any, kind: pa.DataType = _TYPE, **more: Any) -> pa.RecordBatch:
    headers = pa.array([[{"key": "trace", "value": b"t1", "type": None}]] * len(rows), HEADERS_TYPE)
    return make_batch(
        len(rows),
        topic=pa.array(["orders"] * len(rows)),
        key=(pa.field("key", pa.string(), metadata={"connect.doc": "a key"}),
             pa.array([f"k{n}" for n in range(len(rows))])),
        value=(pa.field("value", kind, nullable=False), pa.array(rows, kind)),
        headers=headers,
        **more,
    )  # fmt: skip


def sql(query: str, **more: Any) -> Sql:
    found = Sql.config_def().parse({"query": query, **more}).require_valid()
    # executors unpickle the step, too
    made: Sql = pickle.loads(pickle.dumps(Sql(found)))
    return made


def values_of(query: str, *rows: Any, **more: Any) -> list[Any]:
    return [
        each
        for made in sql(query)(batch_of(*rows, **more))
        for each in made.column("value").to_pylist()
    ]


def test_values_are_computed_and_records_filtered() -> None:
    query = (
        "SELECT {'id': value.id + 1, 'city': upper(value.cityName), 'hour': hour(value.at), "
        "'price': value.price * 2} AS value FROM batch WHERE value.id % 2 = 0"
    )
    (made,) = sql(query)(batch_of(row(1), row(2), row(3, "x"), row(4, None)))
    assert made.column("value").to_pylist() == [
        {"id": 3, "city": "OSLO", "hour": 12, "price": decimal.Decimal("1.00")},
        {"id": 5, "city": None, "hour": 12, "price": decimal.Decimal("2.00")},
    ]
    # columns that the statement does not return keep values and metadata
    assert made.column("key").to_pylist() == ["k1", "k3"]
    assert made.schema.field("key").metadata == {b"connect.doc": b"a key"}
    assert made.column("headers")[0].as_py()[0]["value"] == b"t1"
    assert made.schema.field("value").nullable is False


def test_keys_topics_and_timestamps_are_computed() -> None:
    query = (
        "select value.id as key, topic || '-' || value.cityName as topic, value.at as timestamp, "
        "b.value from batch as b"
    )
    given = batch_of(row(7))
    (made,) = sql(query)(given)
    assert made.column("key").to_pylist() == [7]
    assert made.column("topic").to_pylist() == ["orders-oslo"]
    assert made.column("timestamp").to_pylist() == [_NOON]
    assert made.column("timestamp").type == given.column("timestamp").type
    # the value keeps its schema
    assert made.schema.field("value").equals(given.schema.field("value"), check_metadata=True)


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("value", row(4)),
        ("value.tags[2]", "b"),
        ("list_transform(value.tags, lambda tag: tag || value.cityName)", ["aoslo", "boslo"]),
        ("CASE WHEN value.id > 3 THEN 'many' ELSE 'few' END", "many"),
        ("value.id::VARCHAR", "4"),
        ("value.cityName LIKE 'o%' AND value.id BETWEEN 1 AND 5 AND value.id IN (4, 5)", True),
        ("MAP {'a': value.id}", [("a", 4)]),
        ("struct_insert(value, more := 1).more", 1),
        ("decode(headers[1].value)", "t1"),
        ("strftime(value.at, '%d.%m.%Y')", "29.02.2024"),
        ("date_trunc('day', value.at)::TIMESTAMP", datetime.datetime(2024, 2, 29)),
        ("regexp_extract(value.cityName, '(s.)', 1)", "sl"),
        ("coalesce(NULL, key, 'x')", "k0"),
        ("try_cast(value.cityName AS INTEGER)", None),
        ("value.at + INTERVAL 1 DAY = value.at", False),
        ("round(value.price, 1)", decimal.Decimal("1.0")),
        ("NULL::STRUCT(a INTEGER)", None),
    ],
)
def test_a_value_is_any_expression(expression: str, wanted: Any) -> None:
    assert values_of(f"SELECT {expression} AS value FROM batch", row(4)) == [wanted]


def test_values_without_a_schema_are_read_and_written_as_json() -> None:
    field = pa.field("value", pa.string(), metadata={"drover.schemaless": "json"})
    texts = pa.array(['{"city": "oslo", "n": 3}', None])
    given = make_batch(2, value=(field, texts))
    query = (
        "SELECT json_object('c', value->>'$.city', 'n', (value->'$.n')::INT + 1) AS value "
        "FROM batch WHERE value IS NOT NULL"
    )
    (made,) = sql(query)(given)
    assert made.column("value").to_pylist() == ['{"c":"oslo","n":4}']
    assert is_schemaless(made.schema.field("value"))


def test_a_star_leaves_records_as_they_are() -> None:
    given = batch_of(row(1), row(2))
    (made,) = sql("SELECT * FROM batch WHERE value.id > 1")(given)
    assert made.equals(given.slice(1), check_metadata=True)
    assert list(sql("SELECT * FROM batch")(given)) == [given]
    assert list(sql("SELECT * FROM batch WHERE false")(given)) == []
    (made,) = sql("SELECT *, 'x' AS key FROM batch")(given)
    assert made.column("key").to_pylist() == ["x", "x"]


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("SELEC value FROM batch", r"does not parse: syntax error at or near.*line 1, column 1"),
        ("SELECT value\nFROM batch\nWHERE )", r"does not parse.*line 3, column 7"),
        ("", "must be one SELECT"),
        ("SELECT value FROM batch; SELECT value FROM batch", "not 2 statements"),
        ("DELETE FROM batch", "must be one SELECT"),
        ("COPY batch TO '/tmp/x'", "must be one SELECT"),
        ("SET threads = 4", "must be one SELECT"),
        ("SELECT value FROM other", r"must read FROM batch and nothing else \(line 1, column 19\)"),
        ("SELECT value FROM main.batch", "must read FROM batch"),
        ("SELECT value FROM 'a.parquet'", "must read FROM batch"),
        ("SELECT value FROM read_csv('/etc/passwd')", "must read FROM batch"),
        ("SELECT value FROM batch, batch b", "must read FROM batch"),
        ("SELECT value FROM batch JOIN batch b ON true", "must read FROM batch"),
        ("SELECT value FROM (SELECT * FROM batch)", "must read FROM batch"),
        ("SELECT 1 AS value", "must read FROM batch"),
        ("WITH b AS (SELECT 1) SELECT value FROM batch", "without WITH"),
        ("SELECT value FROM batch UNION ALL SELECT value FROM batch", "without WITH"),
        ("VALUES (1)", "must"),
        ("SELECT DISTINCT value FROM batch", "must not have DISTINCT"),
        ("SELECT value FROM batch ORDER BY key", "must not have DISTINCT, ORDER BY"),
        ("SELECT value FROM batch LIMIT 1", "LIMIT"),
        ("SELECT value FROM batch GROUP BY value", "GROUP BY"),
        ("SELECT value FROM batch USING SAMPLE 3", "SAMPLE|must read"),
        ("SELECT value FROM batch QUALIFY true", "QUALIFY"),
        ("SELECT key FROM batch", "must return value"),
        ("SELECT value.id FROM batch", r"'id', which is no column of a record.*column 8"),
        ("SELECT 1 + 1 FROM batch", "a column whose name"),
        ("SELECT value, 1 AS offset FROM batch", "cannot change offset"),
        ("SELECT value, 'x' AS headers FROM batch", "cannot change headers"),
        ("SELECT 1 AS value, 2 AS value FROM batch", "returns value twice"),
        ("SELECT * EXCLUDE (key) FROM batch", "must have nothing after"),
        ("SELECT * REPLACE (1 AS value) FROM batch", "must have nothing after"),
        ("SELECT COLUMNS('v.*') FROM batch", "must"),
        ("SELECT city AS value FROM batch", r"reads 'city', which is no column.*column 8"),
        ("SELECT drover_row AS value FROM batch", "no column"),
        ("SELECT count(*) AS value FROM batch", "must not call count_star"),
        ("SELECT sum(value.id) AS value FROM batch", "must not call sum"),
        ("SELECT row_number() OVER () AS value FROM batch", "must not"),
        ("SELECT (SELECT 1) AS value FROM batch", "must not have a subquery"),
        ("SELECT value FROM batch WHERE key IN (SELECT 'a')", "must not have a subquery"),
        ("SELECT value FROM batch WHERE EXISTS (FROM batch)", "must not have a subquery"),
        ("SELECT unnest(value.tags) AS value FROM batch", "must not"),
        ("SELECT read_text('/etc/passwd') AS value FROM batch", "must not call read_text"),
        ("SELECT getenv('HOME') AS value FROM batch", "must not call getenv"),
        ("SELECT current_setting('threads') AS value FROM batch", "must not call"),
        ("SELECT main.upper(key) AS value FROM batch", "must not call upper"),
        ("SELECT random() AS value FROM batch", "must not call random"),
        ("SELECT now() AS value FROM batch", "must not call now"),
        ("SELECT current_timestamp AS value FROM batch", "reads 'current_timestamp'"),
        ("SELECT repeat('x', 1000000000) AS value FROM batch", "must not call repeat"),
        ("SELECT range(1000000000) AS value FROM batch", "must not call range"),
        ("SELECT list_transform([1], lambda x: random()) AS value FROM batch", "call random"),
        ("SELECT list_transform([1], lambda x: y) AS value FROM batch", "reads 'y'"),
        ("SELECT CASE WHEN getenv('A') = '' THEN 1 END AS value FROM batch", "call getenv"),
        ("SELECT upper(DISTINCT key) AS value FROM batch", "must call upper with values only"),
        ("SELECT ? AS value FROM batch", "must not have a value parameter"),
        ("SELECT " + "(" * 9000 + "1" + ")" * 9000 + " AS value FROM batch", "longer than"),
        ("SELECT " + "(" * 4000 + "1" + ")" * 4000 + " AS value FROM batch", ""),
        ("SELECT " + "abs(" * 99 + "1" + ")" * 99 + " AS value FROM batch", "maximum nesting"),
        ("SELECT " + "||".join(["key"] * 100) + " AS value FROM batch", "maximum nesting depth"),
        ("SELECT " + "||".join(["key"] * 500) + " AS value FROM batch", "nested too deeply"),
        ("SELECT '\ud800' AS value FROM batch", "does not parse: .*surrogate"),
        ("SELECT replace(key, 'a', key) AS value FROM batch", r"constant text.*column 8"),
        ("SELECT regexp_replace(key, 'a', key, 'g') AS value FROM batch", "constant text"),
        ("SELECT key.replace('a', topic) AS value FROM batch", "must not call replace"),
        ("SELECT concat_ws(key, value.tags) AS value FROM batch", r"constant text.*argument 1"),
        ("SELECT array_to_string(value.tags, key) AS value FROM batch", "constant text"),
        ('SELECT "REPLACE"(key, key, topic) AS value FROM batch', "constant text"),
        (f"SELECT replace(key, 'a', '{'b' * 1001}') AS value FROM batch", "1000 characters"),
        ("SELECT 'ä', getenv('ä') AS value FROM batch", "column"),
        ("x" * 20_000, "longer than"),
    ],
    ids=lambda each: str(each)[:60],
)  # fmt: skip
def test_a_statement_that_is_not_allowed_is_told(query: str, fault: str) -> None:
    raw = {"transforms": "it", "transforms.it.type": "Sql", "transforms.it.query": query}
    (found,) = chain_config_def(raw).parse(raw).violations
    assert found.field == "transforms.it.query"
    assert re.search(fault, found.description), found.description


def test_constants_replace_texts() -> None:
    replaced = "replace(key, 'k', 'x') || regexp_replace(key, '[0-9]', 'y', 'g')"
    query = f"SELECT {replaced} || concat_ws('-', value.tags) AS value FROM batch"
    assert values_of(query, row(1)) == ["x0kya-b"]


@pytest.mark.parametrize(
    "expression",
    [
        "list_transform(string_split(value.cityName, ''), lambda x: value.cityName)",
        "list_transform([" * 15 + "value.cityName" + "], lambda x: x || x)[1]" * 15,
        "to_json(list_transform(string_split(value.cityName, ''), "
        f"lambda x: {{'{'k' * 8_000}': x}}))",
    ],
    ids=["copies", "doubles", "names"],
)
def test_a_record_whose_result_needs_too_much_memory_is_an_error(expression: str) -> None:
    limits = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(RecordError, match="needs more than 1024 MiB of memory"):
        values_of(f"SELECT {expression} AS value FROM batch", row(1, "a" * 200_000))
    assert resource.getrlimit(resource.RLIMIT_AS) == limits
    assert values_of("SELECT value.id AS value FROM batch", row(1)) == [1]


def test_allowed_functions_are_those_of_duckdb_that_have_no_effect() -> None:
    rows = connection().sql(
        "SELECT function_name, bool_or(function_type NOT IN ('scalar', 'macro')), "
        "bool_or(stability = 'VOLATILE') FROM duckdb_functions() GROUP BY ALL"
    ).fetchall()  # fmt: skip
    known = {name: (other, volatile) for name, other, volatile in rows}
    # error() only raises
    assert {name for name in ALLOWED & {*known} if any(known[name])} == {"error"}
    # the list lacks functions that the parser turns into operators
    assert ALLOWED - {*known} <= {"->", "!", "coalesce", "if", "ifnull", "map", "try", "nullif"}


def test_a_query_that_fits_no_row_is_an_error_of_all() -> None:
    with pytest.raises(RowsError, match='Could not find key "nope" in struct') as raised:
        values_of("SELECT value.nope AS value FROM batch", row(1), row(2))
    assert list(raised.value.rows) == [0, 1]
    with pytest.raises(RowsError, match="Decimal"):
        values_of("SELECT value AS value, 1 AS key FROM batch WHERE value IS NULL",
                  decimal.Decimal(1), kind=pa.decimal256(50, 2))  # fmt: skip


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("SELECT CAST(value.cityName AS INTEGER) AS value FROM batch", "Could not convert string"),
        ("SELECT error('refused') AS value FROM batch", "refused"),
        ("SELECT NULL::VARCHAR AS topic, value FROM batch", "returned null as topic"),
        ("SELECT 1 AS topic, value FROM batch", "must return a topic's name"),
        ("SELECT 'x' AS timestamp, value FROM batch", "must return a timestamp"),
        ("SELECT INTERVAL 1 DAY AS value FROM batch", "have no schema"),
    ],
)
def test_a_record_that_cannot_be_computed_is_an_error(query: str, fault: str) -> None:
    with pytest.raises(RecordError, match=fault) as raised:
        values_of(query, row(1))
    assert "LINE" not in str(raised.value)


def test_rows_that_fail_are_found_without_halving() -> None:
    query = (
        "SELECT {'n': CAST(value.cityName AS INTEGER)} AS value, nullif(value.cityName, '5') AS "
        "key FROM batch WHERE value.cityName <> 'x' AND 10 / CAST(value.id AS INTEGER) IS NOT NULL"
    )
    cities = ["1", "oslo", "5", "x", "bergen", "6"]
    rows = [row(n, city) for n, city in enumerate(cities)]
    with pytest.raises(RowsError) as raised:
        values_of(query, *rows)
    assert list(raised.value.rows) == [1, 4]
    assert "'bergen'" in str(raised.value.rows[4])
    assert "'oslo'" in str(raised.value)
    # if the probe for faulty rows fails as well, the error may name no row
    with pytest.raises(RecordError, match="refused") as other:
        values_of("SELECT CASE WHEN value.id = 2 THEN error('refused') END AS value FROM batch",
                  *rows)  # fmt: skip
    assert not isinstance(other.value, RowsError) or list(other.value.rows) == [2]


def test_rows_in_error_are_those_of_the_batch_behind_a_predicate() -> None:
    raw = {
        "transforms": "it",
        "transforms.it.type": "Sql",
        "transforms.it.query": "SELECT value.nope AS value FROM batch",
        "transforms.it.predicate": "far",
        "predicates": "far",
        "predicates.far.type": "FieldMatches",
        "predicates.far.field": "cityName",
        "predicates.far.equals": "oslo",
    }
    (step,) = build_chain(chain_config_def(raw).parse(raw).require_valid())
    with pytest.raises(RowsError) as raised:
        list(step(batch_of(row(1, "bergen"), row(2), row(3, "bergen"), row(4))))
    assert list(raised.value.rows) == [1, 3]


def test_a_query_that_does_not_end_fails_the_pass() -> None:
    # each level of the list makes the work a thousand times as much
    query = "SELECT {} AS value FROM batch".format(
        "list_sum(list_transform(value.tags, lambda a: " * 5 + "1" + "))" * 5
    )
    tags = pa.struct([("tags", pa.list_(pa.string()))])
    with pytest.raises(PassError, match=r"did not end within 50 ms \(timeout.ms\)"):
        list(sql(query, **{"timeout.ms": "50"})(batch_of({"tags": ["a"] * 1000}, kind=tags)))
