"""Converts PostgreSQL's text of values to Arrow types, exactly."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drover.connector.records import with_identity
from drover.connectors.postgres.copied import from_text, lists
from drover.connectors.postgres.pgoutput import RelationColumn
from drover.connectors.postgres.row_columns import TextColumn
from drover.connectors.postgres.settings import ADAPTIVE, CONNECT, DOUBLE, STRING
from drover.connectors.unavailable import placeholder_of, text_forms

_NUMERIC, _BOOL, _BYTEA = 1700, 16, 17
_DATE, _TIME, _TIMESTAMP, _TIMESTAMPTZ = 1082, 1083, 1114, 1184
_DECIMAL_MAX_DIGITS = 38
_PLAIN = {
    20: pa.int64(),
    21: pa.int16(),
    23: pa.int32(),
    26: pa.int64(),
    700: pa.float32(),
    701: pa.float64(),
    _DATE: pa.date32(),
    _TIME: pa.time64("us"),
    _TIMESTAMP: pa.timestamp("us"),
    _TIMESTAMPTZ: pa.timestamp("us", "UTC"),
}
#: One-dimensional arrays, by the type of their elements.
_ARRAYS = {
    1000: _BOOL,
    1001: _BYTEA,
    1005: 21,
    1007: 23,
    1009: 25,
    1015: 1043,
    1016: 20,
    1021: 700,
    1022: 701,
    1115: 1114,
    1182: 1082,
    1185: 1184,
    2951: 2950,
}


#: The prefix of Debezium's schema names.
_SEMANTIC = "io.debezium.time."
#: A timestamp in the session's time zone, UTC.
_MOMENT = r"^(\S+) (\S+)\+00$"


@dataclass(frozen=True)
class ColumnType:
    """The Arrow type of a column, and the conversion of its text.

    ``name`` is that of Debezium's schema, if the type alone does not define the meaning;
    ``element`` is the element type of an array.
    """

    oid: int
    arrow_type: pa.DataType
    name: str = ""
    element: "ColumnType | None" = None

    def field(self, name: str) -> pa.Field:
        """A field of this type."""
        found = pa.field(name, self.arrow_type)
        return with_identity(found, name=self.name, version=1) if self.name else found

    @cached_property
    def _plain(self) -> pa.DataType:
        """The type that the text is first parsed as."""
        return _PLAIN[self.oid] if self.name else self.arrow_type

    def array(self, texts: pa.Array) -> pa.Array:
        """Values from their text.

        Raises:
            pa.ArrowException, ValueError: A value does not fit the type: infinity, or a year before
                1.
        """
        if self.element is not None:
            return lists(texts, self.element.array, self.arrow_type)
        if self.name:
            return self._counted(from_text(texts, self._plain), texts)
        return from_text(texts, self.arrow_type)

    def _counted(self, times: pa.Array, texts: pa.Array) -> pa.Array:
        """Times in the form of Debezium's schema: numbers, or text with the zone."""
        if times.type == self.arrow_type:
            return times
        if pa.types.is_string(self.arrow_type):
            return pc.replace_substring_regex(texts, _MOMENT, r"\1T\2Z")
        if self.name in (_SEMANTIC + "Time", _SEMANTIC + "Timestamp"):
            times = times.cast(_MILLISECONDS[self.oid])
        return times.cast(self.arrow_type)


_MILLISECONDS = {_TIME: pa.time32("ms"), _TIMESTAMP: pa.timestamp("ms")}


def column_type(oid: int, modifier: int, decimals: str, times: str = CONNECT) -> ColumnType:
    """The type for a column; types without a counterpart become text in the database's format."""
    if oid == _NUMERIC:
        return ColumnType(oid, _numeric(modifier, decimals))
    if oid == _BOOL:
        return ColumnType(oid, pa.bool_())
    if oid == _BYTEA:
        return ColumnType(oid, pa.binary())
    if oid in _ARRAYS:
        element = column_type(_ARRAYS[oid], -1, STRING, times)
        return ColumnType(oid, pa.list_(element.field("item")), element=element)
    if times != CONNECT and oid in (_DATE, _TIME, _TIMESTAMP, _TIMESTAMPTZ):
        name, arrow_type = _semantic_type(oid, modifier, times)
        return ColumnType(oid, arrow_type, _SEMANTIC + name)
    return ColumnType(oid, _PLAIN.get(oid, pa.string()))


