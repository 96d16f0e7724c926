"""Converts PostgreSQL's text of values to Arrow types, exactly."""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drover.connector.records import with_identity
from drover.connectors.postgres.copied import from_text, lists, utf8
from drover.connectors.postgres.pgoutput import RelationColumn
from drover.connectors.postgres.row_columns import TextColumn
from drover.connectors.postgres.settings import (
    ADAPTIVE,
    COLUMN_EXCLUDE,
    CONNECT,
    DECIMALS,
    DOUBLE,
    INTERVALS,
    JSON,
    MAP,
    NUMERIC,
    STRING,
    TEXT,
)
from drover.connectors.unavailable import placeholder_of, text_forms

_NUMERIC, _BOOL, _BYTEA, _INTERVAL = 1700, 16, 17, 1186
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
    1183: 1083,
    1185: 1184,
    1231: 1700,
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
    ``element`` is the element type of an array; ``parse`` converts one text.
    """

    oid: int
    arrow_type: pa.DataType
    name: str = ""
    element: "ColumnType | None" = None
    parse: Callable[[str], Any] | None = None

    def field(self, name: str) -> pa.Field:
        """A field of this type."""
        found = pa.field(name, self.arrow_type)
        return with_identity(found, name=self.name, version=1) if self.name else found

    @property
    def remedy(self) -> str:
        """What to do about a value that does not fit the type."""
        kind = self if self.element is None else self.element
        if pa.types.is_decimal(kind.arrow_type):
            return f"set {DECIMALS}={STRING}"
        if kind.oid == _INTERVAL and kind.parse is not None:
            return f"set {INTERVALS}={TEXT}"
        return f"correct the row, or leave the column out with {COLUMN_EXCLUDE}"

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
        texts = utf8(texts)
        if self.parse is not None:
            values = [None if each is None else self.parse(each) for each in texts.to_pylist()]
            return pa.array(values, self.arrow_type)
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


@dataclass(frozen=True, slots=True)
class DatabaseTypes:
    """The types of a database that have no fixed number.

    Attributes:
        domains: The base type and modifier of each domain.
        arrays: The type of the elements of each array type.
        hstores: The types of the extension hstore.
    """

    domains: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    arrays: Mapping[int, int] = field(default_factory=dict)
    hstores: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class ValueForms:
    """The configured forms of values: DECIMAL_MODES, TIME_MODES, INTERVAL_MODES, HSTORE_MODES."""

    decimals: str
    times: str = CONNECT
    intervals: str = TEXT
    hstores: str = TEXT


def type_of(oid: int, modifier: int, forms: ValueForms, types: DatabaseTypes) -> ColumnType:
    """The type for a column; types without a counterpart become text in the database's format."""
    oid, modifier = types.domains.get(oid, (oid, modifier))
    element_oid = types.arrays.get(oid, _ARRAYS.get(oid))
    if element_oid is not None:
        element = type_of(element_oid, modifier, forms, types)
        return ColumnType(oid, pa.list_(element.field("item")), element=element)
    if oid == _INTERVAL and forms.intervals == NUMERIC:
        return ColumnType(oid, pa.int64(), _SEMANTIC + "MicroDuration", parse=interval_us)
    if oid == _INTERVAL and forms.intervals == STRING:
        return ColumnType(oid, pa.string(), _SEMANTIC + "Interval", parse=interval_iso)
    if oid in types.hstores and forms.hstores == JSON:
        return ColumnType(oid, pa.string(), "io.debezium.data.Json", parse=hstore_json)
    if oid in types.hstores and forms.hstores == MAP:
        return ColumnType(oid, pa.map_(pa.string(), pa.string()), parse=_hstore_pairs)
    return column_type(oid, modifier, forms.decimals, forms.times)


