"""Converters write values of any Arrow type, also of types without a Connect schema."""

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.convert.test_steps import converter

AT = datetime.datetime(2024, 2, 29, 1, 2, 3, 4567)
NESTED = pa.struct([("a", pa.list_(pa.struct([("b", pa.timestamp("us"))])))])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([200, None], pa.uint8()), ["200", "null"]),
        (pa.array([2**63 - 1], pa.uint64()), ["9223372036854775807"]),
        (pa.array([1.5, None], pa.float16()), ["1.5", "null"]),
        (pa.array(['a"\\\n', None], pa.large_string()), ['"a\\"\\\\\\n"', "null"]),
        (pa.array(["a", None], pa.string_view()), ['"a"', "null"]),
        (pa.array([b"a", None], pa.large_binary()), ['"YQ=="', "null"]),
        (pa.nulls(1), ["null"]),
        (pa.array(["a", None]).dictionary_encode(), ['"a"', "null"]),
        (pa.array([b"ab", None], pa.binary(2)), ['"YWI="', "null"]),
        (pa.array([AT, None], pa.timestamp("us")), ["1709168523004", "null"]),
        (pa.array([AT, None], pa.timestamp("ns", tz="Europe/Oslo")), ["1709168523004", "null"]),
        (pa.array([AT.date(), None], pa.date64()), ["19782", "null"]),
        (pa.array([AT.time(), None], pa.time64("us")), ["3723004", "null"]),
        (pa.array([[1], None, []], pa.large_list(pa.int8())), ["[1]", "null", "[]"]),
        (pa.array([None, [1, 2]], pa.list_(pa.int8(), 2)), ["null", "[1,2]"]),
        (pa.array([decimal.Decimal("1.5"), None], pa.decimal256(50, 2)), ['"AJY="', "null"]),
        (pa.array([decimal.Decimal(1500)], pa.decimal128(10, -2)), ['"Dw=="']),
        (pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int8())), ['{"a":1}', "null"]),
        (pa.array([{"a": [{"b": AT}]}, None], NESTED), ['{"a":[{"b":1709168523004}]}', "null"]),
    ],
    ids=lambda each: str(each.type) if isinstance(each, pa.Array) else "",
)
def test_values_of_any_type_become_json(values: Any, expected: list[str]) -> None:
    json = converter("Json", schemas_enable="false")
    field = pa.field("value", values.type)
    written = json.encode(field, values, None)
    assert [each.decode() for each in written.to_pylist()] == expected
    part = pa.concat_arrays([values, values]).slice(len(values))
    assert json.encode(field, part, None).equals(written)


def test_a_number_that_no_schema_holds_is_refused() -> None:
    values = pa.array([2**63], pa.uint64())
    with pytest.raises(ValueError, match="9223372036854775808 not in range"):
        converter("Json").encode(pa.field("value", values.type), values, None)


def test_a_number_converter_takes_narrower_arrow_types_of_its_schema() -> None:
    values = pa.array([1, None, 65535], pa.uint16())
    written = converter("Integer").encode(pa.field("value", values.type), values, None)
    assert written.to_pylist() == [b"\0\0\0\1", None, b"\0\0\xff\xff"]
