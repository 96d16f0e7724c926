"""Avro records as columns and back, compared with fastavro for the same schemas."""

import decimal
import io
import json
from dataclasses import replace
from itertools import count
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from drover.convert.avro import decode
from drover.convert.avro.avro_schemas import avro_text
from drover.convert.avro.connect_schemas import connect_schema
from drover.convert.avro.decode import decode_records
from drover.convert.avro.encode import encode_records
from drover.convert.avro.schemas import AvroSchema, parse_avro
from drover.convert.number_bytes import decimals_of, digits_of, varints
from drover.record import schema as schemas
from drover.record.errors import RecordError, RowsError
from drover.record.schema import Field, Schema, Type, arrow_field

_BEFORE = b"\0\0\0\0\1"
_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=70),
    "string": st.text(max_size=70),
}
_SYMBOLS = ("RED", "GREEN", "BLUE")

#: Shapes of schemas, which get their names later.
shapes = st.recursive(
    st.sampled_from([*_SCALARS, "enum", "fixed"]),
    lambda inner: st.one_of(
        st.tuples(st.just("array"), inner),
        st.tuples(st.just("map"), inner),
        st.tuples(st.just("optional"), inner),
        st.tuples(st.just("record"), st.lists(inner, min_size=1, max_size=4)),
        st.tuples(st.just("union"), st.sets(st.sampled_from(list(_SCALARS)), min_size=2)),
    ),
    max_leaves=8,
)


@st.composite
def rows(draw: st.DrawFn) -> tuple[Any, list[Any], list[Any]]:
    """A schema, its values in fastavro's form, and the same values in pyarrow's form."""
    numbers = count()
    schema, values = _of_shape(draw(shapes), numbers)
    drawn = draw(st.lists(values, min_size=1, max_size=6))
    return schema, [each[0] for each in drawn], [each[1] for each in drawn]


def _of_shape(shape: Any, numbers: "count[int]") -> tuple[Any, st.SearchStrategy[tuple[Any, Any]]]:
    schema: Any
    if isinstance(shape, str) and shape in _SCALARS:
        return shape, _SCALARS[shape].map(lambda each: (each, each))
    if shape == "enum":
        schema = {"type": "enum", "name": f"E{next(numbers)}", "symbols": list(_SYMBOLS)}
        return schema, st.sampled_from(_SYMBOLS).map(lambda each: (each, each))
    if shape == "fixed":
        schema = {"type": "fixed", "name": f"F{next(numbers)}", "size": 3}
        return schema, st.binary(min_size=3, max_size=3).map(lambda each: (each, each))
    kind, inner = shape
    if kind == "record":
        fields = [_of_shape(each, numbers) for each in inner]
        schema = {
            "type": "record",
            "name": f"n.s.R{next(numbers)}",
            "fields": [{"name": f"f{n}", "type": each} for n, (each, _) in enumerate(fields)],
        }
        return schema, st.tuples(*(values for _, values in fields)).map(
            lambda drawn: (
                {f"f{n}": each[0] for n, each in enumerate(drawn)},
                {f"f{n}": each[1] for n, each in enumerate(drawn)},
            )
        )
    if kind == "union":
        names = sorted(inner)
        return [*names[:1], "null", *names[1:]], st.one_of(
            st.just((None, None)), *(_branch(name, names) for name in names)
        )
    of, values = _of_shape(inner, numbers)
    if kind == "optional":
        if isinstance(of, list):
            return of, values
        return ["null", of], st.one_of(st.just((None, None)), values)
    if kind == "array":
        return {"type": "array", "items": of}, st.lists(values, max_size=4).map(
            lambda drawn: ([each[0] for each in drawn], [each[1] for each in drawn])
        )
    return {"type": "map", "values": of}, st.dictionaries(
        st.text(max_size=5), values, max_size=3
    ).map(
        lambda drawn: (
            {key: each[0] for key, each in drawn.items()},
            [(key, each[1]) for key, each in drawn.items()],
        )
    )


def _branch(name: str, names: list[str]) -> st.SearchStrategy[tuple[Any, Any]]:
    """Values of one branch of a union."""
    others = dict.fromkeys(names)
    return _SCALARS[name].map(lambda each: ((name, each), others | {name: each}))


