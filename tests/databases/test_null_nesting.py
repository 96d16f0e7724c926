"""Null and empty structs, lists and maps in every nesting, in the files of each sink."""

from itertools import product
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq

from tests.databases import test_delta_table as delta
from tests.databases import test_iceberg_table as iceberg
from tests.support.lake_records import records

WRAPPERS = ("list", "map", "struct")


def kind_of(wrappers: tuple[str, ...]) -> pa.DataType:
    if not wrappers:
        return pa.int32()
    inner = kind_of(wrappers[1:])
    match wrappers[0]:
        case "list":
            return pa.list_(inner)
        case "map":
            return pa.map_(pa.string(), inner)
    return pa.struct([("x", inner), ("y", pa.string())])


def values_of(wrappers: tuple[str, ...]) -> list[Any]:
    """Null, empty and filled values."""
    if not wrappers:
        return [7, None]
    inner = values_of(wrappers[1:])
    match wrappers[0]:
        case "list":
            return [None, [], inner, [inner[-1]]]
        case "map":
            return [None, [], [(f"k{n}", each) for n, each in enumerate(inner)]]
    return [None, *({"x": each, "y": "z"} for each in inner)]


def nested_rows() -> pa.StructArray:
    """A row for each value, with a column for each type of up to three levels."""
    columns = [
        ("_".join(each), each) for depth in (1, 2, 3) for each in product(WRAPPERS, repeat=depth)
    ]
    count = max(len(values_of(each)) for _, each in columns)
    arrays = [pa.array(range(count), pa.int32())]
    names = ["id"]
    for name, wrappers in columns:
        values = values_of(wrappers)
        filled = [values[row % len(values)] for row in range(count)]
        arrays.append(pa.array(filled, kind_of(wrappers)))
        names.append(name)
    return pa.StructArray.from_arrays(arrays, names)


def test_iceberg_keeps_null_lists_and_maps(tmp_path: Path) -> None:
    rows = nested_rows()
    upsert = {
        "iceberg.tables.default-id-columns": "id",
        "iceberg.tables.upsert-mode-enabled": "true",
    }
    own = iceberg.settings(tmp_path, **upsert)
    iceberg.write(own, records(rows.slice(0, 2)))
    iceberg.write(own, records(rows.slice(1), first=2))  # rewrites the file of the first row
    wanted = rows.to_pylist()
    scan = iceberg.table(own).scan()
    assert scan.to_arrow().sort_by("id").to_pylist() == wanted
    paths = [each.file.file_path.removeprefix("file://") for each in scan.plan_files()]
    stored = pa.concat_tables([pq.ParquetFile(each).read() for each in paths]).sort_by("id")
    assert stored.to_pylist() == wanted


def test_delta_keeps_null_lists_and_maps(tmp_path: Path) -> None:
    rows = nested_rows()
    own = delta.settings(tmp_path)
    delta.write(own, records(rows))
    found = deltalake.DeltaTable(str(tmp_path / "orders")).to_pyarrow_table().sort_by("id")
    assert found.to_pylist() == rows.to_pylist()
