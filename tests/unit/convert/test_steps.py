"""Whole records: encoded for topics, decoded from them."""

import pickle
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drover.convert.converter import Converter
from drover.convert.headers import typed_headers
from drover.convert.registry import build_converter, converter_config_def
from drover.convert.steps import DecodeRecords, EncodeRecords
from drover.dataplane.payload import normalise
from drover.pipeline.layouts import SizeLimit
from drover.record import (
    HEADERS_TYPE,
    Field,
    Schema,
    StageError,
    Type,
    arrow_field,
    column_schema,
    make_batch,
)
from drover.record.framed import Framed

ORDER = Schema(
    Type.STRUCT,
    name="shop.Order",
    fields=(Field("id", Schema(Type.INT64)), Field("city", Schema(Type.STRING, optional=True))),
)
ORDER_TYPE = arrow_field("value", ORDER).type
INT8 = '{"schema":{"type":"int8","optional":false},"payload":%d}'
TEXT = '{"schema":{"type":"string","optional":true},"payload":"%s"}'


def converter(name: str, **config: str) -> Converter:
    raw = {"converter": name} | {
        f"converter.{key.replace('_', '.')}": text for key, text in config.items()
    }
    values = converter_config_def("converter", raw).parse(raw).require_valid()
    return build_converter("converter", values, is_key=False)


JSON, STRING, SIMPLE = converter("Json"), converter("String"), converter("SimpleHeader")


def raw_batch(values: Sequence[str | None], keys: Sequence[str | None] | None = None) -> Any:
    def binary(texts: Sequence[str | None]) -> Any:
        return pa.array([text and text.encode() for text in texts], pa.binary())

    return make_batch(
        len(values),
        topic=pa.repeat(pa.scalar("orders"), len(values)),
        offset=pa.array(range(len(values)), pa.int64()),
        key=binary(keys or [None] * len(values)),
        value=binary(values),
    )


def test_records_come_back_from_a_topic() -> None:
    rows = [{"id": 1, "city": "oslo"}, {"id": 2, "city": None}]
    field = arrow_field("value", ORDER)
    batch = make_batch(
        2,
        topic=pa.array(["orders"] * 2),
        key=(arrow_field("key", Schema(Type.STRING)), pa.array(["a", "b"])),
        value=(field, pa.array(rows, field.type)),
        headers=pa.array(
            [[{"key": "n", "value": b"300", "type": '{"type":"int32"}'}], None], HEADERS_TYPE
        ),
        origin=pa.array(["a.csv:1", "a.csv:2"]),
    )
    (encoded,) = EncodeRecords(STRING, JSON, SIMPLE)(batch)
    assert encoded.column("key").to_pylist() == [b"a", b"b"]
    assert encoded.column("value").type == pa.binary()
    assert encoded.column("headers").to_pylist()[0] == [{"key": "n", "value": b"300", "type": None}]
    assert encoded.column("origin") == batch.column("origin")
    (decoded,) = DecodeRecords(STRING, JSON)(encoded)
    assert decoded.column("value").to_pylist() == rows
    schema = column_schema(decoded, "value")
    assert schema is not None
    assert schema.name == "shop.Order"
    assert decoded.column("headers") == encoded.column("headers")
    (typed,) = DecodeRecords(STRING, JSON, SIMPLE)(encoded)
    assert typed.column("headers").to_pylist() == [
        [{"key": "n", "value": b"300", "type": '{"type":"int16","optional":false}'}],
        None,
    ]


def test_each_run_of_one_schema_is_a_batch() -> None:
    values = [INT8 % 1, INT8 % 2, TEXT % "a", INT8 % 3]
    decoded = list(DecodeRecords(STRING, JSON)(raw_batch(values)))
    assert [each.column("value").to_pylist() for each in decoded] == [[1, 2], ["a"], [3]]
    assert [each.column("offset").to_pylist() for each in decoded] == [[0, 1], [2], [3]]


def test_runs_end_where_keys_change_their_schema_too() -> None:
    batch = raw_batch([INT8 % 1] * 3, [INT8 % 1, TEXT % "a", TEXT % "b"])
    decoded = list(DecodeRecords(JSON, JSON)(batch))
    assert [each.column("key").to_pylist() for each in decoded] == [[1], ["a", "b"]]


def test_tombstones_go_with_the_records_before_them() -> None:
    values = [None, INT8 % 1, None, None, TEXT % "a", None]
    decoded = list(DecodeRecords(STRING, JSON)(raw_batch(values)))
    assert [each.column("value").to_pylist() for each in decoded] == [
        [None, 1, None, None],
        ["a", None],
    ]
    for each in decoded:
        each.validate(full=True)
        assert each.schema.field("value").nullable