def written(schema: Any, values: list[Any]) -> pa.Array:
    """Records that fastavro encodes, each after the prefix."""
    parsed, found = fastavro.parse_schema(schema), []
    for each in values:
        place = io.BytesIO()
        fastavro.schemaless_writer(place, parsed, each)
        found.append(_BEFORE + place.getvalue())
    return pa.array(found, pa.binary())


def decoded(values: pa.Array, avro: AvroSchema, *, sum_types: bool = False) -> pa.Array:
    schema = connect_schema(avro, sum_types=sum_types)
    return decode_records(values, avro, schema, skipped_bytes=len(_BEFORE))


def avro_of(schema: Any) -> AvroSchema:
    return parse_avro(fastavro.schema.to_parsing_canonical_form(schema))


@given(rows())
def test_records_are_read_as_fastavro_wrote_them_and_written_back(
    drawn: tuple[Any, list[Any], list[Any]],
) -> None:
    schema, values, shown = drawn
    avro = avro_of(schema)
    raw = written(schema, values)
    found = decoded(raw, avro)
    assert found.to_pylist() == shown
    field = arrow_field("value", connect_schema(avro))
    assert found.type == field.type
    found.validate(full=True)
    again = encode_records(field, found, avro, before=_BEFORE, strict=True, defaults=True)
    assert again.equals(raw)
    # a slice of a longer column is encoded, too
    double = pa.concat_arrays([found, found]).slice(1, len(values))
    encode_records(field, double, avro, before=_BEFORE, strict=True, defaults=True)


@given(rows())
def test_unions_under_general_names_have_the_same_bytes(
    drawn: tuple[Any, list[Any], list[Any]],
) -> None:
    schema, values, _ = drawn
    avro = avro_of(schema)
    raw = written(schema, values)
    found = decoded(raw, avro, sum_types=True)
    field = arrow_field("value", connect_schema(avro, sum_types=True))
    assert found.type == field.type
    again = encode_records(field, found, avro, before=_BEFORE, strict=True, defaults=True)
    assert again.equals(raw)


@given(rows(), st.data())
def test_broken_bytes_are_told_by_their_row(
    drawn: tuple[Any, list[Any], list[Any]], data: st.DataObject
) -> None:
    schema, values, _ = drawn
    avro = avro_of(schema)
    raw = written(schema, values).to_pylist()
    row = data.draw(st.integers(0, len(raw) - 1))
    body = raw[row][len(_BEFORE) :]
    assume(body)
    raw[row] = _BEFORE + body[: data.draw(st.integers(0, len(body) - 1))]
    with pytest.raises(RowsError) as raised:
        decoded(pa.array(raw, pa.binary()), avro)
    assert list(raised.value.rows) == [row]


