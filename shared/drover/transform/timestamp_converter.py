"""TimestampConverter: converts between representations of time."""

import datetime
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from drover.config.config_def import ConfigDef, ConfigKey, ConfigType
from drover.config.validators import OneOf
from drover.model.times import DAY_MS
from drover.record import RecordError, Schema, Type, arrow_field
from drover.record import schema as schemas
from drover.record.arrow import Array, floor_divided
from drover.record.batch import KEY, VALUE, with_column
from drover.record.json.schemaless import loads
from drover.transform.cast_values import plain_column
from drover.transform.java_date_columns import DateColumns
from drover.transform.key_or_value import (
    REPLACE_NULL_WITH_DEFAULT,
    FieldTransform,
    definition,
    kind_of,
    text_key,
    to_texts,
)
from drover.transform.structs import columns_of, struct_of
from drover.transform.transform import SettingError

STRING, UNIX, DATE, TIME, TIMESTAMP = "string", "unix", "Date", "Time", "Timestamp"
_FORMAT, _PRECISION = "format", "unix.precision"
#: Units of Unix time: the number of units per millisecond, or of milliseconds per unit.
_PER_MS = {"microseconds": 1000, "nanoseconds": 1_000_000}
_IN_MS = {"seconds": 1000, "milliseconds": 1}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND = datetime.timedelta(milliseconds=1)
_TARGETS: Mapping[str, Schema] = {
    STRING: Schema(Type.STRING),
    UNIX: Schema(Type.INT64),
    DATE: Schema(Type.INT32, name=schemas.DATE, version=1),
    TIME: Schema(Type.INT32, name=schemas.TIME, version=1),
    TIMESTAMP: Schema(Type.INT64, name=schemas.TIMESTAMP, version=1),
}


