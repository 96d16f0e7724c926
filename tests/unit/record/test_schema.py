"""A schema and its Arrow field are equivalent."""

import pyarrow as pa
import pytest

from drover.record import Field, Schema, SchemaError, Type, arrow_field, schema_of
from drover.record import schema as schemas

DECIMAL = Schema(Type.BYTES, True, schemas.DECIMAL, 1, parameters={"scale": "2"})
TEXTS = Schema(Type.ARRAY, value_schema=Schema(Type.STRING, True, doc="each"))
STRUCT = Schema(
    Type.STRUCT,
    name="shop.Order",
    version=3,
    fields=(
        Field("id", Schema(Type.INT32, default="4", doc="the order's number")),
        Field("price", DECIMAL),
        Field("at", Schema(Type.INT64, name=schemas.TIMESTAMP, version=1)),
        Field(
            "tags",
            Schema(Type.MAP, key_schema=Schema(Type.STRING), value_schema=TEXTS),
        ),
    ),
)


@pytest.mark.parametrize(
    "schema", [Schema(Type.INT8), Schema(Type.BYTES, True), DECIMAL, TEXTS, STRUCT], ids=str
)
def test_a_schema_comes_back_from_its_field(schema: Schema) -> None:
    assert schema_of(arrow_field("value", schema)) == schema


def test_a_schema_survives_a_file_and_a_filter() -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array([{"id": 1, "tags": []}, {"id": 2, "tags": []}], schemas.arrow_type(STRUCT))],
        schema=pa.schema([arrow_field("value", STRUCT)]),
    ).filter(pa.array([False, True]))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    table = pa.ipc.open_stream(sink.getvalue()).read_all()
    assert schema_of(table.schema.field("value")) == STRUCT


def test_schemaless_values_have_no_schema() -> None:
    assert schema_of(arrow_field("value", None)) is None


@pytest.mark.parametrize(
    ("arrow", "expected"),
    [
        (pa.uint8(), Schema(Type.INT16, True)),
        (pa.large_string(), Schema(Type.STRING, True)),
        (pa.timestamp("us"), Schema(Type.INT64, True, schemas.TIMESTAMP, 1)),
        (pa.dictionary(pa.int8(), pa.string()), Schema(Type.STRING, True)),
        (pa.list_(pa.uint32()), Schema(Type.ARRAY, True, value_schema=Schema(Type.INT64, True))),
    ],
)
def test_types_that_no_schema_has_are_taken_for_the_next_wider(
    arrow: pa.DataType, expected: Schema
) -> None:
    assert schema_of(pa.field("value", arrow)) == expected


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        (Schema(Type.ARRAY), "does not say what its elements are"),
        (Schema(Type.BYTES, name=schemas.DECIMAL), "needs the parameter 'scale'"),
        (
            Schema(
                Type.BYTES, name=schemas.DECIMAL, parameters={"scale": "0", schemas.PRECISION: "99"}
            ),
            "a decimal of 99 digits",
        ),
    ],
)
def test_a_schema_without_a_type_in_arrow_is_refused(schema: Schema, fault: str) -> None:
    with pytest.raises(SchemaError, match=fault):
        arrow_field("value", schema)


def test_a_type_without_a_schema_is_refused() -> None:
    with pytest.raises(SchemaError, match="'took': values of type duration"):
        schema_of(pa.field("took", pa.duration("s")))
