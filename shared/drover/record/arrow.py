"""Type aliases for Arrow columns, and helpers for columns and their types.

pyarrow has no type hints, so mypy treats each alias as ``Any``: the aliases document the code.
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}

#: For fewer rows it is not worth while to find out whether a column is constant.
_EQUAL_ROWS_MIN = 16

#: Up to these numbers, a floating-point type holds every whole number.
WHOLE_MAX = {pa.float16(): 2.0**11, pa.float32(): 2.0**24, pa.float64(): 2.0**53}
#: A column of any type, in one chunk.
Array: TypeAlias = pa.Array
#: A column of text.
Texts: TypeAlias = pa.StringArray
#: A column of bytes.
Binaries: TypeAlias = pa.BinaryArray
#: A column of booleans that selects rows.
Mask: TypeAlias = pa.BooleanArray
#: Positions of rows (int64), ascending unless documented otherwise.
Rows: TypeAlias = pa.Int64Array
#: Start positions of lists (int32), then the end of the last list.
Offsets: TypeAlias = pa.Int32Array
#: The headers of records (``batch.HEADERS_TYPE``): for each a list of key, value and type.
Headers: TypeAlias = pa.ListArray


def is_text(kind: pa.DataType) -> bool:
    """Whether values are text, in any of Arrow's layouts."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_binary(kind: pa.DataType) -> bool:
    """Whether values are bytes, in any of Arrow's layouts."""
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_binary_view(kind)
    )


def is_list(kind: pa.DataType) -> bool:
    """Whether values are lists, with 32-bit offsets, 64-bit offsets or a fixed size."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def has_decimal(kind: pa.DataType) -> bool:
    """Whether the type is a decimal or contains one."""
    if pa.types.is_decimal(kind):
        return True
    return any(has_decimal(kind.field(index).type) for index in range(kind.num_fields))


def has_float(kind: pa.DataType) -> bool:
    """Whether the type is floating point or contains it."""
    if pa.types.is_floating(kind):
        return True
    return any(has_float(kind.field(index).type) for index in range(kind.num_fields))


def floor_divided(values: Array, by: int) -> Array:
    """Whole numbers divided by ``by``, rounded down; ``pc.divide`` rounds towards zero."""
    quotients = pc.divide(values, by)
    too_high = pc.greater(pc.multiply(quotients, by), values)
    return pc.subtract(quotients, too_high.cast(pa.int64()))


def in_unit(timestamps: Array, unit: str) -> Array:
    """Timestamps in a unit (s, ms, us or ns), with the same zone, truncated to an earlier time.

    Raises:
        pa.ArrowInvalid: A timestamp is outside of the range of the unit.
    """
    kind = pa.timestamp(unit, tz=timestamps.type.tz)
    finer = _PER_SECOND[timestamps.type.unit] // _PER_SECOND[unit]
    if finer <= 1:
        return timestamps.cast(kind)
    return floor_divided(timestamps.cast(pa.int64()), finer).cast(kind)


def offsets_of(lengths: Array) -> Offsets:
    """Start positions of lists of these lengths, then the end of the last list."""
    zero = pa.array([0], pa.int32())
    return pa.concat_arrays([zero, pc.cumulative_sum(lengths.cast(pa.int32()))])


def are_equal(values: Array) -> bool:
    """Whether the values, none of them null, are many and all equal. False for columns of other
    types than numbers, times, decimals, text and bytes, whose comparison would not be cheap.
    """
    kind, count = values.type, len(values)
    if count < _EQUAL_ROWS_MIN:
        return False
    if pa.types.is_boolean(kind):
        return values.true_count in (0, count)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        bounds = np.frombuffer(values.buffers()[1], np.int32)[values.offset :][: count + 1]
        length = int(bounds[1] - bounds[0])
        if int(bounds[-1] - bounds[0]) != count * length or (np.diff(bounds) != length).any():
            return False
        rows = text_bytes(values).reshape(count, length)
    elif pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
        width = kind.bit_width // 8
        word = min(width, 8)
        rows = np.frombuffer(values.buffers()[1], f"u{word}").reshape(-1, width // word)
        rows = rows[values.offset : values.offset + count]
    else:
        return False
    return bool((rows[-1] == rows[0]).all() and (rows == rows[0]).all())


def text_bytes(values: Texts | Binaries) -> npt.NDArray[np.uint8]:
    """The concatenated bytes of all values, without a copy."""
    _, offsets, data = values.buffers()
    if data is None:
        return np.empty(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    return np.frombuffer(data, np.uint8)[bounds[0] : bounds[-1]]
