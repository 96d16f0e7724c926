"""Types with drawn values, their forms in JSON, and their comparison; for property tests."""

import base64
import datetime
import decimal
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

UTC = datetime.UTC
EPOCH = datetime.datetime(1970, 1, 1)
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999
DECIMAL = pa.decimal128(38, 9)
MOMENT, FINE_MOMENT = pa.timestamp("ms", tz="UTC"), pa.timestamp("us", tz="UTC")

#: Texts that a reader may take for a value of another type, or change.
TRICKY = (
    *("", " ", "0", "-0", "007", "+5", "5.", ".5", "7.50", "1.0", "1", "1e5", "1E-7", "0x1F"),
    *("true", "True", "FALSE", "null", "NULL", "NaN", "nan", "inf", "-Infinity", "N/A", "none"),
    *("2024-01-02", "2024-02-30", "0000-01-01", "24-1-2", "10:20:30", "2024-01-02T03:04:05Z"),
    *("2024-01-02 03:04:05.123456", "2024-01-02T03:04:05+02:00", "9999-12-31T23:59:59.999Z"),
    *("9007199254740993", "9223372036854775808", "0.12345678901234567890", "1" * 40),
    *(" 5", "5 ", "a,b", 'a"b', "a\nb", "a\tb", "\ufeff", "é", "\U0001f600", "1_000", "٣"),
)
TEXTS = st.sampled_from(TRICKY) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=8
)


def integers(bits: int) -> st.SearchStrategy[int]:
    bound = 1 << (bits - 1)
    edges = st.sampled_from([-bound, bound - 1, 0, -1])
    return edges | st.integers(-bound, bound - 1)


SCALARS: Mapping[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): integers(8),
    pa.int16(): integers(16),
    pa.int32(): integers(32),
    pa.int64(): integers(64) | st.sampled_from([2**53 + 1, -(2**53) - 1]),
    pa.float32(): st.floats(width=32, allow_nan=False, allow_infinity=False),
    pa.float64(): st.floats(allow_nan=False, allow_infinity=False),
    DECIMAL: st.integers(-(10**38) + 1, 10**38 - 1).map(
        lambda digits: decimal.Decimal(digits).scaleb(-9, decimal.Context(prec=50))
    ),
    pa.string(): TEXTS,
    pa.binary(): st.binary(max_size=8),
    pa.date32(): st.integers(FIRST_MS // 86_400_000, LAST_MS // 86_400_000),
    MOMENT: st.integers(FIRST_MS, LAST_MS) | st.sampled_from([FIRST_MS, LAST_MS, -1]),
}
FINE = {FINE_MOMENT: st.integers(FIRST_MS * 1000, LAST_MS * 1000)}


@st.composite
def columns(
    draw: st.DrawFn, scalars: Mapping[pa.DataType, st.SearchStrategy[Any]], depth: int
) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    """A type, and a strategy for its values."""
    shape = draw(st.sampled_from(["scalar", "scalar", "list", "map", "struct"])) if depth else ""
    if shape in ("", "scalar"):
        kind = draw(st.sampled_from(list(scalars)))
        return kind, st.none() | scalars[kind]
    inner, values = draw(columns(scalars, depth - 1))
    if shape == "list":
        return pa.list_(inner), st.none() | st.lists(values, max_size=3)
    if shape == "map":
        keys = st.sampled_from(["a", "b", "c"])
        return pa.map_(pa.string(), inner), st.none() | st.dictionaries(keys, values).map(
            lambda found: list(found.items())
        )
    return pa.struct([("x", inner), ("y", pa.string())]), st.none() | st.fixed_dictionaries(
        {"x": values, "y": st.none() | TEXTS}
    )


@st.composite
def tables(
    draw: st.DrawFn, scalars: Mapping[pa.DataType, st.SearchStrategy[Any]], depth: int
) -> pa.RecordBatch:
    """Rows with the column ``id`` and up to three others."""
    drawn = draw(st.lists(columns(scalars, depth), min_size=1, max_size=3))
    count = draw(st.integers(1, 4))
    arrays = [pa.array(range(count), pa.int32())]
    for kind, values in drawn:
        arrays.append(pa.array([draw(values) for _ in range(count)], kind))
    names = ["id", *(f"f{index}" for index in range(len(drawn)))]
    return pa.RecordBatch.from_arrays(arrays, names)


def plain(value: Any) -> Any:
    """A value in a form that is equal for equal values: times in microseconds."""
    match value:
        case datetime.datetime():
            return (
                "time",
                (value.replace(tzinfo=None) - EPOCH) // datetime.timedelta(microseconds=1),
            )
        case dict():
            return {name: plain(each) for name, each in value.items()}
        case list():
            return [plain(each) for each in value]
        case tuple():
            return tuple(plain(each) for each in value)
    return value


def as_json(value: Any, kind: pa.DataType) -> Any:
    """A value in the form that files of JSON have; numbers are decimals."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {each.name: as_json(value[each.name], each.type) for each in kind}
    if pa.types.is_map(kind):
        return {name: as_json(each, kind.item_type) for name, each in value}
    if pa.types.is_list(kind):
        return [as_json(each, kind.value_type) for each in value]
    match value:
        case datetime.datetime():
            return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
        case datetime.date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case bool() | str():
            return value
    return decimal.Decimal(repr(value) if isinstance(value, float) else value)


def of_json(found: Any, kind: pa.DataType) -> Any:
    """The value of its form in files of JSON."""
    if found is None:
        return None
    if pa.types.is_struct(kind):
        return {each.name: of_json(found[each.name], each.type) for each in kind}
    if pa.types.is_map(kind):
        return [(name, of_json(each, kind.item_type)) for name, each in found.items()]
    if pa.types.is_list(kind):
        return [of_json(each, kind.value_type) for each in found]
    if pa.types.is_timestamp(kind):
        return datetime.datetime.fromisoformat(found)
    if pa.types.is_date(kind):
        return datetime.date.fromisoformat(found)
    if pa.types.is_binary(kind):
        return base64.b64decode(found)
    if pa.types.is_float32(kind):
        return float(np.float32(found))
    return float(found) if pa.types.is_floating(kind) else found
