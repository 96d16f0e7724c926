"""Decodes Protobuf messages to columns, all messages of one type at once."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor

from drover.convert.number_bytes import decimals_of
from drover.convert.protobuf.connect_schemas import real_oneofs, union_name
from drover.convert.protobuf.names import DATE, DECIMAL, TIME, TIMESTAMP, WRAPPERS
from drover.convert.protobuf.wire import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    Found,
    Spans,
    Wire,
    masked,
    refuse,
)
from drover.convert.registered.columns import checked, struct_column
from drover.record.schema import DECIMAL256_DIGITS, Schema, Type, arrow_type

_F = FieldDescriptor
_KINDS = {
    _F.TYPE_DOUBLE: FIXED64,
    _F.TYPE_FLOAT: FIXED32,
    _F.TYPE_FIXED64: FIXED64,
    _F.TYPE_SFIXED64: FIXED64,
    _F.TYPE_FIXED32: FIXED32,
    _F.TYPE_SFIXED32: FIXED32,
    _F.TYPE_STRING: BYTES,
    _F.TYPE_BYTES: BYTES,
    _F.TYPE_MESSAGE: BYTES,
}
_FIXED = {
    _F.TYPE_DOUBLE: "<f8",
    _F.TYPE_FLOAT: "<f4",
    _F.TYPE_FIXED64: "<u8",
    _F.TYPE_SFIXED64: "<i8",
    _F.TYPE_FIXED32: "<u4",
    _F.TYPE_SFIXED32: "<i4",
}
_FOLDED = (_F.TYPE_SINT32, _F.TYPE_SINT64)
_HOUR_MS, _MINUTE_MS, _SECOND_MS = 3_600_000, 60_000, 1_000
_NANOS_PER_MS = 1_000_000
#: Protobuf's libraries read no messages that lie deeper in others.
_DEPTH_MAX = 100


def decode_messages(wire: Wire, spans: Spans, message: Any, schema: Schema) -> Any:
    """Records of one message as a column of the schema that Kafka Connect has for it.

    Raises:
        RowsError: bytes are not of the message.
    """
    reader = _Reader(wire)
    if message.full_name in WRAPPERS:
        return reader.wrapped(message, schema, spans)
    return reader.message(message, schema, spans)


class _Reader:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def message(self, message: Any, schema: Schema, spans: Spans) -> Any:
        found = self._wire.fields(spans)
        by_name = {each.name: each for each in message.fields}
        unions = {union_name(each): each for each in real_oneofs(message)}
        columns = [
            self._union(unions[each.name], each.schema, found, spans)
            if each.name in unions
            else self._field(by_name[each.name], each.schema, found, spans)
            for each in schema.fields
        ]
        return struct_column(schema, columns, len(spans))

    def wrapped(self, message: Any, schema: Schema, spans: Spans) -> Any:
        """The value of each message of one field."""
        (field,) = message.fields
        return self._field(field, schema, self._wire.fields(spans), spans)

    def _union(
        self, oneof: Any, schema: Schema, found: Mapping[int, list[Found]], spans: Spans
    ) -> Any:
        chosen, places = np.full(len(spans), -1), np.full(len(spans), -1)
        for index, each in enumerate(oneof.fields):
            for piece in found.get(each.number, ()):
                # the last one that a message has
                later = piece.places > places[piece.rows]
                rows = piece.rows[later]
                chosen[rows], places[rows] = index, piece.places[later]
        columns = [
            masked(self._field(each, part.schema, found, spans), chosen == index)
            for index, (each, part) in enumerate(zip(oneof.fields, schema.fields, strict=True))
        ]
        return struct_column(schema, columns, len(spans), chosen < 0)

    def _field(
        self, field: Any, schema: Schema, found: Mapping[int, list[Found]], spans: Spans
    ) -> Any:
        pieces = found.get(field.number, [])
        if field.is_repeated:
            return self._repeated(field, schema, pieces, spans)
        kind = _KINDS.get(field.type, VARINT)
        pieces = [each for each in pieces if each.kind == kind]
        present = np.zeros(len(spans), bool)
        for each in pieces:
            present[each.rows] = True
        tracked = field.has_presence and not field.is_required
        if kind != BYTES:
            column = self._scattered(field, schema, pieces, spans)
        elif field.type == _F.TYPE_MESSAGE:
            return self._nested(field, schema, pieces, present, spans)
        else:
            column = self._texts(field, pieces, spans)
        return masked(column, present) if tracked else column

    def _scattered(self, field: Any, schema: Schema, pieces: list[Found], spans: Spans) -> Any:
        """Numbers, the last one of each message."""
        default = field.default_value
        numbers = np.full(len(spans), default, _dtype(field))
        for each in pieces:
            numbers[each.rows] = self._numbers(field, each.first)
        return self._column(field, schema, numbers, spans.owners)

    def _texts(self, field: Any, pieces: list[Found], spans: Spans) -> Any:
        starts, ends = np.zeros(len(spans), np.int64), np.zeros(len(spans), np.int64)
        for each in pieces:
            starts[each.rows], ends[each.rows] = each.first, each.last
        return self._text(field, self._wire.binary(starts, ends), spans.owners)

    def _nested(
        self, field: Any, schema: Schema, pieces: list[Found], present: Any, spans: Spans
    ) -> Any:
        count = int(present.sum())
        places = np.cumsum(present) - 1
        starts, ends = np.zeros(count, np.int64), np.zeros(count, np.int64)
        if pieces:
            rows = np.concatenate([each.rows for each in pieces])
            if len(rows) == count:
                for each in pieces:
                    at = places[each.rows]
                    starts[at], ends[at] = each.first, each.last
            else:
                first = np.concatenate([each.first for each in pieces])
                last = np.concatenate([each.last for each in pieces])
                starts, ends = self._wire.joined(places[rows], first, last, count)
        inner = Spans(starts, ends, spans.owners[present])
        found = self._messages(field.message_type, schema, inner)
        if count == len(spans):
            return found
        return found.take(pa.array(places, pa.int64(), mask=~present))

    def _messages(self, message: Any, schema: Schema, spans: Spans) -> Any:
        if schema.type is Type.STRUCT:
            return self.message(message, schema, spans)
        make = _WELL_KNOWN.get(message.full_name)
        if make is None:
            return self.wrapped(message, schema, spans)
        return make(self, message, schema, spans)

    def _repeated(self, field: Any, schema: Schema, pieces: list[Found], spans: Spans) -> Any:
        kind = _KINDS.get(field.type, VARINT)
        rows: list[Any] = [np.zeros(0, np.int64)]
        places: list[Any] = [np.zeros(0, np.int64)]
        first: list[Any] = [np.zeros(0, np.uint64 if kind == VARINT else np.int64)]
        last: list[Any] = [np.zeros(0, np.int64)]
        for each in pieces:
            owners, at, items, ends = each.rows, each.places, each.first, each.last
            if each.kind == BYTES and kind != BYTES:
                packed = Spans(each.first, each.last, spans.owners[each.rows])
                width = 0 if kind == VARINT else np.dtype(_FIXED[field.type]).itemsize
                inner, items = self._wire.packed(packed, kind, width)
                owners, at = each.rows[inner], each.places[inner]
                ends = items
            elif each.kind != kind:
                continue
            rows.append(owners)
            places.append(at)
            first.append(items)
            last.append(ends)
        owner = np.concatenate(rows)
        order = np.lexsort((np.concatenate(places), owner))
        owner = owner[order]
        offsets = np.zeros(len(spans) + 1, np.int32)
        np.cumsum(np.bincount(owner, minlength=len(spans)), out=offsets[1:])
        starts = np.concatenate(first)[order]
        owners = spans.owners[owner]
        target = arrow_type(schema)
        if schema.type is Type.MAP:
            return self._map(
                field, schema, offsets, Spans(starts, np.concatenate(last)[order], owners)
            )
        assert schema.value_schema is not None
        if kind == BYTES:
            spans = Spans(starts, np.concatenate(last)[order], owners)
            items = self._pieces(field, schema.value_schema, spans)
        else:
            numbers = self._numbers(field, starts)
            items = self._column(field, schema.value_schema, numbers, owners)
        return pa.ListArray.from_arrays(pa.array(offsets), items, type=target)

    def _pieces(self, field: Any, schema: Schema, spans: Spans) -> Any:
        if field.type == _F.TYPE_MESSAGE:
            return self._messages(field.message_type, schema, spans)
        return self._text(field, self._wire.binary(spans.starts, spans.ends), spans.owners)

    def _map(self, field: Any, schema: Schema, offsets: Any, spans: Spans) -> Any:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        found = self._wire.fields(spans)
        key, value = field.message_type.fields
        keys = self._field(key, schema.key_schema, found, spans)
        values = self._field(value, schema.value_schema, found, spans)
        refuse(spans.owners, np.asarray(keys.is_null()), "has a map without a key")
        return pa.MapArray.from_arrays(pa.array(offsets), keys, values, type=arrow_type(schema))

    def _numbers(self, field: Any, found: Any) -> Any:
        """Numbers of the field's type; ``found`` has VARINT values, or positions of fixed ones."""
        dtype = _FIXED.get(field.type)
        if dtype is not None:
            return self._wire.fixed(found, dtype)
        if field.type in _FOLDED:
            sign = -(found & np.uint64(1)).view(np.int64)
            found = ((found >> np.uint64(1)).view(np.int64) ^ sign).view(np.uint64)
        if field.type == _F.TYPE_BOOL:
            return found != 0
        return found.view(np.int64).astype(_dtype(field))

    def _column(self, field: Any, schema: Schema, numbers: Any, owners: Any) -> Any:
        target = arrow_type(schema)
        if field.type == _F.TYPE_ENUM and schema.type is Type.STRING:
            return _symbols(field.enum_type, numbers)
        if target in (pa.int8(), pa.int16()):
            info = np.iinfo(target.to_pandas_dtype())
            outside = (numbers < info.min) | (numbers > info.max)
            refuse(owners, outside, f"has a number that does not fit into {target}")
        if numbers.dtype == np.uint64:
            numbers = numbers.view(np.int64)
        return pa.array(numbers.astype(target.to_pandas_dtype(), copy=False), target)

    def _text(self, field: Any, found: Any, owners: Any) -> Any:
        if field.type == _F.TYPE_BYTES:
            return found
        return checked("Protobuf", lambda part: part.cast(pa.string()), found, owners)

    def _numbers_within(self, message: Any, spans: Spans) -> list[Any]:
        """The fields of messages that have numbers alone, 0 where they are missing."""
        found = self._wire.fields(spans)
        columns = []
        for field in message.fields:
            numbers = np.zeros(len(spans), np.int64)
            for each in found.get(field.number, ()):
                if each.kind == VARINT:
                    numbers[each.rows] = self._numbers(field, each.first)
            columns.append(numbers)
        return columns

    def timestamp(self, message: Any, schema: Schema, spans: Spans) -> Any:
        seconds, nanos = self._numbers_within(message, spans)
        outside = np.abs(seconds) > np.iinfo(np.int64).max // _SECOND_MS - 1
        refuse(spans.owners, outside, "has a timestamp that is too far away")
        return pa.array(seconds * _SECOND_MS + nanos // _NANOS_PER_MS).view(arrow_type(schema))

    def date(self, message: Any, schema: Schema, spans: Spans) -> Any:
        year, month, day = self._numbers_within(message, spans)
        bad = (year < 1) | (year > 9999) | (month < 1) | (month > 12) | (day < 1)
        refuse(spans.owners, bad, "has a date without a year, month or day")
        months = ((year - 1970) * 12 + month - 1).astype("M8[M]")
        days = months.astype("M8[D]") + (day - 1)
        refuse(spans.owners, days.astype("M8[M]") != months, "has a day that its month has not")
        return pa.array(days.astype(np.int64).astype(np.int32)).view(arrow_type(schema))

    def time(self, message: Any, schema: Schema, spans: Spans) -> Any:
        hours, minutes, seconds, nanos = self._numbers_within(message, spans)
        bad = np.zeros(len(spans), bool)
        for part, bound in ((hours, 24), (minutes, 60), (seconds, 60), (nanos, 10**9)):
            bad |= (part < 0) | (part >= bound)
        refuse(spans.owners, bad, "has a time that no day has")
        found = hours * _HOUR_MS + minutes * _MINUTE_MS + seconds * _SECOND_MS
        return pa.array((found + nanos // _NANOS_PER_MS).astype(np.int32)).view(arrow_type(schema))

    def decimal(self, message: Any, schema: Schema, spans: Spans) -> Any:
        found = self._wire.fields(spans)
        digits, _, scales = (
            self._field(field, Schema(kind), found, spans)
            for field, kind in zip(
                message.fields, (Type.BYTES, Type.INT64, Type.INT32), strict=True
            )
        )
        target = arrow_type(schema)
        scale_of = np.asarray(scales)
        # each scale is one more step
        outside = np.abs(scale_of.astype(np.int64)) > DECIMAL256_DIGITS
        refuse(spans.owners, outside, "has a decimal with a scale that no column has")
        parts, rows = [pa.array([], target)], [np.zeros(0, np.int64)]
        for scale in np.unique(scale_of).tolist():
            here = np.flatnonzero(scale_of == scale)

            def make(part: Any, scale: int = scale) -> Any:
                if scale == target.scale:
                    return decimals_of(part, target)
                return decimals_of(part, pa.decimal256(DECIMAL256_DIGITS, scale)).cast(target)

            parts.append(checked("Protobuf", make, digits.take(pa.array(here)), spans.owners[here]))
            rows.append(here)
        return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(rows))))


