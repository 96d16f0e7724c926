"""Partition specs in the settings of IcebergSink."""

import pytest

from drover.connectors.lakehouse.iceberg_table import PartitionField


@pytest.mark.parametrize(
    ("text", "column", "transform"),
    [
        ("city", "city", "identity"),
        ("days(at)", "at", "day"),
        ("hour( at )", "at", "hour"),
        ("bucket(id, 16)", "id", "bucket[16]"),
        ("truncate(name,4)", "name", "truncate[4]"),
    ],
)
def test_parts_of_a_partition_spec(text: str, column: str, transform: str) -> None:
    assert PartitionField.parse(text) == PartitionField(column, transform)


@pytest.mark.parametrize("text", ["bucket(id)", "day(at, 3)", "f(x)", "a,b", ""])
def test_what_is_no_part_of_a_partition_spec_is_told(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        PartitionField.parse(text)
