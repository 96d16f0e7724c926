"""Converts a sink's records to rows of their values' fields, and selects the last record of each
key.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from drover.dataplane.arrow_rows import ArrowRows
from drover.record.batch import KEY, OFFSET, PARTITION, VALUE, original_topics
from drover.record.schema import is_schemaless


@dataclass(frozen=True)
class ValueRows:
    """Converts batches of records to batches of their values' fields, without tombstones."""

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Convert lazily.

        Raises:
            TypeError: The values have no fields.
        """
        for batch in batches:
            field, values = batch.schema.field(VALUE), batch.column(VALUE)
            if values.null_count == len(values):
                continue
            if is_schemaless(field) or not pa.types.is_struct(values.type):
                raise TypeError(_no_fields(batch, field))
            kept = values.drop_null() if values.null_count else values
            fields = [field.type.field(index) for index in range(field.type.num_fields)]
            yield pa.RecordBatch.from_arrays(kept.flatten(), schema=pa.schema(fields))


def _no_fields(batch: Any, field: pa.Field) -> str:
    place = "a record"
    if batch.num_rows:
        topic, partition, offset = (
            original_topics(batch)[0],
            batch.column(PARTITION)[0],
            batch.column(OFFSET)[0],
        )
        place = f"record {topic}-{partition}@{offset}"
    kind = "no schema" if is_schemaless(field) else f"the type {field.type}"
    return (
        f"{place}: its value has {kind}, but rows need fields: make the sink structured, and set a "
        "value.converter that returns values with a schema"
    )


@dataclass(frozen=True)
class LatestByKey:
    """Selects the last record of each key, and all records without a key.

    Attributes:
        parts: For each topic partition, the reads that return its records in order.
    """

    parts: Sequence[Sequence[tuple[Callable[[int], Iterable[Any]], int]]]

    def __call__(self, number: int) -> list[Any]:
        """The selected records of part ``number``, in order."""
        batches = [
            batch for read, spark_partition in self.parts[number] for batch in read(spark_partition)
        ]
        seen: set[Any] = set()
        kept = []
        for batch in reversed(batches):
            mask = [False] * batch.num_rows
            keys = batch.column(KEY).to_pylist()
            for row in range(batch.num_rows - 1, -1, -1):
                key = _hashable(keys[row])
                mask[row] = key is None or key not in seen
                seen.add(key)
            left = batch.filter(pa.array(mask, pa.bool_()))
            if left.num_rows:
                kept.append(left)
        return kept[::-1]


def latest_rows(parts: Sequence[ArrowRows]) -> ArrowRows:
    """The last record of each key in each part, where a part is a topic partition."""
    reads = [[(each.read, number) for number in range(each.partition_count)] for each in parts]
    first = parts[0]
    return ArrowRows(first.spark, LatestByKey(reads), len(parts), first.ddl)


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((name, _hashable(each)) for name, each in value.items())
    if isinstance(value, list):
        return tuple(_hashable(each) for each in value)
    return value