_WELL_KNOWN: Mapping[str, Callable[[_Reader, Any, Schema, Spans], Any]] = {
    DECIMAL: _Reader.decimal,
    DATE: _Reader.date,
    TIME: _Reader.time,
    TIMESTAMP: _Reader.timestamp,
}


def _dtype(field: Any) -> str:
    if field.type == _F.TYPE_BOOL:
        return "?"
    if field.type in (_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_ENUM):
        return "<i4"
    if field.type == _F.TYPE_UINT32:
        return "<u4"
    return _FIXED.get(field.type, "<u8" if field.type == _F.TYPE_UINT64 else "<i8")


def _symbols(enum: Any, numbers: Any) -> Any:
    values, places = np.unique(numbers, return_inverse=True)
    known = {each.number: each.name for each in reversed(enum.values)}
    # as Java's libraries call them
    texts = [known.get(each, f"UNKNOWN_ENUM_VALUE_{enum.name}_{each}") for each in values.tolist()]
    return pa.array(texts, pa.string()).take(pa.array(places.reshape(-1)))


def message_groups(wire: Wire) -> list[tuple[tuple[int, ...], Any, Spans]]:
    """Groups the records by the message indexes that precede them: indexes, rows, message bytes.

    Raises:
        RowsError: there are no indexes.
    """
    spans = wire.records
    folded, at = wire.varints(spans)
    counts = (folded >> np.uint64(1)).astype(np.int64)
    bad = ((folded & np.uint64(1)) != 0) | (counts > _DEPTH_MAX)
    refuse(spans.owners, bad, "has no indexes of its message")
    paths = np.zeros((len(spans), 1 + int(counts.max(initial=1))), np.int64)
    # no index is short for the first message
    paths[:, 0] = np.maximum(counts, 1)
    for place in range(paths.shape[1] - 1):
        rows = np.flatnonzero(counts > place)
        here = Spans(at[rows], spans.ends[rows], spans.owners[rows])
        number, at[rows] = wire.varints(here)
        refuse(here.owners, (number & np.uint64(1)) != 0, "has no indexes of its message")
        paths[rows, 1 + place] = (number >> np.uint64(1)).astype(np.int64)
    groups = []
    for each in np.unique(paths, axis=0):
        rows = np.flatnonzero((paths == each).all(axis=1))
        inner = Spans(at[rows], spans.ends[rows], spans.owners[rows])
        groups.append((tuple(each[1 : 1 + each[0]].tolist()), rows, inner))
    return groups
