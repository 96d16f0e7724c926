"""Directory levels of Confluent's connectors: topics, partitions, fields and times."""

import re
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from drover.connector.records import PARTITION, TIMESTAMP, TOPIC, is_binary, is_text
from drover.connectors.files.partition_levels import NULL_DIRECTORY, Level, column_of, shown
from drover.connectors.files.storage.write_access import component_fault
from drover.connectors.files.times import (
    check_years,
    floored,
    floored_ms,
    local_ms,
    parsed_times,
)

#: Pattern letters of path.format, and their strftime codes.
_LETTERS = {
    "yyyy": "%Y",
    "YYYY": "%Y",
    "yy": "%y",
    "YY": "%y",
    "MM": "%m",
    "dd": "%d",
    "DDD": "%j",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
}
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")


@dataclass(frozen=True, slots=True)
class TopicLevel:
    """A directory per topic."""

    field: None = None
    setting: str = "partitioner.class"

    def names(self, batch: pa.RecordBatch, rows: pa.RecordBatch | None) -> Any:
        """See ``Level``."""
        topics = batch.column(TOPIC).cast(pa.string())
        for each in topics.unique().to_pylist():
            fault = component_fault(each or "")
            if fault is not None:
                raise ValueError(
                    f"its topic {each!r}, as the transforms name it, cannot name a directory: it "
                    f"{fault}: rename it with RegexRouter"
                )
        return topics


@dataclass(frozen=True, slots=True)
class PartitionLevel:
    """A directory ``partition=3`` per partition of a topic."""

    field: None = None
    setting: str = "partitioner.class"

    def names(self, batch: pa.RecordBatch, rows: pa.RecordBatch | None) -> Any:
        """See ``Level``."""
        numbers = batch.column(PARTITION).cast(pa.string())
        return pc.binary_join_element_wise("partition=", numbers, "")


@dataclass(frozen=True, slots=True)
class TimeLevels:
    """Directories by time: the record's timestamp, a field of its value, or the wall clock.

    ``format`` is a strftime format; times are rounded down to ``duration_ms`` in the local time of
    ``timezone``, as Confluent's TimeBasedPartitioner does; 0 does not round.
    """

    format: str
    timezone: str
    field: str | None = None
    duration_ms: int = 0
    wallclock: bool = False

    @property
    def setting(self) -> str:
        """See ``Level``."""
        return "timestamp.field"

    def names(self, batch: pa.RecordBatch, rows: pa.RecordBatch | None) -> Any:
        """See ``Level``."""
        if self.wallclock:
            moments = pa.array([int(time.time() * 1000)] * batch.num_rows, pa.int64())
        elif self.field is None:
            moments = floored_ms(batch.column(TIMESTAMP))
        else:
            values = column_of(self, batch, rows)
            _check_present(self, values)
            moments = self._millis(values)
        check_years(moments.cast(pa.timestamp("ms")), self.field or "the record's timestamp")
        local = local_ms(moments, self.timezone, rounded_to_ms=self.duration_ms)
        seconds = floored(local, 1000).cast(pa.timestamp("s"))
        return pc.strftime(seconds, format=self.format).fill_null(NULL_DIRECTORY)

    def _millis(self, values: Any) -> Any:
        kind = values.type
        if is_text(kind):
            values = self._parsed(values.cast(pa.string()))
        elif pa.types.is_date(kind):
            values = values.cast(pa.timestamp("ms"))
        elif pa.types.is_integer(kind):
            return values.cast(pa.int64())
        elif pa.types.is_null(kind):
            return pa.nulls(len(values), pa.int64())
        elif not pa.types.is_timestamp(kind):
            raise ValueError(
                f"timestamp.field names {self.field!r}, which has the value {shown(values[0])} and "
                f"is of type {kind}: it must be a time, milliseconds, or ISO 8601 text"
            )
        return floored_ms(values)

    def _parsed(self, texts: Any) -> Any:
        try:
            return parsed_times(texts)
        except pa.ArrowInvalid as error:
            raise ValueError(
                f"timestamp.field names {self.field!r}, but its texts are not ISO 8601 times, such "
                f"as {shown(texts[0])}"
            ) from error


@dataclass(frozen=True, slots=True)
class FieldLevel:
    """A directory ``city=Oslo`` per value of a field; the field stays in the files."""

    field: str

    @property
    def setting(self) -> str:
        """See ``Level``."""
        return "partition.field.name"

    def names(self, batch: pa.RecordBatch, rows: pa.RecordBatch | None) -> Any:
        """See ``Level``."""
        values = column_of(self, batch, rows)
        _check_present(self, values)
        if pa.types.is_nested(values.type) or is_binary(values.type):
            raise ValueError(
                f"partition.field.name names {self.field!r} of the unsupported type {values.type}: "
                f"its value is {shown(values[0])}"
            )
        encoded = values.cast(pa.string()).dictionary_encode()
        names = [
            f"{self.field}={quote(text, safe=' :,;@!()')}"
            for text in encoded.dictionary.to_pylist()
        ]
        return pa.array(names, pa.string()).take(encoded.indices)


def _check_present(level: FieldLevel | TimeLevels, values: Any) -> None:
    if values.null_count:
        raise ValueError(
            f"its field {level.field!r} ({level.setting}) is null, so it has no directory"
        )


def strftime_of(pattern: str) -> str:
    """Convert a ``path.format`` such as ``'year'=YYYY/'month'=MM`` to a strftime format.

    Raises:
        ValueError: It has unsupported letters, or an open quote.
    """
    result, end = [], 0
    for match in _TOKEN.finditer(pattern):
        if match.start() != end:
            break
        end = match.end()
        quoted, letter = match[1], match[2]
        if quoted is not None:
            result.append((quoted.replace("''", "'") or "'").replace("%", "%%"))
        elif letter is not None:
            if match[0] not in _LETTERS:
                known = ", ".join(_LETTERS)
                raise ValueError(f"has {match[0]!r}: must be one of {known}")
            result.append(_LETTERS[match[0]])
        else:
            result.append(match[0].replace("%", "%%"))
    if end != len(pattern):
        raise ValueError(f"has an unterminated quote: {pattern[end:][:40]!r}")
    return "".join(result)


__all__ = ["FieldLevel", "Level", "PartitionLevel", "TimeLevels", "TopicLevel", "strftime_of"]
