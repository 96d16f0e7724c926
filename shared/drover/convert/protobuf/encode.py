"""Encodes columns as Protobuf messages, with Arrow kernels for whole columns."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import FieldDescriptor

from drover.convert.number_bytes import digits_of, fixed_width, unsigned_varints, varints
from drover.convert.protobuf.connect_schemas import Conventions, is_map, is_union
from drover.convert.protobuf.names import (
    DATE,
    DECIMAL,
    TIME,
    TIMESTAMP,
    WRAPPERS,
)
from drover.convert.protobuf.proto_schemas import valid_name
from drover.convert.protobuf.wire import BYTES, FIXED32, FIXED64, VARINT
from drover.record.arrow import is_binary, is_text
from drover.record.errors import RecordError
from drover.record.schema import DECIMAL128_DIGITS, DECIMAL256_DIGITS, schema_of

_F = FieldDescriptor
_ARROW = {
    _F.TYPE_INT32: pa.int32(),
    _F.TYPE_SINT32: pa.int32(),
    _F.TYPE_SFIXED32: pa.int32(),
    _F.TYPE_UINT32: pa.uint32(),
    _F.TYPE_FIXED32: pa.uint32(),
    _F.TYPE_INT64: pa.int64(),
    _F.TYPE_SINT64: pa.int64(),
    _F.TYPE_SFIXED64: pa.int64(),
    # a number beyond int64 is a negative one in Kafka Connect
    _F.TYPE_UINT64: pa.int64(),
    _F.TYPE_FIXED64: pa.int64(),
    _F.TYPE_FLOAT: pa.float32(),
    _F.TYPE_DOUBLE: pa.float64(),
    _F.TYPE_BOOL: pa.bool_(),
    _F.TYPE_STRING: pa.string(),
    _F.TYPE_BYTES: pa.binary(),
    _F.TYPE_ENUM: pa.int32(),
}
_FIXED = {
    _F.TYPE_DOUBLE: ("<f8", FIXED64),
    _F.TYPE_FLOAT: ("<f4", FIXED32),
    _F.TYPE_FIXED64: ("<i8", FIXED64),
    _F.TYPE_SFIXED64: ("<i8", FIXED64),
    _F.TYPE_FIXED32: ("<u4", FIXED32),
    _F.TYPE_SFIXED32: ("<i4", FIXED32),
}
_PIECES = (_F.TYPE_STRING, _F.TYPE_BYTES, _F.TYPE_MESSAGE)
_FOLDED = (_F.TYPE_SINT32, _F.TYPE_SINT64)
_NOTHING = pa.scalar(b"", pa.binary())
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_NANOS = 10**9


def encode_messages(
    field: pa.Field,
    values: Any,
    message: Any,
    *,
    before: bytes,
    strict: bool,
    conventions: Conventions,
) -> Any:
    """Each value as a message behind ``before``; null stays null.

    ``strict``: fields that the message does not have are an error, else they are left out.

    Raises:
        RecordError: values are not of the message.
    """
    writer = _Writer(strict, conventions)
    body = writer.body(message, field, values, field.name)
    return pc.binary_join_element_wise(pa.scalar(before), body, _NOTHING)


class _Writer:
    def __init__(self, strict: bool, conventions: Conventions) -> None:
        self._strict = strict
        self._conventions = conventions

    def body(self, message: Any, field: pa.Field, values: Any, path: str) -> Any:
        """The bytes of messages; null where the value is null."""
        make = _WELL_KNOWN.get(message.full_name)
        try:
            if make is not None and not pa.types.is_struct(values.type):
                return make(values)
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise _mismatch(path, values, message.full_name, error) from None
        if message.full_name in WRAPPERS and not pa.types.is_struct(values.type):
            parts = [self._single(message.fields[0], field, values, path)]
        elif pa.types.is_struct(values.type):
            parts = self._parts(message, field, values, path)
        else:
            raise RecordError(f"{path} of type {values.type} is no message {message.full_name}")
        joined = _joined(parts, len(values))
        return _only(joined, values.is_valid()) if values.null_count else joined

    def _parts(self, message: Any, field: pa.Field, values: Any, path: str) -> list[Any]:
        """The bytes of each field, null where a message does not have it."""
        columns = self._columns(field, values)
        known = {each.name for each in message.fields}
        further = [each for each in columns if each not in known]
        if further and self._strict:
            raise RecordError(
                f"{path} has the field {further[0]!r}, which the schema in the registry has not"
            )
        parts = []
        for each in sorted(message.fields, key=lambda found: int(found.number)):
            place = f"{path}.{each.name}"
            if each.name not in columns:
                if each.is_required:
                    raise RecordError(f"{place} is missing, and required in the registry")
                continue
            child, column = columns[each.name]
            if each.is_required and column.null_count > values.null_count:
                raise RecordError(f"{place} is null, and required in the registry")
            parts.append(self._field(each, child, column, place))
        return parts

    def _columns(self, field: pa.Field, values: Any) -> dict[str, tuple[pa.Field, Any]]:
        """A struct's columns by field name in Protobuf; a oneof's members are message fields."""
        found: dict[str, tuple[pa.Field, Any]] = {}
        # flatten, so that what is in a null is null
        for child, column in zip(values.type, values.flatten(), strict=True):
            schema = schema_of(child) if pa.types.is_struct(child.type) else None
            if schema is not None and is_union(schema):
                found |= self._columns(child, column)
            else:
                found[valid_name(child.name, self._conventions)] = (child, column)
        return found

    def _field(self, found: Any, field: pa.Field, values: Any, path: str) -> Any:
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        if is_map(found) and pa.types.is_map(values.type):
            return self._map(found, values, path)
        if found.is_repeated:
            return self._repeated(found, values, path)
        return self._single(found, field, values, path)

    def _single(self, found: Any, field: pa.Field, values: Any, path: str) -> Any:
        if found.type == _F.TYPE_MESSAGE:
            body = self.body(found.message_type, field, values, path)
            return _with_tag(found, BYTES, _with_length(body))
        exact = self._exact(found, values, path)
        made = _with_tag(found, _kind(found), _plain(found, exact))
        wanted = exact.is_valid() if exact.null_count else None
        if not found.has_presence:
            # what is the default is not written
            other = _is_set(exact)
            wanted = other if wanted is None else pc.and_(wanted, other)
        return made if wanted is None else _only(made, wanted)

    def _repeated(self, found: Any, values: Any, path: str) -> Any:
        if not (pa.types.is_list(values.type) or pa.types.is_large_list(values.type)):
            raise RecordError(f"{path} of type {values.type} is no array")
        child, items = values.type.value_field, values.flatten()
        if items.null_count:
            raise RecordError(f"{path} has an item that is null, which Protobuf's arrays have not")
        lengths = _lengths(values)
        if found.type == _F.TYPE_MESSAGE:
            body = self.body(found.message_type, child, items, f"{path}.item")
            pieces = _with_tag(found, BYTES, _with_length(body))
        else:
            pieces = _plain(found, self._exact(found, items, f"{path}.item"))
            if found.is_packed:
                whole = _with_tag(found, BYTES, _with_length(_by_row(pieces, lengths)))
                return _only(whole, pa.array(lengths > 0))
            pieces = _with_tag(found, _kind(found), pieces)
        return _by_row(pieces, lengths)

    def _map(self, found: Any, values: Any, path: str) -> Any:
        lengths = _lengths(values)
        present = values.drop_null()
        start, end = (present.offsets[at].as_py() for at in (0, -1))
        parts = []
        sides = ((values.type.key_field, present.keys), (values.type.item_field, present.items))
        for each, (child, whole) in zip(found.message_type.fields, sides, strict=True):
            column = whole.slice(start, end - start)
            place = f"{path}.{each.name}"
            if each.type == _F.TYPE_MESSAGE:
                parts.append(self._single(each, child, column, place))
            else:
                exact = self._exact(each, column, place)
                made = _with_tag(each, _kind(each), _plain(each, exact))
                parts.append(_only(made, exact.is_valid()) if exact.null_count else made)
        entries = _joined(parts, end - start)
        return _by_row(_with_tag(found, BYTES, _with_length(entries)), lengths)

    def _exact(self, found: Any, values: Any, path: str) -> Any:
        """Values as Protobuf's type has them."""
        target = _ARROW[found.type]
        try:
            if found.type == _F.TYPE_ENUM and not pa.types.is_integer(values.type):
                return _numbers_of(found.enum_type, values.cast(pa.string()))
            if not _is_alike(values.type, target):
                raise ValueError("the types differ")
            return values.cast(target)
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise _mismatch(path, values, found.full_name, error) from None


