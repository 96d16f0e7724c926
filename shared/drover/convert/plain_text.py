"""Values of any schema as text: what Kafka Connect's StringConverter and its headers have."""

import base64
import datetime
import decimal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from drover.model.times import DAY_MS
from drover.record import schema as schemas
from drover.record.arrow import Array, Texts
from drover.record.errors import RecordError
from drover.record.java_text import date_text, double_text, float_text, utc
from drover.record.json.schemaless import loads
from drover.record.schema import Schema, Type, arrow_type

_EPOCH_DAY = datetime.date(1970, 1, 1)
_TEMPORAL = {schemas.DATE: pa.int32(), schemas.TIME: pa.int32(), schemas.TIMESTAMP: pa.int64()}


class TextStyle(ABC):
    """How values are printed; ``embedded`` ones are part of another value."""

    @abstractmethod
    def string(self, value: str, embedded: bool) -> str:
        """A text."""

    @abstractmethod
    def binary(self, value: bytes, embedded: bool) -> str:
        """Bytes."""

    @abstractmethod
    def temporal(self, name: str, number: int) -> str:
        """A date, time or timestamp (a schema's name) in days or milliseconds."""

    @abstractmethod
    def struct(self, fields: Iterable[tuple[str, str | None]]) -> str:
        """The text of a struct from (name, text) of its fields; the text is None for null."""

    @abstractmethod
    def mapping(self, entries: Iterable[tuple[str, str]]) -> str:
        """A map."""

    @abstractmethod
    def array(self, items: Sequence[str]) -> str:
        """An array."""

    def column(self, values: Array, schema: Schema, embedded: bool = False) -> list[str | None]:
        """The texts of a column; None for null."""
        match schema.type:
            case Type.STRUCT:
                return self._structs(values, schema)
            case Type.ARRAY:
                assert schema.value_schema is not None
                items = self._parts(values.flatten(), schema.value_schema)
                return [
                    None if each is None else self.array(each) for each in _regrouped(values, items)
                ]
            case Type.MAP:
                return self._maps(values, schema)
            case Type.FLOAT32:
                return _each(float_text, values)
            case Type.FLOAT64:
                return _each(double_text, values)
            case Type.STRING:
                return _each(lambda value: self.string(value, embedded), values)
            case Type.BOOLEAN:
                return _each(lambda value: "true" if value else "false", values)
            case Type.BYTES if schema.name != schemas.DECIMAL:
                return _each(lambda value: self.binary(value, embedded), values)
        wire = _TEMPORAL.get(schema.name or "")
        if wire is None or pa.types.is_integer(values.type):
            return _each(str, values)
        numbers = values.cast(arrow_type(schema), safe=False).cast(wire)
        return _each(lambda number: self.temporal(schema.name or "", number), numbers)

    def plain(self, value: Any, embedded: bool = False) -> str:
        """A value without a schema, as Python has it."""
        match value:
            case None:
                return "null"
            case bool():
                return "true" if value else "false"
            case int() | decimal.Decimal():
                return str(value)
            case float():
                return double_text(value)
            case str():
                return self.string(value, embedded)
            case bytes():
                return self.binary(value, embedded)
            case dict():
                entries = (
                    (self.plain(key, True), self.plain(each, True)) for key, each in value.items()
                )
                return self.mapping(entries)
            case list():
                return self.array([self.plain(each, True) for each in value])
            case datetime.datetime():
                return self.temporal(schemas.TIMESTAMP, round(value.timestamp() * 1000))
            case datetime.date():
                return self.temporal(schemas.DATE, (value - _EPOCH_DAY).days)
            case datetime.time():
                at = datetime.datetime.combine(_EPOCH_DAY, value, datetime.UTC)
                return self.temporal(schemas.TIME, round(at.timestamp() * 1000))
        raise RecordError(f"a {type(value).__name__} has no text form")

    def schemaless(self, texts: Texts) -> list[str | None]:
        """The texts of a column of JSON; None for null."""
        try:
            return _each(lambda text: self.plain(loads(text)), texts)
        except (ValueError, RecursionError) as error:
            raise RecordError(f"a value without a schema is no JSON: {error}") from None

    def _structs(self, values: Array, schema: Schema) -> list[str | None]:
        names = [each.name for each in schema.fields]
        children = [
            self.column(child, each.schema, True)
            for each, child in zip(schema.fields, values.flatten(), strict=True)
        ]
        rows = zip(*children, strict=True) if children else iter([()] * len(values))
        valid = values.is_valid().to_pylist()
        return [
            self.struct(zip(names, row, strict=True)) if is_valid else None
            for row, is_valid in zip(rows, valid, strict=True)
        ]

    def _maps(self, values: Array, schema: Schema) -> list[str | None]:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        entries = values.cast(pa.list_(pa.struct([values.type.key_field, values.type.item_field])))
        keys, items = entries.flatten().flatten()
        pairs = list(
            zip(
                self._parts(keys, schema.key_schema),
                self._parts(items, schema.value_schema),
                strict=True,
            )
        )
        return [None if each is None else self.mapping(each) for each in _regrouped(entries, pairs)]

    def _parts(self, values: Array, schema: Schema) -> list[str]:
        return ["null" if each is None else each for each in self.column(values, schema, True)]


