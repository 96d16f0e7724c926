"""Directory levels of a sink's files: the fields and times of records, as in Hive."""

import re
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from drover.connector.records import TIMESTAMP, TOPIC, is_binary, is_text, iso_texts
from drover.connectors.files.times import check_years, parsed_times

#: The length of the time prefix in a partition name, by unit.
_TIME_CHARS = {"year": 4, "month": 7, "day": 10, "hour": 13}
NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
_DIRECTORY_MAX_BYTES = 200
_SHOWN_CHARS = 80


@dataclass(frozen=True, slots=True)
class PartitionBy:
    """A Hive directory level: the values of a field, or the ``unit`` of a time.

    Without a field the time is the record's timestamp.
    """

    field: str | None
    unit: str | None = None

    @classmethod
    def parse(cls, text: str) -> "PartitionBy":
        """Parse ``city``, ``month(at)`` or ``day``.

        Raises:
            ValueError: The text has another form.
        """
        match = re.fullmatch(r"(\w+)\((.+)\)", text)
        if match is not None:
            if match[1] not in _TIME_CHARS:
                raise ValueError(f"must use one of {', '.join(_TIME_CHARS)}, not {match[1]!r}")
            return cls(match[2].strip(), match[1])
        if "(" in text or "/" in text or not text:
            raise ValueError(f"must have fields such as city or month(at), not {text!r}")
        return cls(None, text) if text in _TIME_CHARS else cls(text)

    @property
    def name(self) -> str:
        """The prefix of the directory names."""
        return self.unit or self.field or ""

    @property
    def setting(self) -> str:
        """See ``Level``."""
        return "partition.by"

    def names(self, batch: pa.RecordBatch, rows: pa.RecordBatch | None) -> Any:
        """See ``Level``."""
        values = batch.column(TIMESTAMP) if self.field is None else column_of(self, batch, rows)
        return _level_names(self, values)


class Level(Protocol):
    """One or more directory levels; picklable."""

    @property
    def field(self) -> str | None:
        """The field of values that it needs, if any; dots separate the names of nested fields."""

    @property
    def setting(self) -> str:
        """The setting that names the field."""

    def names(self, batch: pa.RecordBatch, rows: pa.RecordBatch | None) -> Any:
        """The directory of each record of a batch; ``rows`` has the fields of the values.

        Raises:
            ValueError: A record has no such field, or its value cannot name a directory.
        """


def column_of(level: Level, batch: pa.RecordBatch, rows: pa.RecordBatch | None) -> Any:
    """The values of a level's field.

    Raises:
        ValueError: The records do not have it.
    """
    found = None if rows is None or level.field is None else _column(rows, level.field)
    if found is not None:
        return found
    names = "none" if rows is None else ", ".join(rows.schema.names) or "none"
    raise ValueError(
        f"{level.setting} names the field {level.field!r}, which records of topic "
        f"{batch.column(TOPIC)[0]} do not have; they have {names}"
    )


def _column(rows: pa.RecordBatch, name: str) -> Any:
    """The values of a field, or of a nested field; None if there is no such field."""
    if name in rows.schema.names:
        return rows.column(name)
    first, *others = name.split(".")
    if first not in rows.schema.names:
        return None
    values = rows.column(first)
    for each in others:
        if not pa.types.is_struct(values.type) or values.type.get_field_index(each) < 0:
            return None
        values = pc.struct_field(values, each)
    return values


def shown(value: Any) -> str:
    """A value for a message, shortened."""
    try:
        text = repr(value.as_py() if isinstance(value, pa.Scalar) else value)
    except (OverflowError, ValueError):  # Python has no such time
        number = getattr(value, "value", None)
        text = f"{value.type}" if number is None else f"{number} ({value.type})"
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _level_names(by: PartitionBy, values: Any) -> Any:
    if by.unit is not None:
        texts = _time_texts(by, values)
    elif pa.types.is_nested(values.type) or is_binary(values.type):
        first = values.drop_null()
        value = f" (its value is {shown(first[0])})" if len(first) else ""
        raise ValueError(f"partition.by names {by.field!r}, which is of type {values.type}{value}")
    else:
        texts = values.cast(pa.string())
    encoded = texts.dictionary_encode()
    found = encoded.dictionary.to_pylist()
    if by.unit is None and "." not in by.name:  # the files have no such field
        for text in found:
            if text in ("", NULL_DIRECTORY):
                raise ValueError(
                    f"partition.by names {by.name!r}, whose value {text!r} cannot name a directory:"
                    " it would be read as null; choose another field"
                )
    names = [_directory_name(by.name, text) for text in found]
    null_name = f"{quote(by.name)}={NULL_DIRECTORY}"
    return pa.array(names, pa.string()).take(encoded.indices).fill_null(null_name)


def _directory_name(name: str, text: str) -> str:
    directory = f"{quote(name, safe=' ')}={quote(text, safe=' :,;@!()') or NULL_DIRECTORY}"
    if len(directory.encode()) > _DIRECTORY_MAX_BYTES:
        raise ValueError(
            f"partition.by names {name!r}, whose value {text[:40]!r}… is too long for the name of "
            "a directory: choose another field"
        )
    return directory


def _time_texts(by: PartitionBy, values: Any) -> Any:
    assert by.unit is not None
    kind = values.type
    if pa.types.is_date(kind):
        values = values.cast(pa.date32()).cast(pa.timestamp("ms"))
    elif pa.types.is_int64(kind) or pa.types.is_null(kind):
        values = values.cast(pa.timestamp("ms"))
    elif is_text(kind):
        try:
            values = parsed_times(values.cast(pa.string()))
        except pa.ArrowInvalid as error:
            raise _no_time(by, values) from error
    elif not pa.types.is_timestamp(kind):
        raise _no_time(by, values)
    check_years(values, by.field or "the record's timestamp")
    texts = iso_texts(values)
    return pc.utf8_slice_codeunits(texts, 0, _TIME_CHARS[by.unit])


def _no_time(by: PartitionBy, values: Any) -> ValueError:
    present = values.drop_null()
    value = shown(present[0]) if len(present) else "null"
    return ValueError(
        f"partition.by needs a time in {by.field!r}, which is of type {values.type} and has the "
        f"value {value}: convert it with TimestampConverter"
    )
