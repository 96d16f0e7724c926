"""One transform of a chain, applied to the records that its predicate selects."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from drover.record.arrow import Mask
from drover.record.errors import rows_at
from drover.transform.transform import Predicate, Transform

#: A temporary column with each row's number in the whole batch.
_ROW = "\u0000row"


@dataclass(frozen=True, slots=True)
class TransformStep:
    """A step of a pipeline (see drover.pipeline.Step).

    It applies to the records that the predicate matches; with ``negate`` to all others.
    """

    name: str
    transform: Transform
    predicate: Predicate | None = None
    negate: bool = False

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Apply the transform; the order of records is kept.

        Raises:
            RecordError: A record cannot be transformed.
        """
        if self.predicate is None:
            return self.transform(batch)
        chosen = self.predicate.matches(batch)
        if self.negate:
            chosen = pc.invert(chosen)
        count = pc.sum(chosen).as_py() or 0
        if count == batch.num_rows:
            return self.transform(batch)
        if count == 0:
            return [batch]
        rows = pa.array(range(batch.num_rows), pa.int64())
        numbered = batch.append_column(_ROW, rows)
        kept = numbered.filter(pc.invert(chosen))
        with rows_at(rows.filter(chosen)):
            changed = [each for each in self.transform(numbered.filter(chosen)) if each.num_rows]
        if all(_ROW in each.schema.names for each in changed):
            return _merged([kept, *changed])
        # the transform dropped the column with the row numbers: keep the order by runs of rows
        return self._by_runs(batch, chosen)

    @property
    def parts(self) -> tuple[Transform | Predicate, ...]:
        """The transform, and the predicate if it has one."""
        return (self.transform,) if self.predicate is None else (self.transform, self.predicate)

    def _by_runs(self, batch: pa.RecordBatch, chosen: Mask) -> Iterator[pa.RecordBatch]:
        start = 0
        for is_chosen, end in _runs(chosen):
            part = batch.slice(start, end - start)
            if is_chosen:
                with rows_at(pa.array(range(start, end))):
                    transformed = list(self.transform(part))
                yield from transformed
            else:
                yield part
            start = end


def _merged(parts: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Merge parts, each ordered by _ROW, in the order of _ROW.

    Returns one batch if all parts have the same schema, else one per run of rows from one part.
    """
    if len(parts) == 1:
        return [parts[0].drop_columns(_ROW)]
    order = pc.sort_indices(pa.concat_arrays([each.column(_ROW) for each in parts]))
    plain = [each.drop_columns(_ROW) for each in parts]
    if all(each.schema.equals(plain[0].schema, check_metadata=True) for each in plain):
        return [pa.concat_batches(plain).take(order)]
    owners = pa.concat_arrays(
        [pa.repeat(pa.scalar(index), each.num_rows) for index, each in enumerate(plain)]
    )
    merged, starts, at = [], [0] * len(plain), 0
    for owner, end in _runs(owners.take(order)):
        merged.append(plain[owner].slice(starts[owner], end - at))
        starts[owner] += end - at
        at = end
    return merged


def _runs(values: Any) -> Iterator[tuple[Any, int]]:
    """Each run of equal values with its end row (exclusive)."""
    encoded = pc.run_end_encode(values)
    yield from zip(encoded.values.to_pylist(), encoded.run_ends.to_pylist(), strict=True)