class JavaStyle(TextStyle):
    """What toString gives: ``Struct{a=1,b=x}``, ``{a=1}``, ``[1, 2]``."""

    def string(self, value: str, embedded: bool) -> str:
        """See TextStyle."""
        return value

    def binary(self, value: bytes, embedded: bool) -> str:
        """See TextStyle. Java prints the address of an object, so this is refused."""
        raise RecordError("bytes have no text form: write them with ByteArrayConverter")

    def temporal(self, name: str, number: int) -> str:
        """See TextStyle."""
        return date_text(number * DAY_MS if name == schemas.DATE else number)

    def struct(self, fields: Iterable[tuple[str, str | None]]) -> str:
        """See TextStyle."""
        return (
            f"Struct{{{','.join(f'{name}={text}' for name, text in fields if text is not None)}}}"
        )

    def mapping(self, entries: Iterable[tuple[str, str]]) -> str:
        """See TextStyle."""
        return f"{{{', '.join(f'{key}={text}' for key, text in entries)}}}"

    def array(self, items: Sequence[str]) -> str:
        """See TextStyle."""
        return f"[{', '.join(items)}]"


class HeaderStyle(TextStyle):
    """What SimpleHeaderConverter writes: close to JSON, with dates in ISO 8601."""

    def string(self, value: str, embedded: bool) -> str:
        """See TextStyle."""
        if not embedded:
            return value
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'

    def binary(self, value: bytes, embedded: bool) -> str:
        """See TextStyle."""
        return self.string(base64.b64encode(value).decode(), embedded)

    def temporal(self, name: str, number: int) -> str:
        """See TextStyle. Kafka Connect chooses the form by the number alone, which loses the date
        of what is before 1970; there the schema decides.
        """
        number *= DAY_MS if name == schemas.DATE else 1
        at = utc(number)
        if number >= DAY_MS:
            name = schemas.DATE if number % DAY_MS == 0 else schemas.TIMESTAMP
        date, time = f"{at.year:04d}-{at:%m-%d}", f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}Z"
        return {schemas.DATE: date, schemas.TIME: time}.get(name, f"{date}T{time}")

    def struct(self, fields: Iterable[tuple[str, str | None]]) -> str:
        """See TextStyle."""
        return self.mapping(
            (self.string(name, True), "null" if text is None else text) for name, text in fields
        )

    def mapping(self, entries: Iterable[tuple[str, str]]) -> str:
        """See TextStyle."""
        return f"{{{','.join(f'{key}:{text}' for key, text in entries)}}}"

    def array(self, items: Sequence[str]) -> str:
        """See TextStyle."""
        return f"[{','.join(items)}]"


def _each(print_one: Callable[[Any], str], values: Array) -> list[str | None]:
    return [None if value is None else print_one(value) for value in values.to_pylist()]


def _regrouped(lists: Array, flat: list[Any]) -> Iterator[list[Any] | None]:
    start = 0
    for length in pc.list_value_length(lists).to_pylist():
        if length is None:
            yield None
            continue
        yield flat[start : start + length]
        start += length
