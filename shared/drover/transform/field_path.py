"""Paths to nested fields of structs and maps (KIP-821)."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from drover.record import RecordError
from drover.record.arrow import Array
from drover.transform.structs import with_defaults


def parse_path(text: str) -> tuple[str, ...]:
    """The names of a dotted path.

    A name with dots is enclosed in backticks. A backtick in a name is escaped with a backslash if
    a dot follows it.

    Raises:
        ValueError: A backtick is not closed.
    """
    names: list[str] = []
    rest: str | None = text
    while rest is not None:
        if rest.startswith("`"):
            name, rest = _quoted(text, rest[1:])
        else:
            name, dot, after = rest.partition(".")
            rest = after if dot else None
        names.append(name)
    return tuple(names)


def find_column(
    field: pa.Field, values: Array, path: tuple[str, ...], *, replace_nulls: bool
) -> tuple[pa.Field, Any] | None:
    """The field and column at a path in structs; None if the schema has no such field.

    The column is null in rows where a parent struct is null. Null parent structs are replaced with
    the default of their schema first; with ``replace_nulls`` the field's nulls are too.

    Raises:
        RecordError: A parent on the path is not a struct.
    """
    for depth, name in enumerate(path, 1):
        if not pa.types.is_struct(field.type):
            raise RecordError(f"field {name!r} cannot be read from {field.type}: it is no struct")
        index = field.type.get_field_index(name)
        if index < 0:
            return None
        is_present = pc.is_valid(values)
        field, values = field.type.field(index), pc.struct_field(values, [index])
        if replace_nulls or depth < len(path):
            values = with_defaults(field, values, is_present)
    return field, values


def find_value(value: Any, path: tuple[str, ...]) -> Any:
    """The value at a path in maps; None if it is absent.

    Raises:
        RecordError: A parent on the path is not a map.
    """
    for name in path:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise RecordError(f"field {name!r} cannot be read: its parent is no map")
        value = value.get(name)
    return value


def _quoted(whole: str, rest: str) -> tuple[str, str | None]:
    name, at = "", 0
    while (at := rest.find("`", at)) >= 0:
        closes = at + 1 == len(rest) or rest[at + 1] == "."
        if closes and not rest[:at].endswith("\\"):
            return name + rest[:at], rest[at + 2 :] if at + 1 < len(rest) else None
        if closes and at + 1 < len(rest):
            name, rest, at = name + rest[: at - 1] + "`", rest[at + 1 :], 0
        else:
            at += 1
    raise ValueError(f"a backtick is not closed in {whole!r}: a name ends with ` and then a dot")