def _plain(found: Any, exact: Any) -> Any:
    """Each value's own bytes, without a tag; what is null does not matter."""
    if found.type in (_F.TYPE_STRING, _F.TYPE_BYTES):
        return _with_length(exact.cast(pa.binary()))
    numbers = np.asarray(exact.fill_null(False if found.type == _F.TYPE_BOOL else 0))
    dtype, _ = _FIXED.get(found.type, (None, None))
    if dtype is not None:
        width = np.dtype(dtype).itemsize
        return fixed_width(
            np.ascontiguousarray(numbers.astype(dtype)).view(np.uint8).reshape(-1, width)
        )
    if found.type in _FOLDED:
        return varints(numbers)
    return unsigned_varints(numbers.astype(np.int64).view(np.uint64))


def _kind(found: Any) -> int:
    if found.type in _PIECES:
        return BYTES
    return _FIXED[found.type][1] if found.type in _FIXED else VARINT


def _is_set(exact: Any) -> Any:
    """Whether values are not their type's default."""
    if pa.types.is_boolean(exact.type):
        return exact.fill_null(False)
    if pa.types.is_string(exact.type) or pa.types.is_binary(exact.type):
        return pc.greater(pc.binary_length(exact.fill_null(b"" if pa.types.is_binary(exact.type)
                                                           else "")), 0)  # fmt: skip
    numbers = np.asarray(exact.fill_null(0))
    if pa.types.is_floating(exact.type):
        # not the bytes of -0.0, which is another value
        return pa.array((numbers != 0) | np.signbit(numbers))
    return pa.array(numbers != 0)


