"""FieldMatches: a predicate on the value of a field; not in Kafka Connect."""

import decimal
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from drover.config.config_def import ConfigDef
from drover.config.validators import Check, NonEmpty
from drover.record.arrow import Array, Mask, Texts, is_text
from drover.record.batch import KEY, VALUE
from drover.record.decimals import EXACT
from drover.record.json.schemaless import TAG_START, loads
from drover.record.schema import is_schemaless
from drover.record.semantic_types import (
    as_counted,
    counted_type,
    is_zoned_text,
    variable_decimals,
)
from drover.transform.exact_texts import moment_of, number_of, time_of_day
from drover.transform.field_path import find_column, parse_path
from drover.transform.key_or_value import list_key, text_key
from drover.transform.transform import Predicate, SettingError

_CONDITIONS = ("equals", "in", "pattern", "min", "max")
_INT64_BOUND = 1 << 63
_UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY_NS = 24 * 3_600 * 10**9
#: In a JSON text: a number that may have more digits than floating point keeps, an exponent, or a
#: tagged object (see ``schemaless``).
_NOT_PLAIN = rf"[0-9.]{{16}}|[0-9][eE]|{TAG_START}"
#: Reads the text of a condition as a number; None matches nothing.
_Read = Callable[[str], decimal.Decimal | None]


def _path_fault(path: str) -> str | None:
    try:
        parse_path(path)
    except ValueError as error:
        return str(error)
    return None


def _pattern_fault(pattern: str) -> str | None:
    try:
        pc.match_substring_regex(pa.array([""]), pattern=_anchored(pattern))
    except pa.ArrowInvalid as error:
        return f"must be a regular expression (of RE2): {error}"
    return None


def _anchored(pattern: str) -> str:
    return rf"\A(?:{pattern})\z"


