"""A sink's records as rows of their values' fields, and the last record of each key."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from drover.dataplane.arrow_rows import ArrowRows
from drover.record.batch import KEY, OFFSET, PARTITION, VALUE, original_topics
from drover.record.schema import is_schemaless


@dataclass(frozen=True)
class ValueRows:
    """Batches of records as batches of their values' fields; deletions are left out."""

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Lazy.

        Raises:
            TypeError: values have no fields.
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
        f"{place}: its value has {kind}, and rows need fields: the sink has to be structured, and "
        "its value.converter has to give values with a schema"
    )


@dataclass(frozen=True)
class LatestByKey:
    """The records of one topic partition, whose ``reads`` give them in order: of those with the
    same key the last, and all without a key.
    """

    parts: Sequence[Sequence[tuple[Callable[[int], Iterable[Any]], int]]]

    def __call__(self, number: int) -> list[Any]:
        """Those of part ``number``, in order."""
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
    """Of each part, which is a topic partition, the last record of each key."""
    reads = [[(each.read, number) for number in range(each.partition_count)] for each in parts]
    first = parts[0]
    return ArrowRows(first.spark, LatestByKey(reads), len(parts), first.ddl)


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((name, _hashable(each)) for name, each in value.items())
    if isinstance(value, list):
        return tuple(_hashable(each) for each in value)
    return value
