"""MaskField: replaces the values of fields and keeps their types."""

import datetime
import decimal
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from drover.config.config_def import ConfigDef
from drover.config.validators import NonEmpty
from drover.record import RecordError
from drover.record.arrow import Array, is_binary, is_text
from drover.record.batch import KEY, VALUE, with_column
from drover.record.json.numbers import Fraction
from drover.transform.key_or_value import (
    REPLACE_NULL_WITH_DEFAULT,
    FieldTransform,
    definition,
    kind_of,
    list_key,
    text_key,
)
from drover.transform.structs import Column, columns_of, struct_of

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
#: The numbers that Java's BigDecimal parses.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
#: Limits the memory that a number takes.
_EXPONENT_MAX = 400


class MaskField(FieldTransform):
    """Replaces fields with the empty value of their type (0, "", false, no items), or with a
    replacement.

    Null fields stay null; missing fields are ignored.
    """

    purpose = "masking fields"
    nulls_pass = False

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Transform."""
        return definition(
            list_key("fields", validator=NonEmpty(), documentation="The fields to mask."),
            text_key(
                "replacement",
                default=None,
                validator=NonEmpty(),
                documentation="The replacement; for numbers and texts only.",
            ),
        )

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._fields: list[str] = config["fields"]
        replacement = config["replacement"]
        self._replacement: str | None = None if replacement is None else replacement.strip()
        self._replace_nulls: bool = config[REPLACE_NULL_WITH_DEFAULT.name]

    def change_structs(
        self, batch: pa.RecordBatch, field: pa.Field, values: Array
    ) -> pa.RecordBatch:
        """See FieldTransform."""
        columns = [
            self._masked(child, column) if child.name in self._fields else (child, column)
            for child, column in columns_of(values, replace_nulls=self._replace_nulls)
        ]
        masked = struct_of(columns, values)
        return with_column(batch, field.with_type(masked.type), masked)

    def change_maps(
        self, batch: pa.RecordBatch, maps: list[dict[str, Any] | None]
    ) -> pa.RecordBatch:
        """See FieldTransform."""
        for each in maps:
            if each is not None:
                each |= {name: self._masked_value(each.get(name)) for name in self._fields}
        return self.with_maps(batch, maps)

    def _masked(self, field: pa.Field, column: Array) -> Column:
        if pa.types.is_dictionary(field.type):
            field = field.with_type(field.type.value_type)
            column = column.cast(field.type)
        if column.null_count == len(column):
            return field, column
        try:
            mask = self._scalar(field)
        except (pa.ArrowException, TypeError) as error:
            raise RecordError(f"field {field.name!r}: {field.type} cannot be masked") from error
        if not column.null_count:
            return field, pa.repeat(mask, len(column))
        return field, pc.if_else(pc.is_valid(column), mask, column)

    def _scalar(self, field: pa.Field) -> Any:
        kind, text = field.type, self._replacement
        if text is None:
            if pa.types.is_struct(kind) or is_binary(kind):
                raise RecordError(f"field {field.name!r}: {kind} cannot be masked")
            if pa.types.is_nested(kind):
                return pa.scalar([], kind)
            if is_text(kind):
                return pa.scalar("", kind)
            return pa.scalar(0, pa.int32()).cast(kind) if _by_int32(kind) else _zero(kind)
        if is_text(kind):
            return pa.scalar(text, kind)
        if pa.types.is_integer(kind):
            return pa.scalar(_wrapped(_number(text), kind.bit_width), kind)
        if pa.types.is_floating(kind):
            return pa.scalar(float(_number(text)), pa.float64()).cast(kind)
        if pa.types.is_decimal(kind):
            try:
                return pa.scalar(_number(text), kind)
            except pa.ArrowInvalid as error:
                raise RecordError(f"field {field.name!r}: {text} is no {kind}") from error
        raise RecordError(f"field {field.name!r}: {kind} cannot be masked with a replacement")

    def _masked_value(self, value: Any) -> Any:
        text = self._replacement
        match value:
            case None:
                return None
            case bool():
                masked: Any = False if text is None else None
            case int():
                masked = 0 if text is None else _wrapped(_number(text), 64)
            case float() | Fraction():
                masked = 0.0 if text is None else float(_number(text))
            case str():
                masked = "" if text is None else text
            case decimal.Decimal():
                masked = decimal.Decimal(0) if text is None else _number(text)
            case datetime.datetime():
                masked = _EPOCH if text is None else None
            case datetime.date():
                masked = _EPOCH.date() if text is None else None
            case datetime.time():
                masked = _EPOCH.time() if text is None else None
            case list() | dict():
                masked = type(value)() if text is None else None
            case _:
                masked = None
        if masked is None:
            with_it = "" if text is None else " with a replacement"
            raise RecordError(f"{kind_of(value)} cannot be masked{with_it}")
        return masked


def _by_int32(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date32(kind) or pa.types.is_time32(kind))


def _zero(kind: pa.DataType) -> Any:
    if pa.types.is_boolean(kind):
        return pa.scalar(False)
    return pa.scalar(decimal.Decimal(0) if pa.types.is_decimal(kind) else 0, kind)


def _number(text: str) -> decimal.Decimal:
    if not _NUMBER.fullmatch(text):
        raise RecordError(f"a number cannot be masked with {text!r}")
    number = decimal.Decimal(text)
    if number.adjusted() > _EXPONENT_MAX:
        raise RecordError(f"a number cannot be masked with {text!r}: it is too large")
    return number


def _wrapped(number: decimal.Decimal, bits: int) -> int:
    """The lowest ``bits`` bits of the number without its fraction, as in Java."""
    half = 1 << (bits - 1)
    return (int(number) + half) % (2 * half) - half


class MaskFieldKey(MaskField, side=KEY):
    """MaskField on keys."""


class MaskFieldValue(MaskField, side=VALUE):
    """MaskField on values."""
