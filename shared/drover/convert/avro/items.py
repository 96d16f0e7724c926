"""Finds where items of Avro's arrays and maps begin, one item after the other.

``decode`` reads the n-th items of many records at once, which is slow for few records with many
items. Their items are found here, and then read all at once as if each were a record.
"""

from array import array
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import numpy as np

from drover.convert.avro.schemas import AvroSchema, kind_of

#: From the place of a value and the end of its record, the place behind the value.
Skip = Callable[[int, int], int]
_WIDTHS = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_NUMBERS = frozenset(("int", "long", "enum"))
_NUMBER_MAX_BYTES = 10
#: Fewer numbers are found faster one by one.
_NUMBERS_AT_ONCE = 32


class MalformedError(Exception):
    """The bytes are not of the schema; the message continues "the Avro record"."""


class ItemFinder:
    """Finds items in the bytes of a batch."""

    def __init__(self, avro: AvroSchema, data: bytes) -> None:
        self._avro = avro
        self._data = data
        self._numbers = np.frombuffer(data, np.uint8)

    def find(
        self, parts: Iterable[Any], at: int, end: int, *, left: int, most: int
    ) -> "tuple[array[int], int]":
        """Where the items of an array begin, and the place behind the array.

        Args:
            parts: The schemas of an item's parts.
            at: Where to begin.
            end: Where the record ends.
            left: The number of items of a block that begin there; 0 where a block begins.
            most: The greatest number of further items.

        Raises:
            MalformedError: The bytes are not of the schema, or have more items.
        """
        parts = list(parts)
        skip, width = self._skip_all(parts), self._width_of_all(parts)
        is_number = len(parts) == 1 and kind_of(self._avro.resolved(parts[0])) in _NUMBERS
        found = array("q")
        while True:
            if width is not None:
                if width * left > end - at:
                    raise MalformedError("ends too early")
                found.frombytes((at + width * np.arange(left, dtype=np.int64)).tobytes())
                at += width * left
            elif is_number and left >= _NUMBERS_AT_ONCE:
                at = self._find_numbers(found, at, end, left)
            else:
                for _ in range(left):
                    found.append(at)
                    at = skip(at, end)
            left, at = self._block(at, end)
            if not left:
                return found, at
            most -= left
            if most < 0:
                raise MalformedError("has too few bytes for its items")

    def _find_numbers(self, found: "array[int]", at: int, end: int, count: int) -> int:
        """Find numbers that stand one behind the other; returns the place behind them."""
        piece = self._numbers[at : min(end, at + _NUMBER_MAX_BYTES * count)]
        ends = np.flatnonzero(piece < 0x80)[:count] + (at + 1)
        if len(ends) < count:
            is_long = end - at > len(piece)
            raise MalformedError("has a number without an end" if is_long else "ends too early")
        found.append(at)
        found.frombytes(ends[:-1].astype(np.int64).tobytes())
        return int(ends[-1])

    def _block(self, at: int, end: int) -> tuple[int, int]:
        """The number of items in a block, and where they begin."""
        count, at = self._number(at, end)
        if count < 0:  # its size in bytes follows
            count, at = -count, self._skip_number(at, end)
        return count, at

    def _number(self, at: int, end: int) -> tuple[int, int]:
        behind = self._skip_number(at, end)
        folded = 0
        for byte in reversed(self._data[at:behind]):
            folded = folded << 7 | (byte & 0x7F)
        folded &= 0xFFFFFFFFFFFFFFFF
        return (folded >> 1) ^ -(folded & 1), behind

    def _skip_number(self, at: int, end: int) -> int:
        data, start = self._data, at
        while at < end and data[at] >= 0x80:
            at += 1
            if at - start == _NUMBER_MAX_BYTES:
                raise MalformedError("has a number without an end")
        if at >= end:
            raise MalformedError("ends too early")
        return at + 1

    def _skip_bytes(self, at: int, end: int) -> int:
        length, at = self._number(at, end)
        if length < 0:
            raise MalformedError("has a negative length")
        if length > end - at:
            raise MalformedError("ends too early")
        return at + length

    def _width(self, node: Any) -> int | None:
        """The number of bytes of each value, if all have the same."""
        node = self._avro.resolved(node)
        kind = kind_of(node)
        if kind == "record":
            return self._width_of_all([each["type"] for each in node["fields"]])
        return int(node["size"]) if kind == "fixed" else _WIDTHS.get(kind)

    def _width_of_all(self, nodes: Iterable[Any]) -> int | None:
        widths = [self._width(each) for each in nodes]
        known = [each for each in widths if each is not None]
        return sum(known) if len(known) == len(widths) else None

    def _skip(self, node: Any) -> Skip:
        node = self._avro.resolved(node)
        kind = kind_of(node)
        width = self._width(node)
        if width is not None:
            return _skip_width(width)
        match kind:
            case "int" | "long" | "enum":
                return self._skip_number
            case "union":
                return self._skip_union([self._skip(each) for each in node])
            case "record":
                return self._skip_all([each["type"] for each in node["fields"]])
            case "array":
                return self._skip_items([node["items"]])
            case "map":
                return self._skip_items(["string", node["values"]])
        return self._skip_bytes

    def _skip_all(self, nodes: Iterable[Any]) -> Skip:
        skips = [self._skip(each) for each in nodes]
        if len(skips) == 1:
            return skips[0]
        return lambda at, end: reduce(lambda place, skip: skip(place, end), skips, at)

    def _skip_union(self, branches: list[Skip]) -> Skip:
        def skip(at: int, end: int) -> int:
            index, at = self._number(at, end)
            if not 0 <= index < len(branches):
                raise MalformedError(f"chooses what is none of {len(branches)}")
            return branches[index](at, end)

        return skip

    def _skip_items(self, parts: list[Any]) -> Skip:
        skip_item, width = self._skip_all(parts), self._width_of_all(parts)

        def skip(at: int, end: int) -> int:
            while True:
                count, at = self._block(at, end)
                if not count:
                    return at
                if width is None:
                    for _ in range(count):
                        at = skip_item(at, end)
                elif width * count > end - at:
                    raise MalformedError("ends too early")
                else:
                    at += width * count

        return skip


def _skip_width(width: int) -> Skip:
    def skip(at: int, end: int) -> int:
        if width > end - at:
            raise MalformedError("ends too early")
        return at + width

    return skip
