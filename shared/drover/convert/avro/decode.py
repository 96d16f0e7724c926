"""Avro's bytes as columns.

All records of a batch that have one schema are read together: for every field of the schema there
is one step, which reads it of all records at once and moves the place in each behind it. Items of
arrays and maps are read in the same way, the first items of all records and so on, while enough
records have further items; then ``items`` finds the remaining items of each record.
"""

from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa

from drover.convert.avro.connect_schemas import is_map_entry
from drover.convert.avro.items import ItemFinder, MalformedError
from drover.convert.avro.schemas import AvroSchema, kind_of
from drover.convert.number_bytes import decimals_of
from drover.convert.registered.columns import checked, refuse, struct_column
from drover.model.times import DAY_MS
from drover.record.errors import RecordError, rows_at
from drover.record.schema import Schema, Type, arrow_type

#: Behind the last record, so that no number is read from behind the data.
_SPARE_BYTES = 16
#: A record may have one item for each byte, and this number of further items, which have no bytes.
_EMPTY_ITEMS_MAX = 1_000
#: A step that reads items of several records takes the time in which ``items`` finds this number.
_STEP_ITEMS = 64
_FIXED_WIDTH = {"boolean": 1, "float": 4, "double": 8}
_refuse = partial(refuse, "Avro")


