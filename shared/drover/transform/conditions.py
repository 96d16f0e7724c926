"""Conditions on records in text form: ``amount>=10``, ``key.id=7``, ``headers.trace~a.*``.

They select records of a topic. A condition is one comparison; of several, all must match.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from drover.record.arrow import Mask
from drover.record.batch import HEADERS, KEY, RECORD_COLUMNS, VALUE
from drover.transform.field_matches import FieldMatches
from drover.transform.field_path import parse_path

#: The setting of FieldMatches for each operator.
_OPERATORS = {"!=": "equals", ">=": "min", "<=": "max", "=": "equals", "~": "pattern"}
_STRICT = {">": "min", "<": "max"}
# possessive: any caller can send a text, and trying each way to divide it would take too long
_CONDITION = re.compile(r"((?:`[^`]*+`|[^=!<>~`])++)(!=|>=|<=|=|~|>|<)(.*)", re.DOTALL)
_NONE = dict.fromkeys(("equals", "in", "pattern", "min", "max"))


class Condition:
    """Compares a part of a record with a text.

    A part that is null or absent, or whose type does not match the text, meets only !=.
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
        if len(wanted) > 1 and wanted[0] == wanted[-1] == "'":
            wanted = wanted[1:-1].replace("''", "'")
        self.side, self.path = split_path(path)
        self._negated = operator == "!="
        self._kept = self._compare(operator, wanted)
        self._excluded = self._compare("=", wanted) if operator in _STRICT else None

    def matches(self, batch: pa.RecordBatch) -> Mask:
        """A boolean array without nulls, one value per record."""
        if self.side == HEADERS:
            batch = _with_header(batch, self.path)
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


def part_of(record: Mapping[str, Any], side: str, path: Sequence[str]) -> Any:
    """The part at a path of a record of dicts and lists; None if it is absent."""
    value = record.get(side)
    if side == HEADERS:
        name = ".".join(path)
        return next((each["value"] for each in reversed(value or ()) if each["key"] == name), None)
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def _with_header(batch: pa.RecordBatch, path: Sequence[str]) -> pa.RecordBatch:
    """Replace the headers column with the text of the last header with this name."""
    texts = []
    for headers in batch.column(HEADERS).to_pylist():
        value = part_of({HEADERS: headers}, HEADERS, path)
        texts.append(None if value is None else value.decode(errors="replace"))
    index = batch.schema.get_field_index(HEADERS)
    return batch.set_column(index, pa.field(HEADERS, pa.string()), pa.array(texts, pa.string()))
