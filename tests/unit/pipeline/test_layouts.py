"""Headers of records in the layouts of tasks."""

import pyarrow as pa
import pytest

from drover.pipeline.layouts import with_header_types, without_header_types

RAW = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ROWS = [
    [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
    None,
    [],
    [{"key": "c", "value": b"3"}],
    None,
    [{"key": "d", "value": b"5"}],
]


@pytest.mark.parametrize(("start", "count"), [(0, 6), (1, 5), (2, 3), (3, 1), (4, 1), (3, 3)])
def test_headers_are_read_from_the_middle_of_a_batch(start: int, count: int) -> None:
    """Some records have headers and others have none."""
    raw = pa.array(ROWS, RAW).slice(start, count)
    typed = with_header_types(raw)
    assert without_header_types(typed).to_pylist() == ROWS[start : start + count]
    sliced = with_header_types(pa.array(ROWS, RAW)).slice(start, count)
    assert without_header_types(sliced).to_pylist() == ROWS[start : start + count]
