"""Protobuf's bytes: the fields of many messages at once.

A step takes the field with the lowest number that is next in any message, of all messages where it
is next. So a batch of messages takes about as many steps as they have different fields. Where
steps take few fields, as of messages with long lists, the fields are found one by one.
"""

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from drover.convert.number_bytes import of_bytes
from drover.convert.registered import columns

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_WIDTHS = {FIXED64: 8, FIXED32: 4}
#: Behind the last message, so that no number is read from behind the data.
_SPARE_BYTES = 16
_VARINT_MAX_BYTES = 10
#: A step takes the time in which this number of fields is found one by one; every 64 messages of
#: the batch add the time of one field.
_STEP_FIELDS, _STEP_MESSAGES = 64, 64
_NO_TAG = np.iinfo(np.int64).max
_NUMBER_MAX = 2**29 - 1
#: Raises RowsError for the records of a sequence of which a mask is true.
refuse = partial(columns.refuse, "Protobuf")


@dataclass(frozen=True, slots=True)
class Spans:
    """Pieces of the data, and the records that they belong to."""

    starts: Any
    ends: Any
    owners: Any

    def __len__(self) -> int:
        return len(self.starts)

    def at(self, rows: Any) -> "Spans":
        """Some of them."""
        return Spans(self.starts[rows], self.ends[rows], self.owners[rows])


@dataclass(frozen=True, slots=True)
class Found:
    """Occurrences of a field: which messages have them, their places in the data, and what is
    there: ``first`` is a number of VARINT, else where the bytes begin that end before ``last``.
    """

    kind: int
    rows: Any
    places: Any
    first: Any
    last: Any