class TimestampConverter(FieldTransform):
    """Converts a field, or a whole key or value, between text, Unix time, Date, Time and Timestamp.

    All times are in UTC.
    """

    purpose = "converting timestamps"
    nulls_pass = True

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Transform."""
        return definition(
            text_key(
                "target.type", validator=OneOf(*_TARGETS), documentation="The type to convert to."
            ),
            text_key("field", default="", documentation="The field to convert; empty: all of it."),
            text_key(
                _FORMAT,
                default="",
                documentation="How texts are written, as for Java's SimpleDateFormat.",
            ),
            ConfigKey(
                _PRECISION,
                ConfigType.STRING,
                default="milliseconds",
                validator=OneOf(*_PER_MS, *_IN_MS),
                documentation="The unit of Unix times.",
            ),
        )

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._target: str = config["target.type"]
        self._field: str = config["field"].strip()
        self._unit: str = config[_PRECISION]
        self._replace_nulls: bool = config[REPLACE_NULL_WITH_DEFAULT.name]
        pattern: str = config[_FORMAT].strip()
        if self._target == STRING and not pattern:
            raise SettingError(_FORMAT, "is required to write timestamps as texts")
        try:
            self._dates = DateColumns(pattern) if pattern else None
        except ValueError as error:
            raise SettingError(_FORMAT, f"is no pattern of dates: {error}") from error

    def __call__(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """See Transform."""
        if self._field:
            return super().__call__(batch)
        field, values = batch.schema.field(self.side), batch.column(self.side)
        if schemas.is_schemaless(field):
            texts = values.to_pylist()
            found = [None if each is None else self._convert_value(loads(each)) for each in texts]
            return [with_column(batch, field, to_texts(found))]
        changed = self._convert(field, values)
        return [with_column(batch, self._target_field(field), changed)]

    def change_structs(
        self, batch: pa.RecordBatch, field: pa.Field, values: Array
    ) -> pa.RecordBatch:
        """See FieldTransform."""
        columns = [
            (self._target_field(child), self._convert(child, column))
            if child.name == self._field
            else (child, column)
            for child, column in columns_of(values, replace_nulls=self._replace_nulls)
        ]
        changed = struct_of(columns, values)
        return with_column(batch, field.with_type(changed.type), changed)

    def change_maps(
        self, batch: pa.RecordBatch, maps: list[dict[str, Any] | None]
    ) -> pa.RecordBatch:
        """See FieldTransform."""
        for each in maps:
            if each is not None:
                each[self._field] = self._convert_value(each.get(self._field))
        return self.with_maps(batch, maps)

    def _target_field(self, field: pa.Field) -> pa.Field:
        return arrow_field(field.name, _TARGETS[self._target]).with_nullable(field.nullable)

    def _convert(self, field: pa.Field, values: Array) -> Array:
        try:
            values = plain_column(field, values)
            kind = values.type
        except pa.ArrowException as error:
            raise RecordError(f"field {field.name!r}: {error}") from error
        known = (
            pa.types.is_string(kind) or kind == pa.int64() or pa.types.is_timestamp(kind)
            or pa.types.is_date(kind) or pa.types.is_time(kind)
        )  # fmt: skip
        if not known:
            raise RecordError(f"field {field.name!r}: {kind} is no timestamp")
        try:
            return self._from_ms(self._to_ms(values))
        except pa.ArrowInvalid as error:
            raise RecordError(f"field {field.name!r}: a time is out of range: {error}") from error
        except ValueError as error:
            raise RecordError(f"field {field.name!r}: {error}") from error

    def _to_ms(self, values: Array) -> Array:
        kind = values.type
        if pa.types.is_string(kind):
            if values.null_count == len(values):
                return pa.nulls(len(values), pa.int64())
            return self._reader().parse(values)
        if pa.types.is_date(kind):
            return pc.multiply(values.cast(pa.int32()).cast(pa.int64()), DAY_MS)
        if pa.types.is_time(kind):
            return values.cast(pa.int32()).cast(pa.int64())
        if pa.types.is_timestamp(kind):
            return values.cast(pa.int64())
        if self._unit in _IN_MS:
            return pc.multiply_checked(values, _IN_MS[self._unit])
        # pc.divide rounds towards zero, like Java
        return pc.divide(values, _PER_MS[self._unit])

    def _from_ms(self, ms: Array) -> Array:
        match self._target:
            case "string":
                return self._reader().format(ms)
            case "unix" if self._unit in _IN_MS:
                return pc.divide(ms, _IN_MS[self._unit])
            case "unix":
                return pc.multiply_checked(ms, _PER_MS[self._unit])
            case "Timestamp":
                return ms.cast(pa.timestamp("ms", "UTC"))
        days = floor_divided(ms, DAY_MS)
        if self._target == DATE:
            return days.cast(pa.int32()).cast(pa.date32())
        return pc.subtract(ms, pc.multiply(days, DAY_MS)).cast(pa.int32()).cast(pa.time32("ms"))

    def _reader(self) -> DateColumns:
        if self._dates is None:
            raise ValueError(f"texts can only be read with a {_FORMAT}")
        return self._dates

    def _convert_value(self, value: Any) -> Any:
        """Convert a value without schema; Date, Time and Timestamp become datetimes, as in Java."""
        if value is None:
            return None
        try:
            return self._value_from_ms(self._value_to_ms(value))
        except (ValueError, OverflowError) as error:
            raise RecordError(str(error)) from error

    def _value_to_ms(self, value: Any) -> int:
        match value:
            case bool():
                pass
            case str():
                found = self._reader().parse(pa.array([value]))
                return int(found[0].as_py())
            case int() if self._unit in _IN_MS:
                return value * _IN_MS[self._unit]
            case int():
                return _cut(value, _PER_MS[self._unit])
            case datetime.datetime():
                return (value - _EPOCH) // _MILLISECOND
            case datetime.date():
                return (value - _EPOCH.date()).days * DAY_MS
            case datetime.time():
                return (
                    datetime.datetime.combine(_EPOCH, value, datetime.UTC) - _EPOCH
                ) // _MILLISECOND
        raise ValueError(f"{kind_of(value)} is no timestamp")

    def _value_from_ms(self, ms: int) -> Any:
        match self._target:
            case "string":
                return self._reader().dates.format(ms)
            case "unix" if self._unit in _IN_MS:
                return _cut(ms, _IN_MS[self._unit])
            case "unix":
                return ms * _PER_MS[self._unit]
            case "Date":
                ms -= ms % DAY_MS
            case "Time":
                ms %= DAY_MS
        return _EPOCH + ms * _MILLISECOND


def _cut(number: int, by: int) -> int:
    """Divide, rounding towards zero."""
    return number // by if number >= 0 else -(-number // by)


class TimestampConverterKey(TimestampConverter, side=KEY):
    """TimestampConverter of keys."""


class TimestampConverterValue(TimestampConverter, side=VALUE):
    """TimestampConverter of values."""
