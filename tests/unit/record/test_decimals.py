"""Columns of decimals are encoded and decoded like single decimals, or refused."""

import base64
import decimal
import itertools
from typing import Any

import pyarrow as pa
import pytest

from drover.record.decimals import decimal_base64, of_base64, of_texts, quoted_base64

#: Numbers from which the encoding needs another byte, and their neighbours.
EDGES = [
    sign * (1 << bits) + by
    for bits, sign, by in itertools.product(range(0, 63, 7), (1, -1), (-1, 0, 1))
] + [0, 127, 128, -128, -129, 2**63 - 1, -(2**63)]
TOO_LARGE = [2**63, -(2**63) - 1]


def column(numbers: list[int | None], scale: int) -> Any:
    exact = decimal.Context(prec=40)
    values = [
        None if each is None else decimal.Decimal(each).scaleb(-scale, exact) for each in numbers
    ]
    return pa.array(values, pa.decimal128(38, scale))


@pytest.mark.parametrize("scale", [0, 2, 19])
@pytest.mark.parametrize(("begin", "end"), [(0, 80), (3, 50), (7, 9), (1, 2)])
def test_a_column_is_written_and_read_as_each_of_its_decimals(
    scale: int, begin: int, end: int
) -> None:
    numbers = [None if index % 5 == 4 else each for index, each in enumerate(EDGES)]
    values = column(numbers, scale).slice(begin, end - begin)
    texts = [None if each is None else decimal_base64(each) for each in numbers]

    written: Any = quoted_base64(values, scale)
    written.validate(full=True)
    assert written.to_pylist() == [
        None if each is None else f'"{each}"' for each in texts[begin:end]
    ]
    read: Any = of_base64(pa.array(texts, pa.string()).slice(begin, end - begin), values.type)
    read.validate(full=True)
    assert read.equals(values)


@pytest.mark.parametrize("number", TOO_LARGE)
def test_what_does_not_fit_into_eight_bytes_is_left_to_others(number: int) -> None:
    assert quoted_base64(column([1, number], 2), 2) is None
    texts = pa.array([decimal_base64(1), decimal_base64(number)])
    assert of_base64(texts, pa.decimal128(38, 2)) is None


def test_other_types_and_scales_are_left_to_others() -> None:
    assert quoted_base64(column([1], 2), 3) is None
    assert quoted_base64(column([1], 2).cast(pa.decimal256(40, 2)), 2) is None
    assert quoted_base64(column([], 2), 2) is None
    assert of_base64(pa.array(["AQ=="]), pa.decimal256(40, 2)) is None
    assert of_base64(pa.array([], pa.string()), pa.decimal128(9, 2)) is None
    assert of_base64(pa.array([None], pa.string()), pa.decimal128(9, 2)) is None


@pytest.mark.parametrize(
    "text", ["", "A", "A===", "====", "AA=A", "A*==", "é==", "AA==\n", "AB==", "AAAAAAAAAAAA"]
)
def test_what_is_not_as_we_write_it_is_left_to_others(text: str) -> None:
    assert of_base64(pa.array(["AQ==", text]), pa.decimal128(38, 2)) is None


@pytest.mark.parametrize(("number", "fits"), [(99, True), (-99, True), (100, False), (-100, False)])
def test_a_decimal_of_too_many_digits_is_left_to_others(number: int, fits: bool) -> None:
    assert (of_base64(pa.array([decimal_base64(number)]), pa.decimal128(2, 1)) is not None) is fits


def test_the_least_number_of_eight_bytes_has_too_many_digits() -> None:
    assert of_base64(pa.array([decimal_base64(-(2**63))]), pa.decimal128(18, 0)) is None


def test_more_bytes_than_needed_are_read() -> None:
    texts = pa.array([base64.b64encode(each).decode() for each in (b"\0\0\1", b"\xff\xff")])
    read: Any = of_base64(texts, pa.decimal128(9, 0))
    assert read.to_pylist() == [1, -1]


def test_texts_become_decimals() -> None:
    texts = pa.array(["1.5", None, "-0.25", "12e2"])
    assert [str(each) for each in of_texts(texts, pa.decimal128(9, 2)).drop_null().to_pylist()] == [
        "1.50",
        "-0.25",
        "1200.00",
    ]


@pytest.mark.parametrize("bits", [128, 256])
@pytest.mark.parametrize("by", [-1, 0, 1, 5])
@pytest.mark.parametrize("sign", ["", "-"])
def test_a_text_beyond_arrows_integers_is_an_error_and_no_other_number(
    bits: int, by: int, sign: str
) -> None:
    kind = pa.decimal128(38, 0) if bits == 128 else pa.decimal256(76, 0)
    text = f"{sign}{2**bits + by}"
    with pytest.raises(pa.ArrowInvalid, match=text):
        of_texts(pa.array(["1", text, None]), kind)


def test_a_text_with_many_digits_after_the_point_is_an_error_and_no_other_number() -> None:
    kind = pa.decimal128(38, 2)
    with pytest.raises(pa.ArrowInvalid, match="no number that decimal128"):
        of_texts(pa.array([f"0.{2**128 + 100}"]), kind)
    long = of_texts(pa.array([f"-1.25{'0' * 60}"]), kind)
    assert long.to_pylist() == [decimal.Decimal("-1.25")]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "x" * 50, "1_0", "1" * 1200, f"1{'0' * 38}"])
def test_a_text_that_the_type_does_not_hold_is_an_error(text: str) -> None:
    for texts in ([text], [text, "0." + "0" * 50]):
        with pytest.raises(pa.ArrowInvalid):
            of_texts(pa.array(texts), pa.decimal128(38, 0))
