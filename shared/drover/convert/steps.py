"""The steps of a pipeline that convert records: the last one of a source, the first of a sink."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from drover.convert.converter import Converter, Decoded
from drover.convert.headers import raw_headers, typed_headers
from drover.record.arrow import Headers
from drover.record.batch import HEADERS, KEY, TOPIC, VALUE, with_column
from drover.record.errors import ErrorStage, failing_at
from drover.record.framed import Framed
from drover.record.schema import is_schemaless


@dataclass(frozen=True, slots=True)
class EncodeRecords:
    """Keys and values become bytes, headers raw. See drover.pipeline.Step.

    A null key or value stays null, whatever its schema says: in a batch it is a missing key or a
    tombstone, not a value. (Converters by themselves write it as Kafka Connect does.)

    With ``framed`` the bytes around all keys, and around all values, are in the fields of the
    columns (see Framed): ``payload.normalise`` reads them.

    Errors are StageErrors of KEY_CONVERTER, VALUE_CONVERTER or HEADER_CONVERTER.
    """

    key: Converter
    value: Converter
    header: Converter
    name: str = "encode"
    framed: bool = False

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """The same records, as topics have them."""
        with failing_at(ErrorStage.KEY_CONVERTER, type(self.key).__name__):
            batch = encoded_column(batch, KEY, self.key, framed=self.framed)
        with failing_at(ErrorStage.VALUE_CONVERTER, type(self.value).__name__):
            batch = encoded_column(batch, VALUE, self.value, framed=self.framed)
        with failing_at(ErrorStage.HEADER_CONVERTER, type(self.header).__name__):
            yield _with_headers(batch, raw_headers(batch.column(HEADERS), self.header))


@dataclass(frozen=True, slots=True)
class DecodeRecords:
    """Bytes become keys and values. See drover.pipeline.Step.

    Each batch that comes out has one schema of keys and one of values; the records keep their
    order. Both columns are nullable whatever their schemas say: a tombstone, which has no schema,
    goes with the records before it. Without ``header`` headers stay raw.

    Errors are StageErrors of KEY_CONVERTER, VALUE_CONVERTER or HEADER_CONVERTER.
    """

    key: Converter
    value: Converter
    header: Converter | None = None
    name: str = "decode"

    def __call__(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The records with their structure; in several batches if there are several schemas."""
        if not batch.num_rows:
            return
        with failing_at(ErrorStage.KEY_CONVERTER, type(self.key).__name__):
            keys = _Side(batch, KEY, self.key)
        with failing_at(ErrorStage.VALUE_CONVERTER, type(self.value).__name__):
            values = _Side(batch, VALUE, self.value)
        if self.header is not None:
            with failing_at(ErrorStage.HEADER_CONVERTER, type(self.header).__name__):
                batch = _with_headers(batch, typed_headers(batch.column(HEADERS), self.header))
        for start, end in _runs(keys.owners, values.owners):
            part = batch.slice(start, end - start)
            yield values.put(keys.put(part, start, end), start, end)


class _Side:
    """The keys or the values of a batch, as their converter gives them."""

    def __init__(self, batch: pa.RecordBatch, name: str, converter: Converter) -> None:
        raw = batch.column(name)
        self._name = name
        self._groups = converter.decode(raw, batch.column(TOPIC))
        self.owners, self._places = _owners(self._groups, np.asarray(raw.is_null()))

    def put(self, batch: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
        """``batch``, the rows from start to end, with the values in place of their bytes."""
        group = self._groups[self.owners[start]]
        field = group.field.with_name(self._name).with_nullable(True)
        places = self._places[start:end]
        if places[0] >= 0 and places[-1] - places[0] == len(places) - 1 and places.min() >= 0:
            values = group.values.slice(int(places[0]), len(places))
        else:
            values = group.values.take(pa.array(places, pa.int64(), mask=places < 0))
        return with_column(batch, field, values)


def _owners(
    groups: Sequence[Decoded], is_tombstone: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """For each row its group, and its place there: -1 for tombstones that are with another group.

    Tombstones without a schema join the group of the row before them, the first ones that of the
    row behind them.
    """
    count = len(is_tombstone)
    owners, places = np.full(count, -1), np.full(count, -1)
    for index, group in enumerate(groups):
        rows = slice(None) if group.rows is None else np.asarray(group.rows)
        owners[rows] = index
        places[rows] = np.arange(len(group.values))
    schemaless = np.array([is_schemaless(each.field) for each in groups], bool)
    homeless = is_tombstone & schemaless[owners]
    if len(groups) == 1 or not homeless.any() or homeless.all():
        return owners, places
    # the last row up to here that is no tombstone; before the first one, that one
    found = np.where(homeless, -1, np.arange(count))
    found = np.maximum.accumulate(found)
    found[found < 0] = np.argmin(homeless)
    joined = owners[found]
    places[homeless & (joined != owners)] = -1
    return joined, places


def _runs(keys: Any, values: Any) -> Iterator[tuple[int, int]]:
    """Rows, first and behind the last, whose keys are of one group and whose values are of one."""
    changes = np.flatnonzero((np.diff(keys) != 0) | (np.diff(values) != 0)) + 1
    bounds = [0, *changes.tolist(), len(keys)]
    yield from pairwise(bounds)


def encoded_column(
    batch: pa.RecordBatch, name: str, converter: Converter, *, framed: bool = False
) -> pa.RecordBatch:
    """The batch with a column of keys or values encoded by a converter; null stays null."""
    field, values, topics = batch.schema.field(name), batch.column(name), batch.column(TOPIC)
    if not values.null_count:
        made = converter.encode_framed(field, values, topics)
    else:
        present = np.flatnonzero(np.asarray(values.is_valid()))
        rows = pa.array(present, pa.int64())
        made = converter.encode_framed(field, values.take(rows), topics.take(rows))
        places = np.full(len(values), -1)
        places[present] = np.arange(len(present))
        encoded = made.values.take(pa.array(places, pa.int64(), mask=places < 0))
        made = replace(made, values=encoded)
    if not framed:
        made = Framed(made.joined())
    return with_column(batch, made.field(name), made.values)


def _with_headers(batch: pa.RecordBatch, headers: Headers) -> pa.RecordBatch:
    return with_column(batch, batch.schema.field(HEADERS), headers)
