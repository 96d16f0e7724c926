"""Debezium's semantic types: the name of a schema gives a number or a struct its meaning.

The names are from Debezium's documentation ("Data type mappings"). Kafka Connect's logical
types have Arrow types (see ``schema``).
"""

import decimal

import pyarrow as pa

from drover.record.arrow import Array
from drover.record.decimals import EXACT
from drover.record.schema import name_of

_TIME = "io.debezium.time."
#: Numbers since 1970 or since midnight, without a time zone; with the Arrow type of their unit.
_COUNTED = {
    _TIME + "Date": pa.date32(),
    _TIME + "Time": pa.time32("ms"),
    _TIME + "MicroTime": pa.time64("us"),
    _TIME + "NanoTime": pa.time64("ns"),
    _TIME + "Timestamp": pa.timestamp("ms"),
    _TIME + "MicroTimestamp": pa.timestamp("us"),
    _TIME + "NanoTimestamp": pa.timestamp("ns"),
}
#: Text in ISO 8601 with a time zone.
_ZONED = frozenset({_TIME + "ZonedTimestamp", _TIME + "ZonedTime"})
_VARIABLE_SCALE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
_SCALE, _UNSCALED = "scale", "value"


def counted_type(field: pa.Field) -> pa.DataType | None:
    """The date, time or timestamp type of a field with numbers that count time; None of others."""
    kind = _COUNTED.get(name_of(field) or "")
    if kind is None or not pa.types.is_signed_integer(field.type):
        return None
    return kind


def as_counted(values: Array, kind: pa.DataType) -> Array:
    """Whole numbers as values of the type of ``counted_type``. Numbers outside of a day or of the
    type's years stay as they are.
    """
    number = pa.int32() if kind.bit_width == 32 else pa.int64()
    return values.cast(number).cast(kind)


def is_zoned_text(field: pa.Field) -> bool:
    """Whether a field's texts are times or timestamps with a time zone."""
    return name_of(field) in _ZONED


def variable_decimals(field: pa.Field, values: Array) -> list[decimal.Decimal | None] | None:
    """The values of a VariableScaleDecimal, each with its scale; None for another field."""
    kind = field.type
    if name_of(field) != _VARIABLE_SCALE_DECIMAL or not pa.types.is_struct(kind):
        return None
    if min(kind.get_field_index(each) for each in (_SCALE, _UNSCALED)) < 0:
        return None
    found: list[decimal.Decimal | None] = []
    for each in values.to_pylist():
        if each is None or each[_SCALE] is None or not each[_UNSCALED]:
            found.append(None)
        else:
            number = int.from_bytes(each[_UNSCALED], "big", signed=True)
            found.append(decimal.Decimal(number).scaleb(-each[_SCALE], EXACT))
    return found
