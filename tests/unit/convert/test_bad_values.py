"""Values that do not fit their schema are refused as a whole, with the cause."""

import datetime
import decimal

import pyarrow as pa
import pytest

from drover.record import Field, RecordError, Schema, Type, arrow_field
from drover.record import schema as schemas
from drover.record.json.schema_writer import schema_text
from drover.record.json.schemaless import dumps
from tests.unit.convert.test_steps import converter

DECIMAL = Schema(
    Type.BYTES, name=schemas.DECIMAL, parameters={"scale": "2", schemas.PRECISION: "5"}
)
STRUCT = Schema(
    Type.STRUCT,
    fields=(
        Field("price", Schema(Type.BYTES, True, schemas.DECIMAL, parameters={"scale": "2"})),
        Field("at", Schema(Type.INT64, True, schemas.TIMESTAMP)),
        Field("in", Schema(Type.STRUCT, True, fields=(Field("n", Schema(Type.INT8)),))),
        Field("map", Schema(Type.MAP, True, key_schema=Schema(Type.STRING, True),
                            value_schema=Schema(Type.INT8))),
        Field("keyed", Schema(Type.MAP, True, key_schema=Schema(Type.INT8, True),
                              value_schema=Schema(Type.INT8))),
    ),
)  # fmt: skip
DEEP = '{"a":' * 2000 + "1" + "}" * 2000


@pytest.mark.parametrize(
    ("schema", "payload", "fault"),
    [
        (DECIMAL, "1234.5", "does not fit into 5 digits"),
        (DECIMAL, '"f////w=="', "does not fit into 5 digits"),
        (DECIMAL, "1.234", "more than 2 digits behind the point"),
        (DECIMAL, "1e999999999", "digits"),
        (STRUCT, '{"price":"!"}', "field price: bytes must be base64"),
        (STRUCT, '{"price":true}', "field price: True is no value of type decimal"),
        (STRUCT, '{"at":9223372036854775808}', "field at: the number 9223372036854775808 does not"),
        (STRUCT, '{"at":1e30}', "field at: the number"),
        (STRUCT, '{"in":{"n":128}}', "field in.n: the number 128 does not fit into int8"),
        (STRUCT, '{"in":{}}', "field in.n: null for a required value of type int8"),
        (STRUCT, '{"map":{"a":"b"}}', "field map: 'b' is no value of type int8"),
        (STRUCT, '{"keyed":[[null,1]]}', "field keyed: a key of a map is null"),
        (STRUCT, '{"keyed":[1]}', "field keyed: the entries of a map must be arrays"),
        (STRUCT, DEEP, "it cannot be read as JSON"),
        (Schema(Type.INT32, name=schemas.TIME), "86400000", "not among the milliseconds of a day"),
        (Schema(Type.FLOAT64), "9007199254740993", "more digits than a double holds"),
        (Schema(Type.FLOAT64), "18446744073709551617", "more digits than a double holds"),
        (Schema(Type.FLOAT64), "1e400", "does not fit into double"),
        (Schema(Type.FLOAT64), "407127e212797209", "does not fit into double"),
        (Schema(Type.FLOAT64), f"1e{10**20}", "it cannot be read as JSON"),
        (Schema(Type.FLOAT32), "-1E1000000000", "does not fit into float"),
        (Schema(Type.FLOAT32), "3.5e38", "does not fit into float"),
        (Schema(Type.INT64), "1e1000000", "it cannot be read as JSON"),
        (DECIMAL, f"1e{10**20}", "it cannot be read as JSON"),
        (Schema(Type.INT32), "9" * 5000, "it cannot be read as JSON"),
    ],
    ids=lambda each: each[:30] if isinstance(each, str) else "",
)
def test_a_payload_that_is_not_of_its_schema_is_refused(
    schema: Schema, payload: str, fault: str
) -> None:
    text = f'{{"schema":{schema_text(schema)},"payload":{payload}}}'
    good = '{"schema":{"type":"int8"},"payload":1}'
    with pytest.raises(RecordError) as caught:
        converter("Json").decode(pa.array([good.encode(), text.encode()]), None)
    assert fault in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_timestamp_that_has_no_date_is_refused_as_text() -> None:
    field = pa.field("value", pa.timestamp("ms", tz="UTC"))
    values = pa.array([2**62], field.type)
    for name in ("String", "SimpleHeader"):
        with pytest.raises(RecordError, match="outside of the years 1 to 9999"):
            converter(name).encode(field, values, None)
    written = converter("Json", schemas_enable="false").encode(field, values, None)
    assert written.to_pylist() == [str(2**62).encode()]


def test_more_schemas_than_are_compared_at_once_are_read_row_by_row() -> None:
    texts = [
        f'{{"schema":{{"type":"int32","version":{index % 50}}},"payload":{index}}}'.encode()
        for index in range(200)
    ]
    found = converter("Json").decode(pa.array(texts), None)
    assert len(found) == 50
    values = {
        row: value
        for each in found
        if each.rows is not None
        for row, value in zip(each.rows.to_pylist(), each.values.to_pylist(), strict=True)
    }
    assert values == {index: index for index in range(200)}


def test_a_tagged_value_without_schema_is_written_as_kafka_connect_does() -> None:
    value = {
        "b": b"\x00\xff", "d": decimal.Decimal("1.50"), "day": datetime.date(1970, 1, 3),
        "t": datetime.time(0, 0, 1),
        "at": datetime.datetime(1970, 1, 1, 0, 0, 2, tzinfo=datetime.UTC),
    }  # fmt: skip
    column = pa.array([dumps(value), '{"plain": 1.50}', None], pa.string())
    field = arrow_field("value", None)
    written = converter("Json", schemas_enable="false").encode(field, column, None).to_pylist()
    assert written == [
        b'{"b":"AP8=","d":"AJY=","day":2,"t":1000,"at":2000}',
        b'{"plain": 1.50}',
        None,
    ]
    numeric = converter("Json", schemas_enable="false", decimal_format="NUMERIC")
    assert b'"d":1.50' in numeric.encode(field, column, None)[0].as_py()
    assert converter("ByteArray").encode(
        field, pa.array([dumps(b"\x00\xff"), None], pa.string()), None
    ).to_pylist() == [b"\x00\xff", None]


LISTS = Schema(
    Type.ARRAY,
    value_schema=Schema(Type.STRUCT, fields=(Field("payload", Schema(Type.INT8)),)),
)


@pytest.mark.parametrize(
    "payloads",
    [
        pytest.param(["[]}", '[]}{"payload":[]}'], id="two values in a row"),
        pytest.param(
            ["[", "1}]}", '[]}{"payload":[]}'], id="two rows make one value, one makes two"
        ),
        pytest.param(["[]", "[]}"], id="a row without its end"),
    ],
)
def test_rows_are_not_taken_for_others(payloads: list[str]) -> None:
    rows = [f'{{"schema":{schema_text(LISTS)},"payload":{each}'.encode() for each in payloads]
    with pytest.raises(RecordError, match="it cannot be read as JSON"):
        converter("Json").decode(pa.array(rows), None)
