"""Column types for text formats, and conversion to the types of a schema without loss.

A value that its new type cannot hold is an error: no conversion overflows, rounds or drops a part.
There are two exceptions: timestamps are truncated to milliseconds, as in Kafka Connect's type,
and a text with a fraction becomes the nearest floating-point number.
"""

import decimal
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from drover.connector.records import WHOLE_MAX, decimals_of_texts, in_unit, is_list, is_text
from drover.connectors.ddl import TIMESTAMP

#: The digits of the largest integer of 64 bits without a sign.
_INTEGER_DIGITS = 20
_INFERRED_TIME = r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d{1,3})?)?(Z|\+00:00)?$"

_ZONED = r"\d:\d\d.*(?:[zZ]|[+-]\d\d(?::?\d\d)?)$"


def field_of(types: pa.Schema, name: str) -> pa.Field:
    """The field with that name; string if its type is unknown."""
    index = types.get_field_index(name)
    return types.field(index).with_nullable(True) if index >= 0 else pa.field(name, pa.string())


def read_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with ``read_type`` applied to every column."""
    return pa.schema([(each.name, read_type(each.type)) for each in schema])


def read_type(kind: pa.DataType) -> pa.DataType:
    """The type to read before conversion: the readers support only one format of times."""
    if pa.types.is_temporal(kind) or pa.types.is_binary(kind) or pa.types.is_decimal(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([(each.name, read_type(each.type)) for each in fields])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, read_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(read_type(kind.value_type))
    return kind


def has_time(kind: pa.DataType) -> bool:
    """Whether the type contains times."""
    if pa.types.is_temporal(kind):
        return True
    return any(has_time(kind.field(index).type) for index in range(kind.num_fields))


def converted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert columns in the form of ``read_type`` to the types of the schema.

    Raises:
        ArrowInvalid: A value cannot be converted.
    """
    columns = [to_type(batch.column(each.name), each.type) for each in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def to_type(values: Any, kind: pa.DataType) -> Any:
    """Convert values in the form of ``read_type``, texts, or values of another type, to the type.

    Raises:
        ArrowInvalid: A value cannot be converted without loss.
    """
    source = values.type
    if source == kind:
        return values
    if values.null_count == len(values):
        return pa.nulls(len(values), kind)
    if pa.types.is_dictionary(source):
        return to_type(values.dictionary_decode(), kind)
    if pa.types.is_struct(kind) and pa.types.is_struct(source):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        children = [
            to_type(pc.struct_field(values, each.name), each.type)
            if source.get_field_index(each.name) >= 0
            else pa.nulls(len(values), each.type)
            for each in fields
        ]
        return pa.StructArray.from_arrays(
            children, fields=[each.with_nullable(True) for each in fields], mask=values.is_null()
        )
    if pa.types.is_list(kind) and is_list(source):
        items = to_type(values.flatten(), kind.value_type)
        return pa.ListArray.from_arrays(
            _offsets(pc.list_value_length(values)), items, type=kind, mask=values.is_null()
        )
    if pa.types.is_map(kind) and pa.types.is_map(source):
        pairs = values.cast(
            pa.list_(pa.struct([("key", source.key_type), ("value", source.item_type)]))
        )
        flat = pairs.flatten()
        return pa.MapArray.from_arrays(
            _offsets(pc.list_value_length(pairs)),
            to_type(flat.field("key"), kind.key_type),
            to_type(flat.field("value"), kind.item_type),
            type=kind,
            mask=values.is_null(),
        )
    return _of_text(values, kind) if is_text(source) else _exactly(values, kind)


def failing(values: Any, convert: Callable[[Any], Any], first: int = 0) -> list[int]:
    """The positions, from ``first``, of values for which ``convert`` raises ArrowInvalid."""
    try:
        convert(values)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if len(values) == 1:
            return [first]
        half = len(values) // 2
        return failing(values.slice(0, half), convert, first) + failing(
            values.slice(half), convert, first + half
        )
    return []


def _offsets(lengths: Any) -> Any:
    counts = lengths.fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))


def _of_text(texts: Any, kind: pa.DataType) -> Any:
    if pa.types.is_timestamp(kind):
        return to_timestamp(texts.cast(pa.string()))
    if pa.types.is_decimal(kind):
        return decimals_of_texts(texts, kind)
    found = texts.cast(kind)
    if pa.types.is_floating(kind):
        for index in np.flatnonzero(_may_be_rounded(found)):
            text = texts[index].as_py().strip()
            if text[-1:].isdigit() and not _is_number(text, found[index]):
                raise pa.ArrowInvalid(f"{kind} does not hold all digits of {text[:80]!r}")
    return found


def check_whole_numbers(found: Any) -> None:
    """Check floating-point numbers that a reader made of texts.

    Raises:
        ArrowInvalid: The texts may be whole numbers of which digits were lost, or too large.
    """
    if pa.types.is_floating(found.type) and _may_be_rounded(found).any():
        raise pa.ArrowInvalid("a number may have lost digits")


def _may_be_rounded(numbers: Any) -> Any:
    found = pc.greater_equal(pc.abs(numbers.cast(pa.float64())), WHOLE_MAX[numbers.type])
    return found.fill_null(False).to_numpy(zero_copy_only=False)


