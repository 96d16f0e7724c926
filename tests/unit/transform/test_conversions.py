"""Cast and TimestampConverter: Arrow types that no schema has, and what faults say."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from drover.record import RecordError, make_batch
from drover.record.batch import VALUE
from drover.transform.registry import TRANSFORMS

_MS = "yyyy-MM-dd HH:mm:ss.SSS"
_TO_TEXT = {"target.type": "string", "format": _MS}


def converted(name: str, config: Mapping[str, str], values: Any) -> list[Any]:
    found = TRANSFORMS.find(name)
    step = found(found.config_def().parse(config).require_valid())
    batch = make_batch(len(values), value=(pa.field(VALUE, values.type), values))
    return [value for each in step(batch) for value in each.column(VALUE).to_pylist()]


@pytest.mark.parametrize(
    ("values", "target", "expected"),
    [
        (pa.array([1, 300, None], pa.uint16()), "int8", [1, 44, None]),
        (pa.array(["12", None], pa.large_string()), "int8", [12, None]),
        (pa.array(["5", "5"]).dictionary_encode(), "int8", [5, 5]),
        (pa.array([1.5], pa.float16()), "string", ["1.5"]),
        (pa.array([b"ab"], pa.binary(2)), "string", ["YWI="]),
        (pa.array([86_400_000_999], pa.timestamp("us")), "string", ["1970-01-02"]),
        (pa.array(["7", "+7", None, " 7"]).slice(1, 2), "int16", [7, None]),
    ],
)
def test_a_cast_takes_what_connectors_have(values: Any, target: str, expected: list[Any]) -> None:
    assert converted("Cast$Value", {"spec": target}, values) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([1_999_999], pa.timestamp("us")), "1970-01-01 00:00:01.999"),
        (pa.array([86_400_001], pa.date64()), "1970-01-02 00:00:00.000"),
        (pa.array([5_999], pa.time64("us")), "1970-01-01 00:00:00.005"),
        (pa.array([_MS.replace("yyyy", "x")], pa.large_string()), None),
        (pa.array([7], pa.uint32()), "1970-01-01 00:00:00.007"),
    ],
)
def test_times_of_any_unit_are_converted(values: Any, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(RecordError, match="does not match the pattern 'yyyy-MM-dd"):
            converted("TimestampConverter$Value", _TO_TEXT, values)
    else:
        assert converted("TimestampConverter$Value", _TO_TEXT, values) == [expected]


@pytest.mark.parametrize(
    ("name", "config", "values", "fault"),
    [
        ("Cast$Value", {"spec": "int8"}, pa.array(["1", "128"]), "128 does not fit into 8 bits"),
        ("Cast$Value", {"spec": "int8"}, pa.array(["1", "x"]), "'value': 'x' is no whole number"),
        ("Cast$Value", {"spec": "int8"}, pa.array([2**63], pa.uint64()), "not in range"),
        (
            "TimestampConverter$Value",
            {"target.type": "Timestamp", "unix.precision": "seconds"},
            pa.array([2**62]),
            "'value': a time is out of range",
        ),
        ("TimestampConverter$Value", _TO_TEXT, pa.array([1.5]), "double is no timestamp"),
    ],
)
def test_a_value_that_cannot_be_converted_is_named(
    name: str, config: Mapping[str, str], values: Any, fault: str
) -> None:
    with pytest.raises(RecordError, match=fault):
        converted(name, config, values)
