"""Column types as DDL text."""

import pyarrow as pa
import pytest

from drover.connectors.ddl import ddl_fault, parse_ddl, to_ddl


def test_types_are_read_as_records_have_them() -> None:
    schema = parse_ddl(
        "id BIGINT NOT NULL, `a b` string COMMENT 'with a, comma', price decimal(10,2), "
        "at timestamp, s struct<a: int, b: array<string>>, m map<string, double>, c char(3)"
    )
    assert schema.field("id") == pa.field("id", pa.int64(), nullable=False)
    assert schema.field("a b").type == pa.string()
    assert schema.field("price").type == pa.decimal128(10, 2)
    assert schema.field("at").type == pa.timestamp("ms", tz="UTC")
    assert schema.field("s").type.field("b").type == pa.list_(pa.string())
    assert schema.field("m").type == pa.map_(pa.string(), pa.float64())


def test_a_schema_that_was_written_is_read_again() -> None:
    text = "id bigint, `a``b` struct<x: array<map<string, decimal(5,1)>>>, d date, y binary"
    schema = parse_ddl(text)
    assert parse_ddl(to_ddl(schema)) == schema


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "ends where a column's name should be"),
        ("id", "ends where a type should be"),
        ("id int,", "ends where a column's name should be"),
        ("id int name string", "where a comma should be"),
        ("id integr", "the type 'integr'"),
        ("id int, id string", "names id more than once"),
        ("price decimal(39,2)", "decimal(39,2)"),
        ("price decimal(2,3)", "decimal(2,3)"),
        ("a array<int", "ends where '>' should be"),
        ("a struct<>", "where a column's name should be"),
        ("a " + "array<" * 99, "deep"),
        ("a int; b int", "';"),
    ],
)
def test_a_fault_says_where_it_is(text: str, why: str) -> None:
    assert why in (ddl_fault(text) or "")
