"""Decodes row changes to text columns, all messages of a part at once, which is many times faster
than one by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from drover.connectors.postgres.copied import texts_of
from drover.connectors.postgres.pgoutput import DELETE

#: Replaces a row's number if there is no row.
NO_ROW = -1
_TEXT, _UNCHANGED = ord("t"), ord("u")
_OLD_KEY, _OLD_ROW = ord("K"), ord("O")
#: The bytes of a change before its first row: kind, table, mark of the row.
_HEAD_BYTES = 6


@dataclass(frozen=True, slots=True)
class TextColumn:
    """The values of a column in the rows that were sent.

    ``texts`` are as from ``texts_of``.

    ``unchanged`` marks rows whose value was not sent, because it is stored out of line (TOAST) and
    was not changed: it is null then. None if there are none.
    """

    texts: pa.Array
    unchanged: Any = None

    def merged(self, sources: Any) -> "TextColumn":
        """Replace each value that was not sent by the value of the row ``sources[row]``.

        A large value is never null: old rows of a partition with another replica identity than its
        table lack values although they are marked as complete.
        """
        if self.unchanged is None:
            return self
        rows = np.where(self.unchanged, sources, np.arange(len(sources)))
        texts = self.texts.take(pa.array(rows))
        lacking = self.unchanged & texts.is_null().to_numpy(zero_copy_only=False)
        return TextColumn(texts, self.unchanged[rows] | lacking)


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Insert, Update and Delete messages of one table, in order.

    Attributes:
        kinds: The kind of each message.
        old: The number of the old row; NO_ROW if the server did not send it.
        new: The number of the new row; NO_ROW for deletions.
        columns: The values of these rows.
    """

    kinds: Any
    old: Any
    new: Any
    columns: Sequence[TextColumn]


def big_endian(data: Any, at: Any, size: int) -> Any:
    """Numbers of 2, 4 or 8 bytes at these positions."""
    found = np.ascontiguousarray(data[at[:, None] + np.arange(size)])
    return found.view(f">i{size}" if size == 8 else f">u{size}")[:, 0].astype(np.int64)


def row_changes(
    data: Any, starts: Any, column_count: int, in_identity: Sequence[bool] = ()
) -> RowChanges:
    """Decode the messages that start at ``starts``.

    ``in_identity`` marks the columns of the replica identity, which old rows always have.

    Raises:
        ValueError: A row has another number of columns.
    """
    kinds, marks = data[starts], data[starts + _HEAD_BYTES - 1]
    has_old = (marks == _OLD_KEY) | (marks == _OLD_ROW)
    has_new = kinds != DELETE
    new_starts = starts + _HEAD_BYTES
    old_columns, ends = _columns(data, new_starts[has_old], column_count)
    new_starts[has_old] = ends + 1  # skip the mark of the new row
    new_columns, _ = _columns(data, new_starts[has_new], column_count)
    old, new = _numbers(has_old, 0), _numbers(has_new, len(ends))
    if not len(ends):
        return RowChanges(kinds, old, new, new_columns)
    columns = [_joined(*each) for each in zip(old_columns, new_columns, strict=True)]
    whole, of_key = ((marks == each) & has_new for each in (_OLD_ROW, _OLD_KEY))
    sources = np.arange(len(columns[0].texts)) if columns else np.empty(0, np.int64)
    sources[new[whole]] = old[whole]
    of_keys = sources.copy()
    of_keys[new[of_key]] = old[of_key]
    known = [*in_identity, *[False] * (column_count - len(in_identity))]
    merged = [
        each.merged(of_keys if is_known else sources)
        for each, is_known in zip(columns, known, strict=True)
    ]
    return RowChanges(kinds, old, new, merged)


def _numbers(there: Any, first: int) -> Any:
    numbers = np.full(len(there), NO_ROW, np.int64)
    numbers[there] = first + np.arange(np.count_nonzero(there))
    return numbers


def _columns(data: Any, at: Any, count: int) -> tuple[list[TextColumn], Any]:
    """The values of the rows that start at these positions, and the ends of the rows."""
    if (big_endian(data, at, 2) != count).any():
        raise ValueError(f"a row does not have the {count} columns of its table")
    at = at + 2
    found = []
    for _ in range(count):
        marks = data[at]
        is_text = marks == _TEXT
        starts, ends = at + 1, at + 1
        if is_text.any():
            starts[is_text] += 4
            ends = starts.copy()
            ends[is_text] += big_endian(data, at[is_text] + 1, 4)
        unchanged = marks == _UNCHANGED
        found.append(
            TextColumn(_texts(data, starts, ends, is_text), unchanged if unchanged.any() else None)
        )
        at = ends
    return found, at


def _texts(data: Any, starts: Any, ends: Any, is_text: Any) -> pa.Array:
    """Slices of the bytes; they are ordered, so they are every second slice between consecutive
    bounds.
    """
    count = len(starts)
    if not count:
        return pa.array([], pa.string())
    bounds = np.empty(2 * count, np.int64)
    bounds[0::2], bounds[1::2] = starts, ends
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    slices = pa.Array.from_buffers(pa.large_binary(), 2 * count - 1, buffers)
    own = pa.array(np.arange(0, 2 * count, 2), mask=None if is_text.all() else ~is_text)
    return texts_of(slices.take(own))


def _joined(first: TextColumn, second: TextColumn) -> TextColumn:
    kinds = {first.texts.type, second.texts.type}
    kind = kinds.pop() if len(kinds) == 1 else pa.binary()
    texts = pa.concat_arrays([each.texts.cast(kind) for each in (first, second)])
    if first.unchanged is None and second.unchanged is None:
        return TextColumn(texts)
    parts = [
        np.zeros(len(each.texts), np.bool_) if each.unchanged is None else each.unchanged
        for each in (first, second)
    ]
    return TextColumn(texts, np.concatenate(parts))