def column_type(oid: int, modifier: int, decimals: str, times: str = CONNECT) -> ColumnType:
    """The type for a column of a built-in type, intervals as text; see ``type_of``."""
    if oid == _NUMERIC:
        return ColumnType(oid, _numeric(modifier, decimals))
    if oid == _BOOL:
        return ColumnType(oid, pa.bool_())
    if oid == _BYTEA:
        return ColumnType(oid, pa.binary())
    if oid in _ARRAYS:
        element = column_type(_ARRAYS[oid], modifier, decimals, times)
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
        value_set = pa.array(sorted(forms), pa.string()).cast(texts.type)
        found = pc.is_in(texts, value_set=value_set)
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
                fault(number, f"{text}{self.type.arrow_type} cannot hold: {self.type.remedy}")
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
    # a negative scale rounds to tens, a large one leaves no digits before the point
    precision, scale = max(precision, precision - scale, scale), max(scale, 0)
    if precision > _DECIMAL_MAX_DIGITS:
        return pa.string()
    return pa.decimal128(precision, scale)


_UNIT_MONTHS = {"year": 12, "years": 12, "mon": 1, "mons": 1}
_CLOCK = re.compile(r"([+-]?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_SECOND_US = 1_000_000
#: The average month that Debezium counts with.
_MONTH_US, _DAY_US = 2_629_800 * _SECOND_US, 86_400 * _SECOND_US


def _interval(text: str) -> tuple[int, int, int]:
    """The months, days and microseconds of PostgreSQL's text.

    Raises:
        ValueError: The text has another form, such as infinity.
    """
    months = days = micros = 0
    words = iter(text.split())
    for word in words:
        clock = _CLOCK.fullmatch(word)
        if clock is not None:
            hours, minutes, seconds = (int(clock[each]) for each in (2, 3, 4))
            micros = ((hours * 60 + minutes) * 60 + seconds) * _SECOND_US
            micros += int((clock[5] or "").ljust(6, "0"))
            micros = -micros if clock[1] == "-" else micros
            continue
        unit = next(words, "")
        if unit in _UNIT_MONTHS:
            months += int(word) * _UNIT_MONTHS[unit]
        elif unit in ("day", "days"):
            days += int(word)
        else:
            raise ValueError(f"not an interval: {text[:40]}")
    return months, days, micros


def interval_us(text: str) -> int:
    """Microseconds of an interval, with months of 30.4375 days, as Debezium's MicroDuration."""
    months, days, micros = _interval(text)
    return months * _MONTH_US + days * _DAY_US + micros


def interval_iso(text: str) -> str:
    """An interval as Debezium's Interval: ``P1Y2M3DT4H5M6.7S``."""
    months, days, micros = _interval(text)
    sign = -1 if micros < 0 else 1
    seconds, fraction = divmod(abs(micros), _SECOND_US)
    hours, minutes = divmod(seconds // 60, 60)
    years, months = int(months / 12), int(math.fmod(months, 12))
    part = f".{fraction:06d}".rstrip("0") if fraction else ""
    last = f"{'-' if sign < 0 and seconds % 60 + fraction else ''}{seconds % 60}{part}"
    return f"P{years}Y{months}M{days}DT{sign * hours}H{sign * minutes}M{last}S"


_HSTORE = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:"((?:[^"\\]|\\.)*)"|NULL)(?:, |$)', re.DOTALL)


def _hstore_pairs(text: str) -> list[tuple[str, str | None]]:
    """The pairs of an hstore.

    Raises:
        ValueError: The text has another form.
    """
    found, at = [], 0
    while at < len(text):
        pair = _HSTORE.match(text, at)
        if pair is None:
            raise ValueError("not an hstore")
        key, value = (
            None if each is None else re.sub(r"\\(.)", r"\1", each, flags=re.DOTALL)
            for each in pair.groups()
        )
        found.append((key or "", value))
        at = pair.end()
    return found


def hstore_json(text: str) -> str:
    """An hstore as a JSON object."""
    return json.dumps(dict(_hstore_pairs(text)), ensure_ascii=False, separators=(",", ":"))