def test_only_tombstones_have_no_schema() -> None:
    (decoded,) = DecodeRecords(STRING, JSON)(raw_batch([None, None]))
    assert column_schema(decoded, "value") is None
    (encoded,) = EncodeRecords(STRING, JSON, SIMPLE)(decoded)
    assert encoded.column("value").null_count == 2


def test_tombstones_come_back_as_tombstones() -> None:
    batch = raw_batch([INT8 % 1, None, INT8 % 2], [None, INT8 % 3, None])
    (decoded,) = DecodeRecords(JSON, JSON)(batch)
    (encoded,) = EncodeRecords(JSON, JSON, SIMPLE)(decoded)
    assert [each and b'"payload":' in each for each in encoded.column("value").to_pylist()] == [
        True,
        None,
        True,
    ]
    assert encoded.column("key").is_null().to_pylist() == [True, False, True]


def test_schemas_are_around_the_values_of_a_batch_until_it_is_written() -> None:
    keys = pa.array([7, None, 8], pa.int32())
    cities = pa.array([{"id": 1, "city": "oslo"}, None, {"id": 2, "city": None}], ORDER_TYPE)
    batch = make_batch(
        3,
        topic=pa.array(["orders"] * 3),
        key=(arrow_field("key", Schema(Type.INT32)), keys),
        value=(arrow_field("value", ORDER), cities),
    )
    (whole,) = EncodeRecords(JSON, JSON, SIMPLE)(batch)
    (framed,) = EncodeRecords(JSON, JSON, SIMPLE, framed=True)(batch)
    assert framed.column("key").to_pylist() == [b"7", None, b"8"]
    assert Framed.of(framed, "value").before.startswith(b'{"schema":{"type":"struct"')
    for name in ("key", "value"):
        assert Framed.of(framed, name).joined().equals(whole.column(name))
    # writers that do not build record batches themselves get whole keys and values
    assert normalise(framed, 5).equals(normalise(whole, 5))
    kept = normalise(framed, 5, framed=True)
    assert kept.column("value") == framed.column("value")
    assert Framed.of(kept.take([2]), "value").joined().to_pylist() == [
        whole.column("value")[2].as_py()
    ]


@pytest.mark.parametrize("framed", [False, True])
def test_the_schema_counts_for_the_size_of_a_record(framed: bool) -> None:
    field = arrow_field("value", ORDER)
    values = pa.array([{"id": 1, "city": "oslo"}, {"id": 1, "city": "bergen"}, None], field.type)
    batch = make_batch(3, topic=pa.array(["orders"] * 3), value=(field, values))
    (encoded,) = EncodeRecords(JSON, JSON, SIMPLE, framed=framed)(batch)
    size = len(JSON.encode(field, values.slice(1, 1), None)[0].as_py())
    assert list(SizeLimit(size)(encoded)) == [encoded]
    with pytest.raises(StageError, match=f"have {size} bytes, but the limit is {size - 1}"):
        list(SizeLimit(size - 1)(encoded))


def test_a_key_that_is_left_out_stays_null() -> None:
    field = arrow_field("value", ORDER)
    batch = make_batch(1, value=(field, pa.array([{"id": 1, "city": None}], field.type)))
    (encoded,) = EncodeRecords(JSON, JSON, SIMPLE)(batch)
    assert encoded.column("key").to_pylist() == [None]


def test_a_batch_without_records_gives_none() -> None:
    assert list(DecodeRecords(STRING, JSON)(raw_batch([]))) == []


@given(st.lists(st.sampled_from([None, INT8 % 1, TEXT % "a", TEXT % "b"]), max_size=12), st.data())
def test_any_cut_into_batches_gives_the_same_records(
    values: list[str | None], data: st.DataObject
) -> None:
    keys = data.draw(st.permutations(values))
    batch = raw_batch(values, keys)
    cut = data.draw(st.integers(0, len(values)))
    step = DecodeRecords(JSON, JSON)
    whole = [row for each in step(batch) for row in _rows(each)]
    parts = [
        row
        for part in (batch.slice(0, cut), batch.slice(cut))
        for each in step(part)
        for row in _rows(each)
    ]
    assert whole == parts
    assert [row[2] for row in whole] == list(range(len(values)))


def _rows(batch: Any) -> list[tuple[Any, Any, int]]:
    """Keys and values with their schemas, tombstones without one, and offsets."""

    def side(name: str) -> list[Any]:
        schema = column_schema(batch, name)
        return [value and (value, schema) for value in batch.column(name).to_pylist()]

    offsets = batch.column("offset").to_pylist()
    return list(zip(side("key"), side("value"), offsets, strict=True))