class _FoundFields:
    """Occurrences of fields that were found one by one."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int], tuple[array[int], ...]] = {}

    def add(self, number: int, kind: int, row: int, place: int, first: int, last: int) -> None:
        pieces = self._found.get((number, kind))
        if pieces is None:
            pieces = tuple(array("Q" if kind == VARINT and n == 2 else "q") for n in range(4))
            self._found[number, kind] = pieces
        rows, places, firsts, lasts = pieces
        rows.append(row)
        places.append(place)
        firsts.append(first)
        lasts.append(last)

    def each(self) -> Iterator[tuple[int, Found]]:
        for (number, kind), pieces in self._found.items():
            rows, places, first, last = (np.array(each) for each in pieces)
            yield number, Found(kind, rows, places, first, first if kind == VARINT else last)


class Wire:
    """The bytes of all records of a batch."""

    def __init__(self, values: Any, *, skipped_bytes: int = 0) -> None:
        offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset :][: len(values) + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        raw = values.buffers()[2]
        data = np.frombuffer(raw, np.uint8)[first:last] if raw is not None else _bytes(0)
        self._data = np.concatenate((data, _bytes(_SPARE_BYTES)))
        self._raw: bytes | None = None
        starts, ends = (each.astype(np.int64) - first for each in (offsets[:-1], offsets[1:]))
        self.records = Spans(starts + skipped_bytes, ends, np.arange(len(values)))

    def fields(self, spans: Spans) -> Mapping[int, list[Found]]:
        """All fields of messages by their numbers. Of one kind they are in the order in which each
        message has them; ``Found.places`` has the order of all.
        """
        found: dict[int, list[Found]] = {}
        at = spans.starts.copy()
        tags = np.full(len(spans), _NO_TAG)
        self._next_tags(spans, at, tags, np.arange(len(spans)))
        credit = 0
        while tags.size and (least := int(tags.min())) != _NO_TAG:
            rows = np.flatnonzero(tags == least)
            credit -= len(tags) // _STEP_MESSAGES
            number, kind = least >> 3, least & 7
            # repeat for rows whose next field has the same tag
            while rows.size:
                credit += rows.size - _STEP_FIELDS
                if credit < 0:
                    for each_number, each in self._one_by_one(spans, at, tags):
                        found.setdefault(each_number, []).append(each)
                    return found
                found.setdefault(number, []).append(self._value(spans, at, rows, kind))
                tags[rows] = _NO_TAG
                self._next_tags(spans, at, tags, rows)
                rows = rows[tags[rows] == least]
        return found

    def _one_by_one(self, spans: Spans, at: Any, tags: Any) -> Iterator[tuple[int, Found]]:
        """All further fields of messages, whose next tags are behind their places."""
        found = _FoundFields()
        rows = np.flatnonzero(tags != _NO_TAG)
        if self._raw is None:
            self._raw = self._data.tobytes()
        data = self._raw
        for row, place, end, tag in zip(
            rows.tolist(), at[rows].tolist(), spans.ends[rows].tolist(), tags[rows].tolist(),
            strict=True,
        ):  # fmt: skip
            try:
                _add_fields(found, data, row, place, end, tag)
            except _MalformedError as error:
                refuse(spans.owners[row : row + 1], np.ones(1, bool), str(error))
        return found.each()

    def varints(self, spans: Spans) -> tuple[Any, Any]:
        """The number of uint64 at the beginning of each piece, and where it ends."""
        at = spans.starts
        refuse(spans.owners, at >= spans.ends, "ends too early")
        byte = self._data[at]
        numbers = (byte & 0x7F).astype(np.uint64)
        widths = np.ones(len(at), np.int64)
        more = np.flatnonzero(byte & 0x80)
        width = 1
        while more.size:
            if width == _VARINT_MAX_BYTES:
                refuse(spans.owners[more], np.ones(len(more), bool), "has a number without an end")
            byte = self._data[at[more] + width]
            numbers[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * width)
            widths[more] += 1
            more = more[(byte & 0x80) != 0]
            width += 1
        behind = at + widths
        refuse(spans.owners, behind > spans.ends, "ends too early")
        return numbers, behind

    def fixed(self, starts: Any, dtype: str) -> Any:
        """Numbers of a fixed width that begin there."""
        width = np.dtype(dtype).itemsize
        matrix = self._data[starts[:, None] + np.arange(width)]
        return np.ascontiguousarray(matrix).view(dtype).reshape(-1)

    def binary(self, starts: Any, ends: Any) -> Any:
        """Pieces as a binary array."""
        lengths = ends - starts
        return of_bytes(self._gathered(starts, lengths), lengths)

    def packed(self, spans: Spans, kind: int, width: int) -> tuple[Any, Any]:
        """Numbers that stand one behind the other in pieces: the piece of each, and the number of
        VARINT or where it begins.
        """
        lengths = spans.ends - spans.starts
        if kind != VARINT:
            refuse(spans.owners, lengths % width != 0, "has a piece of a number")
            counts = lengths // width
            pieces = np.repeat(np.arange(len(spans)), counts)
            return pieces, np.repeat(spans.starts, counts) + width * _within(counts)
        data = self._gathered(spans.starts, lengths)
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        is_last = data < 0x80
        before = np.concatenate(([0], np.cumsum(is_last)))
        whole = np.ones(len(spans), bool)
        filled = lengths > 0
        whole[filled] = is_last[offsets[1:][filled] - 1]
        refuse(spans.owners, ~whole, "has a piece of a number")
        pieces = np.repeat(np.arange(len(spans)), np.diff(before[offsets]))
        ends = np.flatnonzero(is_last) + 1
        starts = np.concatenate(([0], ends[:-1])).astype(np.int64)[: len(ends)]
        inner = Wire(of_bytes(data, np.array([len(data)])))
        numbers, _ = inner.varints(Spans(starts, ends, spans.owners[pieces]))
        return pieces, numbers

    def joined(self, rows: Any, first: Any, last: Any, count: int) -> tuple[Any, Any]:
        """Concatenate the occurrences of a message field for each of ``count`` messages.

        In Protobuf, repeated occurrences of one message field are merged.
        """
        order = np.argsort(rows, kind="stable")
        lengths = (last - first)[order]
        added = self._gathered(first[order], lengths)
        base = len(self._data) - _SPARE_BYTES
        self._data = np.concatenate((self._data[:base], added, _bytes(_SPARE_BYTES)))
        self._raw = None
        sums = np.bincount(rows[order], weights=lengths, minlength=count).astype(np.int64)
        ends = base + np.cumsum(sums)
        return ends - sums, ends

    def _next_tags(self, spans: Spans, at: Any, tags: Any, rows: Any) -> None:
        rows = rows[at[rows] < spans.ends[rows]]
        if not rows.size:
            return
        owners = spans.owners[rows]
        found, at[rows] = self.varints(Spans(at[rows], spans.ends[rows], owners))
        number = found >> np.uint64(3)
        refuse(owners, (number == 0) | (number > _NUMBER_MAX), "has a field without a number")
        tags[rows] = found.astype(np.int64)

    def _value(self, spans: Spans, at: Any, rows: Any, kind: int) -> Found:
        """What is next in messages, and past it."""
        here = Spans(at[rows], spans.ends[rows], spans.owners[rows])
        if kind == VARINT:
            numbers, at[rows] = self.varints(here)
            return Found(kind, rows, here.starts, numbers, numbers)
        if kind == BYTES:
            lengths, starts = self.varints(here)
            # not starts + lengths: that may be more than a number can be
            refuse(here.owners, lengths > (here.ends - starts).astype(np.uint64), "ends too early")
            ends = starts + lengths.astype(np.int64)
        else:
            width = _WIDTHS.get(kind)
            if width is None:
                refuse(here.owners, np.ones(len(rows), bool), f"has a field of the kind {kind}")
            starts = here.starts
            refuse(here.owners, here.ends - starts < width, "ends too early")
            ends = starts + width
        at[rows] = ends
        return Found(kind, rows, here.starts, starts, ends)

    def _gathered(self, starts: Any, lengths: Any) -> Any:
        total = int(lengths.sum())
        offsets = np.cumsum(lengths) - lengths
        return self._data[np.repeat(starts - offsets, lengths) + np.arange(total)]


class _MalformedError(Exception):
    """The bytes are no message; the message continues "the Protobuf record"."""


def _add_fields(found: _FoundFields, data: bytes, row: int, at: int, end: int, tag: int) -> None:
    """Add the fields of a message from a place behind a tag on."""
    while True:
        number, kind, place = tag >> 3, tag & 7, at
        if kind == VARINT:
            value, at = _varint(data, at, end)
            found.add(number, kind, row, place, value, 0)
        elif kind == BYTES:
            length, start = _varint(data, at, end)
            if length > end - start:
                raise _MalformedError("ends too early")
            at = start + length
            found.add(number, kind, row, place, start, at)
        else:
            width = _WIDTHS.get(kind)
            if width is None:
                raise _MalformedError(f"has a field of the kind {kind}")
            if width > end - at:
                raise _MalformedError("ends too early")
            at += width
            found.add(number, kind, row, place, place, at)
        if at >= end:
            return
        tag, at = _varint(data, at, end)
        if not 0 < tag >> 3 <= _NUMBER_MAX:
            raise _MalformedError("has a field without a number")


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    number = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift == 7 * _VARINT_MAX_BYTES:
            raise _MalformedError("has a number without an end")
    raise _MalformedError("ends too early")


def masked(values: Any, present: Any) -> Any:
    """Values with null where ``present`` is false."""
    if present is None or present.all():
        return values
    places = np.where(present, np.arange(len(values)), 0)
    return values.take(pa.array(places, pa.int64(), mask=~present))


def _within(counts: Any) -> Any:
    """0 to each count."""
    total = int(counts.sum())
    return np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)


def _bytes(count: int) -> Any:
    return np.zeros(count, np.uint8)