class FieldMatches(Predicate):
    """True for records whose field meets all given conditions.

    Numbers compare as numbers, texts as texts, dates and times with ISO 8601 texts. A field that is
    null or missing, or whose type does not fit a condition, does not match.
    """

    side: ClassVar[str] = VALUE
    aliases = ("FieldMatches$Value",)

    @classmethod
    def config_def(cls) -> ConfigDef:
        """See Predicate."""
        return ConfigDef(
            text_key(
                "field",
                validator=Check(_path_fault),
                documentation="The field: a path with dots, names with dots in backticks.",
            ),
            text_key("equals", default=None, documentation="The required value."),
            list_key("in", default=None, validator=NonEmpty(), documentation="The allowed values."),
            text_key(
                "pattern",
                default=None,
                validator=Check(_pattern_fault),
                documentation="A regular expression (of RE2) that the whole text matches.",
            ),
            text_key("min", default=None, documentation="The least allowed value."),
            text_key("max", default=None, documentation="The greatest allowed value."),
        )

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._path = parse_path(config["field"])
        if all(config[each] is None for each in _CONDITIONS):
            raise SettingError("equals", "or one of in, pattern, min, max is required")
        equals, among = config["equals"], config["in"]
        self._choices: list[list[str]] = []
        if equals is not None:
            self._choices.append([equals])
        if among is not None:
            self._choices.append(among)
        self._pattern: str | None = config["pattern"]
        self._min: str | None = config["min"]
        self._max: str | None = config["max"]

    def matches(self, batch: pa.RecordBatch) -> Mask:
        """See Predicate."""
        field, values = batch.schema.field(self.side), batch.column(self.side)
        if is_schemaless(field):
            return self._of_maps(values)
        found = column_at(field, values, self._path)
        return _none(len(values)) if found is None else self._of_column(*found)

    def _of_maps(self, values: Texts) -> Mask:
        plain = pc.invert(pc.match_substring_regex(values, pattern=_NOT_PLAIN))
        found = [
            None if text is None else _json_at(text, self._path, is_plain=is_plain)
            for text, is_plain in zip(values.to_pylist(), plain.to_pylist(), strict=True)
        ]
        matched = _none(len(found))
        for kind in {type(each) for each in found} - {type(None), dict, list}:
            of_kind = [each if type(each) is kind else None for each in found]
            if issubclass(kind, int | float | decimal.Decimal) and kind is not bool:
                matched = pc.or_(matched, self._of_numbers(kind, of_kind))
            else:
                column = pa.array(of_kind)
                matched = pc.or_(matched, self._of_column(pa.field("found", column.type), column))
        return matched

    def _of_numbers(
        self, kind: type, numbers: Sequence[int | float | decimal.Decimal | None]
    ) -> Mask:
        """Numbers of JSON, with the digits of their text."""
        column_type = pa.int64() if kind is int else pa.float64()
        if kind is int or (kind is float and all(map(_is_float, self._texts()))):
            try:
                column = pa.array(numbers, column_type)
                return self._of_column(pa.field("found", column_type), column)
            except OverflowError:
                pass
        exact = [_exact(each) for each in numbers]
        return self._of_exact(pa.array(map(_is_some, exact)), exact, number_of)

    def _of_column(self, field: pa.Field, column: Array) -> Mask:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        kind = column.type
        if is_text(kind):
            column = column.cast(pa.string())
            if is_zoned_text(field) and self._pattern is None:
                return self._of_zoned(column)
            matched = self._of_values(column, lambda text, _: pa.scalar(text))
            if self._pattern is not None:
                matched = pc.and_(
                    matched, pc.match_substring_regex(column, pattern=_anchored(self._pattern))
                )
            return pc.fill_null(matched, False)
        if self._pattern is not None:
            return _none(len(column))
        if pa.types.is_boolean(kind):
            if self._min is not None or self._max is not None:
                return _none(len(column))
            return self._of_values(pc.cast(column, pa.string()), lambda text, _: pa.scalar(text))
        if pa.types.is_integer(kind):
            counted = counted_type(field)
            if counted is not None and any(number_of(each) is None for each in self._texts()):
                return self._of_times(as_counted(column, counted))
            wide = pa.decimal256(76, 0) if kind == pa.uint64() else pa.int64()
            return self._of_integers(pc.cast(column, wide), number_of)
        if pa.types.is_decimal(kind):
            return self._of_integers(pc.cast(column, pa.decimal256(76, kind.scale)), number_of)
        if pa.types.is_floating(kind):
            return self._of_values(column, lambda text, _: _float(text, kind))
        if pa.types.is_temporal(kind):
            return self._of_times(column)
        numbers = variable_decimals(field, column)
        if numbers is not None:
            return self._of_exact(column.is_valid(), numbers, number_of)
        return _none(len(column))

    def _of_times(self, column: Array) -> Mask:
        """Dates, times or timestamps, compared as counts of their own unit."""
        kind = column.type
        if pa.types.is_date(kind):
            unit_ns, read = _DAY_NS, moment_of
            column = column.cast(pa.date32()).cast(pa.int32())
        elif pa.types.is_timestamp(kind):
            unit_ns, read = _UNIT_NS[kind.unit], moment_of
        elif pa.types.is_time(kind):
            unit_ns, read = _UNIT_NS[kind.unit], time_of_day
            column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
        else:
            return _none(len(column))

        def count(text: str) -> decimal.Decimal | None:
            found_ns = read(text)
            return None if found_ns is None else EXACT.divide(found_ns, unit_ns)

        return self._of_integers(column.cast(pa.int64()), count)

    def _of_zoned(self, column: Texts) -> Mask:
        """Texts with a time and its zone, compared as moments; other texts match nothing."""
        first = next((each for each in self._texts() if moment_of(each) is not None), None)
        read = time_of_day if first is None else moment_of
        found = [None if each is None else read(each) for each in column.to_pylist()]
        return self._of_exact(pa.array(map(_is_some, found)), found, read)

    def _texts(self) -> Sequence[str]:
        limits = [each for each in (self._min, self._max) if each is not None]
        return [*(text for texts in self._choices for text in texts), *limits]

    def _of_integers(self, column: Array, read: _Read) -> Mask:
        """A column of int64 or decimal256; ``read`` gives the numbers of the conditions' texts."""
        kind = column.type
        return self._of_values(column, lambda text, sign: _number(read(text), sign, kind))

    def _of_exact(
        self, valid: Mask, numbers: Sequence[decimal.Decimal | None], read: _Read
    ) -> Mask:
        """Numbers without a column type that has all their digits, one by one."""
        if self._pattern is not None:
            return _none(len(numbers))
        kept = [_is_some(each) for each in numbers]
        for texts in self._choices:
            wanted = {found for text in texts if (found := read(text)) is not None}
            kept = [each and number in wanted for each, number in zip(kept, numbers, strict=True)]
        for text, is_least in ((self._min, True), (self._max, False)):
            if text is not None:
                limit = read(text)
                kept = [
                    each and _is_within(number, limit, is_least=is_least)
                    for each, number in zip(kept, numbers, strict=True)
                ]
        return pc.and_(valid, pa.array(kept, pa.bool_()))

    def _of_values(self, column: Array, read: Callable[[str, str], Any]) -> Mask:
        """Rows that meet the conditions.

        ``read`` parses a condition's text for an operator ("=", ">=" or "<=") to a scalar; None
        matches no value.
        """
        matched = pc.is_valid(column)
        for texts in self._choices:
            scalars = [scalar for text in texts if (scalar := read(text, "=")) is not None]
            equal = _none(len(column))
            for scalar in scalars:
                equal = pc.or_(equal, pc.fill_null(pc.equal(column, scalar), False))
            matched = pc.and_(matched, equal)
        for text, sign, compare in (
            (self._min, ">=", pc.greater_equal),
            (self._max, "<=", pc.less_equal),
        ):
            if text is not None:
                scalar = read(text, sign)
                if scalar is None:
                    return _none(len(column))
                matched = pc.and_(matched, pc.fill_null(compare(column, scalar), False))
        return matched


