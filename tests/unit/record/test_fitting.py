"""Values converted to a known schema."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drover.record.fitting import SchemaChangeError, fit
from drover.record.schema import Schema, Type, arrow_field, plain

ID = pa.field("id", pa.int64(), nullable=False)
NAME = pa.field("name", pa.string())


def value(*fields: pa.Field) -> pa.Field:
    return pa.field("value", pa.struct(fields))


def rows(found: pa.Field, *values: object) -> pa.Array:
    return pa.array(list(values), found.type)


def fitted(known: pa.Field, found: pa.Field, *values: object, drop: bool = False) -> list[object]:
    array = fit(known, found, rows(found, *values), drop=drop)
    assert array.type.equals(known.type, check_metadata=True)
    array.validate(full=True)
    made: list[object] = array.to_pylist()
    return made


def fault(known: pa.Field, found: pa.Field, *values: object, drop: bool = False) -> str:
    with pytest.raises(SchemaChangeError) as raised:
        fit(known, found, rows(found, *values), drop=drop)
    return str(raised.value)


KNOWN = value(ID, NAME)


def test_columns_may_come_in_any_order() -> None:
    found = value(NAME, ID)
    assert fitted(KNOWN, found, {"name": "a", "id": 1}) == [{"id": 1, "name": "a"}]


@pytest.mark.parametrize(
    ("narrow", "wide", "given", "made"),
    [
        (pa.int8(), pa.int64(), 7, 7),
        (pa.int32(), pa.int64(), -1, -1),
        (pa.float32(), pa.float64(), 0.5, 0.5),
        (pa.timestamp("us"), pa.timestamp("ms", tz="UTC"), None, None),
        (pa.large_string(), pa.string(), "a", "a"),
    ],
)
def test_values_of_narrower_types_are_taken(
    narrow: pa.DataType, wide: pa.DataType, given: object, made: object
) -> None:
    known, found = value(ID, pa.field("x", wide)), value(ID, pa.field("x", narrow))
    assert fitted(known, found, {"id": 1, "x": given}) == [{"id": 1, "x": made}]


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        (pa.int64(), pa.int32()),
        (pa.float64(), pa.float32()),
        (pa.int32(), pa.float64()),
        (pa.string(), pa.int64()),
        (pa.int64(), pa.string()),
        (pa.decimal128(20, 2), pa.decimal128(10, 2)),
        (pa.decimal128(10, 2), pa.decimal128(10, 3)),
        (pa.timestamp("ms", tz="UTC"), pa.date32()),
        (pa.struct([("a", pa.int32())]), pa.string()),
    ],
)
def test_a_type_that_does_not_fit_is_named_with_the_one_that_was(
    wide: pa.DataType, narrow: pa.DataType
) -> None:
    known, found = value(ID, pa.field("x", narrow)), value(ID, pa.field("x", wide))
    assert fault(known, found, {"id": 1, "x": None}) == f"value.x is {wide} and was {narrow}"


def test_a_decimal_of_fewer_digits_fits() -> None:
    wide, narrow = pa.decimal128(20, 2), pa.decimal128(10, 2)
    known, found = value(pa.field("x", wide)), value(pa.field("x", narrow))
    (made,) = fit(known, found, pa.array([{"x": None}], found.type)).to_pylist()
    assert made == {"x": None}


def test_an_optional_column_may_be_missing() -> None:
    assert fitted(KNOWN, value(ID), {"id": 1}) == [{"id": 1, "name": None}]


def test_a_missing_column_takes_its_default() -> None:
    default = arrow_field("n", Schema(Type.INT32, default="7"))
    assert fitted(value(ID, default), value(ID), {"id": 1}) == [{"id": 1, "n": 7}]


def test_a_required_column_may_not_be_missing() -> None:
    wanted = "value.id (int64), which was required, is missing"
    assert fault(KNOWN, value(NAME), {"name": "a"}) == wanted
    assert fault(KNOWN, value(NAME), {"name": "a"}, drop=True) == wanted


def test_a_required_column_may_be_optional_now_as_long_as_it_has_values() -> None:
    found = value(pa.field("id", pa.int64()), NAME)
    assert fitted(KNOWN, found, {"id": 1, "name": "a"}) == [{"id": 1, "name": "a"}]
    assert (
        fault(KNOWN, found, {"id": None, "name": "a"}, drop=True)
        == "value.id is null and was required"
    )


def test_every_change_is_told() -> None:
    found = value(NAME.with_type(pa.int32()), pa.field("city", pa.string()))
    assert fault(KNOWN, found, {"name": 1, "city": "x"}) == (
        "value.id (int64), which was required, is missing; value.name is int32 and was string; "
        "value.city (string) is new"
    )


def test_what_does_not_fit_is_dropped() -> None:
    found = value(ID, NAME.with_type(pa.int32()), pa.field("city", pa.string()))
    given = {"id": 1, "name": 7, "city": "x"}
    assert fitted(KNOWN, found, given, drop=True) == [{"id": 1, "name": None}]


def test_a_required_column_of_another_type_cannot_be_dropped() -> None:
    found = value(ID.with_type(pa.string()), NAME)
    assert (
        fault(KNOWN, found, {"id": "1", "name": "a"}, drop=True)
        == "value.id is string and was int64"
    )


def test_columns_of_structs_and_lists_are_looked_at_too() -> None:
    item = pa.field("item", pa.struct([("a", pa.int64()), ("b", pa.string())]))
    more = pa.field("item", pa.struct([("b", pa.string()), ("a", pa.int32()), ("c", pa.int8())]))
    known, found = (
        value(pa.field("inner", pa.struct([("items", pa.list_(each))]))) for each in (item, more)
    )
    given = [
        {"inner": {"items": [{"b": "x", "a": 1, "c": 2}, None]}},
        {"inner": {"items": None}},
        {"inner": None},
        None,
        {"inner": {"items": []}},
        {"inner": {"items": [{"b": None, "a": 3, "c": None}]}},
    ]
    assert fault(known, found, *given) == "value.inner.items.item.c (int8) is new"
    assert fitted(known, found, *given, drop=True) == [
        {"inner": {"items": [{"a": 1, "b": "x"}, None]}},
        {"inner": {"items": None}},
        {"inner": None},
        None,
        {"inner": {"items": []}},
        {"inner": {"items": [{"a": 3, "b": None}]}},
    ]


def test_a_value_of_another_kind_does_not_fit() -> None:
    text, schemaless = pa.field("value", pa.string()), arrow_field("value", None)
    assert fault(KNOWN, text, "a", drop=True).startswith("value is string and was struct<")
    assert fault(text, schemaless, "{}") == "value is a value without schema and was string"
    assert fault(schemaless, text, "a") == "value is string and was a value without schema"


def test_values_without_schema_fit_each_other() -> None:
    schemaless = arrow_field("value", None)
    assert fitted(schemaless, schemaless, '{"a":1}', None) == ['{"a":1}', None]


def test_tombstones_fit_everything() -> None:
    assert fitted(KNOWN, pa.field("value", pa.string()), None, None) == [None, None]


def test_names_versions_and_defaults_are_not_compared() -> None:
    known = arrow_field("value", plain(Type.STRUCT, name="a", version=1))
    found = arrow_field("value", plain(Type.STRUCT, name="b", version=2))
    assert fitted(known, found, {}, None) == [{}, None]


COLUMNS = {
    "a": [pa.int32(), pa.int64(), pa.string()],
    "b": [pa.list_(pa.int32()), pa.list_(pa.int64())],
    "c": [pa.struct([("x", pa.int32())]), pa.struct([("x", pa.int64()), ("y", pa.string())])],
}
VALUES: dict[str, list[object]] = {
    "a": [None],
    "b": [None, [], [1, None]],
    "c": [None, {"x": 1}, {}],
}


@st.composite
def struct_types(draw: st.DrawFn) -> pa.Field:
    names = draw(st.permutations(sorted(COLUMNS)))[: draw(st.integers(1, 3))]
    return value(*(pa.field(name, draw(st.sampled_from(COLUMNS[name]))) for name in names))


@given(data=st.data(), known=struct_types(), found=struct_types(), drop=st.booleans())
def test_rows_fit_alone_as_they_fit_together(
    data: st.DataObject, known: pa.Field, found: pa.Field, drop: bool
) -> None:
    row = st.fixed_dictionaries(
        {each.name: st.sampled_from(VALUES[each.name]) for each in found.type}
    )
    array = pa.array(data.draw(st.lists(st.none() | row, min_size=1, max_size=6)), found.type)
    if array.null_count == len(array):
        return
    try:
        together = fit(known, found, array, drop=drop).to_pylist()
    except SchemaChangeError:
        together = None
    start = data.draw(st.integers(0, len(array) - 1))
    part = array.slice(start)
    if part.null_count == len(part):
        assert fit(known, found, part, drop=drop).to_pylist() == [None] * len(part)
    elif together is None:
        with pytest.raises(SchemaChangeError):
            fit(known, found, part, drop=drop)
    else:
        made = fit(known, found, part, drop=drop)
        made.validate(full=True)
        assert made.to_pylist() == together[start:]