def _is_alike(kind: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_null(kind):
        return True
    if pa.types.is_integer(target):
        return bool(pa.types.is_integer(kind))
    if pa.types.is_floating(target):
        wide = pa.types.is_floating(kind) and kind.bit_width > target.bit_width
        return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind)) and not wide
    if pa.types.is_boolean(target):
        return bool(pa.types.is_boolean(kind))
    if pa.types.is_string(target):
        return is_text(kind)
    return is_binary(kind)


def _numbers_of(enum: Any, values: Any) -> Any:
    symbols = pa.array([each.name for each in enum.values], pa.string())
    numbers = pa.array([each.number for each in enum.values], pa.int32())
    found = numbers.take(pc.index_in(values, symbols))
    unknown = values.filter(pc.and_(found.is_null(), values.is_valid()))
    if not len(unknown):
        return found
    prefix = f"UNKNOWN_ENUM_VALUE_{enum.name}_"
    told = [None if each is None else each.removeprefix(prefix) for each in values.to_pylist()]
    kept = found.to_pylist()
    for row, each in enumerate(told):
        if kept[row] is None and each is not None:
            if each == values[row].as_py() or not each.lstrip("-").isdecimal():
                raise ValueError(f"{each[:80]!r} is none of its symbols")
            kept[row] = int(each)
    return pa.array(kept, pa.int32())


