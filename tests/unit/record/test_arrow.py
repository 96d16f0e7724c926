"""Questions about types that Arrow has in several forms."""

import pyarrow as pa
import pytest

from drover.record.arrow import (
    has_decimal,
    in_unit,
    is_binary,
    is_list,
    is_text,
    offsets_of,
    text_bytes,
)


@pytest.mark.parametrize(
    ("asked", "kinds"),
    [
        (is_text, [pa.string(), pa.large_string(), pa.string_view()]),
        (is_binary, [pa.binary(), pa.large_binary(), pa.binary(3), pa.binary_view()]),
        (is_list, [pa.list_(pa.int8()), pa.large_list(pa.int8()), pa.list_(pa.int8(), 2)]),
    ],
    ids=["text", "binary", "list"],
)
def test_every_form_of_a_type_is_known(asked: object, kinds: list[pa.DataType]) -> None:
    others = [pa.int8(), pa.decimal128(5, 2), pa.map_(pa.string(), pa.int8()), pa.struct([])]
    every = [pa.string(), pa.binary(), pa.list_(pa.int8()), *others]
    assert callable(asked)
    assert all(asked(each) for each in kinds)
    assert [each for each in every if asked(each)] == kinds[:1]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.decimal128(5, 2), True),
        (pa.map_(pa.string(), pa.list_(pa.struct([("a", pa.decimal256(50, 2))]))), True),
        (pa.struct([("a", pa.float64())]), False),
    ],
    ids=str,
)
def test_decimals_are_found_within_other_types(kind: pa.DataType, expected: bool) -> None:
    assert has_decimal(kind) is expected


def test_offsets_add_up_lengths() -> None:
    assert offsets_of(pa.array([2, 0, 3])).to_pylist() == [0, 2, 2, 5]
    assert offsets_of(pa.array([], pa.int32())).to_pylist() == [0]


def test_the_bytes_of_texts_are_those_of_a_slice() -> None:
    values = pa.array(["ab", None, "ü", "d"])
    assert text_bytes(values.slice(1, 2)).tobytes() == "ü".encode()
    assert text_bytes(pa.array([], pa.string())).tobytes() == b""


@pytest.mark.parametrize(
    ("unit", "count", "wanted", "milliseconds"),
    [
        ("us", -1, "ms", -1),
        ("us", -1_000, "ms", -1),
        ("us", 1_999, "ms", 1),
        ("ns", -1, "ms", -1),
        ("s", -1, "ms", -1_000),
        ("ms", 5, "ms", 5),
        ("us", None, "ms", None),
    ],
)
def test_a_timestamp_is_truncated_to_an_earlier_one(
    unit: str, count: int | None, wanted: str, milliseconds: int | None
) -> None:
    for zone in (None, "UTC", "Europe/Oslo"):
        found = in_unit(pa.array([count], pa.timestamp(unit, zone)), wanted)
        assert found.type == pa.timestamp(wanted, zone)
        assert found.cast(pa.int64()).to_pylist() == [milliseconds]


def test_a_timestamp_outside_of_the_units_range_is_an_error() -> None:
    with pytest.raises(pa.ArrowInvalid, match="out of bounds"):
        in_unit(pa.array([2**62], pa.timestamp("s")), "us")