@given(rows(), st.lists(st.binary(max_size=40), max_size=3), st.integers(1, 3))
def test_items_found_one_by_one_are_those_of_steps_across_records(
    drawn: tuple[Any, list[Any], list[Any]], noise: list[bytes], times: int
) -> None:
    schema, values, _ = drawn
    raw = written(schema, values * times).to_pylist() + [_BEFORE + each for each in noise]
    outcomes: list[Any] = []
    refused: set[int] = set()
    for step_items in (0, 2, 10**9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(decode, "_STEP_ITEMS", step_items)
            try:
                found = decoded(pa.array(raw, pa.binary()), avro_of(schema))
                outcomes.append(found.to_pylist())
            except RowsError as error:
                refused |= error.rows.keys()
                outcomes.append(None)
    assert all(each >= len(values) * times for each in refused)
    assert outcomes[0] == outcomes[1] == outcomes[2]


_INTS = {"type": "array", "items": "int"}
_EMPTY = {"type": "record", "name": "Empty", "fields": []}


@pytest.mark.parametrize("step_items", [0, 10**9])
@pytest.mark.parametrize(
    ("schema", "body", "value"),
    [
        (_INTS, b"\x02\x05\x02\x07\x00", [-3, -4]),
        (_INTS, b"\x01\x02\x05\x02\x07\x00", [-3, -4]),  # with the size of the first block
        (_INTS, b"\x00", []),
        ({"type": "map", "values": "int"}, b"\x01\x06\x02a\x05\x00", [("a", -3)]),
        ({"type": "array", "items": _EMPTY}, b"\x90\x03\x00", [{}] * 200),
        (
            {"type": "array", "items": {"type": "array", "items": _EMPTY}},
            b"\x04\x04\x00\x00\x00",
            [[{}, {}], []],
        ),
    ],
)
def test_blocks_of_items(
    schema: Any, body: bytes, value: Any, step_items: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "_STEP_ITEMS", step_items)
    found = decoded(pa.array([_BEFORE + body] * 3, pa.binary()), avro_of(schema))
    assert found.to_pylist() == [value] * 3


@pytest.mark.parametrize("step_items", [0, 10**9])
@pytest.mark.parametrize(
    ("schema", "body"),
    [
        ({"type": "array", "items": _EMPTY}, b"\xfe\xff\xff\xff\x0f\x00"),
        ({"type": "array", "items": _EMPTY}, b"\x88\x0e" * 5 + b"\x00"),
        ({"type": "array", "items": {"type": "array", "items": _EMPTY}}, b"\x02\x88\x7e\x00\x00"),
        (_INTS, b"\xff" * 9 + b"\x01\x00\x00"),  # the least number of items
        (_INTS, b"\x80\x08" + b"\x00" * 100),
    ],
)
def test_more_items_than_bytes_are_refused_before_they_are_read(
    schema: Any, body: bytes, step_items: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "_STEP_ITEMS", step_items)
    good = pa.array([_BEFORE + b"\x00", _BEFORE + body, _BEFORE + b"\x00"], pa.binary())
    with pytest.raises(RowsError, match=r"too few bytes|ends too early") as raised:
        decoded(good, avro_of(schema))
    assert list(raised.value.rows) == [1]


@pytest.mark.parametrize("bodies", [b"\x05" * 10_000, b"\x05" + b"\x02\x05" * 9_999])
def test_a_long_array_is_read_in_few_steps(bodies: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = varints(np.array([len(bodies) if bodies[1] == 5 else 1], np.int64)).to_pylist()[0]
    reads: list[Any] = []
    read = decode._Cursor.read

    def counted(*arguments: Any) -> Any:
        reads.append(arguments)
        return read(*arguments)

    monkeypatch.setattr(decode._Cursor, "read", counted)
    raw = pa.array([_BEFORE + counts + bodies + b"\x00"], pa.binary())
    assert decoded(raw, avro_of(_INTS)).to_pylist() == [[-3] * 10_000]
    assert len(reads) < 20


def test_only_some_of_many_bad_texts_are_tried_one_by_one() -> None:
    items = 5_000
    body = varints(np.array([items], np.int64)).to_pylist()[0] + b"\x02\xff" * items + b"\x00"
    raw = pa.array([_BEFORE + body, _BEFORE + b"\x00"], pa.binary())
    with pytest.raises(RowsError, match="a value that is none") as raised:
        decoded(raw, avro_of({"type": "array", "items": "string"}))
    assert list(raised.value.rows) == [0]


@given(rows(), st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(
    drawn: tuple[Any, list[Any], list[Any]], noise: bytes
) -> None:
    avro = avro_of(drawn[0])
    try:
        found = decoded(pa.array([_BEFORE + noise], pa.binary()), avro)
    except RecordError:
        return
    found.validate(full=True)


@given(st.lists(_SCALARS["long"], min_size=1))
def test_numbers_have_as_many_bytes_as_they_need(numbers: list[int]) -> None:
    found = varints(np.array(numbers, np.int64)).to_pylist()
    assert found == [each[len(_BEFORE) :] for each in written("long", numbers).to_pylist()]


@given(
    st.lists(st.decimals(-(10**40), 10**40, places=4, allow_nan=False), min_size=1),
    st.sampled_from([pa.decimal128(38, 4), pa.decimal256(60, 4), pa.decimal128(9, 4)]),
)
def test_decimals_go_through_their_digits(
    numbers: list[decimal.Decimal], kind: pa.DataType
) -> None:
    bound = decimal.Decimal(10) ** (kind.precision - 4)
    values = pa.array([each for each in numbers if abs(each) < bound], kind)
    digits = digits_of(values)
    assert decimals_of(digits, kind).equals(values)
    wanted = [int(each.scaleb(4, decimal.Context(prec=100))) for each in values.to_pylist()]
    assert [int.from_bytes(each, "big", signed=True) for each in digits.to_pylist()] == wanted


@pytest.mark.parametrize(
    ("schema", "body", "fault"),
    [
        ("int", b"\xff\xff\xff\xff\xff\x01", "does not fit into int"),
        ("long", b"\xff" * 12, "number without an end"),
        ("string", b"\x01", "negative length"),
        ("string", b"\x02\xff", "a value that is none"),
        (["null", "int"], b"\x04", "chooses what is none of 2"),
        ({"type": "array", "items": "int"}, b"\x80\x80\x80\x80\x80\x20\x02", "too few bytes"),
        ({"type": "int", "logicalType": "time-millis"}, b"\x01", "milliseconds of a day"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, b"\x00", "one byte"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 2},
            b"\x02\x7f",
            "does not fit into 2 digits",
        ),
    ],
)
def test_bytes_that_are_no_value_are_refused(schema: Any, body: bytes, fault: str) -> None:
    avro = parse_avro(json.dumps(schema))
    good = pa.array([_BEFORE + body], pa.binary())
    with pytest.raises(RowsError, match=fault):
        decoded(good, avro)


_INT8 = Schema(Type.INT8)
_PAIR = (Field("a", _INT8), Field("b", Schema(Type.STRING, optional=True)))
_VALUES_OF: list[tuple[Schema, st.SearchStrategy[Any]]] = [
    (_INT8, st.integers(-128, 127)),
    (Schema(Type.INT16), st.integers(-(2**15), 2**15 - 1)),
    (Schema(Type.INT32), _SCALARS["int"]),
    (Schema(Type.INT64), _SCALARS["long"]),
    (Schema(Type.FLOAT32), _SCALARS["float"]),
    (Schema(Type.FLOAT64), _SCALARS["double"]),
    (Schema(Type.BOOLEAN), st.booleans()),
    (Schema(Type.STRING), _SCALARS["string"]),
    (Schema(Type.BYTES), _SCALARS["bytes"]),
    (Schema(Type.INT32, name=schemas.DATE, version=1), st.dates()),
    (Schema(Type.INT32, name=schemas.TIME, version=1), st.integers(0, 86_399_999)),
    (Schema(Type.INT64, name=schemas.TIMESTAMP, version=1), st.integers(0, 1 << 41)),
    (Schema(Type.ARRAY, value_schema=_INT8), st.lists(st.integers(-128, 127), max_size=3)),
    (
        Schema(Type.MAP, key_schema=Schema(Type.STRING), value_schema=_INT8),
        st.dictionaries(st.text(max_size=3), st.integers(-128, 127), max_size=3).map(
            lambda found: list(found.items())
        ),
    ),
    (
        Schema(Type.MAP, key_schema=Schema(Type.INT32), value_schema=_INT8),
        st.dictionaries(_SCALARS["int"], st.integers(-128, 127), max_size=3).map(
            lambda found: list(found.items())
        ),
    ),
    (
        Schema(Type.STRUCT, fields=_PAIR),
        st.fixed_dictionaries({"a": st.integers(-128, 127), "b": st.none() | st.text(max_size=9)}),
    ),
]


@st.composite
def _decimals(draw: st.DrawFn) -> tuple[Schema, st.SearchStrategy[Any]]:
    """Decimals of any number of digits, before and after the point."""
    precision = draw(st.integers(1, 76))
    scale = draw(st.integers(0, precision))
    parameters = {schemas.SCALE: str(scale), schemas.PRECISION: str(precision)}
    digits = st.integers(-(10**precision) + 1, 10**precision - 1)
    return (
        Schema(Type.BYTES, name=schemas.DECIMAL, version=1, parameters=parameters),
        digits.map(lambda number: decimal.Decimal(number).scaleb(-scale, _EXACT)),
    )


_EXACT = decimal.Context(prec=100)


@given(st.sampled_from(_VALUES_OF) | _decimals(), st.data())
def test_null_is_written_in_every_type(
    found: tuple[Schema, st.SearchStrategy[Any]], data: st.DataObject
) -> None:
    schema, values = found
    drawn = data.draw(st.lists(st.none() | values, min_size=1, max_size=5))
    record = Schema(Type.STRUCT, fields=(Field("f", replace(schema, optional=True)),))
    field = arrow_field("value", record)
    column = pa.array([{"f": each} for each in [*drawn, None]], field.type).slice(0, len(drawn))
    # an optional field, and an optional value
    for made, column_of in ((record, column), (replace(schema, optional=True), column.field(0))):
        avro = parse_avro(avro_text(made, enums=True, meta_data=True))
        written = encode_records(
            arrow_field("value", made), column_of, avro, before=_BEFORE, strict=True, defaults=True
        )
        read = decode_records(written, avro, connect_schema(avro), skipped_bytes=len(_BEFORE))
        assert read.to_pylist() == column_of.to_pylist()