def decode_records(values: Any, avro: AvroSchema, schema: Schema, *, skipped_bytes: int) -> Any:
    """Records of one schema, none of them null, as a column of the schema that Kafka Connect has
    for it; each begins behind so many bytes.

    Raises:
        RowsError: bytes are not of the schema.
    """
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset :][: len(values) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    found = np.frombuffer(values.buffers()[2], np.uint8)[first:last]
    data = _Data(avro, np.concatenate((found, np.zeros(_SPARE_BYTES, np.uint8))))
    starts, ends = (each.astype(np.int64) - first for each in (offsets[:-1], offsets[1:]))
    records = np.arange(len(values))
    items_left = ends - starts + _EMPTY_ITEMS_MAX
    cursor = _Cursor(data, starts + skipped_bytes, ends, records, items_left)
    return cursor.read(avro.root, schema, records)


class _Data:
    """The bytes of all records."""

    def __init__(self, avro: AvroSchema, numbers: Any) -> None:
        self.avro = avro
        self.numbers = numbers

    @cached_property
    def finder(self) -> ItemFinder:
        return ItemFinder(self.avro, self.numbers.tobytes())


class _Cursor:
    """Where each row is read next: a record, or an item of one.

    Args:
        source: The bytes.
        at: Where each row begins.
        ends: Where its record ends.
        records: Of which record it is.
        items_left: For each record, how many items it may have yet.
    """

    def __init__(self, source: _Data, at: Any, ends: Any, records: Any, items_left: Any) -> None:
        self._source = source
        self._avro = source.avro
        self._data = source.numbers
        self._at = at
        self._ends = ends
        self._records = records
        self._items_left = items_left

    def read(self, found: Any, schema: Schema, rows: Any) -> Any:
        """What is next in these records; a row may be there only once."""
        node = self._avro.resolved(found)
        kind = kind_of(node)
        if kind == "union":
            return self._union(node, schema, rows)
        if kind == "record":
            columns = [
                self.read(each["type"], field.schema, rows)
                for each, field in zip(node["fields"], schema.fields, strict=True)
            ]
            return struct_column(schema, columns, len(rows))
        if kind == "array":
            return self._array(node, schema, rows)
        if kind == "map":
            return self._map(node, schema, rows)
        return self._plain(node, kind, schema, rows)

    def _plain(self, node: Any, kind: str, schema: Schema, rows: Any) -> Any:
        target = arrow_type(schema)
        if kind in ("int", "long"):
            return self._whole(kind, target, rows)
        if kind in _FIXED_WIDTH:
            return self._fixed_width(kind, rows)
        if kind == "enum":
            symbols = node["symbols"]
            return pa.array(symbols, pa.string()).take(pa.array(self._index(rows, len(symbols))))
        lengths = np.full(len(rows), node["size"]) if kind == "fixed" else self._lengths(rows)
        found = self._bytes(rows, lengths)
        if pa.types.is_decimal(target):
            return checked("Avro", lambda part: decimals_of(part, target), found, rows)
        return checked("Avro", _text, found, rows) if kind == "string" else found

    def _union(self, branches: list[Any], schema: Schema, rows: Any) -> Any:
        nodes = [self._avro.resolved(each) for each in branches]
        kinds = [kind_of(each) for each in nodes]
        chosen = self._index(rows, len(nodes))
        others = [index for index, kind in enumerate(kinds) if kind != "null"]
        if len(others) == 1:
            return self._where(chosen == others[0], nodes[others[0]], schema, rows)
        columns = [
            self._where(chosen == index, nodes[index], field.schema, rows)
            for index, field in zip(others, schema.fields, strict=True)
        ]
        nulls = np.isin(chosen, others, invert=True)
        return struct_column(schema, columns, len(rows), nulls)

    def _where(self, mask: Any, node: Any, schema: Schema, rows: Any) -> Any:
        """What is next in the rows where ``mask`` is true, and null elsewhere."""
        if mask.all():
            return self.read(node, schema, rows)
        places = np.cumsum(mask) - 1
        found = self.read(node, schema, rows[mask])
        return found.take(pa.array(places, pa.int64(), mask=~mask))

    def _array(self, node: Any, schema: Schema, rows: Any) -> Any:
        items = self._avro.resolved(node["items"])
        if schema.type is Type.MAP:
            assert is_map_entry(items)
            assert schema.key_schema is not None
            assert schema.value_schema is not None
            key, value = items["fields"]
            parts = ((key["type"], schema.key_schema), (value["type"], schema.value_schema))
            return self._entries(parts, schema, rows)
        assert schema.value_schema is not None
        offsets, (column,) = self._blocks([(items, schema.value_schema)], rows)
        return pa.ListArray.from_arrays(offsets, column, type=arrow_type(schema))

    def _map(self, node: Any, schema: Schema, rows: Any) -> Any:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        parts = (("string", schema.key_schema), (node["values"], schema.value_schema))
        return self._entries(parts, schema, rows)

    def _entries(self, parts: Any, schema: Schema, rows: Any) -> Any:
        offsets, (keys, values) = self._blocks(parts, rows)
        if keys.null_count:
            raise RecordError("a key of a map is null, which Arrow's maps cannot hold")
        return pa.MapArray.from_arrays(offsets, keys, values, type=arrow_type(schema))

    def _blocks(self, parts: Any, rows: Any) -> tuple[Any, list[Any]]:
        """Blocks of items: the offsets of each row's items, and a column for each part of an
        item.
        """
        columns: list[list[Any]] = [[] for _ in parts]
        owners: list[Any] = [np.zeros(0, np.int64)]
        active, left = np.arange(len(rows)), np.zeros(len(rows), np.int64)
        credit = 0
        while active.size:
            credit += active.size - _STEP_ITEMS
            if credit < 0:
                owner, found = self._found(parts, rows, active, left)
                owners.append(owner)
                for column, part in zip(columns, found, strict=True):
                    column.append(part)
                break
            if not left.any():
                left = self._counts(rows[active])
                active, left = active[left > 0], left[left > 0]
                continue
            has_next = left > 0
            here = active[has_next]
            for column, (node, schema) in zip(columns, parts, strict=True):
                column.append(self.read(node, schema, rows[here]))
            owners.append(here)
            left[has_next] -= 1
        owner = np.concatenate(owners)
        order = pa.array(np.argsort(owner, kind="stable"))
        offsets = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(np.bincount(owner, minlength=len(rows)), out=offsets[1:])
        joined = [
            pa.concat_arrays(column).take(order)
            if column
            else pa.array([], arrow_type(schema))
            for column, (_, schema) in zip(columns, parts, strict=True)
        ]  # fmt: skip
        return pa.array(offsets, pa.int32()), joined

    def _found(self, parts: Any, rows: Any, active: Any, left: Any) -> tuple[Any, list[Any]]:
        """All further items of rows that have ``left`` ones in their block: the row of each, and
        a column for each part of an item.
        """
        nodes = [node for node, _ in parts]
        starts, counts = [np.zeros(0, np.int64)], []
        for row, count in zip(rows[active].tolist(), left.tolist(), strict=True):
            record = self._records[row]
            try:
                begins, self._at[row] = self._source.finder.find(
                    nodes,
                    int(self._at[row]),
                    int(self._ends[row]),
                    left=count,
                    most=int(self._items_left[record]),
                )
            except MalformedError as error:
                _refuse(np.array([row]), np.ones(1, bool), str(error))
            self._items_left[record] -= len(begins) - count
            starts.append(np.frombuffer(begins, np.int64))
            counts.append(len(begins))
        owner = np.repeat(active, counts)
        at = rows[owner]
        items = _Cursor(
            self._source,
            np.concatenate(starts),
            self._ends[at],
            self._records[at],
            self._items_left,
        )
        everything = np.arange(len(owner))
        with rows_at(pa.array(at)):
            return owner, [items.read(node, schema, everything) for node, schema in parts]

    def _counts(self, rows: Any) -> Any:
        """Of items in the next block; a negative one is followed by the block's size in bytes."""
        counts = self._longs(rows)
        sized = counts < 0
        if sized.any():
            self._longs(rows[sized])
            counts = np.abs(counts)
        records = self._records[rows]
        # the least number has no positive counterpart
        too_many = (counts < 0) | (counts > self._items_left[records])
        _refuse(rows, too_many, "has too few bytes for its items")
        np.subtract.at(self._items_left, records, counts)
        _refuse(rows, self._items_left[records] < 0, "has too few bytes for its items")
        return counts

    def _whole(self, kind: str, target: pa.DataType, rows: Any) -> Any:
        numbers = self._longs(rows)
        if kind == "long":
            return pa.array(numbers).view(target)
        narrow = numbers.astype(np.int32)
        _refuse(rows, narrow != numbers, "has a number that does not fit into int")
        if pa.types.is_time32(target):
            outside = (narrow < 0) | (narrow >= DAY_MS)
            _refuse(rows, outside, "has a time that is not among the milliseconds of a day")
        if target in (pa.int8(), pa.int16()):
            info = np.iinfo(target.to_pandas_dtype())
            outside = (narrow < info.min) | (narrow > info.max)
            _refuse(rows, outside, f"has a number that does not fit into {target}")
            return pa.array(narrow.astype(target.to_pandas_dtype()))
        return pa.array(narrow).view(target)

    def _fixed_width(self, kind: str, rows: Any) -> Any:
        width = _FIXED_WIDTH[kind]
        at = self._moved(rows, np.full(len(rows), width))
        if kind == "boolean":
            return pa.array(self._data[at] != 0)
        matrix = self._data[at[:, None] + np.arange(width)]
        return pa.array(np.ascontiguousarray(matrix).view(f"<f{width}").reshape(-1))

    def _index(self, rows: Any, count: int) -> Any:
        """Of a branch or a symbol, of which there are so many."""
        found = self._longs(rows)
        _refuse(rows, (found < 0) | (found >= count), f"chooses what is none of {count}")
        return found

    def _lengths(self, rows: Any) -> Any:
        lengths = self._longs(rows)
        _refuse(rows, lengths < 0, "has a negative length")
        return lengths

    def _longs(self, rows: Any) -> Any:
        """Numbers of seven bits in each byte, folded so that the sign is the last bit."""
        at = self._at[rows]
        _refuse(rows, at >= self._ends[rows], "ends too early")
        byte = self._data[at]
        folded = (byte & 0x7F).astype(np.uint64)
        widths = np.ones(len(rows), np.int64)
        more = np.flatnonzero(byte & 0x80)
        while more.size:
            width = int(widths[more[0]])
            if width == 10:
                _refuse(rows[more], np.ones(len(more), bool), "has a number without an end")
            byte = self._data[at[more] + width]
            folded[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * width)
            widths[more] += 1
            more = more[(byte & 0x80) != 0]
        self._moved(rows, widths)
        return (folded >> np.uint64(1)).view(np.int64) ^ -(folded & np.uint64(1)).view(np.int64)

    def _bytes(self, rows: Any, lengths: Any) -> Any:
        at = self._moved(rows, lengths)
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        data = self._data[np.repeat(at - offsets[:-1], lengths) + np.arange(offsets[-1])]
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.binary(), len(rows), buffers)

    def _moved(self, rows: Any, widths: Any) -> Any:
        """Where these many bytes begin; the place is behind them then."""
        at = self._at[rows]
        # not at + widths: that may be more than a number can be
        _refuse(rows, widths > self._ends[rows] - at, "ends too early")
        self._at[rows] = at + widths
        return at


def _text(found: Any) -> Any:
    return found.cast(pa.string())