class FieldMatchesKey(FieldMatches):
    """FieldMatches on keys."""

    side = KEY
    aliases = ("FieldMatches$Key",)


def column_at(
    field: pa.Field, values: Array, path: tuple[str, ...]
) -> tuple[pa.Field, Array] | None:
    """The field and column at a path in structs and in maps with text keys; None if the schema has
    no such field.
    """
    for name in path:
        if pa.types.is_map(field.type) and is_text(field.type.key_type):
            key = pa.scalar(name, field.type.key_type)
            field, values = field.type.item_field, pc.map_lookup(values, key, "last")
            continue
        if not pa.types.is_struct(field.type):
            return None
        found = find_column(field, values, (name,), replace_nulls=False)
        if found is None:
            return None
        field, values = found
    return field, values


def value_at(value: Any, path: tuple[str, ...]) -> Any:
    """The value at a path in dicts; None if there is none."""
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _json_at(text: str, path: tuple[str, ...], *, is_plain: bool) -> Any:
    """As ``value_at`` of the parsed text; several times as fast for texts without _NOT_PLAIN."""
    if is_plain:
        try:
            return value_at(orjson.loads(text), path)
        except orjson.JSONDecodeError:
            pass
    return value_at(loads(text), path)


def _none(row_count: int) -> Mask:
    return pa.repeat(pa.scalar(False), row_count)


def _is_some(value: object) -> bool:
    return value is not None


def _is_float(text: str) -> bool:
    """Whether the text is no number, or one that floating point (64 bits) has."""
    number = number_of(text)
    return number is None or decimal.Decimal(repr(float(number))) == number


def _is_within(
    number: decimal.Decimal | None, limit: decimal.Decimal | None, *, is_least: bool
) -> bool:
    if number is None or limit is None:
        return False
    return number >= limit if is_least else number <= limit


def _exact(number: float | decimal.Decimal | None) -> decimal.Decimal | None:
    """The number with the digits of its text in JSON; None if it is not finite."""
    if number is None or (isinstance(number, float) and not math.isfinite(number)):
        return None
    return decimal.Decimal(repr(number) if isinstance(number, float) else number)


def _number(number: decimal.Decimal | None, sign: str, kind: pa.DataType) -> Any:
    scale = 0 if kind == pa.int64() else kind.scale
    if number is None:
        return None
    bound = decimal.Decimal(_INT64_BOUND if kind == pa.int64() else 10**76).scaleb(-scale)
    if not -bound <= number < bound:
        # a limit outside the type's range: either all values match or none
        if sign == "=" or (number > 0) == (sign == ">="):
            return None
        number = -bound if sign == ">=" else bound
    rounding = decimal.ROUND_CEILING if sign == ">=" else decimal.ROUND_FLOOR
    step = decimal.Decimal(1).scaleb(-scale)
    rounded = number.quantize(step, rounding, EXACT)
    if sign == "=" and rounded != number:
        return None
    if rounded >= bound:
        rounded = EXACT.subtract(bound, step)
    elif rounded <= -bound and kind != pa.int64():
        rounded = EXACT.subtract(step, bound)
    return pa.scalar(int(rounded) if kind == pa.int64() else rounded, kind)


def _float(text: str, kind: pa.DataType) -> Any:
    number = number_of(text)
    return None if number is None else pa.scalar(float(number), pa.float64()).cast(kind, safe=False)