def _timestamp(values: Any) -> Any:
    if not pa.types.is_timestamp(values.type):
        raise ValueError("it is no timestamp")
    per_second = _PER_SECOND[values.type.unit]
    numbers = np.asarray(values.cast(pa.int64()).fill_null(0))
    nanos = (numbers % per_second) * (_NANOS // per_second)
    return _of_numbers(values, numbers // per_second, nanos)


def _date(values: Any) -> Any:
    if not pa.types.is_date(values.type):
        raise ValueError("it is no date")
    days = np.asarray(values.cast(pa.date32()).cast(pa.int32()).fill_null(0)).astype("M8[D]")
    years, months = days.astype("M8[Y]"), days.astype("M8[M]")
    return _of_numbers(
        values,
        years.astype(np.int64) + 1970,
        months.astype(np.int64) % 12 + 1,
        (days - months.astype("M8[D]")).astype(np.int64) + 1,
    )


def _time(values: Any) -> Any:
    if not pa.types.is_time(values.type):
        raise ValueError("it is no time")
    per_second = _PER_SECOND[values.type.unit]
    whole = pa.int32() if values.type.bit_width == 32 else pa.int64()
    numbers = np.asarray(values.cast(whole).fill_null(0)).astype(np.int64)
    seconds = numbers // per_second
    nanos = (numbers % per_second) * (_NANOS // per_second)
    return _of_numbers(values, seconds // 3600, seconds // 60 % 60, seconds % 60, nanos)


def _decimal(values: Any) -> Any:
    if not pa.types.is_decimal(values.type):
        raise ValueError("it is no decimal")
    kind = values.type
    if not (pa.types.is_decimal128(kind) or pa.types.is_decimal256(kind)):
        kind = pa.decimal128(kind.precision, kind.scale)
    exact = values.cast(kind)
    if exact.null_count:
        exact = exact.fill_null(pa.scalar(0).cast(_roomy(kind)).cast(kind))
    digits = digits_of(exact)
    precisions = np.array([_digit_count(each) for each in digits.to_pylist()], np.uint64)
    parts = [
        pc.binary_join_element_wise(pa.scalar(b"\x0a"), _with_length(digits), _NOTHING),
        _number_field(2, precisions),
    ]
    if kind.scale:
        scale = np.full(len(values), kind.scale, np.int64).view(np.uint64)
        parts.append(_number_field(3, scale))
    return _only(pc.binary_join_element_wise(*parts, _NOTHING), values.is_valid())


def _roomy(kind: pa.DataType) -> pa.DataType:
    """A type of decimals that has 0 in it."""
    make, digits = (
        (pa.decimal128, DECIMAL128_DIGITS)
        if pa.types.is_decimal128(kind)
        else (pa.decimal256, DECIMAL256_DIGITS)
    )
    return make(digits, max(kind.scale, 0))


def _digit_count(digits: bytes) -> int:
    return len(str(abs(int.from_bytes(digits, "big", signed=True))))


def _of_numbers(values: Any, *columns: Any) -> Any:
    """Messages of numbers, the first of which has the number 1; 0 is not written."""
    parts = []
    for number, column in enumerate(columns, start=1):
        made = _number_field(number, column.astype(np.int64).view(np.uint64))
        parts.append(_only(made, pa.array(column != 0)))
    return _only(_joined(parts, len(values)), values.is_valid())


def _number_field(number: int, column: Any) -> Any:
    return pc.binary_join_element_wise(
        pa.scalar(bytes([number << 3])), unsigned_varints(column), _NOTHING
    )


def _with_tag(found: Any, kind: int, values: Any) -> Any:
    tag = unsigned_varints(np.array([found.number << 3 | kind], np.uint64))[0]
    return pc.binary_join_element_wise(tag, values, _NOTHING)


def _with_length(values: Any) -> Any:
    lengths = np.asarray(pc.fill_null(pc.binary_length(values), 0)).astype(np.uint64)
    return pc.binary_join_element_wise(unsigned_varints(lengths), values, _NOTHING)


def _joined(parts: list[Any], count: int) -> Any:
    """Concatenate the parts row by row; null parts are skipped."""
    if not parts:
        return pa.array([b""] * count, pa.binary())
    # without the first part pyarrow makes no rows at all where every part is null
    return pc.binary_join_element_wise(_NOTHING, *parts, _NOTHING, null_handling="skip")


def _only(values: Any, wanted: Any) -> Any:
    return pc.if_else(wanted, values, pa.scalar(None, pa.binary()))


def _lengths(values: Any) -> Any:
    lengths = np.diff(np.asarray(values.offsets, np.int64))
    if values.null_count:
        lengths[np.asarray(values.is_null())] = 0
    return lengths


def _by_row(pieces: Any, lengths: Any) -> Any:
    """Pieces of each row joined."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), pieces), _NOTHING)


def _mismatch(path: str, values: Any, name: str, error: Exception) -> RecordError:
    told = str(error).splitlines()[0]
    return RecordError(f"{path} of type {values.type} is no {name} of Protobuf: {told}")


_WELL_KNOWN = {DECIMAL: _decimal, DATE: _date, TIME: _time, TIMESTAMP: _timestamp}
