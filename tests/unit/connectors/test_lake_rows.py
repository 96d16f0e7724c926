"""Rows are cast to a table's types without a change of their values."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from drover.connectors.lakehouse.fitted_rows import TableError, aligned
from drover.connectors.lakehouse.rows import RowSettings, changes_of
from drover.connectors.refused_records import RefusedRecordError
from drover.record.batch import with_column
from drover.record.json.schemaless import dumps
from drover.record.schema import arrow_field
from tests.support.lake_records import records, schemaless

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
POINT = pa.struct([("x", pa.int64())])


def aligned_values(values: pa.Array, kind: pa.DataType, *, evolves: bool = False) -> list[Any]:
    found = aligned(
        pa.table({"c": values}), pa.schema([("c", kind)]), evolves=evolves, evolve_setting="evolve"
    )
    return list(found.column("c").to_pylist())


@pytest.mark.parametrize(
    ("value", "kind", "stored"),
    [
        ("17", pa.int64(), 17),
        (17, pa.string(), "17"),
        (17, pa.float64(), 17.0),
        (1.1, pa.float32(), pytest.approx(1.1)),
        (1.5, pa.decimal128(10, 2), Decimal("1.50")),
        (1, pa.bool_(), True),
        (NOON.replace(hour=0), pa.date32(), date(2026, 1, 2)),
        ({"x": 1.0}, POINT, {"x": 1}),
        ([1], pa.list_(pa.string()), ["1"]),
        ([{"x": 1}], pa.list_(pa.struct([("x", pa.int32()), ("y", pa.int32())])), None),
    ],
)
def test_values_that_fit_are_cast(value: Any, kind: pa.DataType, stored: Any) -> None:
    expected = [{"x": 1, "y": None}] if stored is None else stored
    assert aligned_values(pa.array([value, None]), kind) == [expected, None]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("017", pa.int64()),
        (2**53 + 1, pa.float64()),
        (1.5, pa.int64()),
        (1.239, pa.decimal128(10, 2)),
        (f"{2**128 + 1}", pa.decimal128(38, 0)),
        ([f"{-(2**128) - 1}"], pa.list_(pa.decimal128(38, 0))),
        (5, pa.bool_()),
        (NOON, pa.date32()),
        ({"x": 1.5}, POINT),
        ({"x": "01"}, POINT),
        (["01"], pa.list_(pa.int64())),
        ([("a", "01")], pa.map_(pa.string(), pa.int64())),
    ],
)
def test_a_value_that_a_type_would_change_is_refused(value: Any, kind: pa.DataType) -> None:
    of_map = pa.map_(pa.string(), pa.string()) if pa.types.is_map(kind) else None
    with pytest.raises(TableError, match="column 'c' of the table is"):
        aligned_values(pa.array([None, value], of_map), kind)


@pytest.mark.parametrize(
    ("value", "kind", "named"),
    [
        ({"x": 1, "y": 2}, POINT, "c.y"),
        ([{"x": 1, "y": 2}], pa.list_(POINT), "c.element.y"),
        ({"p": {"x": 1, "y": 2}}, pa.struct([("p", POINT)]), "c.p.y"),
    ],
)
def test_a_field_that_a_struct_lacks_is_not_dropped(
    value: Any, kind: pa.DataType, named: str
) -> None:
    with pytest.raises(TableError, match=f"has no column '{named}': add it, set evolve"):
        aligned_values(pa.array([value]), kind)
    assert aligned_values(pa.array([value]), kind, evolves=True) == [value]


def test_a_field_of_a_struct_that_is_always_null_is_left_out() -> None:
    value = {"x": 1, "y": None}
    assert aligned_values(pa.array([value]), POINT) == [{"x": 1}]
    assert aligned_values(pa.array([value]), POINT, evolves=True) == [{"x": 1}]


def test_decimals_do_not_become_floating_point() -> None:
    exact, rounded = records([{"n": Decimal("0.1")}]), records([{"n": 0.1}], first=1)
    with pytest.raises(RefusedRecordError, match=r"orders-0@1: .*'n' is a decimal in some records"):
        changes_of([exact, rounded], {}, RowSettings(), lambda column: column)


def test_fields_without_a_schema_have_the_types_that_transforms_gave_them() -> None:
    row = {"at": NOON, "raw": b"\xff", "price": Decimal("1.50")}
    batch = records(pa.array([dumps(row)]))
    batch = with_column(batch, arrow_field("value", None), batch.column("value"))
    changes = changes_of([batch], {}, RowSettings(), lambda column: column)
    assert changes is not None
    assert changes.rows.to_pylist() == [row]


def test_objects_without_fields_are_rows_too() -> None:
    batch = schemaless([{"n": 1}, {}, {"n": None}])
    changes = changes_of(
        [batch, schemaless([{}], first=3)], {}, RowSettings(), lambda column: column
    )
    assert changes is not None
    assert changes.rows.to_pylist() == [{"n": 1}, {"n": None}, {"n": None}, {"n": None}]
    empty = schemaless([{}, {"n": None}])
    with pytest.raises(RefusedRecordError, match="record orders-0@0: no record has a value"):
        changes_of([empty], {}, RowSettings(), lambda column: column)
    found = changes_of([empty], {}, RowSettings(), lambda column: column, tolerates=True)
    assert found is not None
    assert [each.offset for each in found.refused] == [0, 1]
