"""Values of any type: a table takes a record or rejects it alone, as a prediction shows."""

import string
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from drover.connectors.lakehouse.delta_table import DeltaWriter
from drover.connectors.lakehouse.iceberg_table import IcebergWriter
from tests.databases import test_delta_table, test_iceberg_table
from tests.support.lake_records import records

YEAR_1_US, YEAR_10000_US = -62_135_596_800_000_000, 253_402_300_800_000_000
DAY_1, DAY_LAST = -719_162, 2_932_896
INNER = pa.struct([("at", pa.timestamp("us")), ("day", pa.date32())])
#: Values by name, with the formats that reject them.
VALUES: dict[str, tuple[pa.Array, str]] = {
    "uint64": (pa.array([2**64 - 1], pa.uint64()), ""),
    "60 digits": (pa.array([Decimal(10) ** 50], pa.decimal256(60, 0)), "iceberg delta"),
    "null": (pa.nulls(1), ""),
    "nulls in a list": (pa.array([[None]], pa.list_(pa.null())), "iceberg delta"),
    "map by number": (pa.array([[(1, "a")]], pa.map_(pa.int32(), pa.string())), ""),
    "time": (pa.array([1000], pa.time32("ms")), ""),
    "nanoseconds": (pa.array([1], pa.timestamp("ns")), "iceberg delta"),
    "year 1": (pa.array([YEAR_1_US], pa.timestamp("us")), ""),
    "before year 1": (pa.array([YEAR_1_US - 1], pa.timestamp("us")), "iceberg"),
    "year 9999": (pa.array([YEAR_10000_US - 1], pa.timestamp("us", "UTC")), ""),
    "year 10000": (pa.array([YEAR_10000_US], pa.timestamp("us", "UTC")), "iceberg"),
    "far time": (pa.array([2**62], pa.timestamp("us")), "iceberg"),
    "first day": (pa.array([DAY_1], pa.date32()), ""),
    "day before": (pa.array([DAY_1 - 1], pa.date32()), "iceberg delta"),
    "last day": (pa.array([DAY_LAST], pa.date32()), ""),
    "day after": (pa.array([DAY_LAST + 1], pa.date32()), "iceberg delta"),
    "far day": (pa.array([2**31 - 1], pa.date32()), "iceberg delta"),
    "time in a struct": (pa.array([{"at": YEAR_10000_US, "day": 0}], INNER), "iceberg"),
    "day in a struct": (pa.array([{"at": 0, "day": 2**30}], INNER), "iceberg delta"),
    "day in a list": (pa.array([[0, 2**30]], pa.list_(pa.date32())), "iceberg delta"),
    "day in a map": (
        pa.array([[("a", 2**30)]], pa.map_(pa.string(), pa.date32())),
        "iceberg delta",
    ),
    "null struct": (pa.array([None], INNER), ""),
    "duration": (pa.array([1], pa.duration("s")), "iceberg delta"),
    "half": (pa.array([1.5], pa.float16()), ""),
    "empty object": (pa.array([{}], pa.struct([])), "iceberg delta"),
    "two fields of one name": (
        pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]),
        "iceberg delta",
    ),
    "fields that differ in case": (
        pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "A"]),
        "delta",
    ),
    "date64": (pa.array([86_400_000], pa.date64()), ""),
}
NAMES = {
    **dict.fromkeys(("a.b", "a b", "a/b", 'a`"b', string.punctuation, "ä\n\t"), ""),
    "": "iceberg delta",
    "a\0b": "delta",
    "ID": "delta",
}


def writer(path: Path, name: str) -> Any:
    if name == "iceberg":
        return IcebergWriter("sink", test_iceberg_table.settings(path), tolerates=True)
    return DeltaWriter("sink", test_delta_table.settings(path), tolerates=True)


def check(path: Path, name: str, column: str, values: pa.Array, *, rejected: bool) -> None:
    fields = [pa.array([1], pa.int64()), values]
    batches = [
        records([{"id": 0}]),
        records(pa.StructArray.from_arrays(fields, ["id", column]), first=1),
        records([{"id": 2}], first=2),
    ]
    own = writer(path, name)
    predicted = {each.offset: each.reason for *_, each in own.predicted(batches) if each}
    (answer,) = own(batches)
    refused = {row["offset"]: row["reason"] for row in answer.to_pylist() if row["reason"]}
    assert predicted == refused
    assert list(refused) == ([1] if rejected else [])
    assert answer.column("rows")[0].as_py() == 3 - rejected


@pytest.mark.parametrize("name", ["iceberg", "delta"])
@pytest.mark.parametrize("case", VALUES)
def test_a_value_is_written_or_its_record_alone_is_rejected(
    tmp_path: Path, name: str, case: str
) -> None:
    values, rejecting = VALUES[case]
    check(tmp_path, name, "v", values, rejected=name in rejecting.split())


@pytest.mark.parametrize("name", ["iceberg", "delta"])
@pytest.mark.parametrize("column", NAMES)
def test_a_field_of_any_name_is_written_or_its_record_alone_is_rejected(
    tmp_path: Path, name: str, column: str
) -> None:
    check(tmp_path, name, column, pa.array([1]), rejected=name in NAMES[column].split())
