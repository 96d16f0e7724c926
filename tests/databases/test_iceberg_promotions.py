"""Types of columns of Iceberg tables are promoted for values that need it."""

from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from tests.databases.test_iceberg_table import refusals, rows, settings, table, write
from tests.support.lake_records import records, schemaless

EVOLVES_KEY = "iceberg.tables.evolve-schema-enabled"


def test_types_are_promoted_where_tables_may_evolve(tmp_path: Path) -> None:
    kinds = pa.struct(
        [
            ("i", pa.int32()),
            ("f", pa.float32()),
            ("d", pa.decimal128(5, 2)),
            ("s", pa.struct([("i", pa.int32())])),
            ("l", pa.list_(pa.int32())),
        ]
    )
    small = {"i": 1, "f": 1.5, "d": Decimal("1.25"), "s": {"i": 1}, "l": [1]}
    large = {"i": 2**40, "f": 1.1, "d": Decimal("123456.78"), "s": {"i": 2**41}, "l": [2**42]}
    own = settings(tmp_path)
    write(own, records(pa.array([small], kinds)))
    found = refusals(own, records([large], first=1))
    assert "set iceberg.tables.evolve-schema-enabled, convert it with Cast" in found[1]
    wrong = [{"i": 1.5}, {"d": Decimal("1.234")}, {"i": 2**70}, {"s": {"i": "x"}}]
    evolving = replace(own, evolves=True)
    assert sorted(refusals(evolving, schemaless([large, *wrong, small], first=1))) == [2, 3, 4, 5]
    assert rows(own, "i") == [small, small, large]
    assert [str(each.field_type) for each in table(own).schema().fields] == [
        "long",
        "double",
        "decimal(8, 2)",
        "struct<6: i: optional long>",
        "list<long>",
    ]


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (pa.array([1], pa.int32()), pa.array([2.0**40]), "long"),
        (pa.array([1], pa.int32()), pa.array([Decimal(2**40)], pa.decimal128(20, 0)), "long"),
        (pa.array([1], pa.int32()), pa.array([1.5]), "int"),
        (pa.array([1], pa.int32()), pa.array([Decimal(2**70)], pa.decimal128(38, 0)), "int"),
        (pa.array([Decimal("1.5")]), pa.array([2**40]), "decimal(20, 1)"),
        (pa.array([Decimal("1.5")]), pa.array([Decimal("1.55")]), "decimal(2, 1)"),
        (pa.array([1]), pa.array([1.5]), "long"),
        (pa.array([True]), pa.array([2]), "boolean"),
        (pa.array([date(2026, 1, 1)]), pa.array([datetime(2026, 1, 1, 2)]), "date"),
        (pa.array(["x"]), pa.array([b"\xff"]), "string"),
    ],
)
def test_only_promotions_of_iceberg_are_made(
    tmp_path: Path, before: pa.Array, after: pa.Array, kind: str
) -> None:
    def batch(values: pa.Array, first: int) -> pa.RecordBatch:
        inner = pa.StructArray.from_arrays([values], ["x"])
        return records(pa.StructArray.from_arrays([values, inner], ["n", "s"]), first=first)

    own = replace(settings(tmp_path), evolves=True)
    assert refusals(own, batch(before, 0)) == {}
    found = refusals(own, batch(after, 1))
    assert str(table(own).schema().find_field("n").field_type) == kind
    promoted = kind in ("long", "decimal(20, 1)") and before.type != pa.int64()
    assert len(rows(own, "n")) == 1 + promoted
    assert bool(found) != promoted
    assert all("convert it with Cast, or change the table" in each for each in found.values())
    assert all(EVOLVES_KEY not in each for each in found.values())
    assert refusals(own, batch(before, 2)) == {}


def test_a_key_column_is_promoted_and_its_rows_are_found(tmp_path: Path) -> None:
    columns = {"iceberg.tables.default-id-columns": "id"}
    upsert = {"iceberg.tables.upsert-mode-enabled": "true", **columns}
    by = {"iceberg.tables.default-partition-by": "bucket(id, 4)"}
    own = settings(tmp_path, **upsert, **by, **{EVOLVES_KEY: "true"})

    def batch(rows: dict[int, str], kind: pa.DataType, first: int) -> pa.RecordBatch:
        values = [{"id": key, "v": text} for key, text in rows.items()]
        fields = pa.struct([("id", kind), ("v", pa.string())])
        return records(pa.array(values, fields), first=first)

    write(own, batch({1: "a", 2: "a"}, pa.int32(), 0))
    write(own, batch({2: "b", 2**40: "b"}, pa.int64(), 2))
    write(own, batch({1: "c", 2**40: "c"}, pa.int64(), 4))
    assert [(each["id"], each["v"]) for each in rows(own)] == [(1, "c"), (2, "b"), (2**40, "c")]