def _is_number(text: str, found: pa.Scalar) -> bool:
    """Whether a text has the number, or the shortest text of it, such as 1e+300."""
    number = found.as_py()
    forms = [number, repr(number)]
    if pa.types.is_float32(found.type):
        forms.append(str(np.float32(number)))
    try:
        return math.isfinite(number) and decimal.Decimal(text) in map(decimal.Decimal, forms)
    except decimal.InvalidOperation:
        return False


def _exactly(values: Any, kind: pa.DataType) -> Any:
    source = values.type
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(kind):
        return in_unit(values, kind.unit).cast(kind)
    if pa.types.is_integer(source) and pa.types.is_decimal(kind):
        # Arrow refuses types of fewer digits than the integer's type, whatever the values are
        values = values.cast(pa.decimal128(_INTEGER_DIGITS, 0))
        source = values.type
    found = values.cast(kind)
    if not is_text(kind) and not _same(values, found.cast(source)).all():
        raise pa.ArrowInvalid(f"{kind} does not hold the whole value")
    return found


def _same(values: Any, others: Any) -> Any:
    equal = pc.equal(values, others).fill_null(True)
    if pa.types.is_floating(values.type):
        equal = pc.or_(equal, pc.and_(pc.is_nan(values), pc.is_nan(others)).fill_null(True))
    return equal.to_numpy(zero_copy_only=False)


# -- inference -----------------------------------------------------------------------------------


class InferredTypes:
    """The types of columns of texts: a type fits a column if each of its values converts back to
    the same text. Thus codes such as 007, +49 or 1e5 are texts.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._kinds = {name: list(_INFERRED) for name in names}
        self._filled: set[str] = set()

    def add(self, batch: pa.RecordBatch) -> bool:
        """Take further values; False if no later value can change a type."""
        for name, kinds in self._kinds.items():
            texts = batch.column(name)
            if not kinds or texts.null_count == len(texts):
                continue
            self._filled.add(name)
            for part in (texts.slice(0, 64), texts):  # most types are excluded by a few values
                kinds[:] = [kind for kind in kinds if _fits(part, kind)]
        return any(self._kinds.values())

    def schema(self) -> pa.Schema:
        """The types; string for columns without values."""
        return pa.schema(
            (name, kinds[0] if kinds and name in self._filled else pa.string())
            for name, kinds in self._kinds.items()
        )


def to_inferred(texts: Any, kind: pa.DataType) -> Any:
    """Convert texts to an inferred type.

    Raises:
        ArrowInvalid: A value would have another text.
    """
    if pa.types.is_string(kind):
        return texts
    found = to_type(texts, kind)
    if pa.types.is_boolean(kind):
        kept = pc.is_in(texts, pa.array(["true", "false"]))
    elif pa.types.is_timestamp(kind):
        kept = pc.match_substring_regex(texts, _INFERRED_TIME)
    else:
        written = found.cast(pa.string())
        kept = pc.equal(texts, written)
        if pa.types.is_floating(kind):
            whole = pc.binary_join_element_wise(written, ".0", "")
            plain = pc.match_substring_regex(texts, r"^[-0-9.]+$")
            kept = pc.and_(pc.or_(kept, pc.equal(texts, whole)), plain)
    if pa.types.is_temporal(kind):
        kept = pc.and_(kept, pc.invert(pc.starts_with(texts, "0000")))
    if not pc.all(pc.or_kleene(kept, texts.is_null())).as_py():
        raise pa.ArrowInvalid(f"{kind} does not keep the text")
    return found


def _fits(texts: Any, kind: pa.DataType) -> bool:
    try:
        to_inferred(texts, kind)
    except pa.ArrowInvalid:
        return False
    return True


#: The types that are inferred, the first one that fits counts.
_INFERRED = (pa.int64(), pa.float64(), pa.bool_(), pa.date32(), TIMESTAMP)


# -- times ---------------------------------------------------------------------------------------


def to_timestamp(texts: Any) -> Any:
    """Convert ISO 8601 texts to timestamps; texts without a zone are in UTC.

    Raises:
        ArrowInvalid: A text is not ISO 8601.
    """
    for zone in (None, "UTC"):
        try:
            return _parse_times(texts, zone)
        except pa.ArrowInvalid:
            continue
    zoned = pc.match_substring_regex(texts, _ZONED)
    nothing = pa.scalar(None, pa.string())
    return pc.coalesce(
        _parse_times(pc.if_else(zoned, texts, nothing), "UTC"),
        _parse_times(pc.if_else(zoned, nothing, texts), None),
    )


def _parse_times(texts: Any, zone: str | None) -> Any:
    try:
        times = texts.cast(pa.timestamp("us", zone))
    except pa.ArrowInvalid:  # not nanoseconds, which end in the year 2262
        shorter = pc.replace_substring_regex(texts, r"(\.\d{6})\d+", r"\1")
        times = shorter.cast(pa.timestamp("us", zone))
    if zone is None:
        times = pc.assume_timezone(times, "UTC")
    return in_unit(times, TIMESTAMP.unit)
