"""Columns of numbers as Avro and Protobuf write them, by numpy."""

import decimal
from typing import Any

import numpy as np
import pyarrow as pa

from drover.record.decimals import (
    EXACT,
    byte_counts_of,
    shortest_bytes,
    unscaled,
    unscaled_numbers,
)


def varints(numbers: Any) -> Any:
    """Whole numbers, each as its own bytes: zigzag, seven bits in each byte."""
    signed = np.asarray(numbers, np.int64)
    return unsigned_varints(((signed << 1) ^ (signed >> 63)).view(np.uint64))


def unsigned_varints(folded: Any) -> Any:
    """Numbers of uint64, each as its own bytes: seven bits in each byte."""
    widest = int(folded.max()) if len(folded) else 0
    width = max(1, (widest.bit_length() + 6) // 7)
    if width == 1:
        return fixed_width(folded.astype(np.uint8).reshape(-1, 1))
    shifts = np.arange(width, dtype=np.uint64) * np.uint64(7)
    parts = folded[:, None] >> shifts
    lengths = np.maximum(1, (parts > 0).sum(axis=1))
    matrix = (parts & np.uint64(0x7F)).astype(np.uint8)
    place = np.arange(width)
    matrix |= np.where(place < lengths[:, None] - 1, 0x80, 0).astype(np.uint8)
    return of_bytes(matrix[place < lengths[:, None]], lengths)


def fixed_width(matrix: Any) -> Any:
    """Rows of bytes as a binary array."""
    count, width = matrix.shape
    return of_bytes(matrix.reshape(-1), np.full(count, width))


def of_bytes(data: Any, lengths: Any) -> Any:
    """A binary array of values that stand one behind the other."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise ValueError("the values of a batch are more than 2 GiB")
    buffers = [
        None,
        pa.py_buffer(offsets.astype(np.int32)),
        pa.py_buffer(np.ascontiguousarray(data)),
    ]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)


def digits_of(values: Any) -> Any:
    """The digits of decimals (no nulls) in two's complement, in as few bytes as possible."""
    numbers = unscaled_numbers(values) if pa.types.is_decimal128(values.type) else None
    if numbers is None:
        scale = values.type.scale
        found = [shortest_bytes(unscaled(each, scale)) for each in values.to_pylist()]
        return pa.array(found, pa.binary())
    lengths = byte_counts_of(numbers)
    big_endian = numbers.astype(">i8").view(np.uint8).reshape(-1, 8)
    return of_bytes(big_endian[np.arange(8) >= 8 - lengths[:, None]], lengths)


def padded(digits: Any, size: int) -> Any:
    """Digits in so many bytes each.

    Raises:
        ValueError: some need more.
    """
    found = digits.to_pylist()
    if any(len(each) > size for each in found):
        raise ValueError(f"a decimal does not fit into {size} bytes")
    return pa.array(
        [each.rjust(size, b"\xff" if each[0] & 0x80 else b"\0") for each in found], pa.binary()
    )


def decimals_of(digits: Any, kind: pa.DataType) -> Any:
    """Decimals of their digits in two's complement.

    Raises:
        ValueError: one has more digits than the type, or no bytes at all.
    """
    offsets = np.frombuffer(digits.buffers()[1], np.int32)[digits.offset :][: len(digits) + 1]
    lengths = np.diff(offsets)
    if len(lengths) and lengths.min() == 0:
        raise ValueError("a decimal must have at least one byte")
    if not len(digits) or lengths.max() > 8 or not pa.types.is_decimal128(kind):
        return _by_python(digits, kind)
    starts = offsets[:-1].astype(np.int64)
    data = np.frombuffer(digits.buffers()[2], np.uint8)
    matrix = np.zeros((len(digits), 8), np.uint8)
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        found = data[starts[rows][:, None] + np.arange(length)]
        matrix[rows] = np.where(found[:, :1] & 0x80, 0xFF, 0)
        matrix[rows, 8 - length :] = found
    numbers = matrix.view(">i8").reshape(-1).astype(np.int64)
    bound = 10 ** min(kind.precision, 18)
    if kind.precision < 19 and ((numbers >= bound) | (numbers <= -bound)).any():
        raise ValueError(f"a decimal does not fit into {kind.precision} digits")
    words = np.stack((numbers, numbers >> 63), axis=1)
    return pa.Array.from_buffers(kind, len(digits), [None, pa.py_buffer(words)])


def _by_python(digits: Any, kind: pa.DataType) -> Any:
    values = [
        decimal.Decimal(int.from_bytes(each, "big", signed=True)).scaleb(-kind.scale, EXACT)
        for each in digits.to_pylist()
    ]
    return pa.array(values, kind)
