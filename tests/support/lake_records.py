"""Records for table writers, as a sink receives them."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from drover.record.batch import make_batch, with_column
from drover.record.json.schemaless import dumps
from drover.record.schema import arrow_field

#: Two keys of each type.
KEYS = pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a'b", 'a"b'),
        (b"\x00", b"\xff"),
        (True, False),
        (1.5, -0.5),
        (1.5, float("nan")),
        (Decimal("1.50"), Decimal("2.50")),
        (date(2026, 1, 2), date(2026, 1, 3)),
        (datetime(2026, 1, 2, 3, 4, 5, 6), datetime(2026, 1, 2, 3, 4, 5, 7)),
        (datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC)),
    ],
    ids=["text", "bytes", "bool", "float", "nan", "decimal", "date", "timestamp", "timestamptz"],
)


def records(
    values: Sequence[dict[str, Any] | None] | pa.Array,
    *,
    first: int = 0,
    keys: Sequence[Any] | None = None,
    partition: int = 0,
    topic: str = "orders",
) -> pa.RecordBatch:
    """Records with these values, from offset ``first`` on."""
    array = values if isinstance(values, pa.Array) else pa.array(values)
    count = len(array)
    key = pa.array(keys if keys is not None else [None] * count)
    return make_batch(
        count,
        topic=pa.array([topic] * count),
        partition=pa.array([partition] * count, pa.int32()),
        offset=pa.array(range(first, first + count), pa.int64()),
        timestamp=pa.array([1_700_000_000_000] * count).cast(pa.timestamp("ms", tz="UTC")),
        key=(pa.field("key", key.type), key),
        value=(pa.field("value", array.type), array),
    )


def orders(first: int, count: int, **more: Any) -> pa.RecordBatch:
    """Orders whose ids are their offsets."""
    rows = [{"id": n, "city": f"city {n % 3}"} for n in range(first, first + count)]
    return records(rows, first=first, **more)


def schemaless(
    values: Sequence[Any], *, first: int = 0, keys: Sequence[Any] | None = None
) -> pa.RecordBatch:
    """Records of JSON without schemas, from offset ``first`` on."""

    def texts(found: Sequence[Any]) -> pa.Array:
        return pa.array([None if each is None else dumps(each) for each in found], pa.string())

    batch = records(texts(values), first=first)
    batch = with_column(batch, arrow_field("value", None), batch.column("value"))
    return batch if keys is None else with_column(batch, arrow_field("key", None), texts(keys))
