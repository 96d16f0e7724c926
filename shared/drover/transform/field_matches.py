"""FieldMatches: a predicate on the value of a field; not in Kafka Connect."""

import decimal
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from drover.config.config_def import ConfigDef
from drover.config.validators import Check, NonEmpty
from drover.record.arrow import Array, Mask, Texts, is_text
from drover.record.batch import KEY, VALUE
from drover.record.json.schemaless import loads
from drover.record.schema import is_schemaless
from drover.transform.field_path import find_column, parse_path
from drover.transform.key_or_value import list_key, text_key
from drover.transform.transform import Predicate, SettingError

_CONDITIONS = ("equals", "in", "pattern", "min", "max")
_EXACT = decimal.Context(prec=100)
#: Larger than any exponent of a column.
_EXPONENT_MAX = 10_000
#: A number with an exponent that decimals do not have.
_BEYOND = re.compile(r"(?P<number>[+-]?(\d+\.?\d*|\.\d+))[eE](?P<sign>[+-]?)\d+", re.ASCII)
_INT64_BOUND = 1 << 63


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
        found = _column_at(field, values, self._path)
        return _none(len(values)) if found is None else self._of_column(found)

    def _of_maps(self, values: Texts) -> Mask:
        found = [
            None if text is None else _at(loads(text), self._path) for text in values.to_pylist()
        ]
        matched = _none(len(found))
        for kind in {type(each) for each in found} - {type(None), dict, list}:
            of_kind = [each if type(each) is kind else None for each in found]
            try:
                column = pa.array(of_kind)
            except (OverflowError, pa.ArrowInvalid):
                column = pa.array([None if each is None else float(each) for each in of_kind])
            matched = pc.or_(matched, self._of_column(column))
        return matched

    def _of_column(self, column: Array) -> Mask:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        kind = column.type
        if is_text(kind):
            column = column.cast(pa.string())
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
        if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
            scale = kind.scale if pa.types.is_decimal(kind) else 0
            wide = pa.decimal256(76, scale)
            if pa.types.is_integer(kind) and kind != pa.uint64():
                wide = pa.int64()
            return self._of_values(
                pc.cast(column, wide), lambda text, sign: _number(text, sign, wide)
            )
        if pa.types.is_floating(kind):
            return self._of_values(column, lambda text, _: _float(text, kind))
        if pa.types.is_temporal(kind):
            return self._of_values(column, lambda text, _: _moment(text, kind))
        return _none(len(column))

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


def _column_at(field: pa.Field, values: Array, path: tuple[str, ...]) -> Array | None:
    """The column at a path; None if the schema has no such field."""
    for end in range(1, len(path) + 1):
        # only structs have fields
        if not pa.types.is_struct(field.type):
            return None
        found = find_column(field, values, path[end - 1 : end], replace_nulls=False)
        if found is None:
            return None
        field, values = found
    return values


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _none(row_count: int) -> Mask:
    return pa.repeat(pa.scalar(False), row_count)


def _decimal(text: str) -> decimal.Decimal | None:
    try:
        number = decimal.Decimal(text.strip())
    except decimal.InvalidOperation:
        found = _BEYOND.fullmatch(text.strip())
        if found is None:
            return None
        exponent = f"{found['sign']}{_EXPONENT_MAX + 1}"
        number = decimal.Decimal(f"{found['number']}e{exponent}")
    if not number.is_finite():
        return None
    if not number:
        return decimal.Decimal(0)
    # arithmetic raises Overflow beyond the exponents of its context; no column has such numbers
    if number.adjusted() > _EXPONENT_MAX:
        return decimal.Decimal(f"1e{_EXPONENT_MAX}").copy_sign(number)
    if number.adjusted() < -_EXPONENT_MAX:
        return decimal.Decimal(f"1e-{_EXPONENT_MAX}").copy_sign(number)
    return number


def _number(text: str, sign: str, kind: pa.DataType) -> Any:
    number = _decimal(text)
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
    rounded = number.quantize(step, rounding, _EXACT)
    if sign == "=" and rounded != number:
        return None
    if rounded >= bound:
        rounded = _EXACT.subtract(bound, step)
    elif rounded <= -bound and kind != pa.int64():
        rounded = _EXACT.subtract(step, bound)
    return pa.scalar(int(rounded) if kind == pa.int64() else rounded, kind)


def _float(text: str, kind: pa.DataType) -> Any:
    number = _decimal(text)
    return None if number is None else pa.scalar(float(number), pa.float64()).cast(kind, safe=False)


def _moment(text: str, kind: pa.DataType) -> Any:
    written = pa.scalar(text.strip())
    zone = getattr(kind, "tz", None)
    for through in [pa.timestamp(kind.unit), kind] if zone is not None else [kind]:
        try:
            return written.cast(through).cast(kind)
        except pa.ArrowInvalid:
            continue
    return None