@pytest.mark.parametrize(
    ("key", "value", "header", "stage", "message"),
    [
        ("{", None, None, "KEY_CONVERTER", "it cannot be read as JSON"),
        (None, "{", None, "VALUE_CONVERTER", "it cannot be read as JSON"),
        (None, '{"payload":1}', None, "VALUE_CONVERTER", 'the fields "schema" and "payload"'),
        (None, INT8 % 300, None, "VALUE_CONVERTER", "300 does not fit into int8"),
        (None, None, b"{", "HEADER_CONVERTER", "header 'h': it cannot be read as JSON"),
    ],
)
def test_a_failure_names_its_stage(
    key: str | None, value: str | None, header: bytes | None, stage: str, message: str
) -> None:
    headers = pa.array([[{"key": "h", "value": header, "type": None}]], HEADERS_TYPE)
    batch = raw_batch([value], [key])
    batch = batch.set_column(batch.schema.get_field_index("headers"), "headers", headers)
    with pytest.raises(StageError, match=message) as caught:
        list(DecodeRecords(JSON, JSON, JSON)(batch))
    assert caught.value.stage == stage
    assert caught.value.class_name == "JsonConverter"
    copied = pickle.loads(pickle.dumps(caught.value))
    assert (copied.stage, str(copied)) == (caught.value.stage, str(caught.value))
    assert copied.class_name == caught.value.class_name


def test_a_failure_to_write_names_its_stage() -> None:
    step = EncodeRecords(converter("Long"), JSON, SIMPLE)
    batch = make_batch(1, key=(arrow_field("key", Schema(Type.STRING)), pa.array(["a"])))
    with pytest.raises(StageError, match=r"KEY_CONVERTER.*LongConverter writes"):
        list(step(batch))
    required = arrow_field("value", ORDER)
    batch = make_batch(1, value=(required, pa.array([{"id": None}], required.type)))
    with pytest.raises(StageError, match=r"VALUE_CONVERTER.*field id: null for a required"):
        list(EncodeRecords(converter("ByteArray"), JSON, SIMPLE)(batch))


def test_steps_are_pickled() -> None:
    fixed = converter("Json", schema_content='{"type":"int8"}')
    steps = (EncodeRecords(STRING, JSON, SIMPLE), DecodeRecords(fixed, JSON))
    encode, decode = pickle.loads(pickle.dumps(steps))
    assert (encode.name, decode.name) == ("encode", "decode")
    (decoded,) = decode(raw_batch([INT8 % 1], ["2"]))
    assert decoded.column("value").to_pylist() == [1]
    assert decoded.column("key").to_pylist() == [2]


@pytest.mark.parametrize("envelope", [True, False])
def test_a_row_of_50_mb_is_a_row(envelope: bool) -> None:
    large = "x" * 50_000_000
    text = f'{{"id":1,"city":"{large}"}}'
    step = DecodeRecords(STRING, converter("Json", schemas_enable=str(envelope).lower()))
    field = arrow_field("value", ORDER)
    values = pa.array([{"id": 1, "city": large}, {"id": 2, "city": "oslo"}], field.type)
    batch = raw_batch([text, text[:20]])
    if envelope:
        encoded = JSON.encode(field, values, None)
        batch = batch.set_column(batch.schema.get_field_index("value"), "value", encoded)
        (decoded,) = step(batch)
        assert decoded.column("value").equals(values)
    else:
        (decoded,) = step(batch.slice(0, 1))
        assert len(decoded.column("value")[0].as_py()) == len(text)
        with pytest.raises(StageError, match="it cannot be read as JSON") as caught:
            list(step(raw_batch([text[:-1]])))
        assert len(str(caught.value)) < 500


def test_headers_keep_their_order_and_their_rows() -> None:
    rows: list[Any] = [
        [{"key": "a", "value": b"1", "type": None}, {"key": "b", "value": b"x", "type": None}],
        None,
        [],
        [
            {"key": "a", "value": None, "type": None},
            {"key": "t", "value": b'"y"', "type": '{"type":"string"}'},
            {"key": "a", "value": b"[1,2]", "type": None},
        ],
    ]
    headers = pa.array([[], *rows], HEADERS_TYPE).slice(1)
    found = typed_headers(headers, SIMPLE)
    found.validate(full=True)
    int8 = '{"type":"int8","optional":false}'
    array = f'{{"type":"array","items":{int8},"optional":false}}'
    string = '{"type":"string","optional":false}'
    assert found.to_pylist() == [
        [{"key": "a", "value": b"1", "type": int8}, {"key": "b", "value": b'"x"', "type": string}],
        None,
        [],
        [
            {"key": "a", "value": None, "type": "null"},
            {"key": "t", "value": b'"y"', "type": '{"type":"string"}'},
            {"key": "a", "value": b"[1,2]", "type": array},
        ],
    ]
    batch = make_batch(4, headers=found)
    (encoded,) = EncodeRecords(STRING, STRING, SIMPLE)(batch)
    raw = [row and [header | {"type": None} for header in row] for row in rows]
    raw[3][1]["value"] = b"y"
    assert encoded.column("headers").to_pylist() == raw