def _semantic_type(oid: int, modifier: int, times: str) -> tuple[str, pa.DataType]:
    """The name of Debezium's schema for a time type, and its Arrow type."""
    if oid == _DATE:
        return "Date", pa.int32()
    if oid == _TIMESTAMPTZ:
        return "ZonedTimestamp", pa.string()
    in_milliseconds = 0 <= modifier <= 3
    if oid == _TIME:
        short = in_milliseconds and times == ADAPTIVE
        return ("Time", pa.int32()) if short else ("MicroTime", pa.int64())
    return "Timestamp" if in_milliseconds else "MicroTimestamp", pa.int64()


@dataclass(frozen=True, slots=True)
class ColumnReader:
    """Reads the values of a column; values that do not fit become null and are reported.

    ``placeholder`` replaces values that the server did not send because they are unchanged, where
    the type can hold it; the others are null.
    """

    column: RelationColumn
    type: ColumnType
    placeholder: str

    def from_column(self, sent: TextColumn, fault: Callable[[int, str], object]) -> pa.Array:
        """Values from messages; ``fault(row, why)`` is called for each bad one."""
        values = self.from_texts(sent.texts, fault)
        if sent.unchanged is None:
            return values
        kind = values.type
        unsent = pa.scalar(placeholder_of(kind, self.placeholder), kind)
        if not pa.types.is_nested(kind):
            return pc.if_else(pa.array(sent.unchanged), unsent, values)
        both = pa.concat_arrays([values, pa.array([unsent.as_py()], kind)])
        numbers = np.where(sent.unchanged, len(values), np.arange(len(values)))
        return both.take(pa.array(numbers))

    def resembling(self, texts: pa.Array) -> pa.Array | None:
        """The rows with a text that equals the placeholder; None if there are none."""
        wanted = placeholder_of(self.type.arrow_type, self.placeholder)
        if wanted is None or not self.placeholder:
            return None
        forms = _texts_of(wanted)
        found = pc.is_in(texts, value_set=pa.array(sorted(forms), pa.string()))
        return found if pc.any(found).as_py() else None

    def from_texts(self, texts: pa.Array, fault: Callable[[int, str], object]) -> pa.Array:
        """Values from their text; ``fault(row, why)`` is called for each bad one."""
        try:
            return self.type.array(texts)
        except (pa.ArrowException, ValueError):
            pass
        parts = []
        for number in range(len(texts)):
            try:
                parts.append(self.type.array(texts.slice(number, 1)))
            except (pa.ArrowException, ValueError):
                text = f"column {self.column.name!r} has {str(texts[number])[:80]!r}, which "
                fault(number, text + f"{self.type.arrow_type} cannot hold")
                parts.append(pa.nulls(1, self.type.arrow_type))
        return pa.concat_arrays(parts)


def _texts_of(wanted: Any) -> set[str]:
    """PostgreSQL's texts of a placeholder."""
    if isinstance(wanted, str):
        return text_forms(wanted)
    if isinstance(wanted, bytes):
        return {f"\\x{wanted.hex()}"}
    if isinstance(wanted[0], int):
        return {"{" + ",".join(map(str, wanted)) + "}"}
    text = wanted[0] if isinstance(wanted[0], str) else f"\\x{wanted[0].hex()}"
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return {"{" + text + "}", '{"' + quoted + '"}'}


def _numeric(modifier: int, decimals: str) -> pa.DataType:
    if decimals == DOUBLE:
        return pa.float64()
    if modifier < 0 or decimals == STRING:
        return pa.string()
    precision = ((modifier - 4) >> 16) & 0xFFFF
    scale = ((modifier - 4) & 0x7FF ^ 1024) - 1024
    if precision > _DECIMAL_MAX_DIGITS or not 0 <= scale <= precision:
        return pa.string()
    return pa.decimal128(precision, scale)
