"""Conditions on records in text form: ``amount>=10``, ``key.id=7``, ``headers.trace~a.*``.

They select records of a topic. A condition is one comparison; of several, all must match.
"""

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from drover.record.arrow import Mask, Texts, is_binary
from drover.record.batch import HEADERS, KEY, OFFSET, PARTITION, RECORD_COLUMNS, TIMESTAMP, VALUE
from drover.transform.exact_texts import moment_of, number_of
from drover.transform.field_matches import FieldMatches
from drover.transform.field_path import parse_path

#: The setting of FieldMatches for each operator.
_OPERATORS = {"!=": "equals", ">=": "min", "<=": "max", "=": "equals", "~": "pattern"}
_STRICT = {">": "min", "<": "max"}
# possessive: any caller can send a text, and trying each way to divide it would take too long
_CONDITION = re.compile(r"((?:`[^`]*+`|[^=!<>~`])++)(!=|>=|<=|=|~|>|<)(.*)", re.DOTALL)
_NONE = dict.fromkeys(("equals", "in", "pattern", "min", "max"))


class Condition:
    """Compares a part of a record with a text; the part's type decides how.

    A part that is null or absent, or whose type does not match the text, meets only !=. A whole key
    or value of bytes compares as text if it is UTF-8.
    """

    def __init__(self, text: str) -> None:
        """Parse a condition.

        Raises:
            ValueError: The text is no condition; the message shows the syntax.
        """
        found = _CONDITION.fullmatch(text)
        if found is None:
            raise ValueError(
                f"must be <path><operator><text> with one of = != >= <= > < ~, such as "
                f"amount>=10, not {text!r}"
            )
        path, operator, wanted = (each.strip() for each in found.groups())
        if operator != "~" and wanted[:1] in ("=", "<", ">"):
            raise ValueError(
                f"{operator}{wanted[0]} is no operator: use one of = != >= <= > < ~, or put a text "
                f"that starts with {wanted[0]} in quotes: {path}{operator}'{wanted}'"
            )
        if len(wanted) > 1 and wanted[0] == wanted[-1] == "'":
            wanted = wanted[1:-1].replace("''", "'")
        self.side, self.path = split_path(path)
        _check_operand(self.side, operator, wanted)
        self._negated = operator == "!="
        self._kept = self._compare(operator, wanted)
        self._excluded = self._compare("=", wanted) if operator in _STRICT else None

    def matches(self, batch: pa.RecordBatch) -> Mask:
        """A boolean array without nulls, one value per record."""
        if self.side == HEADERS:
            batch = _with_header(batch, self.path)
        elif self.side in (KEY, VALUE) and not self.path:
            batch = with_text(batch, self.side)
        matched = self._kept.matches(batch)
        if self._excluded is not None:
            matched = pc.and_not(matched, self._excluded.matches(batch))
        return pc.invert(matched) if self._negated else matched

    def _compare(self, operator: str, wanted: str) -> "_Comparison":
        setting = _OPERATORS.get(operator) or _STRICT[operator]
        if setting == "pattern":
            try:
                pc.match_substring_regex(pa.array([""]), pattern=wanted)
            except pa.ArrowInvalid as error:
                raise ValueError(f"{wanted!r} is no regular expression (of RE2): {error}") from None
        path = () if self.side == HEADERS else self.path
        return _Comparison(self.side, path, {setting: wanted})


class _Comparison(FieldMatches):
    """FieldMatches for any column; an empty path means the whole column."""

    def __init__(self, side: str, path: Sequence[str], conditions: Mapping[str, str]) -> None:
        super().__init__({"field": "any", **_NONE, **conditions})
        self.side = side  # type: ignore[misc]
        self._path = tuple(path)


def split_path(text: str) -> tuple[str, tuple[str, ...]]:
    """The column at the start of a path (the value by default) and the rest of the path.

    Raises:
        ValueError: The text is no path.
    """
    names = parse_path(text.strip())
    if not all(names):
        raise ValueError(f"{text!r} is no path: names with dots between")
    side, *rest = names
    if side not in RECORD_COLUMNS:
        return VALUE, names
    if rest and side not in (KEY, VALUE, HEADERS):
        raise ValueError(f"{side} has no fields, and {text!r} names one: begin with value. instead")
    if side == HEADERS and not rest:
        raise ValueError("name a header, such as headers.trace")
    return side, tuple(rest)


def header_column(batch: pa.RecordBatch, path: Sequence[str]) -> Texts:
    """The text of the last header with this name in each record; null where there is none."""
    name = ".".join(path)
    return pa.array(
        [
            next((header_text(each["value"]) for each in reversed(headers or ())
                  if each["key"] == name), None)
            for headers in batch.column(HEADERS).to_pylist()
        ],
        pa.string(),
    )  # fmt: skip


def header_text(value: bytes | None) -> str | None:
    """A header's value as text: hexadecimal digits if it is not UTF-8."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"


def _check_operand(side: str, operator: str, wanted: str) -> None:
    """Refuse a text that the records' metadata can never match.

    Raises:
        ValueError: The metadata is of another type than the text.
    """
    if side in (PARTITION, OFFSET) and (operator == "~" or number_of(wanted) is None):
        raise ValueError(f"{side} is a number: compare it with one, such as {side}>=10")
    if side == TIMESTAMP and (operator == "~" or moment_of(wanted) is None):
        raise ValueError(
            f"{side} is a time: compare it with one in ISO 8601, such as "
            f"{side}>=2026-01-31T12:00:00Z"
        )


def with_text(batch: pa.RecordBatch, side: str) -> pa.RecordBatch:
    """The batch with bytes of a whole key or value as text; null where they are not UTF-8."""
    index = batch.schema.get_field_index(side)
    if index < 0 or not is_binary(batch.schema.field(index).type):
        return batch
    texts = pa.array([_utf8(each) for each in batch.column(index).to_pylist()], pa.string())
    return batch.set_column(index, pa.field(side, pa.string()), texts)


def _utf8(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _with_header(batch: pa.RecordBatch, path: Sequence[str]) -> pa.RecordBatch:
    """Replace the headers column with the text of the last header with this name."""
    index = batch.schema.get_field_index(HEADERS)
    return batch.set_column(index, pa.field(HEADERS, pa.string()), header_column(batch, path))
